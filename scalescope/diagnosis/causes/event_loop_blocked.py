"""Event loops of scheduler or workers stall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints
from scalescope.analysis.inside_tasks import is_users
from scalescope.diagnosis.cause import NOTEWORTHY, severity_of
from scalescope.diagnosis.causes.gil_bound import GIL_BOUND, gil_bound
from scalescope.diagnosis.causes.serialisation_bound import serialisation_bound
from scalescope.diagnosis.evidence.host_cpu import host, in_one_process, running
from scalescope.diagnosis.evidence.inside_tasks import computes, on_event_loops
from scalescope.diagnosis.evidence.spilling import spilling
from scalescope.diagnosis.evidence.task_table import threads_of_workers, worker_of_rows
from scalescope.diagnosis.evidence.timeline import timeline
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Place, Severity
from scalescope.model.words import percent, plural

STALL_S = 0.1  # seconds; shorter stalls of an event loop are normal under load
STALL_ON_FULL_HOST_S = 0.5  # the same limit in seconds on a host so full that every process waits for a core
COROUTINES_LINK = "https://distributed.dask.org/en/stable/asynchronous.html"
GARBAGE = "table memory, column collecting"
LAG_INTERVAL_S = 1.0  # seconds that a row of table `lag` looks back (`capture.recorder`)

ON_SCHEDULER = (
    "find what runs on the scheduler's loop (plugins, `client.run_on_scheduler`, dashboard, messages of megabytes) "
    "with `client.profile(server=True, scheduler=True)`, and move that work off the loop"
)
FEWER_OBJECTS = (
    "give the scheduler fewer objects to keep: make fewer and larger tasks, and release futures once they were used"
)
ON_WORKER = (
    "find with `client.profile(server=True)` what runs on the worker's loop or holds the interpreter lock "
    "(`client.run`, worker plugins, deserialisation, native code); if the tasks hold the lock, use "
    "`threads_per_worker=1`"
)


@dataclass(frozen=True)
class _LoopStalls:
    """Stalls of event loops, one element each."""

    process: Ints  # index into `Attempts.addresses`; -1 for the scheduler
    seconds: Floats  # upper bound of the length, in seconds
    begin: Floats  # earliest begin, in seconds since the first task was known
    end: Floats  # latest end, in seconds since the first task was known

    def only(self, kept: Bools) -> _LoopStalls:
        return _LoopStalls(self.process[kept], self.seconds[kept], self.begin[kept], self.end[kept])


EVENT_LOOP_BLOCKED = TrialCause(
    code="event-loop-blocked",
    title="Event loops stalled",
    needs="At least 10 % of the worker time was idle with tasks waiting while an event loop stalled for 0.1 s or more "
    "(table lag, or late samples of workers in table memory). Or tasks that are coroutine functions (`async def`) kept "
    "event loops for a tenth of the worker time without awaiting (table inside). If scheduler and workers share a "
    "process in which tasks ran meanwhile, the finding is gil-bound, because the two look alike there.",
    ruled_out_by="No task waited, or all threads were busy. The scheduler took in a graph (large-graph). Tasks were "
    "being unpacked (serialisation-bound), or results written to disk (memory-spill). On a host that other processes "
    "fill, stalls below 0.5 s; longer ones are information, unless `client.run_on_scheduler` or garbage collection "
    "explains them.",
    remedy="Move what blocks off the event loop; use one thread per worker where tasks hold the interpreter lock",
    link="https://github.com/dask/distributed/issues/6325",
    parts=("not_assigned",),
    rules_out=("undersubscribed-threads", "uneven-waves"),
    premise="An event loop was blocked, and idle threads could not begin tasks meanwhile.",
)


@EVENT_LOOP_BLOCKED.finds
def event_loop_blocked(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds idle during stalls while tasks waited, without spilling; at most `not_assigned`."""
    attempts = observation.measured
    if coroutines := _coroutines(observation):
        return coroutines
    if not observation.noteworthy("not_assigned"):
        return None
    costly = [stalls for stalls in (_noted(observation), _gaps(observation)) if len(stalls.process)]
    by_process: dict[int, tuple[float, float, int]] = {}
    for stalls in costly:  # both sources may show the same stall: for each process, the larger sum counts
        for process, felt in _felt(observation, stalls).items():
            by_process[process] = max(felt, by_process.get(process, felt))
    of_workers_s = sum(felt[0] for process, felt in by_process.items() if process >= 0)
    on_disk_s = min(spilling(observation).elsewhere_s, of_workers_s)  # workers write results to disk on their loops
    lost_s = min(sum(felt[0] for felt in by_process.values()), observation.seconds("not_assigned")) - on_disk_s
    share = observation.share_of(lost_s)
    if share < NOTEWORTHY or serialisation_bound(observation) is not None:
        return None
    worst = max(by_process, key=lambda process: by_process[process])
    longest, count = by_process[worst][1], sum(felt[2] for felt in by_process.values())
    others, scheduler = len(by_process) - 1, worst < 0
    called = _called(observation) if scheduler else ""
    remedy = f"move the work of {called} into a task, or into a thread off the loop" if called else ON_WORKER
    collecting_s = _collecting_s(observation, costly) if scheduler and not called else 0.0
    if scheduler and not called:
        remedy = FEWER_OBJECTS if collecting_s else ON_SCHEDULER
    name = "scheduler" if scheduler else attempts.addresses[worst]
    if not called and _computed_meanwhile(observation, costly):
        return _one_lock(observation, lost_s, longest, count)
    here = host(observation)
    who = "The scheduler's event loop" if scheduler else f"The event loop of worker {name}"
    who += f" (and {others:,} more)" if others else ""
    why = f" Garbage collections took {words.duration(collecting_s)} of these stalls." if collecting_s else ""
    finding = EVENT_LOOP_BLOCKED.finding(
        observation,
        lost_s,
        f"{who} was stalled {plural(count, 'time')}, for up to {words.duration(longest)}, while tasks waited and "
        f"threads were idle: {percent(share)} of the worker time.{why}",
        remedy,
        Evidence("stalls while threads were idle", count, "table lag, gaps in table memory"),
        *([Evidence("seconds of full collections in stalls", round(collecting_s, 3), GARBAGE)] if collecting_s else []),
        Evidence(f"longest stall of {name}, s", round(longest, 3), "table lag, gaps in table memory"),
        Evidence("processes that stalled", len(by_process), "table lag, gaps in table memory"),
        Evidence("thread-seconds idle during stalls", round(lost_s, 3), "worker time `not_assigned`"),
        confidence=0.8,
    )
    if here is None or not here.crowded:
        return finding
    if called or collecting_s:
        return finding.perhaps()
    return replace(finding.perhaps(), severity=Severity.INFO, gain=None)  # a process without a core stalls, too


