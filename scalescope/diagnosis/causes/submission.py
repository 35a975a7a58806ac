"""Causes that lie in how work is sent: one by one, too late, too large, or from within tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints
from scalescope.analysis.measure import peak
from scalescope.diagnosis import levels
from scalescope.diagnosis.observation import Observation, TrialCause, once
from scalescope.diagnosis.registry import NOTEWORTHY
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.standstill import NO_THREAD, RESULTS
from scalescope.model.words import number, percent, plural

NESTED = "Client-worker-"
"""How the name of a client that runs inside a task begins (`scalescope.model.records`)."""
BEAM_TASK = "apply_dofn_to_bundle"
"""Prefix of the tasks of a ParDo of Beam's Dask runner."""
BEAM_SIDE_INPUTS = (
    "Beam's Dask runner computes a side input within the task that reads it: combine with "
    "`CombineGlobally(...).without_defaults()`, which needs none, and pass small values as arguments"
)
MIN_GRAPHS = 3
"""Graphs from which on sending them is a loop."""
ROUND = 6
"""Tasks at once from which on a graph of a loop is a round, too narrow for the threads, and not one item of many."""
PROMPT = 0.2
"""How soon after the end of a task a client sends if it does so because of it, as a share of the time between ends."""
ALWAYS = 0.9
"""Share of the graphs of a loop that must have been sent with nothing left to do."""
SHORT_S = 0.1
"""Seconds of the client that are not worth a change, however short the trial."""
ONE_AT_A_TIME = 1.1
"""Calls of actors that run at a time, on average, up to which each waits for the one before."""
SLOPE_ERROR = 0.15
"""Standard error up to which it is clear whether the time from graph to graph follows the tasks between."""
SHORT_GAP, LONG_GAP = 0.25, 0.5
"""Share of that time that may pass without a task where the client waits for results: if unclear, and if clear."""
CLOSE_S = 0.05
"""Seconds within which a task becomes runnable that a task has sent."""
HEAVY_GRAPH = 100_000
"""Bytes from which on a graph carries data rather than the names of tasks."""
LARGE_BYTES = 10_000_000
"""Bytes of a graph of which Dask warns (`distributed.admin.large-graph-warning-threshold`)."""
BANDWIDTH = 100e6
"""Bytes per second that Dask expects of a connection (`distributed.scheduler.bandwidth`)."""
SCATTER = "`[future] = client.scatter([data], broadcast=True)` once and pass `future`"
"""In a list: of a list or dict by itself, each element becomes a future of its own."""
MANY_TASKS = 10_000
"""Tasks from which on a graph itself takes seconds; each takes 0.2 to 1 ms (Dask's best practices)."""


@dataclass(frozen=True)
class Submissions:
    """What clients outside of tasks sent, in the order of arrival, and when tasks sent something.

    Attributes:
        time: When the scheduler received each graph, in seconds since the first task was known.
        seconds: What it needed to take it in.
        tasks: Tasks in it.
        nbytes: Its size as it was sent; 0 when unknown.
        nested_at: When graphs from within tasks arrived, rising.
        nested_tasks: Tasks in all of those.
    """

    time: Floats
    seconds: Floats
    tasks: Ints
    nbytes: Ints
    nested_at: Floats
    nested_tasks: int


@once
def submissions(observation: Observation) -> Submissions:
    """The graphs of a trial; none where they were not recorded."""
    epoch = 0.0 if observation.attempts is None else observation.attempts.epoch
    time, seconds = observation.numbers("graphs", "time"), observation.numbers("graphs", "seconds")
    tasks, nbytes = (np.asarray(observation.column("graphs", name), np.int64) for name in ("tasks", "nbytes"))
    nested = np.array([str(name).startswith(NESTED) for name in observation.column("graphs", "client")], dtype=bool)
    order = np.argsort(time, kind="stable")
    own, inside = order[~nested[order]], order[nested[order]]
    return Submissions(
        time[own] - epoch,
        np.maximum(seconds[own], 0.0),
        tasks[own],
        nbytes[own],
        time[inside] - epoch,
        int(tasks[inside].sum()),
    )


