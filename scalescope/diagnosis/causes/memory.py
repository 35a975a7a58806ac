"""Workers short of memory: results written to disk, workers paused."""

from __future__ import annotations

import numpy as np

from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.evidence.departures import deaths
from scalescope.diagnosis.evidence.gpu import moved_bytes
from scalescope.diagnosis.evidence.held_results import (
    SPILL,
    TARGET,
    HeldResults,
    give_each,
    held_results,
    limit_needed,
    limit_of_workers,
    most_on_one_worker,
    peaks,
    rounded_limit,
)
from scalescope.diagnosis.evidence.kept_memory import COPIES, FRESH, KeptMemory, kept_memory, large_block
from scalescope.diagnosis.evidence.process_end import MORE_MEMORY
from scalescope.diagnosis.evidence.spilling import WORTH_TELLING, Spilling, spilling
from scalescope.diagnosis.evidence.task_table import largest_prefix
from scalescope.diagnosis.evidence.timeline import free_threads, timeline
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause, once
from scalescope.diagnosis.premises import ENOUGH, SEVERAL_THREADS, host_has, larger_limit
from scalescope.model import words
from scalescope.model.cluster import MEMORY_LIMIT_MB
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.standstill import ALL_PAUSED, PAUSED
from scalescope.model.words import percent, plural

MEMORY_LINK = "https://distributed.dask.org/en/stable/worker-memory.html"
KEPT_BESIDES = "find what the tasks keep in memory besides their results (caches, globals, leaks)"
MORE_MEMORY_OR_SMALLER = MORE_MEMORY.replace(" or fewer threads", "")  # advice for workers of one thread
MOSTLY = 0.5  # share that counts as most
UNUSED = 1 / 3  # least share of the held results that no task needs any more, for their release to be the remedy
MANY_TIMES = 10  # most workers that are advised, as a multiple of those there are
MOST_PAUSED = 50  # most workers whose time after a pause is examined, the longest paused first

MEMORY_SPILL = TrialCause(
    code="memory-spill",
    title="Results do not fit into memory",
    needs="At least 10 % of the worker time went to writing results to disk or reading them back, in tasks or in the "
    "event loops of workers while tasks waited (part `spill`, table fine_metrics), or to pauses for lack of memory.",
    ruled_out_by="Spilling while the threads compute costs nothing: the finding is then information, with the bytes. "
    "dask-cuda moved results from GPUs to the host (gpu-memory-full).",
    remedy="Give each worker more memory or fewer threads, use smaller partitions, or release results earlier",
    link=f"{MEMORY_LINK}#spilling-based-on-managed-memory",
    parts=("spill", "not_assigned", "transfer"),
    premise="A finding names only those options (limit, workers, threads) that can help there.",
)


@MEMORY_SPILL.finds
def memory_spill(observation: Observation) -> Finding | None:
    """`lost_s`: the part `spill`, waits for event loops busy with the disk, and pauses that cost less than these."""
    if moved_bytes(observation) >= WORTH_TELLING:  # gpu-memory-full reports moves to the host
        return None
    disk, held, paused_s = spilling(observation), held_results(observation), _paused(observation)
    lost_s = disk.lost_s + (paused_s if disk.lost_s >= paused_s else 0.0)
    share = observation.share_of(lost_s)
    if share < NOTEWORTHY:
        return _at_no_cost(observation, disk, held, share)
    attempts = observation.measured
    prefix, part = largest_prefix(attempts.disk_read + attempts.disk_write, observation)
    whose = f", {percent(part)} of it for `{prefix}`" if observation.seconds("spill") >= 0.5 * lost_s else ""
    on_disk = float(sum(peaks(observation, "spilled").values()))
    spilled = max(disk.written, on_disk)
    amount = f" ({words.size(spilled)} in all)" if spilled else ""
    paused = lost_s > disk.lost_s and paused_s >= 0.1 * lost_s
    pauses = f", including {words.number(paused_s)} thread-seconds of paused workers" if paused else ""
    return MEMORY_SPILL.finding(
        observation,
        lost_s,
        f"{percent(share)} of the worker time was spent writing results to disk and reading them back{amount}{whose}"
        f"{pauses}: {_need(observation, held)}.",
        _remedy(observation, held) if held else _by_graph(observation),
        Evidence("thread-seconds of disk access", round(observation.seconds("spill"), 3), "worker time"),
        Evidence("seconds reading", round(float(attempts.disk_read.sum()), 3), "table tasks, column disk_read"),
        Evidence("seconds writing", round(float(attempts.disk_write.sum()), 3), "table tasks, column disk_write"),
        *_where(disk, paused_s),
        Evidence("most bytes on disk, all workers", int(on_disk), "table memory"),
        *_evidence(held),
        confidence=0.95 if spilled else 0.85,
    )