def _coroutines(observation: Observation) -> Finding | None:
    spent = on_event_loops(observation)
    if spent is None or observation.share_of(spent.seconds) * _threads_each(observation) < NOTEWORTHY:
        return None
    idle_s = min(spent.seconds * (_threads_each(observation) - 1), observation.seconds("not_assigned"))
    share, computing = observation.share_of(idle_s), computes(observation, spent.prefix)
    call = " and" if computing else f", calls `{spent.function}`{spent.at} and"
    cost = f", which costs {percent(share)} of the worker time" if share >= NOTEWORTHY else ""
    if computing:
        remedy = (
            f"make `{spent.prefix}` a plain function (`def`), and start as many workers as there are threads now, with "
            "one thread each (`threads_per_worker=1`)"
        )
    else:
        awaited = (
            "asyncio.sleep(...)" if spent.function == "time.sleep" else f"asyncio.to_thread({spent.function}, ...)"
        )
        remedy = (
            f"make `{spent.prefix}` a plain function (`def`), which runs on the worker's threads; or keep it `async` "
            f"and call `await {awaited}`, which frees the loop"
            + ("; then raise `threads_per_worker`" if _threads_each(observation) == 1 else "")
        )
    return EVENT_LOOP_BLOCKED.finding(
        observation,
        idle_s if share >= NOTEWORTHY else 0.0,
        f"`{spent.prefix}` is a coroutine function (`async def`): it runs on the event loop of its worker{call} blocks "
        f"the loop, without awaiting, for {percent(spent.share)} of its time. The worker then runs one such task at a "
        f"time, however many threads it has, and answers neither the scheduler nor other workers{cost}.",
        Remedy(remedy, saved_s=0.0) if computing or share < NOTEWORTHY else remedy,
        Evidence("seconds in which coroutine tasks kept an event loop", round(spent.seconds, 3), "table inside"),
        Evidence("share of the time of the prefix's tasks", round(spent.share, 3), f"prefix {spent.prefix}"),
        Evidence("thread-seconds idle while event loops were blocked", round(idle_s, 3), "worker time `not_assigned`"),
        confidence=0.9,
        severity=severity_of(share) if share >= NOTEWORTHY else Severity.LOW,
        link=COROUTINES_LINK,
        place=Place.of(next(filter(is_users, spent.path[1:]), "")),
    )