def sending(observation: Observation) -> Bools:
    """Attempts during which a graph was sent from within a task: they may wait for others, and are not just long."""
    attempts = observation.measured
    nested = submissions(observation).nested_at
    return np.searchsorted(nested, attempts.stop) > np.searchsorted(nested, attempts.start)


# ------------------------------------------------------------------ loops


@dataclass(frozen=True)
class SubmissionLoop:
    """Graphs sent one after another.

    Attributes:
        begin: When the first arrived, in seconds since the first task was known.
        end: When the last arrived.
        graphs: How many.
        tasks: Tasks in all of them.
        awaited: Share of those after the first that arrived when all earlier tasks had ended.
        gap_s: Seconds from the end of all earlier tasks to such an arrival, median.
        round_s: Seconds from one arrival to the next, median.
        waits: Whether the client waits for results before it sends more, rather than being slow.
        window: Tasks that it keeps in flight, if it sends one whenever one has ended; else 0.
        width: Most tasks in flight from one graph to the next, median.
    """

    begin: float
    end: float
    graphs: int
    tasks: int
    awaited: float
    gap_s: float
    round_s: float
    waits: bool
    window: int
    width: float


@once
def loop(observation: Observation) -> SubmissionLoop | None:
    """The loop in which the client sent small graphs, or None.

    Small: by the median, fewer tasks than there are threads are in flight from one graph to the next. The client waits
    for results when (nearly) every graph arrives with nothing left to do, soon after the last task, and later where
    that took longer: a client that is slow by itself keeps its own pace. None, too, where the client mostly waited for
    calls of actors meanwhile.
    """
    sent, called = submissions(observation), levels.calling(observation)
    count = len(sent.time)
    if count < MIN_GRAPHS or (width := float(np.median(_in_flight(observation, sent.time)))) >= observation.threads:
        return None
    if called is not None and called.lost_s > _unwanted_s(observation, sent.time[0], sent.time[-1]) / 2:
        return None
    left, last_end = _left(observation, sent.time[1:])
    rounds = np.diff(sent.time)
    empty = left == 0
    gaps = (sent.time[1:] - last_end)[empty]
    waits = empty.mean() >= ALWAYS and _follows(rounds[empty], gaps)
    return SubmissionLoop(
        begin=float(sent.time[0]),
        end=float(sent.time[-1]),
        graphs=count,
        tasks=int(sent.tasks.sum()),
        awaited=float(empty.mean()),
        gap_s=float(np.median(gaps)) if len(gaps) else 0.0,
        round_s=float(np.median(rounds)),
        waits=bool(waits),
        window=0 if waits else _window(observation, sent),
        width=width,
    )


def _in_flight(observation: Observation, moments: Floats) -> Floats:
    """Most tasks that ran or waited for a thread at once, from each moment to the next and from the last to the end."""
    line = levels.timeline(observation)
    cells = np.searchsorted(line.edges, moments, side="right") - 1
    most: Floats = np.maximum.reduceat(line.occupied + line.waiting, np.clip(cells, 0, len(line.occupied) - 1))
    return most


def _window(observation: Observation, sent: Submissions) -> int:
    """Tasks in flight after each graph, if nearly all are sent just after a task has ended; else 0."""
    done = _ends(observation)
    later = sent.time[sent.time > done[0]]
    between = np.diff(done[done <= sent.time[-1]])
    if len(later) < len(sent.time) / 2 or not len(between):
        return 0
    ended = done[np.searchsorted(done, later, side="right") - 1]
    if np.quantile(later - ended, ALWAYS) > PROMPT * float(between.mean()):
        return 0
    left, _ = _left(observation, later)
    return int(np.median(left)) + int(np.median(sent.tasks))


@once
def _ends(observation: Observation) -> Floats:
    """When the scheduler knew each end of an attempt, rising."""
    ends: Floats = np.sort(levels.column(observation, "done") - observation.measured.epoch)
    return ends


def _left(observation: Observation, moments: Floats) -> tuple[Ints, Floats]:
    """Tasks known and not ended at each moment, and when the last before it had ended, by the scheduler's own clock."""
    attempts = observation.measured
    done = _ends(observation)
    # A task is known from the moment at which it is runnable; one that is not yet runnable waits for one that is left.
    known = np.sort(attempts.runnable)
    ended = np.searchsorted(done, moments, side="right")
    left = np.searchsorted(known, moments, side="left") - ended
    return left, done[np.maximum(ended - 1, 0)]


