"""Causes of lost worker time: their table, and the search for them in a trial (docs/adding-a-cause.md)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

from scalescope.diagnosis.cause import Cause
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model.finding import Finding, Severity
from scalescope.model.plugins import Table

_logger = logging.getLogger(__name__)

SEEN_IN_A_TRIAL = {
    "results-awaited-in-loop": "scalescope.diagnosis.causes.submission_pace:RESULTS_AWAITED_IN_LOOP",
    "slow-submission": "scalescope.diagnosis.causes.submission_pace:SLOW_SUBMISSION",
    "few-tasks-in-flight": "scalescope.diagnosis.causes.submission_pace:FEW_TASKS_IN_FLIGHT",
    "large-graph": "scalescope.diagnosis.causes.large_graph:LARGE_GRAPH",
    "nested-client": "scalescope.diagnosis.causes.nested_client:NESTED_CLIENT",
    "client-busy": "scalescope.diagnosis.causes.client:CLIENT_BUSY",
    "client-waits": "scalescope.diagnosis.causes.client:CLIENT_WAITS",
    "local-scheduler": "scalescope.diagnosis.causes.local_scheduler:LOCAL_SCHEDULER",
    "cluster-in-each-round": "scalescope.diagnosis.causes.cluster_in_each_round:CLUSTER_IN_EACH_ROUND",
    "worker-killing-task": "scalescope.diagnosis.causes.worker_killing_task:WORKER_KILLING_TASK",
    "worker-died": "scalescope.diagnosis.causes.worker_losses:WORKER_DIED",
    "workers-missing": "scalescope.diagnosis.causes.worker_losses:WORKERS_MISSING",
    "transfer-bound": "scalescope.diagnosis.causes.transfer_bound:TRANSFER_BOUND",
    "serialisation-bound": "scalescope.diagnosis.causes.serialisation_bound:SERIALISATION_BOUND",
    "memory-spill": "scalescope.diagnosis.causes.memory:MEMORY_SPILL",
    "memory-paused": "scalescope.diagnosis.causes.memory:MEMORY_PAUSED",
    "garbage-collection": "scalescope.diagnosis.causes.garbage_collection:GARBAGE_COLLECTION",
    "meta-computed": "scalescope.diagnosis.causes.meta_computed:META_COMPUTED",
    "recomputation": "scalescope.diagnosis.causes.recomputation:RECOMPUTATION",
    "gil-bound": "scalescope.diagnosis.causes.gil_bound:GIL_BOUND",
    "event-loop-blocked": "scalescope.diagnosis.causes.event_loop_blocked:EVENT_LOOP_BLOCKED",
    "oversubscribed-threads": "scalescope.diagnosis.causes.cores:OVERSUBSCRIBED_THREADS",
    "undersubscribed-threads": "scalescope.diagnosis.causes.cores:UNDERSUBSCRIBED_THREADS",
    "host-overloaded": "scalescope.diagnosis.causes.cores:HOST_OVERLOADED",
    "worker-restriction": "scalescope.diagnosis.causes.worker_restriction:WORKER_RESTRICTION",
    "adaptive-scaling": "scalescope.diagnosis.causes.adaptive_scaling:ADAPTIVE_SCALING",
    "scaled-down": "scalescope.diagnosis.causes.adaptive_scaling:SCALED_DOWN",
    "late-workers": "scalescope.diagnosis.causes.placement:LATE_WORKERS",
    "data-locality": "scalescope.diagnosis.causes.placement:DATA_LOCALITY",
    "retried-tasks": "scalescope.diagnosis.causes.retried_tasks:RETRIED_TASKS",
    "narrow-stage": "scalescope.diagnosis.causes.narrow_stage:NARROW_STAGE",
    "straggler": "scalescope.diagnosis.causes.uneven_durations:STRAGGLER",
    "skewed-tasks": "scalescope.diagnosis.causes.uneven_durations:SKEWED_TASKS",
    "slow-worker": "scalescope.diagnosis.causes.slow_worker:SLOW_WORKER",
    "tiny-tasks": "scalescope.diagnosis.causes.tiny_tasks:TINY_TASKS",
    "gpu-starved": "scalescope.diagnosis.causes.gpu_use:GPU_STARVED",
    "gpu-contended": "scalescope.diagnosis.causes.gpu_use:GPU_CONTENDED",
    "gpu-unused": "scalescope.diagnosis.causes.gpu_use:GPU_UNUSED",
    "gpu-missing": "scalescope.diagnosis.causes.gpu_faults:GPU_MISSING",
    "gpu-memory-full": "scalescope.diagnosis.causes.gpu_faults:GPU_MEMORY_FULL",
    "gpu-slow": "scalescope.diagnosis.causes.gpu_faults:GPU_SLOW",
    "lock-bound": "scalescope.diagnosis.causes.lock_bound:LOCK_BOUND",
    "task-overhead": "scalescope.diagnosis.causes.task_overhead:TASK_OVERHEAD",
    "unfinished-tasks": "scalescope.diagnosis.causes.unfinished_tasks:UNFINISHED_TASKS",
    "prefect-server-in-workers": "scalescope.diagnosis.causes.prefect_engine:PREFECT_SERVER",
    "prefect-overhead": "scalescope.diagnosis.causes.prefect_engine:PREFECT_OVERHEAD",
    "waiting-tasks": "scalescope.diagnosis.causes.waiting_tasks:WAITING_TASKS",
}
SEEN_IN_A_SWEEP = {
    "experiments": "scalescope.diagnosis.causes.experiments:EXPERIMENTS",
    "work-inflation": "scalescope.diagnosis.causes.work_inflation:WORK_INFLATION",
    "too-few-partitions": "scalescope.diagnosis.causes.too_few_partitions:TOO_FEW_PARTITIONS",
    "fewer-items-than-workers": "scalescope.diagnosis.causes.graph_shape:FEWER_ITEMS_THAN_WORKERS",
    "sequential-graph": "scalescope.diagnosis.causes.graph_shape:SEQUENTIAL_GRAPH",
    "uneven-waves": "scalescope.diagnosis.causes.graph_shape:UNEVEN_WAVES",
    "idle-workers-cause-unknown": "scalescope.diagnosis.causes.no_known_cause:UNKNOWN",
    "too-short": "scalescope.diagnosis.causes.no_known_cause:TOO_SHORT",
    "healthy": "scalescope.diagnosis.causes.no_known_cause:HEALTHY",
    "nothing-measured": "scalescope.diagnosis.causes.trial_states:NOTHING_MEASURED",
    "failed-trials": "scalescope.diagnosis.causes.trial_states:FAILED_TRIALS",
    "invalid-trials": "scalescope.diagnosis.causes.trial_states:INVALID_TRIALS",
}


def _row(name: str, reference: str, found: object) -> Cause[Any]:
    if not isinstance(found, Cause) or found.code != name:
        raise TypeError(f"expected a TrialCause or SweepCause whose `code` is {name}")
    looks = found.find

    def find(looked: Any) -> Finding | None:
        try:
            return looks(looked)
        except Exception as error:  # noqa: BLE001 - the code of others must not cost the findings of our own
            _logger.warning(
                "skipped the cause %s (%s), whose check failed: %s: %s", name, reference, type(error).__name__, error
            )
            return None

    found.find = find
    return found


CAUSES: Table[Cause[Any]] = Table("scalescope.causes", SEEN_IN_A_TRIAL | SEEN_IN_A_SWEEP, _row)


@cache
def by_code() -> Mapping[str, Cause[Any]]:
    return dict(CAUSES.items())


@cache
def of_trials() -> tuple[TrialCause, ...]:
    return tuple(cause for cause in by_code().values() if isinstance(cause, TrialCause))


@cache
def of_sweeps() -> tuple[Cause[Any], ...]:
    """Causes that only a comparison of the points of a sweep shows (each is a `SweepCause`)."""
    return tuple(cause for cause in by_code().values() if not isinstance(cause, TrialCause))


def find(observation: Observation) -> tuple[Finding, ...]:
    """All findings of one trial, the worst first: by severity, then by worker time lost, then by confidence."""
    found = {cause: finding for cause in of_trials() if (finding := cause.look(observation)) is not None}
    faults = [cause for cause, finding in found.items() if finding.severity is not Severity.INFO]
    ruled_out = {code for cause in faults for code in cause.rules_out}
    return tuple(sorted((each for each in found.values() if each.code not in ruled_out), key=Finding.rank))
