"""Workers search their Python objects for garbage."""

from __future__ import annotations

import numpy as np

from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.evidence.host_cpu import running
from scalescope.diagnosis.evidence.inside_tasks import PICKLE, overheads, same_call
from scalescope.diagnosis.evidence.task_table import largest_prefix, worker_of_rows
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding
from scalescope.model.words import percent, plural

LOADED = 0.5  # least ratio of loading time to collection time, for loading to be the cause (task-overhead)

GARBAGE_COLLECTION = TrialCause(
    code="garbage-collection",
    title="The garbage collector takes the time of tasks",
    needs="Full collections of Python's garbage collector took at least 10 % of the worker time while tasks ran "
    "(table memory, column collecting).",
    ruled_out_by="Collections while nothing ran. Collections of younger objects, which are not recorded. Tasks that "
    "each load the same objects again (task-overhead).",
    remedy="Remove calls of `gc.collect()`, keep fewer Python objects (arrays or tables in place of lists and "
    "dictionaries), or call `gc.freeze()` once long-lived objects are loaded",
    link="https://docs.python.org/3/library/gc.html#gc.freeze",
    parts=("busy",),
    by_times=True,
    changes=(Term.WORK, Term.SPAN),
    premise="The collections are recorded, with their seconds.",
)


@GARBAGE_COLLECTION.finds
def garbage_collection(observation: Observation) -> Finding | None:
    """`lost_s`: seconds of full garbage collections, which stop all Python in a process, times its running tasks."""
    attempts, seconds = observation.measured, observation.numbers("memory", "collecting")
    worker, time = worker_of_rows(observation, "memory"), observation.numbers("memory", "time") - attempts.epoch
    found = (worker >= 0) & (seconds > 0) if len(seconds) else np.zeros(0, dtype=np.bool_)
    if not found.any():
        return None
    order = np.lexsort((time, worker))
    before = np.full(len(time), -np.inf)
    before[order[1:]] = np.where(np.diff(worker[order]) == 0, time[order[:-1]], -np.inf)
    begin = np.maximum(before, time - 1.0)[found]  # a worker's first sample has none before: assume the usual 1 s
    at_once = running(observation, worker[found], begin, time[found])
    collecting = seconds[found] * _on_a_core(observation)
    lost_s = min(float((collecting * at_once).sum()), observation.seconds("busy"))
    loads = (same_call(observation), overheads(observation).get(PICKLE))
    loaded_s = max(each.seconds if each else 0.0 for each in loads)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY or loaded_s >= LOADED * lost_s:
        return None
    there = np.isin(attempts.worker, worker[found])
    prefix, _ = largest_prefix(np.where(there, attempts.stop - attempts.start, 0.0), observation)
    return GARBAGE_COLLECTION.finding(
        observation,
        lost_s,
        f"Python's garbage collector took {percent(share)} of the worker time: it searched all objects of "
        f"{plural(len(np.unique(worker[found])), 'worker')} for {words.duration(float(collecting.sum()))} while tasks "
        f"ran, most of them `{prefix}`.",
        f"remove calls of `gc.collect()` from `{prefix}`; if there are none, keep fewer Python objects (arrays or "
        "tables in place of lists and dictionaries), or call `gc.freeze()` once all long-lived objects are loaded",
        Evidence("seconds of full collections", round(float(collecting.sum()), 3), "table memory, column collecting"),
        Evidence("tasks running during a collection, mean", round(lost_s / float(collecting.sum()), 2), "table tasks"),
        confidence=0.9,
    )


def _on_a_core(observation: Observation) -> float:
    """Share of the time in which task threads wanted a core and had one; 1 where it is not known."""
    parts = (observation.metrics.busy_time_s if observation.metrics else None) or {}
    computing_s = parts.get("computing", 0.0)
    return computing_s / (computing_s + parts.get("for_core", 0.0)) if computing_s > 0 else 1.0