def _follows(rounds: Floats, gaps: Floats) -> bool:
    """Whether rounds follow the work in them, rather than a pace of their own.

    The slope of rounds over work is 1 for a client that waits and 0 for one that does not. Where the work varies too
    little to tell (its standard error exceeds `SLOPE_ERROR`), the client waits if the gaps are short.
    """
    if rounds.sum() <= 0:
        return False
    worked, share = rounds - gaps, float(gaps.sum() / rounds.sum())
    spread = float(worked.std())
    if spread <= 0.01 * worked.mean() or gaps.std() > SLOPE_ERROR * spread * np.sqrt(len(worked)):
        return share <= SHORT_GAP
    slope = float(np.mean((rounds - rounds.mean()) * (worked - worked.mean()))) / spread**2
    return slope > 0.5 and share <= LONG_GAP


def _unwanted_s(observation: Observation, begin: float, end: float) -> float:
    """Thread-seconds idle with no task waiting, in a window."""
    line = levels.timeline(observation)
    return line.integral(line.within(begin, end) * line.unwanted)


@dataclass(frozen=True)
class GraphPacking:
    """Calls of a loop that carry data, and take the client longer than the tasks need.

    Attributes:
        nbytes: Of a graph, median.
        each_s: Seconds from one arrival to the next, median.
        idle_s: Thread-seconds idle with no task waiting, from the first arrival to the last.
    """

    nbytes: float
    each_s: float
    idle_s: float


@once
def packing(observation: Observation) -> GraphPacking | None:
    """What a loop of heavy graphs costs while the client packs and sends them, or None where it mostly does not.

    The main thread packs some, and is seen in the call; others are packed by the thread that sends them, and show by
    the time that so many bytes need.
    """
    found, nbytes = loop(observation), submissions(observation).nbytes
    if found is None or found.waits or found.window or (median := float(np.median(nbytes))) < HEAVY_GRAPH:
        return None
    begin = observation.numbers("client", "time") - observation.measured.epoch
    end = begin + observation.numbers("client", "seconds")
    sends = [str(what).rpartition(".")[2] in levels.SENDING for what in observation.column("client", "what")]
    packed = np.clip(np.minimum(end, found.end) - np.maximum(begin, found.begin), 0, None)[sends].sum()
    if max(packed, nbytes[1:].sum() / BANDWIDTH) < (found.end - found.begin) / 2:
        return None
    return GraphPacking(median, found.round_s, _unwanted_s(observation, found.begin, found.end))


def _evidence(found: SubmissionLoop, lost_s: float) -> tuple[Evidence, ...]:
    return (
        Evidence("graphs sent one after another", found.graphs, "table graphs"),
        Evidence("tasks in them", found.tasks, "table graphs"),
        Evidence("share sent when all earlier tasks had ended", round(found.awaited, 4), "tables graphs and tasks"),
        Evidence("from one graph to the next, median, s", round(found.round_s, 4), "table graphs"),
        Evidence("of that with no task left, median, s", round(found.gap_s, 4), "tables graphs and tasks"),
        Evidence("thread-seconds idle meanwhile, no task waiting", round(lost_s, 3), "tasks and worker time"),
    )


def _per_graph(found: SubmissionLoop) -> str:
    each = found.tasks / found.graphs
    return "1 task" if each == 1 else f"{number(each)} tasks on average"


def one_by_one(observation: Observation) -> levels.ActorCalls | None:
    """Calls of actors on several workers, each of which waited for the one before; None where that costs little."""
    called = levels.calling(observation)
    if called is None or called.workers < 2 or called.calls < MIN_GRAPHS or called.at_once > ONE_AT_A_TIME:
        return None
    costs = observation.share_of(called.lost_s) >= NOTEWORTHY and called.lost_s >= SHORT_S * observation.threads
    return called if costs else None


