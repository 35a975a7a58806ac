"""Tasks carry large objects, which are packed and unpacked."""

from __future__ import annotations

import numpy as np

from scalescope.analysis.attempts import Ints, ordered
from scalescope.diagnosis.cause import NOTEWORTHY, Term, severity_of
from scalescope.diagnosis.causes.transfer_bound import FELT_S
from scalescope.diagnosis.evidence.client_time import BEFORE, BETWEEN, client_time
from scalescope.diagnosis.evidence.submission_loop import loop, packing
from scalescope.diagnosis.evidence.submissions import (
    LARGE_BYTES,
    SCATTER,
    heaviest_graph,
    heavy,
    large,
    large_at,
    largest_part,
    sending_once_s,
    submissions,
)
from scalescope.diagnosis.evidence.task_table import largest_prefix, worker_of_rows
from scalescope.diagnosis.evidence.timeline import by_thread, handed_over
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.words import percent, plural

ONE_OFF = 0.7  # least share of the handing-over time in workers' first tasks, for imports to be the reason
IMPORT_S = 0.25  # least mean seconds to hand over a thread's first task, for an import to be the reason
IMPORTS = 0.2  # least share of worker time spent on imports that a finding mentions
PRELOAD = (
    "import the modules of the tasks when workers start (`distributed.worker.preload`, `--preload MODULE`), or measure "
    "with `warmups: 1`"
)

SERIALISATION_BOUND = TrialCause(
    code="serialisation-bound",
    title="Tasks carry large objects",
    needs="At least 10 % of the worker time went to unpacking tasks (part `serialisation`). Or, if distributed does "
    "not report that part, a graph carried data (100 kB more than 200 bytes a task, at least 1 kB a task, and at "
    "least 10 kB a task or 1 MB in all; or data that all calls share), and threads were idle while the client packed "
    "calls of 100 kB each, or for 20 ms per task from hand-over to start.",
    ruled_out_by="Only the first tasks of each worker were slow: they import modules, which is reported with low "
    "severity. A light graph whose tasks start late: see event-loop-blocked or tiny-tasks.",
    remedy="Load the objects inside tasks, or scatter them once and pass the future",
    link="https://docs.dask.org/en/stable/best-practices.html#load-data-with-dask",
    parts=("serialisation", "not_assigned", "no_runnable_task", "client"),
    by_times=True,
    changes=(Term.CLIENT,),
    rules_out=("event-loop-blocked", "tiny-tasks"),
    premise="The seconds of packing, and the bytes packed, are recorded.",
)


@SERIALISATION_BOUND.finds
def serialisation_bound(observation: Observation) -> Finding | None:
    """`lost_s`: part `serialisation`; or thread-seconds idle while client or workers handle the next task's data."""
    if observation.noteworthy("serialisation"):
        return _unpacking(observation)
    return _heavy_tasks(observation) or _first_tasks(observation)


def _unpacking(observation: Observation) -> Finding | None:
    attempts, share = observation.measured, observation.share("serialisation")
    unpacking = attempts.deserialize > 0
    each, tasks = float(attempts.deserialize[unpacking].mean()), int(unpacking.sum())
    if each < FELT_S:
        return None
    prefix, part = largest_prefix(attempts.deserialize, observation)
    once = float(attempts.deserialize[_first_on_worker(observation)].sum() / attempts.deserialize.sum())
    imports = once >= ONE_OFF and tasks > len(np.unique(attempts.worker[unpacking]))
    remedy = Remedy(PRELOAD) if imports else _heavy_remedy(observation, prefix)
    what = (
        "most of it for the first task of each worker, which imports its modules"
        if imports
        else (f"{percent(part)} of it for `{prefix}`")
    )
    return SERIALISATION_BOUND.finding(
        observation,
        observation.seconds("serialisation"),
        f"{percent(share)} of the worker time was spent unpacking tasks, {what}: {words.duration(each)} for each of "
        f"{plural(tasks, 'task')}." + ("" if imports else largest_part(observation)),
        remedy,
        Evidence("thread-seconds of unpacking", round(observation.seconds("serialisation"), 3), "worker time"),
        Evidence("seconds of unpacking for each task", round(each, 4), "table tasks, column deserialize"),
        Evidence("share of unpacking in the first task of each worker", round(once, 3), "table tasks"),
        confidence=0.9,
        severity=Severity.LOW if imports else severity_of(share),
        place=None if imports else large_at(observation),
    )