def _at_no_cost(observation: Observation, disk: Spilling, held: HeldResults | None, share: float) -> Finding | None:
    if disk.written < WORTH_TELLING or held is None:
        return None
    back = f"{words.size(disk.read)} of it were" if disk.read else "none of it was"
    return MEMORY_SPILL.finding(
        observation,
        disk.lost_s,
        f"{words.size(disk.written)} of results were written to disk, and {back} read back, at a cost of "
        f"{percent(share)} of the worker time: {_need(observation, held)}.",
        _remedy(observation, held),
        *_where(disk, 0.0),
        *_evidence(held),
        confidence=0.95,
        severity=Severity.INFO,
    )


def _need(observation: Observation, held: HeldResults | None) -> str:
    # Samples may be missing, such as those of dead workers.
    if held is None or not held.fits or held.nbytes <= held.workers * held.fits:
        return f"the memory of the workers was full{_limit(observation)}"
    whose = f"the results of `{held.prefix}`" if held.part >= MOSTLY else "results"
    return (
        f"{whose} took {words.size(held.nbytes)} at once, and {plural(held.workers, 'worker')} with "
        f"{words.size(held.limit)} hold {words.size(held.workers * held.fits)} before they write to disk"
    )


def _remedy(observation: Observation, held: HeldResults) -> Remedy:
    limit = limit_needed(observation, held)
    local = (observation.trial.facts.get("cluster") or {}).get("kind") == "local"
    larger = bool(held.limit) and held.kept < UNUSED and larger_limit(held, limit).holds(observation)
    return Remedy(_words(observation, held), {MEMORY_LIMIT_MB: round(limit / 2**20)} if local and larger else {})


def _words(observation: Observation, held: HeldResults) -> str:
    block = large_block(observation)
    if block is not None and any(death.over_memory for death in deaths(observation)):
        return block.remedy
    more = MORE_MEMORY if SEVERAL_THREADS.holds(observation) else MORE_MEMORY_OR_SMALLER
    if held.limit:
        limit, workers = limit_needed(observation, held), held.workers_for_all
        options = Remedy.options(
            observation,
            Remedy(give_each(limit), premise=larger_limit(held, limit)),
            *(
                [Remedy(f"use {workers:,} such workers", premise=host_has(workers * held.limit))]
                if held.workers < workers <= MANY_TIMES * held.workers
                else []
            ),
        ).text
        more = f"{options}, or make the partitions smaller" if options else _keep_less(observation)
    if held.kept < UNUSED:
        return more
    return (
        f"release the results of `{held.kept_prefix}` that no task needs any more: `del` the futures or the persisted "
        f"collection that keeps them, drop each future that `as_completed(futures)` gives, or return less; else {more}"
    )


def _by_graph(observation: Observation) -> str:
    """The remedy if no samples of memory are left, as with a killed script."""
    if not limit_of_workers(observation) or observation.attempts is None:
        return MORE_MEMORY if SEVERAL_THREADS.holds(observation) else MORE_MEMORY_OR_SMALLER
    if block := large_block(observation):
        return block.remedy
    most = most_on_one_worker(observation)
    limit = rounded_limit(max(most / TARGET, (most + FRESH) / SPILL))
    if limit < ENOUGH * limit_of_workers(observation) or not host_has(limit).holds(observation):
        return _keep_less(observation)
    return f"{give_each(limit)}, or make the partitions smaller"


def _keep_less(observation: Observation) -> str:
    """The remedy where no larger limit is known to help, or the host has no more memory."""
    fewer = ", run fewer tasks at once (`threads_per_worker`)" if SEVERAL_THREADS.holds(observation) else ""
    return f"make the partitions smaller{fewer}, and {KEPT_BESIDES}"