RESULTS_AWAITED_IN_LOOP = TrialCause(
    code="results-awaited-in-loop",
    title="Each result awaited before the next",
    needs="At least 3 graphs, by the median with fewer tasks in flight than there are threads; at least 90 % of them "
    "arrived when every earlier task had ended, soon after it, and threads were idle meanwhile. Or the client waited "
    "for calls of actors on several workers, of which one ran at a time.",
    ruled_out_by="One graph whose tasks depend on each other (a reduction tree, sequential-graph); graphs that arrive "
    "while earlier ones still run, or at a pace of their own (slow-submission); graphs that fill all threads each; "
    "rounds of 6 tasks at once or more, each too narrow for the threads (too-few-partitions).",
    remedy="Send everything first, then gather: `client.map` and `client.gather`, or one `dask.compute`",
    link="https://docs.dask.org/en/stable/best-practices.html#avoid-calling-compute-repeatedly",
    parts=("no_runnable_task", "client", "tail"),
)


@RESULTS_AWAITED_IN_LOOP.finds
def results_awaited_in_loop(observation: Observation) -> Finding | None:
    """Each of many small graphs is sent only after the result of the one before.

    `lost_s`: threads idle while no task waits, from the arrival of the first graph to the end of the last task; of
    calls of actors, threads idle while these ran and the client waited.
    """
    if (called := one_by_one(observation)) is not None:
        idle = percent(observation.share_of(called.lost_s))
        return RESULTS_AWAITED_IN_LOOP.finding(
            observation,
            called.lost_s,
            f"The client called actors on {called.workers} workers {called.calls:,} times (`{called.method}`), each "
            f"only after the one before had answered, so that {idle} of the worker time was idle.",
            "call all actors before the first answer is asked for: `futures = [actor.method() for actor in actors]`, "
            "then `.result()` of each",
            Evidence("calls of actors", called.calls, "events of actors"),
            Evidence("workers with actors that were called", called.workers, "events of actors"),
            Evidence("calls that ran at a time, mean", round(called.at_once, 2), "events of actors"),
            Evidence("thread-seconds idle meanwhile", round(called.lost_s, 3), "tables client and tasks"),
            confidence=0.9,
        )
    found = loop(observation)
    if found is None or not found.waits or found.width >= ROUND:
        return None
    lost_s = _unwanted_s(observation, found.begin, observation.measured.makespan)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    prefix = levels.most_common_prefix(observation)
    single = found.tasks == found.graphs
    remedy = (
        f"use `futures = client.map({prefix}, items)` and `client.gather(futures)` instead of `client.submit({prefix}, "
        "item).result()` in the loop"
        if single
        else "collect the lazy results of all rounds and call `dask.compute(*results)` once (with futures: submit all, "
        "then `client.gather`) instead of `.compute()` or `.result()` in the loop"
    )
    return RESULTS_AWAITED_IN_LOOP.finding(
        observation,
        lost_s,
        f"The client sent {found.graphs:,} graphs of {_per_graph(found)} (`{prefix}`), each only after the result of "
        f"the one before had come back, so that {percent(share)} of the worker time was idle.",
        f"{remedy}; wait only where a round needs the result of the one before",
        *_evidence(found, lost_s),
        confidence=0.95 if found.gap_s <= 0.1 * found.round_s else 0.8,
    )


SLOW_SUBMISSION = TrialCause(
    code="slow-submission",
    title="Tasks sent too slowly",
    needs="At least 3 graphs, by the median with fewer tasks in flight than there are threads, arrive one after "
    "another, and while they do threads are idle with no task waiting.",
    ruled_out_by="A client that sends faster than the threads take (tasks wait); one that waits for each result "
    "(results-awaited-in-loop), or sends one when one ends (few-tasks-in-flight); a client that packs data with each "
    "graph (large-graph, serialisation-bound); idle threads after the last graph has arrived.",
    remedy="`client.map` instead of `client.submit` in a loop; prepare inputs within tasks",
    link="https://docs.dask.org/en/stable/futures.html",
    parts=("no_runnable_task", "client"),
)


