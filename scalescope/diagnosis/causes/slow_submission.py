"""Tasks are sent one by one, too slowly."""

from __future__ import annotations

from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.evidence.submission_loop import loop, loop_evidence, packing, tasks_per_graph, unwanted_s
from scalescope.diagnosis.evidence.task_table import most_common_prefix
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding
from scalescope.model.words import percent, plural

SLOW_SUBMISSION = TrialCause(
    code="slow-submission",
    title="Tasks sent too slowly",
    needs="At least 3 graphs arrived one after another. Typically (median), fewer tasks were in flight than there "
    "are threads, and threads were idle with no task waiting.",
    ruled_out_by="The client sent faster than the threads could work (tasks waited). It waited for each result "
    "(results-awaited-in-loop), or sent one task when one ended (few-tasks-in-flight). It packed data with each "
    "graph (large-graph, serialisation-bound). Threads were idle only after the last graph.",
    remedy="Use `client.map` instead of `client.submit` in a loop; prepare inputs in tasks",
    link="https://docs.dask.org/en/stable/futures.html",
    parts=("no_runnable_task", "client"),
)


@SLOW_SUBMISSION.finds
def slow_submission(observation: Observation) -> Finding | None:
    """`lost_s`: threads idle while no task waited, from the first graph's arrival to the last's."""
    found = loop(observation)
    if found is None or found.waits or found.window or packing(observation) is not None:
        return None
    attempts = observation.measured
    lost_s = unwanted_s(observation, found.begin, found.end)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    prefix, window = most_common_prefix(observation), max(found.end - found.begin, 1e-9)
    mean_s = float((attempts.stop - attempts.start).mean())
    rate, needed = found.tasks / window, observation.threads / max(mean_s, 1e-9)
    each = tasks_per_graph(found)
    return SLOW_SUBMISSION.finding(
        observation,
        lost_s,
        f"The client sent {found.graphs:,} graphs of {each} (`{prefix}`) one after another, {rate:,.3g} "
        f"tasks per second. {plural(observation.threads, 'thread')} could take {needed:,.3g} per second "
        f"({words.duration(mean_s)} a task), so {percent(share)} of the worker time was idle.",
        f"send all at once with `client.map({prefix}, items)` (or one `dask.compute`), and move what the client "
        f"computes between two calls ({words.duration(found.round_s)}) into the tasks",
        *loop_evidence(found, lost_s),
        Evidence("tasks sent per second", round(rate, 3), "table graphs"),
        Evidence("tasks per second that the threads could take", round(needed, 3), "threads by mean duration"),
        confidence=0.7,
    )
