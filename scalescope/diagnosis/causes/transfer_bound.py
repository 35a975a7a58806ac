"""Threads wait for their inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.evidence.task_table import largest_prefix, task_name
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.diagnosis.premises import fits_on_each_worker
from scalescope.model import words
from scalescope.model.fields import Scalar
from scalescope.model.finding import Evidence, Finding
from scalescope.model.sweep import THREADS, WORKERS
from scalescope.model.words import percent, plural

FELT_S = 0.01  # mean seconds of a fetch or of unpacking; anything shorter is the cost of a message, not of its data
LARGE = 1_000_000  # least mean bytes fetched per task that matter even if they came fast
OF_BAG = "shuffle-join"  # part of the prefix of tasks that bring the groups of a bag's `groupby` together
FOLDBY = (
    "where each group is reduced to a value, call `foldby` instead of `groupby`: it reduces within each partition, so "
    "that little moves"
)
SHARED = 0.5  # share of the moved bytes that one result must have, for a broadcast to pay


@dataclass(frozen=True)
class _MovedResults:
    """Results that went from one worker to another."""

    nbytes: float  # bytes of all moved results; each counts once per worker that it went to
    most: int  # row in the table `tasks` of the result with most moved bytes
    most_nbytes: float  # moved bytes of that result
    readers: int  # number of workers that the result in row `most` went to


TRANSFER_BOUND = TrialCause(
    code="transfer-bound",
    title="Threads wait for their inputs",
    needs="At least 10 % of the worker time went to fetching inputs while the thread had nothing else to run (part "
    "`transfer`), with at least 10 ms or 1 MB per fetching task.",
    ruled_out_by="Fetches that overlap with computing: they cost nothing, and the part `transfer` leaves them out. "
    "Many fetches of a few milliseconds: tiny tasks cause them.",
    remedy="Keep data that is used together on one worker: fewer, larger workers; fewer, larger steps. If all tasks "
    "need the same data, send it to all workers once",
    link="https://distributed.dask.org/en/stable/locality.html",
    parts=("transfer",),
    by_times=True,
    premise="Inputs moved between workers, as the records show.",
)


@TRANSFER_BOUND.finds
def transfer_bound(observation: Observation) -> Finding | None:
    """`lost_s`: the worker-time part `transfer`: idle threads whose workers fetched inputs."""
    if (share := observation.share("transfer")) < NOTEWORTHY:
        return None
    attempts = observation.measured
    fetching = attempts.transfer > 0
    moved, tasks = _moved(observation), int(fetching.sum())
    each = float(attempts.transfer[fetching].mean())
    if each < FELT_S and (moved is None or moved.nbytes / tasks < LARGE):
        return None
    prefix, part = largest_prefix(attempts.transfer, observation)
    amount = "" if moved is None else f", {words.size(moved.nbytes)} in all"
    remedy = Remedy(
        "keep data that is used together on one worker: fewer, larger workers (threads of one process share their "
        f"data), or combine the steps from `{prefix}` on in one task (`map_partitions`, `map_blocks`, larger chunks)",
        change=_one_worker(observation),
    )
    if OF_BAG in prefix:
        remedy = Remedy(FOLDBY)
    evidence = [
        Evidence("thread-seconds waiting for inputs", round(observation.seconds("transfer"), 3), "worker time"),
        Evidence("tasks that fetched inputs", tasks, "table tasks, column transfer"),
        Evidence("seconds per fetching task", round(each, 4), "table tasks, column transfer"),
        Evidence(f"share of `{prefix}` in the waiting time", round(part, 3), "table tasks"),
    ]
    if moved is not None:
        evidence.append(Evidence("bytes moved", int(moved.nbytes), "tables dependencies and tasks"))
        if moved.readers > 2 and moved.most_nbytes >= SHARED * moved.nbytes:
            key = task_name(observation, str(observation.column("tasks", "key")[moved.most]))
            remedy = Remedy(
                f"send `{key}` to all workers once, before the tasks that need it: `client.scatter([value], "
                "broadcast=True)` or `client.replicate([future])`",
                premise=fits_on_each_worker(moved.most_nbytes / moved.readers),
                otherwise=remedy,
            )
            evidence.append(Evidence(f"bytes of `{key}`", int(moved.most_nbytes), f"went to {moved.readers} workers"))
    return TRANSFER_BOUND.finding(
        observation,
        observation.seconds("transfer"),
        f"{percent(share)} of the worker time was spent fetching inputs, {percent(part)} of it for `{prefix}`: "
        f"{words.duration(each)} for each of {plural(tasks, 'task')}{amount}.",
        remedy,
        *evidence,
        confidence=0.9,
    )


def _one_worker(observation: Observation) -> dict[str, Scalar]:
    """Change to all threads in one process, if one real host has several workers; else empty."""
    workers = observation.column("workers", "host")
    one = len(workers) > len(set(workers)) == 1 and not observation.trial.virtual
    return {WORKERS: 1, THREADS: observation.threads} if one else {}


def _moved(observation: Observation) -> _MovedResults | None:
    task = np.asarray(observation.column("dependencies", "task"), dtype=np.int64)
    needs = np.asarray(observation.column("dependencies", "needs"), dtype=np.int64)
    if not len(task):
        return None
    attempts, nbytes = observation.measured, observation.numbers("tasks", "nbytes")
    worker = np.full(len(nbytes), -1, np.int64)
    worker[attempts.row] = attempts.worker
    away = (worker[task] >= 0) & (worker[needs] >= 0) & (worker[task] != worker[needs])
    went = np.unique(needs[away] * len(attempts.addresses) + worker[task[away]])  # each result once per reading worker
    if not len(went):
        return None
    source, count = np.unique(went // len(attempts.addresses), return_counts=True)
    sizes = nbytes[source] * count
    most = int(sizes.argmax())
    return _MovedResults(float(sizes.sum()), int(source[most]), float(sizes[most]), int(count[most]))