@SLOW_SUBMISSION.finds
def slow_submission(observation: Observation) -> Finding | None:
    """Many small graphs arrive one after another too slowly to keep the threads busy.

    `lost_s`: threads idle while no task waits, from the arrival of the first graph to that of the last.
    """
    found = loop(observation)
    if found is None or found.waits or found.window or packing(observation) is not None:
        return None
    attempts = observation.measured
    lost_s = _unwanted_s(observation, found.begin, found.end)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    prefix, window = levels.most_common_prefix(observation), max(found.end - found.begin, 1e-9)
    mean_s = float((attempts.stop - attempts.start).mean())
    rate, needed = found.tasks / window, observation.threads / max(mean_s, 1e-9)
    return SLOW_SUBMISSION.finding(
        observation,
        lost_s,
        f"The client sent {found.graphs:,} graphs of {_per_graph(found)} (`{prefix}`) one after another, {rate:,.3g} "
        f"tasks per second; {plural(observation.threads, 'thread')} at {words.duration(mean_s)} a task need "
        f"{needed:,.3g}, so that {percent(share)} of the worker time was idle.",
        f"send all at once with `client.map({prefix}, items)` (or one `dask.compute`), and move what the client "
        f"computes between two calls ({words.duration(found.round_s)}) into the tasks",
        *_evidence(found, lost_s),
        Evidence("tasks sent per second", round(rate, 3), "table graphs"),
        Evidence("tasks per second that the threads could take", round(needed, 3), "threads by mean duration"),
        confidence=0.7,
    )


FEW_TASKS_IN_FLIGHT = TrialCause(
    code="few-tasks-in-flight",
    title="The client keeps too few tasks in flight",
    needs="At least 3 graphs arrive one after another, nine in ten of them sooner after the end of a task than a "
    "fifth of the time between such ends; and fewer tasks than threads are in flight.",
    ruled_out_by="A client that waits until all tasks have ended (results-awaited-in-loop), or that sends at a pace of "
    "its own (slow-submission); threads that are all in use.",
    remedy="Submit at least twice as many tasks as there are threads before the loop that waits for one and sends one",
    link="https://docs.dask.org/en/stable/futures.html#waiting-on-futures",
    parts=("no_runnable_task",),
)


@FEW_TASKS_IN_FLIGHT.finds
def few_tasks_in_flight(observation: Observation) -> Finding | None:
    """The client sends a task when one has ended, and began with fewer than there are threads.

    `lost_s`: threads idle while no task waits, from the arrival of the first graph to that of the last.
    """
    found = loop(observation)
    if found is None or not 0 < found.window < observation.threads:
        return None
    lost_s = _unwanted_s(observation, found.begin, found.end)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    prefix, enough = levels.most_common_prefix(observation), 2 * observation.threads
    return FEW_TASKS_IN_FLIGHT.finding(
        observation,
        lost_s,
        f"The client keeps {plural(found.window, 'task')} (`{prefix}`) in flight for "
        f"{plural(observation.threads, 'thread')} and sends more when one has ended, so that {percent(share)} of the "
        "worker time was idle.",
        f"submit {enough:,} `{prefix}` before the loop over `as_completed` that adds one for each that ends, or all at "
        "once where no result decides what comes next",
        Evidence("tasks in flight after each graph, median", found.window, "tables graphs and tasks"),
        *_evidence(found, lost_s),
        confidence=0.85,
    )


LARGE_GRAPH = TrialCause(
    code="large-graph",
    title="The graph itself is large",
    needs="A graph of 10 MB (Dask's own warning) or 10,000 tasks or more; and a tenth of the worker time passes while "
    "it is under way, or the scheduler takes it in, and threads have nothing to do.",
    ruled_out_by="A large graph that is taken in quickly against its run, or while threads work on another; a slow "
    "intake of a small graph (the scheduler is busy with something else).",
    remedy="Constants: load them within tasks, or `client.scatter` them; many tasks: larger chunks",
    link="https://docs.dask.org/en/stable/best-practices.html#load-data-with-dask",
    parts=("no_runnable_task", "client"),
)


def large(sent: Submissions) -> Bools:
    """Which graphs are so large that this may cost time."""
    return (sent.nbytes >= LARGE_BYTES) | (sent.tasks >= MANY_TASKS)


