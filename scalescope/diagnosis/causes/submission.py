"""Causes that lie in how work is sent: one by one, too late, too large, or from within tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints
from scalescope.analysis.measure import peak
from scalescope.analysis.summary import percent, plural
from scalescope.diagnosis import levels, words
from scalescope.diagnosis.observation import Observation, TrialCause, once
from scalescope.diagnosis.registry import NOTEWORTHY
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.trial import TrialState

NESTED = "Client-worker-"
"""How the name of a client that runs inside a task begins (`scalescope.model.records`)."""
BEAM_TASK = "apply_dofn_to_bundle"
"""Prefix of the tasks of a ParDo of Beam's Dask runner."""
BEAM_SIDE_INPUTS = (
    "Beam's Dask runner computes a side input within the task that reads it: combine with "
    "`CombineGlobally(...).without_defaults()`, which needs none, and pass small values as arguments"
)
MIN_GRAPHS = 5
"""Graphs from which on sending them is a loop."""
ALWAYS = 0.9
"""Share of the graphs of a loop that must have been sent with nothing left to do."""
SLOPE_ERROR = 0.15
"""Standard error up to which it is clear whether the time from graph to graph follows the tasks between."""
SHORT_GAP, LONG_GAP = 0.25, 0.5
"""Share of that time that may pass without a task where the client waits for results: if unclear, and if clear."""
LARGE_BYTES = 10_000_000
"""Bytes of a graph of which Dask warns (`distributed.admin.large-graph-warning-threshold`)."""
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


# ------------------------------------------------------------------ loops


@dataclass(frozen=True)
class Loop:
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
    """

    begin: float
    end: float
    graphs: int
    tasks: int
    awaited: float
    gap_s: float
    round_s: float
    waits: bool


@once
def loop(observation: Observation) -> Loop | None:
    """The loop in which the client sent small graphs, or None.

    Small: by the median, a graph has fewer tasks than there are threads. The client waits for results when (nearly)
    every graph arrives with nothing left to do, soon after the last task, and later where that took longer: a client
    that is slow by itself keeps its own pace.
    """
    sent = submissions(observation)
    count = len(sent.time)
    if count < MIN_GRAPHS or np.median(sent.tasks) >= observation.threads:
        return None
    left, last_end = _left(observation, sent.time[1:])
    rounds = np.diff(sent.time)
    empty = left == 0
    gaps = (sent.time[1:] - last_end)[empty]
    waits = empty.mean() >= ALWAYS and _follows(rounds[empty], gaps)
    return Loop(
        begin=float(sent.time[0]),
        end=float(sent.time[-1]),
        graphs=count,
        tasks=int(sent.tasks.sum()),
        awaited=float(empty.mean()),
        gap_s=float(np.median(gaps)) if len(gaps) else 0.0,
        round_s=float(np.median(rounds)),
        waits=bool(waits),
    )


def _left(observation: Observation, moments: Floats) -> tuple[Ints, Floats]:
    """Tasks known and not ended at each moment, and when the last before it had ended, by the scheduler's own clock."""
    attempts = observation.measured
    done = np.sort(levels.column(observation, "done") - attempts.epoch)
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


def _evidence(found: Loop, lost_s: float) -> tuple[Evidence, ...]:
    return (
        Evidence("graphs sent one after another", found.graphs, "table graphs"),
        Evidence("tasks in them", found.tasks, "table graphs"),
        Evidence("share sent when all earlier tasks had ended", round(found.awaited, 4), "tables graphs and tasks"),
        Evidence("from one graph to the next, median, s", round(found.round_s, 4), "table graphs"),
        Evidence("of that with no task left, median, s", round(found.gap_s, 4), "tables graphs and tasks"),
        Evidence("thread-seconds idle meanwhile, no task waiting", round(lost_s, 3), "tasks and worker time"),
    )


def _per_graph(found: Loop) -> str:
    each = found.tasks / found.graphs
    return "1 task" if each == 1 else f"{each:.3g} tasks on average"


RESULTS_AWAITED_IN_LOOP = TrialCause(
    code="results-awaited-in-loop",
    title="Each result awaited before the next",
    needs="At least 5 graphs, by the median with fewer tasks than there are threads; at least 90 % of them arrived "
    "when every earlier task had ended, soon after it, and threads were idle meanwhile.",
    ruled_out_by="One graph whose tasks depend on each other (a reduction tree, sequential-graph); graphs that arrive "
    "while earlier ones still run, or at a pace of their own (slow-submission); graphs that fill all threads each.",
    remedy="Send everything first, then gather: `client.map` and `client.gather`, or one `dask.compute`",
    link="https://docs.dask.org/en/stable/best-practices.html#avoid-calling-compute-repeatedly",
    parts=("no_runnable_task", "tail"),
)


@RESULTS_AWAITED_IN_LOOP.finds
def results_awaited_in_loop(observation: Observation) -> Finding | None:
    """Each of many small graphs is sent only after the result of the one before.

    `lost_s`: threads idle while no task waits, from the arrival of the first graph to the end of the last task.
    """
    found = loop(observation)
    if found is None or not found.waits:
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
    needs="At least 5 graphs, by the median with fewer tasks than there are threads, arrive one after another, and "
    "while they do threads are idle with no task waiting.",
    ruled_out_by="A client that sends faster than the threads take (tasks wait); one that waits for each result "
    "(results-awaited-in-loop); idle threads after the last graph has arrived.",
    remedy="`client.map` instead of `client.submit` in a loop; prepare inputs within tasks",
    link="https://docs.dask.org/en/stable/futures.html",
    parts=("no_runnable_task",),
)