def _where(disk: Spilling, paused_s: float) -> tuple[Evidence, ...]:
    found = (
        ("seconds on disk for inputs and results of tasks", disk.tasks_s, "tables tasks and fine_metrics"),
        (
            "seconds on disk in event loops, for lack of memory",
            disk.watch_s,
            "table fine_metrics, context memory-monitor",
        ),
        (
            "seconds on disk in event loops, for other workers",
            disk.others_s,
            "table fine_metrics, get-data and gather-dep",
        ),
        ("thread-seconds paused while tasks waited", paused_s, "events worker-status-change"),
    )
    amounts = (("bytes written", disk.written), ("bytes read back", disk.read))
    return (
        *(Evidence(what, round(value, 3), source) for what, value, source in found if value),
        *(Evidence(what, int(value), "table fine_metrics") for what, value in amounts if value),
    )


def _evidence(held: HeldResults | None) -> tuple[Evidence, ...]:
    if held is None:
        return ()
    return (
        Evidence("most bytes of results at once, all workers", int(held.nbytes), "table memory, column managed"),
        Evidence(f"share of `{held.prefix}` in the results' bytes", round(held.part, 3), "table tasks, column nbytes"),
        Evidence("share of results that no task needed any more", round(held.kept, 3), "tables dependencies and tasks"),
        Evidence("memory limit of a worker", int(held.limit), "table workers"),
    )


def unmanaged_remedy(observation: Observation, kept: KeptMemory) -> str:
    """Remedy for memory that tasks take besides their results."""
    several = SEVERAL_THREADS.holds(observation)
    less = "let each task need less memory at once"
    if kept.stays:
        less = f"free what `{kept.prefix}` keeps besides its results (a cache, a global, buffers of a library)"
    fewer = ", run fewer of these tasks at once (`threads_per_worker`)" if several and not kept.stays else ""
    limit = Remedy(give_each(kept.fits), premise=host_has(kept.fits))
    enough = kept.fits >= ENOUGH * limit_of_workers(observation)
    return Remedy.options(observation, Remedy(f"{less}{fewer}"), *([limit] if enough else [])).text


def _kept_evidence(kept: KeptMemory | None) -> tuple[Evidence, ...]:
    if kept is None:
        return ()
    return (
        Evidence("most bytes in the process of one worker", int(kept.resident), "table memory, facts standstill"),
        Evidence("bytes of results in the fullest process", int(kept.managed), "table memory, facts standstill"),
        Evidence(f"tasks `{kept.prefix}` that had ended in the fullest process", kept.ended, "table tasks"),
    )


MEMORY_PAUSED = TrialCause(
    code="memory-paused",
    title="Workers paused for their memory",
    needs="Workers changed their status to `paused` (events worker-status-change), and at least 10 % of the worker "
    "time was idle in these pauses while tasks waited, or after them, because the work had gone to other workers.",
    ruled_out_by="No task waited for a thread meanwhile. Just as many threads were idle before the pause.",
    remedy="Give each worker more memory or fewer threads, or use smaller partitions. If little of that memory holds "
    "results, find what else the tasks keep",
    link=f"{MEMORY_LINK}#pause-worker",
    parts=("paused", "not_assigned"),
    without_attempts=True,
    premise="A finding names only those options (limit, workers, threads) that can help there.",
)