def heavy(sent: Submissions) -> Bools:
    """Which graphs are so large, or are not, but have tasks that carry data: packing them costs time."""
    return large(sent) | (sent.nbytes >= HEAVY_GRAPH * np.maximum(sent.tasks, 1))


@LARGE_GRAPH.finds
def large_graph(observation: Observation) -> Finding | None:
    """A graph is so large that workers wait until it has arrived and the scheduler has taken it in.

    `lost_s`: all threads while the scheduler took in such a graph before the first task was known, threads idle while
    it took in a later one and no task waited, and the part `client` while the client packed and sent graphs, or waited.
    The share is of the worker time, with the first of these added where the client was not watched.
    """
    sent = submissions(observation)
    which = large(sent)
    if not which.any():
        return None
    makespan = observation.measured.makespan
    before_s = float(np.clip(np.minimum(sent.seconds, -sent.time), 0.0, None)[which].sum())
    within_s = sum(
        _unwanted_s(observation, float(begin), float(begin + seconds))
        for begin, seconds in zip(sent.time[which], sent.seconds[which], strict=True)
        if begin + seconds > 0
    )
    free = levels.unoccupied(observation)
    under_way_s = float(free.seconds[free.sends][:, [levels.BEFORE, levels.BETWEEN]].sum())
    packed = packing(observation)
    in_loop = packed if packed is not None and packed.nbytes >= LARGE_BYTES else None
    if in_loop is not None:  # all between the first graph and the last
        within_s, under_way_s = in_loop.idle_s, float(free.seconds[free.sends][:, levels.BEFORE].sum())
    lost_s = observation.threads * before_s + within_s + under_way_s
    share = lost_s / (observation.threads * max(observation.measured.elapsed, makespan + before_s))
    if share < NOTEWORTHY:
        return None
    worst = int(np.flatnonzero(which)[(sent.seconds + 1e-9 * sent.nbytes)[which].argmax()])
    nbytes, tasks, longest_s = int(sent.nbytes[worst]), int(sent.tasks[worst]), float(sent.seconds[worst])
    by_bytes = nbytes >= LARGE_BYTES
    remedy = (
        f"take large objects out of the calls: load them within tasks, or {SCATTER}"
        if by_bytes
        else "make fewer tasks of it: larger chunks or partitions, `blocksize=` or `npartitions=` for about "
        f"{max(observation.threads * 10, 1):,} tasks per step, or functions that do several steps"
    )
    one = f"a graph of {plural(tasks, 'task')} and {words.size(nbytes)}"
    took = f"The scheduler needed {words.duration(longest_s)} to take in {one}"
    if under_way_s > lost_s / 2:
        took = f"The client needed {words.duration(under_way_s / observation.threads)} to send {one}"
    elif in_loop is not None:
        took = (
            f"The client needed {words.duration(in_loop.each_s)} to pack and send each of {len(sent.time):,} graphs "
            f"of {words.size(in_loop.nbytes)}"
        )
    return LARGE_GRAPH.finding(
        observation,
        lost_s,
        f"{took} while workers waited: {percent(share)} of their time.",
        remedy,
        Evidence("bytes of the graph", nbytes, "table graphs"),
        Evidence("tasks of the graph", tasks, "table graphs"),
        Evidence("seconds to take it in", round(longest_s, 3), "table graphs"),
        Evidence("graphs so large", int(which.sum()), "table graphs"),
        Evidence("thread-seconds while graphs were under way", round(under_way_s, 3), "tables client and tasks"),
        Evidence(
            "thread-seconds of intake before the first task", round(lost_s - within_s - under_way_s, 3), "table graphs"
        ),
        Evidence("thread-seconds idle during the makespan", round(within_s, 3), "tables graphs and tasks"),
        confidence=0.9,
    )


NESTED_CLIENT = TrialCause(
    code="nested-client",
    title="Tasks that submit tasks",
    needs="Graphs from clients that run inside tasks, and the tasks that were running then: a tenth of the worker time "
    "passes while they hold threads, or, where they send graph after graph, while threads are idle with such a task "
    "about; or while each bundle of Beam computes a side input again. Or nothing moved when the trial was stopped, all "
    "threads of a worker were held by tasks that waited for results, and others lacked a thread.",
    ruled_out_by="Tasks that secede (`worker_client()`) and keep all threads busy with what they send; tasks that end "
    "sooner than what they have sent, and so do not wait for it.",
    remedy="Submit from the client, passing futures as arguments; or `with worker_client()`",
    link="https://distributed.dask.org/en/stable/task-launch.html",
    parts=("busy", "no_runnable_task", "tail"),
    spoils=40,
    without_attempts=True,
)


