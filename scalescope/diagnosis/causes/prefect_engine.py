"""Prefect costs time around the functions of a flow's tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.causes.client import client_busy
from scalescope.diagnosis.causes.large_graph import large_graph
from scalescope.diagnosis.causes.serialisation_bound import serialisation_bound
from scalescope.diagnosis.causes.submission_pace import slow_submission
from scalescope.diagnosis.evidence.prefect_tasks import PrefectSeconds, prefect_seconds, sent_per_second
from scalescope.diagnosis.evidence.submissions import heavy, largest_part, submissions
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.words import number, percent, plural

# Ratio of Prefect's time to the functions' time from which longer functions save all of it; below, only hashing and
# writing results is saved. On a busy host, Prefect takes 0.5 s per task.
TIMES = 2.0
MOSTLY = 0.5  # least share of Prefect's time for a part to be named, and of heavy graphs, for calls to carry data

# Causes that take precedence in flows whose calls carry data
OF_LARGE_CALLS = (large_graph, serialisation_bound, slow_submission, client_busy)

PREFECT_SERVER = TrialCause(
    code="prefect-server-in-workers",
    title="Each worker starts a Prefect server",
    needs="For at least 10 % of the worker time, tasks of a Prefect flow waited until a temporary Prefect server had "
    "started in the process of the worker, which recorded it.",
    ruled_out_by="One server for all workers (`PREFECT_API_URL` is set). Time that Prefect needs although it has a "
    "server (prefect-overhead).",
    remedy="Start one server and set `PREFECT_API_URL` for the flow and for all workers",
    link="https://docs.prefect.io/v3/concepts/server",
    parts=("busy",),
    changes=(Term.WORK, Term.SPAN),
    rules_out=("straggler", "skewed-tasks", "slow-worker"),
    premise="The workers recorded the servers that they started.",
)


@PREFECT_SERVER.finds
def prefect_server_in_workers(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds that tasks waited for temporary Prefect servers to start."""
    found = prefect_seconds(observation).values()
    lost_s, servers = sum(each.server for each in found), sum(each.servers for each in found)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    starts = (
        "1 worker process started a Prefect server"
        if servers == 1
        else (f"Each of {servers:,} worker processes started a Prefect server")
    )
    return PREFECT_SERVER.finding(
        observation,
        lost_s,
        f"{starts} of its own within a task, which took {words.duration(lost_s / servers)} each time: "
        f"{percent(share)} of the worker time.",
        "start one server (`prefect server start`) and set `PREFECT_API_URL=http://HOST:4200/api` for the flow and for "
        "all workers, for example with `prefect config set` or in the environment of the cluster",
        Evidence("temporary servers that workers started", servers, "table events, topic waits"),
        Evidence("thread-seconds until servers had started", round(lost_s, 3), "table events, topic waits"),
        confidence=0.95,
    )


PREFECT_OVERHEAD = TrialCause(
    code="prefect-overhead",
    title="Prefect takes time around the tasks",
    needs="At least 10 % of the worker time passed within tasks of a Prefect flow while Prefect hashed inputs or wrote "
    "results. The time of its engine counts, too, if all three together took over twice as long as the functions.",
    ruled_out_by="Functions that take longer than Prefect's engine around them. Servers that workers start "
    "(prefect-server-in-workers). Extra time of only the first tasks of each worker, while its process imports "
    "Prefect. Retries (retried-tasks) and limits (waiting-tasks), which are counted apart. Calls that carry data, if "
    "these cost more (large-graph, serialisation-bound, slow-submission, client-busy).",
    remedy="Give each task more to do, and let Prefect neither write results nor hash inputs that nobody looks up "
    "(`persist_result=False`, `cache_policy=NO_CACHE`)",
    link="https://docs.prefect.io/v3/concepts/tasks",
    parts=("busy",),
    changes=(Term.WORK, Term.SPAN),
    rules_out=("tiny-tasks",),
    premise="Prefect's own time is recorded for each task, apart from its function.",
)


