"""The client keeps fewer tasks in flight than there are threads."""

from __future__ import annotations

from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.evidence.submission_loop import loop, loop_evidence, unwanted_s
from scalescope.diagnosis.evidence.task_table import most_common_prefix
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model.finding import Evidence, Finding
from scalescope.model.words import percent, plural

FEW_TASKS_IN_FLIGHT = TrialCause(
    code="few-tasks-in-flight",
    title="The client keeps too few tasks in flight",
    needs="The client sent at least 3 graphs one after another, and had fewer tasks in flight than there are "
    "threads. It sent 90 % of them right after a task ended (within a fifth of the time between ends).",
    ruled_out_by="The client waited until all tasks had ended (results-awaited-in-loop), or sent at its own pace "
    "(slow-submission). All threads were in use.",
    remedy="Submit at least twice as many tasks as there are threads before the loop that waits for one and sends one",
    link="https://docs.dask.org/en/stable/futures.html#waiting-on-futures",
    parts=("no_runnable_task",),
)


@FEW_TASKS_IN_FLIGHT.finds
def few_tasks_in_flight(observation: Observation) -> Finding | None:
    """`lost_s`: threads idle while no task waited, from the first graph's arrival to the last's."""
    found = loop(observation)
    if found is None or not 0 < found.window < observation.threads:
        return None
    lost_s = unwanted_s(observation, found.begin, found.end)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    prefix, enough = most_common_prefix(observation), 2 * observation.threads
    return FEW_TASKS_IN_FLIGHT.finding(
        observation,
        lost_s,
        f"The client keeps {plural(found.window, 'task')} (`{prefix}`) in flight for "
        f"{plural(observation.threads, 'thread')} and sends more when one has ended, so that {percent(share)} of the "
        "worker time was idle.",
        f"submit {enough:,} `{prefix}` before the loop over `as_completed` that adds one for each that ends, or all at "
        "once where no result decides what comes next",
        Evidence("tasks in flight after each graph, median", found.window, "tables graphs and tasks"),
        *loop_evidence(found, lost_s),
        confidence=0.85,
    )