@NESTED_CLIENT.finds
def nested_client(observation: Observation) -> Finding | None:
    """Tasks submit tasks and hold their threads while they wait, or decide how many there are at once.

    `lost_s`: thread-seconds for which tasks that had sent a graph went on occupying a thread (they compute in name
    only; none where they seceded, which shows as more tasks running on a worker than it has threads), plus threads idle
    with no task waiting while such tasks were there, if these send graph after graph: a single one is as wide from
    within a task as from the client; plus what bundles of Beam compute of their side inputs, but for the first of them.
    All of the trial, where nothing moved any more.
    """
    if deadlock := _deadlock(observation):
        return deadlock
    sent = submissions(observation)
    if observation.attempts is None or not len(sent.nested_at):
        return None
    attempts, line = observation.attempts, levels.timeline(observation)
    parents = _parents(observation, sent.nested_at)
    if not parents.any() or not _outlive(observation, parents, sent.nested_at):
        return None
    first = sent.nested_at[np.searchsorted(sent.nested_at, attempts.start[parents])]
    waiting_parents = line.level(first, attempts.stop[parents])
    seceded = _seceded(observation, parents)
    blocked_s = 0.0 if seceded else line.integral(waiting_parents)
    in_turn = len(sent.nested_at) > int(parents.sum())
    idle_s = line.integral(np.where(waiting_parents > 0, line.unwanted, 0.0)) if in_turn else 0.0
    again_s = _side_inputs_s(observation, parents, sent.nested_at)
    lost_s = blocked_s + idle_s + again_s
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    names, place = levels.prefixes(observation)
    prefix, count = names[int(place[parents][0])], int(parents.sum())
    their, threads, they = ("its", "thread", "it") if count == 1 else ("their", "threads", "they")
    how = f"gave up {their} {threads}, but" if seceded else f"held {their} {threads} while {they} waited, having"
    wrap = "" if seceded else "; or let it give up its thread with `with worker_client() as client:`"
    remedy = (
        f"let the client send what `{prefix}` sends: pass futures on as arguments instead of calling `get_client()` in "
        f"the task{wrap}"
    )
    if prefix == BEAM_TASK or again_s:
        remedy = BEAM_SIDE_INPUTS
    return NESTED_CLIENT.finding(
        observation,
        lost_s,
        f"{plural(count, 'task')} `{prefix}` {how} sent {plural(len(sent.nested_at), 'graph')} of {their} own with "
        f"{plural(sent.nested_tasks, 'task')}, which costs {percent(share)} of the worker time.",
        remedy,
        Evidence("graphs sent from within tasks", len(sent.nested_at), "table graphs"),
        Evidence("tasks in them", sent.nested_tasks, "table graphs"),
        Evidence("tasks that sent them", count, f"table tasks, prefix {prefix}"),
        Evidence("thread-seconds held while waiting", round(blocked_s, 3), "tables graphs and tasks"),
        Evidence("thread-seconds idle meanwhile, no task waiting", round(idle_s, 3), "tasks and worker time"),
        *([Evidence("thread-seconds of side inputs computed again", round(again_s, 3), "table tasks")] * bool(again_s)),
        confidence=0.8,
    )


def _side_inputs_s(observation: Observation, parents: Bools, nested_at: Floats) -> float:
    """Thread-seconds of Beam's tasks that tasks sent, all of them the same side input, but for the first."""
    attempts = observation.measured
    near = np.searchsorted(nested_at, attempts.runnable + CLOSE_S) > np.searchsorted(
        nested_at, attempts.runnable - CLOSE_S
    )
    sent = near & ~parents & attempts.useful & (np.asarray(attempts.prefix) == BEAM_TASK)
    work_s = float((attempts.stop - attempts.start)[sent].sum())
    return work_s * (1 - 1 / len(nested_at))