@MEMORY_PAUSED.finds
def memory_paused(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds that workers spent in pauses, or idle after them, while tasks waited.

    If the trial stood still, all of its time is lost. After a pause, only idle time beyond the rate before it counts.
    """
    if observation.standstill is not None or observation.attempts is None:
        return _stopped(observation)
    attempts, pauses = observation.measured, observation.measured.pauses
    length = float((pauses.end - pauses.begin).sum())
    if not length:
        return None
    during_s, after_s, disk_s = _paused(observation), _after_pauses(observation), spilling(observation).lost_s
    lost_s = during_s + after_s
    if lost_s <= disk_s:
        return None
    lost_s += disk_s
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    workers = np.unique(pauses.worker)
    kept = kept_memory(observation)
    held = f"; {kept.text}" if kept else ""
    their = "its" if len(workers) == 1 else "their"
    who = f"{plural(len(workers), 'worker')} of {len(attempts.addresses):,}"
    why = f"because {their} memory was almost full{_limit(observation)}"
    text = f"{percent(share)} of the worker time was lost while {who} took no new tasks {why}{held}"
    if after_s >= MOSTLY * lost_s:
        text = (
            f"{who} took no new tasks for {words.duration(length)} in all {why}, and had nothing to do afterwards, "
            f"while tasks waited for other workers: {percent(share)} of the worker time{held}"
        )
    what = held_results(observation)
    return MEMORY_PAUSED.finding(
        observation,
        lost_s,
        f"{text}.",
        unmanaged_remedy(observation, kept) if kept else _remedy(observation, what) if what else _by_graph(observation),
        Evidence("pauses", len(pauses.worker), "events worker-status-change"),
        Evidence("seconds paused, all workers", round(length, 3), "events worker-status-change"),
        Evidence("thread-seconds paused while tasks waited", round(during_s, 3), "events worker-status-change"),
        Evidence("thread-seconds idle after pauses, tasks waiting", round(after_s, 3), "tables tasks and workers"),
        Evidence("thread-seconds of writing to disk", round(disk_s, 3), "tables tasks and fine_metrics"),
        Evidence("a paused worker", attempts.addresses[int(pauses.worker[0])], "events worker-status-change"),
        *_kept_evidence(kept),
        confidence=0.95,
    )


def _stopped(observation: Observation) -> Finding | None:
    found = observation.standstill
    groups = [each for each in found.groups if each.problem in (PAUSED, ALL_PAUSED)] if found else []
    if not groups:
        return None
    tasks, kept, block = sum(each.tasks for each in groups), kept_memory(observation), large_block(observation)
    why, remedy = "", _by_graph(observation)
    if block is not None and (kept is None or COPIES * block.nbytes >= kept.each):
        kept, why, remedy = None, f": {block.text}", block.remedy
    elif kept is not None:
        why, remedy = f": {kept.text}", unmanaged_remedy(observation, kept)
    return MEMORY_PAUSED.standing(
        observation,
        f"{plural(tasks, 'task')} (`{groups[0].prefix}`) waited for workers that paused because their memory "
        f"was almost full{_limit(observation)}, and nothing freed it{why}.",
        remedy,
        Evidence("tasks on paused workers", tasks, "facts standstill"),
        *_kept_evidence(kept),
        confidence=0.9,
    )


@once
def _paused(observation: Observation) -> float:
    """Thread-seconds in pauses, times the share of all paused time in which tasks waited for a thread."""
    pauses, line = observation.measured.pauses, timeline(observation)
    inside = line.between((line.waiting > 0.5).astype(np.float64), pauses.begin, pauses.end)
    length = float((pauses.end - pauses.begin).sum())
    return observation.seconds("paused") * float(inside.sum()) / length if length > 0 else 0.0


def _after_pauses(observation: Observation) -> float:
    """Thread-seconds in which workers that had paused were idle while tasks waited, beyond their idle rate before.

    Time for which tasks waited for disks is left out.
    """
    attempts, pauses, line = observation.measured, observation.measured.pauses, timeline(observation)
    length = np.bincount(pauses.worker, weights=pauses.end - pauses.begin)
    total = 0.0
    for worker in np.argsort(-length, kind="stable")[:MOST_PAUSED].tolist():
        own = pauses.worker == worker
        if not own.any():
            break
        idle = np.minimum(free_threads(observation, attempts.members.worker == worker), line.waiting)
        first, last = float(pauses.begin[own].min()), float(pauses.end[own].min())
        paused = sum((line.within(b, e) for b, e in zip(pauses.begin[own], pauses.end[own], strict=True)), 0 * idle)
        running = np.maximum(1.0 - paused, 0.0)
        before, after = line.within(0.0, first), line.within(last, attempts.makespan) * running
        rate = line.integral(idle * before) / max(line.integral(before), 1e-9)
        total += max(line.integral(idle * after) - rate * line.integral(after), 0.0)
    return min(total, max(observation.seconds("not_assigned") - spilling(observation).elsewhere_s, 0.0))


def _limit(observation: Observation) -> str:
    limit = limit_of_workers(observation)
    return f" (limit {words.size(limit)} each)" if limit else ""