def _threads_each(observation: Observation) -> float:
    """Threads of workers per event loop."""
    loops = 1 if in_one_process(observation) else len(observation.measured.addresses)
    return observation.threads / loops


def _collecting_s(observation: Observation, costly: Sequence[_LoopStalls]) -> float:
    """Seconds of the scheduler's garbage collections, if they are most of its stalled time; else 0."""
    of_scheduler = worker_of_rows(observation, "memory") == -1
    collecting = observation.numbers("memory", "collecting")
    spent = float(collecting[of_scheduler].sum()) if len(collecting) else 0.0
    stalled = max(float(each.seconds[each.process == -1].sum()) for each in costly)
    return min(spent, stalled) if spent >= stalled / 2 else 0.0


def _computed_meanwhile(observation: Observation, costly: Sequence[_LoopStalls]) -> bool:
    """Whether scheduler and workers share a process in which tasks computed for most of the stalled time."""
    line = timeline(observation)
    if not in_one_process(observation):
        return False
    ran = [
        line.between((line.occupied >= 1).astype(np.float64), *np.clip((each.end - each.seconds, each.end), 0, None))
        for each in costly
    ]
    return float(np.concatenate(ran).sum()) > sum(float(each.seconds.sum()) for each in costly) / 2


def _one_lock(observation: Observation, lost_s: float, longest: float, count: int) -> Finding | None:
    if gil_bound(observation) is not None:
        return None
    prefix = max(observation.stages, key=lambda stage: stage.work_s).prefix
    return GIL_BOUND.finding(
        observation,
        lost_s,
        f"Scheduler and workers share one process, whose event loop was stalled {plural(count, 'time')}, for up to "
        f"{words.duration(longest)}, while tasks (`{prefix}`) ran and others waited: "
        f"{percent(observation.share_of(lost_s))} of the worker time. Either the tasks keep the interpreter lock "
        "(GIL), or something else blocks the loop; in one process the two cannot be told apart.",
        Remedy(
            "try `Client(processes=True, threads_per_worker=1)`: if the stalls go away, the lock was the cause",
            saved_s=lost_s / observation.threads,
            changes=(),
        ),
        Evidence("stalls while threads were idle", count, "table lag, gaps in table memory"),
        Evidence("longest stall, s", round(longest, 3), "table lag, gaps in table memory"),
        Evidence("thread-seconds idle during stalls", round(lost_s, 3), "worker time `not_assigned`"),
        confidence=0.5,
    )


