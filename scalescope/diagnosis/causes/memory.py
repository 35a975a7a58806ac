"""Workers short of memory: results spilled to disk, workers paused."""

from __future__ import annotations

import numpy as np

from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.evidence.process_end import MORE_MEMORY
from scalescope.diagnosis.evidence.task_table import largest_prefix, worker_of_rows
from scalescope.diagnosis.evidence.timeline import timeline
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding
from scalescope.model.words import percent, plural

MEMORY_LINK = "https://distributed.dask.org/en/stable/worker-memory.html"

MEMORY_SPILL = TrialCause(
    code="memory-spill",
    title="Results do not fit into memory",
    needs="At least 10 % of the worker time went to writing results to disk or reading them back (part `spill`).",
    ruled_out_by="Spilling while the threads compute: it costs nothing and is not in that part.",
    remedy="Give each worker more memory or fewer threads, use smaller partitions, or release results earlier",
    link=f"{MEMORY_LINK}#spilling-based-on-managed-memory",
    parts=("spill",),
)


@MEMORY_SPILL.finds
def memory_spill(observation: Observation) -> Finding | None:
    """`lost_s`: the part `spill`. Spilling because of the worker's memory as a whole is not recorded per task."""
    if (share := observation.share("spill")) < NOTEWORTHY:
        return None
    attempts = observation.measured
    read, written = float(attempts.disk_read.sum()), float(attempts.disk_write.sum())
    prefix, part = largest_prefix(attempts.disk_read + attempts.disk_write, observation)
    spilled = _peaks(observation, "spilled")
    amount = f" ({words.size(spilled)} were on disk)" if spilled else ""
    return MEMORY_SPILL.finding(
        observation,
        observation.seconds("spill"),
        f"{percent(share)} of the worker time was spent writing results to disk and reading them back, {percent(part)} "
        f"of it for `{prefix}`{amount}: the results do not fit into the memory of the workers{_limit(observation)}.",
        f"{MORE_MEMORY}; release results that are no longer needed, or use more workers",
        Evidence("thread-seconds of disk access", round(observation.seconds("spill"), 3), "worker time"),
        Evidence("seconds reading", round(read, 3), "table tasks, column disk_read"),
        Evidence("seconds writing", round(written, 3), "table tasks, column disk_write"),
        Evidence("most bytes on disk, all workers", int(spilled), "table memory, column spilled"),
        confidence=0.95 if spilled else 0.85,
    )


MEMORY_PAUSED = TrialCause(
    code="memory-paused",
    title="Workers paused for their memory",
    needs="Workers changed their status to `paused` (events worker-status-change), and at least 10 % of the worker "
    "time was idle in such pauses while tasks waited.",
    ruled_out_by="No task waited for a thread meanwhile.",
    remedy="Give each worker more memory or fewer threads, or use smaller partitions. If Dask knows of little of "
    "that memory, find what the tasks keep",
    link=f"{MEMORY_LINK}#pause-worker",
    parts=("paused",),
)


@MEMORY_PAUSED.finds
def memory_paused(observation: Observation) -> Finding | None:
    """`lost_s`: the part `paused`, by the share of the pauses in which tasks waited for a thread."""
    attempts, pauses = observation.measured, observation.measured.pauses
    if not len(pauses.worker):
        return None
    line = timeline(observation)
    inside = line.between((line.waiting > 0.5).astype(np.float64), pauses.begin, pauses.end)
    length = float((pauses.end - pauses.begin).sum())
    lost_s = observation.seconds("paused") * float(inside.sum()) / length if length > 0 else 0.0
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    workers = np.unique(pauses.worker)
    resident, managed = _while_paused(observation)
    unmanaged = resident > 0 and managed < 0.5 * resident
    held = (
        f"; of {words.size(resident)} in the worst process only {words.size(managed)} are results that Dask knows of"
        if unmanaged
        else ""
    )
    return MEMORY_PAUSED.finding(
        observation,
        lost_s,
        f"{percent(share)} of the worker time was lost while {plural(len(workers), 'worker')} of "
        f"{len(attempts.addresses):,} took no new tasks because {'its' if len(workers) == 1 else 'their'} memory was "
        f"almost full{_limit(observation)}{held}.",
        "find what the tasks keep besides their results (caches, globals, leaks), run fewer at once "
        "(`threads_per_worker`), or give each worker more memory (`memory_limit=`, `--memory-limit`)"
        if unmanaged
        else MORE_MEMORY,
        Evidence("pauses", len(pauses.worker), "events worker-status-change"),
        Evidence("seconds paused, all workers", round(length, 3), "events worker-status-change"),
        Evidence("such as worker", attempts.addresses[int(pauses.worker[0])], "events worker-status-change"),
        Evidence("most resident bytes while paused", int(resident), "table memory, column rss"),
        Evidence("managed bytes then", int(managed), "table memory, column managed"),
        confidence=0.95,
    )


def _limit(observation: Observation) -> str:
    limit = (observation.trial.facts.get("cluster") or {}).get("memory_limit_mb")
    return f" (limit {limit:,} MiB each)" if limit else ""


def _peaks(observation: Observation, column: str) -> float:
    most: dict[str, int] = {}
    for worker, value in zip(observation.column("memory", "worker"), observation.column("memory", column), strict=True):
        if worker != "scheduler":
            most[worker] = max(value, most.get(worker, 0))
    return float(sum(most.values()))


def _while_paused(observation: Observation) -> tuple[float, float]:
    attempts = observation.measured
    worker = worker_of_rows(observation, "memory")
    time, rss, managed = (observation.numbers("memory", name) for name in ("time", "rss", "managed"))
    then = np.zeros(len(worker), dtype=bool)
    pauses = attempts.pauses
    for i, begin, end in zip(pauses.worker.tolist(), pauses.begin, pauses.end, strict=True):
        then |= (worker == i) & (time - attempts.epoch >= begin) & (time - attempts.epoch <= end)
    if not then.any():
        return 0.0, 0.0
    worst = int(np.flatnonzero(then)[rss[then].argmax()])
    return float(rss[worst]), float(managed[worst])