def _parents(observation: Observation, nested_at: Floats) -> Bools:
    """The tasks that can have sent the nested graphs: of the prefix that was running at most of those moments."""
    attempts = observation.measured
    _, place = levels.prefixes(observation)
    held = np.searchsorted(nested_at, attempts.stop) > np.searchsorted(nested_at, attempts.start)
    best, most = np.zeros(len(held), dtype=bool), (0.0, 0.0)
    for prefix in np.unique(place[held]):
        chosen = held & (place == prefix)
        begun = np.searchsorted(np.sort(attempts.start[chosen]), nested_at, side="right")
        ended = np.searchsorted(np.sort(attempts.stop[chosen]), nested_at, side="right")
        # Of several that were always running, the one whose tasks are longer has sent the other.
        score = (float((begun > ended).mean()), float((attempts.stop - attempts.start)[chosen].mean()))
        if score > most:
            best, most = chosen, score
    return best


def _outlive(observation: Observation, parents: Bools, nested_at: Floats) -> bool:
    """Whether tasks were there until what they had sent was done, for most of the graphs: who goes sooner waits not."""
    attempts = observation.measured
    runnable, stop = attempts.runnable[~parents], attempts.stop[~parents]
    order = np.argsort(runnable)
    first = np.searchsorted(runnable[order], nested_at - CLOSE_S)
    last = np.searchsorted(runnable[order], nested_at + CLOSE_S)
    sent = first < last
    if not sent.any():
        return True
    ends = np.array([stop[order[i:j]].max() for i, j in zip(first[sent], last[sent], strict=True)])
    begun = np.argsort(attempts.start[parents])
    until = np.maximum.accumulate(attempts.stop[parents][begun])
    among = np.searchsorted(attempts.start[parents][begun], nested_at[sent], side="right")
    outlived = until[np.maximum(among - 1, 0)] >= ends
    return bool(outlived.mean() >= 0.5)


def _seceded(observation: Observation, parents: Bools) -> bool:
    """Whether on most workers with parents more tasks ran at once than there are threads."""
    attempts = observation.measured
    threads = np.zeros(len(attempts.addresses), np.int64)
    np.add.at(threads, attempts.members.worker, attempts.members.nthreads)
    workers = np.unique(attempts.worker[parents])
    order = np.argsort(attempts.worker, kind="stable")
    bounds = np.searchsorted(attempts.worker[order], [workers, workers + 1])
    more = [
        peak(attempts.start[order[begin:end]], attempts.stop[order[begin:end]]) > threads[worker]
        for worker, begin, end in zip(workers.tolist(), *bounds.tolist(), strict=True)
    ]
    return bool(sum(more) > len(more) / 2)


def _deadlock(observation: Observation) -> Finding | None:
    """Tasks hold all threads of a worker, or of all, and wait for results, while other tasks only lack a thread."""
    found = observation.standstill
    if found is None:
        return None
    stuck = [each for each in found.holding if each.stuck]
    waiting = [each for each in stuck if each.waits_for in RESULTS]
    starved = sum(each.stuck for each in found.groups if each.problem == NO_THREAD)
    if sum(each.stuck for each in stuck) >= found.threads:
        starved = found.ready
    if not waiting or not starved:
        return None
    worst, tasks = waiting[0], sum(each.stuck for each in waiting)
    return NESTED_CLIENT.finding(
        observation,
        observation.threads * observation.trial.real_s,
        f"Nothing moved any more: {plural(tasks, 'task')} (`{worst.prefix}`) held {tasks:,} of "
        f"{plural(found.threads, 'thread')} and waited for results in `{worst.call}` at {worst.where}, while "
        f"{plural(starved, 'task')} lacked a thread.",
        f"let `{worst.prefix}` give up its thread while it waits (`with worker_client() as client:`, `secede()`), or "
        "let the client send what it sends and pass futures on as arguments",
        Evidence("threads held by tasks that wait for results", tasks, "facts standstill"),
        Evidence("tasks that only lack a thread", starved, "facts standstill"),
        Evidence("tasks that had not ended", found.left, "facts standstill"),
        confidence=0.95,
        severity=Severity.HIGH,
    )