def _called(observation: Observation) -> str:
    """The client's longest `run_on_scheduler` call, with its line; empty if there was none."""
    where, what, seconds = (observation.column("client", name) for name in ("where", "what", "seconds"))
    calls = [
        (float(spent), str(at))
        for at, call, spent in zip(where, what, seconds, strict=True)
        if str(call).endswith("run_on_scheduler")
    ]
    place = max(calls, default=(0.0, ""))[1].partition(" ")[0]
    return f"`client.run_on_scheduler` at {place}" if place else "`client.run_on_scheduler`" if calls else ""


def _shortest(observation: Observation) -> float:
    here = host(observation)
    return STALL_ON_FULL_HOST_S if here is not None and here.crowded else STALL_S


def _noted(observation: Observation) -> _LoopStalls:
    time = observation.numbers("lag", "time") - observation.measured.epoch
    seconds = observation.numbers("lag", "seconds")
    begin = time - np.maximum(seconds, LAG_INTERVAL_S)
    found = _LoopStalls(worker_of_rows(observation, "lag", "process"), seconds, begin, time)
    process = found.process
    return found.only((process >= -1) & (seconds >= _shortest(observation)) & ~_in_a_graph(observation, begin, time))


def _gaps(observation: Observation) -> _LoopStalls:
    """Stalls of workers by gaps between their samples, which the system monitor takes on the event loop."""
    process = worker_of_rows(observation, "memory")
    time = observation.numbers("memory", "time") - observation.measured.epoch
    order = np.lexsort((time, process))
    process, time = process[order], time[order]
    gap = np.diff(time)
    kept = np.diff(process) == 0
    # The scheduler's samples count here: they are on time even where workers stall often.
    usual = float(np.quantile(gap[kept], 0.25)) if kept.any() else np.inf
    kept &= process[1:] >= 0
    kept &= gap - usual >= max(_shortest(observation), 0.5 * usual)
    return _LoopStalls(process[1:][kept], gap[kept], time[:-1][kept], time[1:][kept])


def _felt(observation: Observation, stalls: _LoopStalls) -> dict[int, tuple[float, float, int]]:
    """By process with costly stalls: thread-seconds lost, longest stall in seconds, number of stalls."""
    attempts, line = observation.measured, timeline(observation)
    begin, end = np.clip(stalls.begin, 0.0, attempts.makespan), np.clip(stalls.end, 0.0, attempts.makespan)
    lost = line.between(np.minimum(line.idle, line.waiting), begin, end)
    lost = np.minimum(lost, stalls.seconds * observation.threads)
    on_worker = stalls.process >= 0
    if on_worker.any():
        worker, since, until = stalls.process[on_worker], begin[on_worker], end[on_worker]
        threads = threads_of_workers(observation)
        free = np.maximum(threads[worker] - running(observation, worker, since, until), 0.0) * (until - since)
        wanted = line.between((line.waiting > 0.5).astype(np.float64), since, until)
        limit = np.minimum(stalls.seconds[on_worker], wanted) * threads[worker]
        lost[on_worker] = np.minimum(lost[on_worker], np.minimum(free, limit))
    felt = lost > 0
    return {
        process: (
            float(lost[felt & (stalls.process == process)].sum()),
            float(stalls.seconds[felt & (stalls.process == process)].max()),
            int((felt & (stalls.process == process)).sum()),
        )
        for process in np.unique(stalls.process[felt]).tolist()
    }


def _in_a_graph(observation: Observation, begin: Floats, end: Floats) -> Bools:
    """Whether the scheduler took in a large graph within each interval (the cause large-graph reports that)."""
    seconds = observation.numbers("graphs", "seconds")
    since = observation.numbers("graphs", "time")[seconds >= STALL_S] - observation.measured.epoch
    until = since + seconds[seconds >= STALL_S]
    inside = np.zeros(len(begin), dtype=np.bool_)
    for first, last in zip(since, until, strict=True):
        inside |= (begin < last) & (end > first)
    return inside