@SLOW_SUBMISSION.finds
def slow_submission(observation: Observation) -> Finding | None:
    """Many small graphs arrive one after another too slowly to keep the threads busy.

    `lost_s`: threads idle while no task waits, from the arrival of the first graph to that of the last.
    """
    found = loop(observation)
    if found is None or found.waits:
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
        confidence=0.85,
    )


LARGE_GRAPH = TrialCause(
    code="large-graph",
    title="The graph itself is large",
    needs="A graph of 10 MB (Dask's own warning) or 10,000 tasks or more; and a tenth of the worker time, with the "
    "time before the first task added, passes while the scheduler takes it in and threads have nothing to do.",
    ruled_out_by="A large graph that is taken in quickly against its run, or while threads work on another; a slow "
    "intake of a small graph (the scheduler is busy with something else).",
    remedy="Constants: load them within tasks, or `client.scatter` them; many tasks: larger chunks",
    link="https://docs.dask.org/en/stable/best-practices.html#load-data-with-dask",
    parts=("no_runnable_task",),
)


@LARGE_GRAPH.finds
def large_graph(observation: Observation) -> Finding | None:
    """A graph is so large that workers wait until the scheduler has taken it in.

    `lost_s`: all threads while the scheduler took in such a graph before the first task was known, and threads idle
    while it took in a later one and no task waited. The share is of the worker time with that first wait added.
    """
    sent = submissions(observation)
    large = (sent.nbytes >= LARGE_BYTES) | (sent.tasks >= MANY_TASKS)
    if not large.any():
        return None
    makespan = observation.measured.makespan
    before_s = float(np.clip(np.minimum(sent.seconds, -sent.time), 0.0, None)[large].sum())
    within_s = sum(
        _unwanted_s(observation, float(begin), float(begin + seconds))
        for begin, seconds in zip(sent.time[large], sent.seconds[large], strict=True)
        if begin + seconds > 0
    )
    lost_s = observation.threads * before_s + within_s
    share = lost_s / (observation.threads * (makespan + before_s))
    if share < NOTEWORTHY:
        return None
    worst = int(np.flatnonzero(large)[sent.seconds[large].argmax()])
    nbytes, tasks, longest_s = int(sent.nbytes[worst]), int(sent.tasks[worst]), float(sent.seconds[worst])
    by_bytes = nbytes >= LARGE_BYTES
    remedy = (
        "take large objects out of the calls: load them within tasks, or `future = client.scatter(data, "
        "broadcast=True)` once and pass `future`"
        if by_bytes
        else "make fewer tasks of it: larger chunks or partitions, `blocksize=` or `npartitions=` for about "
        f"{max(observation.threads * 10, 1):,} tasks per step, or functions that do several steps"
    )
    return LARGE_GRAPH.finding(
        observation,
        lost_s,
        f"The scheduler needed {words.duration(longest_s)} to take in a graph of {plural(tasks, 'task')} and "
        f"{words.size(nbytes)} while workers waited: {percent(share)} of their time.",
        remedy,
        Evidence("bytes of the graph", nbytes, "table graphs"),
        Evidence("tasks of the graph", tasks, "table graphs"),
        Evidence("seconds to take it in", round(longest_s, 3), "table graphs"),
        Evidence("graphs so large", int(large.sum()), "table graphs"),
        Evidence("thread-seconds lost before the first task was known", round(lost_s - within_s, 3), "table graphs"),
        Evidence("thread-seconds idle during the makespan", round(within_s, 3), "tables graphs and tasks"),
        confidence=0.9,
    )


NESTED_CLIENT = TrialCause(
    code="nested-client",
    title="Tasks that submit tasks",
    needs="Graphs from clients that run inside tasks, and the tasks that were running then: a tenth of the worker time "
    "passes while they hold threads, or, where they send graph after graph, while threads are idle with such a task "
    "about.",
    ruled_out_by="Tasks that secede (`worker_client()`) and keep all threads busy with what they send.",
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
    within a task as from the client.
    """
    sent = submissions(observation)
    if not len(sent.nested_at):
        return None
    if observation.attempts is None:
        return _deadlock(observation, sent)
    attempts, line = observation.attempts, levels.timeline(observation)
    parents = _parents(observation, sent.nested_at)
    if not parents.any():
        return None
    first = sent.nested_at[np.searchsorted(sent.nested_at, attempts.start[parents])]
    waiting_parents = line.level(first, attempts.stop[parents])
    seceded = _seceded(observation, parents)
    blocked_s = 0.0 if seceded else line.integral(waiting_parents)
    in_turn = len(sent.nested_at) > int(parents.sum())
    idle_s = line.integral(np.where(waiting_parents > 0, line.unwanted, 0.0)) if in_turn else 0.0
    lost_s = blocked_s + idle_s
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
    if prefix == BEAM_TASK:
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
        confidence=0.8,
    )


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


def _deadlock(observation: Observation, sent: Submissions) -> Finding | None:
    """Tasks sent tasks, and none ever finished: all threads may be held by those that wait."""
    trial = observation.trial
    if trial.state is TrialState.VALID:
        return None
    return NESTED_CLIENT.finding(
        observation,
        observation.threads * trial.real_s,
        f"Tasks sent {plural(len(sent.nested_at), 'graph')} of their own and no task finished: they may hold all "
        f"{plural(observation.threads, 'thread')} while they wait for tasks that need one.",
        "let tasks that wait give up their thread with `with worker_client() as client:`, or let the client send what "
        "they send",
        Evidence("graphs sent from within tasks", len(sent.nested_at), "table graphs"),
        confidence=0.7,
        severity=Severity.HIGH,
    )