@PREFECT_OVERHEAD.finds
def prefect_overhead(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds around the functions of Prefect tasks that can be saved (`_avoidable_s`)."""
    found = [each for each in prefect_seconds(observation).values() if each.tasks]
    sent = submissions(observation)
    carries_data = bool(heavy(sent).sum() > MOSTLY * len(sent.time))
    if not found or (carries_data and _other_cause(observation)):
        return None
    if carries_data:  # first tasks also unpack the data of their calls, so their extra time is no one-time cost
        found = [replace(each, engine=each.engine + each.first, first=0.0) for each in found]
    lost_s = sum(map(_avoidable_s, found))
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return _once(observation, found)
    worst = max(found, key=_avoidable_s)
    around, within = _avoidable_s(worst) / worst.tasks, worst.function / worst.tasks
    did, remedy = (
        "around the function",
        (
            f"give each task more to do: `{worst.prefix}.map(batches)` with a list of items for each task; pass it "
            "little (a path rather than the data), since Prefect looks through all inputs; steps that Prefect need not "
            "show can be plain function calls inside one task"
        ),
    )
    if carries_data:
        did = "to look through and hash what the call carries"
        remedy = f"pass `{worst.prefix}` less: load large objects within the task, or pass paths instead"
    elif worst.persist > MOSTLY * _avoidable_s(worst):
        did = "to write the result"
        remedy = f"use `@task(persist_result=False)` for `{worst.prefix}`, or return less (such as a file's path)"
    elif worst.hash > MOSTLY * _avoidable_s(worst):
        did = "to hash the inputs for the key of the cache"
        remedy = f"use `@task(cache_policy=NO_CACHE)` for `{worst.prefix}`, or pass it less (such as a file's path)"
    return PREFECT_OVERHEAD.finding(
        observation,
        lost_s,
        f"Prefect needed {words.duration(around)} {did} for each of {plural(worst.tasks, 'task')} (`{worst.prefix}`), "
        f"whose function takes {words.duration(within)}: {percent(share)} of the worker time."
        + (f" The flow sends {number(rate, 2)} tasks a second." if (rate := sent_per_second(observation)) else "")
        + (largest_part(observation) if carries_data else ""),
        Remedy(
            remedy,
            # each thread still pays for one task
            saved_s=max(lost_s / observation.threads - around, 0.0),
            shorter_s=max(lost_s - observation.threads * around, 0.0),
        ),
        Evidence("thread-seconds in Prefect's engine", round(worst.engine, 3), f"prefix {worst.prefix}"),
        Evidence("tasks that the flow sends in a second", round(rate, 2), "table graphs"),
        Evidence("seconds of requests to the Prefect server for each task", round(worst.api / worst.tasks, 4), "waits"),
        Evidence("thread-seconds hashing inputs", round(worst.hash, 3), f"prefix {worst.prefix}"),
        Evidence("thread-seconds writing results", round(worst.persist, 3), f"prefix {worst.prefix}"),
        Evidence("thread-seconds in the function", round(worst.function, 3), f"prefix {worst.prefix}"),
        confidence=0.9,
    )


def _once(observation: Observation, found: Sequence[PrefectSeconds]) -> Finding | None:
    lost_s = sum(each.first for each in found)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    workers = max(each.firsts for each in found)
    finding = PREFECT_OVERHEAD.finding(
        observation,
        lost_s,
        f"The first tasks on {plural(workers, 'worker')} took {words.duration(lost_s / workers)} per worker longer "
        f"than later tasks, since each process imports Prefect first: {percent(share)} of the worker time.",
        "nothing has to be done: this time does not grow with the flow",
        Evidence("extra thread-seconds of first tasks", round(lost_s, 3), "table tasks"),
        confidence=0.8,
    )
    return replace(finding, severity=Severity.INFO, gain=None)


def _avoidable_s(each: PrefectSeconds) -> float:
    """Seconds around the functions of a prefix that can be saved: all of them, if the functions are much shorter."""
    return each.around if each.around > TIMES * each.function else each.persist + each.hash


def _other_cause(observation: Observation) -> bool:
    others = (find(observation) for find in OF_LARGE_CALLS)
    return any(other is not None and other.severity is not Severity.INFO for other in others)