def _first_on_worker(observation: Observation) -> Ints:
    attempts = observation.measured
    order = ordered(attempts.worker, attempts.start)
    first: Ints = order[np.flatnonzero(np.diff(attempts.worker[order], prepend=-1))]
    return first


def _heavy_tasks(observation: Observation) -> Finding | None:
    heaviest, packed_s = heaviest_graph(observation), _packed_s(observation)
    if not heaviest or not (packed_s or observation.noteworthy("not_assigned")):
        return None
    waited = handed_over(observation)
    lost_s = packed_s + min(float(waited.sum()), observation.seconds("not_assigned"))
    each = (packed_s + float(waited.sum())) / len(waited)
    share = observation.share_of(lost_s)
    if share < NOTEWORTHY or each < 0.02:  # mean seconds to hand over a task, from which its content is the reason
        return None
    prefix, part = largest_prefix(waited, observation)
    stall = observation.numbers("lag", "seconds")
    return SERIALISATION_BOUND.finding(
        observation,
        lost_s,
        f"{percent(share)} of the worker time passes "
        + ("while the client packs calls and " if packed_s else "")
        + f"between handing a task to a worker and the start of the task, {words.duration(each)} for each of "
        f"{plural(len(waited), 'task')}, mostly `{prefix}`: the data in their arguments is packed and unpacked each "
        f"time (graph of {words.size(heaviest)})." + largest_part(observation),
        _heavy_remedy(observation, prefix),
        Evidence("thread-seconds from hand-over to start", round(lost_s, 3), "table tasks, assigned to start"),
        Evidence("seconds of packing and hand-over for each task", round(each, 4), "table tasks"),
        Evidence(f"share of `{prefix}` in the hand-over time", round(part, 3), "table tasks"),
        Evidence("bytes of the largest graph", int(heaviest), "table graphs"),
        Evidence("longest stall of an event loop, s", round(float(stall.max(initial=0.0)), 3), "table lag"),
        confidence=0.7,
        place=large_at(observation),
    )


def _first_tasks(observation: Observation) -> Finding | None:
    """Only the first task of each thread waited: its modules are imported as it is unpacked."""
    if observation.share("not_assigned") < IMPORTS:
        return None
    waited, (order, again) = handed_over(observation), by_thread(observation)
    first = order[~again]
    once_s = float(waited[first].sum())
    lost_s = min(once_s, observation.seconds("not_assigned"))
    stall = observation.numbers("lag", "seconds")
    stall = stall[(worker_of_rows(observation, "lag", "process") == -1) & (stall >= IMPORT_S)]
    if (
        (share := observation.share_of(lost_s)) < IMPORTS
        or (each := once_s / len(first)) < max(IMPORT_S, 2 * stall.sum())
        or once_s < ONE_OFF * waited.sum()
        or len(waited) == len(first)
    ):
        return None
    return SERIALISATION_BOUND.finding(
        observation,
        lost_s,
        f"{percent(share)} of the worker time passed before the first task of each thread began, "
        f"{words.duration(each)} after it reached its worker; later tasks began at once: workers first import modules.",
        PRELOAD,
        Evidence("thread-seconds from hand-over to start of first tasks", round(once_s, 3), "table tasks"),
        Evidence("seconds to hand over the first task of a thread", round(each, 4), "table tasks, assigned to start"),
        Evidence("thread-seconds to hand over all later tasks", round(float(waited.sum()) - once_s, 3), "table tasks"),
        confidence=0.7,
        severity=Severity.LOW,
    )


def _packed_s(observation: Observation) -> float:
    """Thread-seconds idle while the client packs calls that carry data, without large graphs."""
    sent, packed = submissions(observation), packing(observation)
    in_loop = packed.idle_s if packed is not None and packed.nbytes < LARGE_BYTES else 0.0
    if not (heavy(sent) & ~large(sent)).any():
        return in_loop
    free = client_time(observation)
    phases = [BEFORE] if loop(observation) else [BEFORE, BETWEEN]
    return in_loop + float(free.seconds[free.sends & ~free.waits][:, phases].sum())


def _heavy_remedy(observation: Observation, prefix: str) -> Remedy:
    return Remedy(
        f"keep large objects out of the calls of `{prefix}`: load them inside a task (`dask.delayed(load)(path)`), or "
        + SCATTER,
        remains_s=sending_once_s(observation),
    )
