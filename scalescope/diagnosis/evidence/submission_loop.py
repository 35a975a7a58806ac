"""Loops in which a client sends many small graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints
from scalescope.analysis.graph_from_records import PROMPT, sent_after_waiting
from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.evidence.client_time import ActorCalls, actor_calls
from scalescope.diagnosis.evidence.submissions import BANDWIDTH, HEAVY_GRAPH, Submissions, submissions
from scalescope.diagnosis.evidence.task_table import task_column, worker_of_rows
from scalescope.diagnosis.evidence.timeline import time_here, timeline
from scalescope.diagnosis.observation import Observation, once
from scalescope.model.finding import SENT, Evidence, Place
from scalescope.model.records import HASHED, SENDING
from scalescope.model.words import number

MIN_GRAPHS = 3  # fewest graphs that count as a loop
MOSTLY_AWAITS = 0.7  # least share of a loop spent waiting for results, for the client not to count as slow
ALWAYS = 0.9  # least `SubmissionLoop.awaited`, for the client to count as waiting for results
SLOPE_ERROR = 0.15  # largest standard error of the slope in `_follows` with which the slope decides
# Most idle time, as a share of the rounds, of a client that waits: with an unclear slope, and with a clear one
SHORT_GAP, LONG_GAP = 0.25, 0.5


@dataclass(frozen=True)
class SubmissionLoop:
    """Graphs sent one after another."""

    begin: float  # arrival of the first graph, in seconds since the first task was known
    end: float  # arrival of the last graph, in seconds since the first task was known
    seconds: float  # seconds from the first to the last, without waits for other clusters
    graphs: int  # number of graphs; those sent without waiting in between count as one
    unit: str  # `graph`, or `round` where several were sent without waiting
    tasks: int  # tasks in all these graphs
    awaited: float  # share of the time between graphs in rounds at whose end no earlier task was left
    gap_s: float  # median seconds from the end of all earlier tasks to the arrival of a graph
    round_s: float  # seconds from one arrival to the next, median
    waits: bool  # True if the client waits for results before it sends more; False if the client is slow
    window: int  # tasks that the client keeps in flight, if it sends one task whenever one has ended; else 0
    width: float  # most tasks in flight from one graph to the next, median


def loop(observation: Observation) -> SubmissionLoop | None:
    """The loop in which the client sent small graphs: typically, fewer tasks in flight than threads."""
    found = _one_after_another(observation)
    return found if found and found.width < observation.threads else None


def wide_rounds(observation: Observation) -> SubmissionLoop | None:
    """Graphs with tasks for all threads, each sent after all results of the one before."""
    found = _one_after_another(observation)
    return found if found and found.waits and found.width >= observation.threads else None


def refilled(observation: Observation) -> SubmissionLoop | None:
    """Graphs of a client that sent another one whenever a task had ended."""
    found = _one_after_another(observation)
    return found if found and found.window else None


@once
def _one_after_another(observation: Observation) -> SubmissionLoop | None:
    """Graphs that came one after another; None where the client mostly waited for calls of actors.

    The client counts as waiting for results if nearly every graph arrives when no task is left, and either the client
    was seen to wait, or graphs follow the end of the last task however long that took (`_follows`). A slow client
    keeps its own pace.
    """
    sent, called = submissions(observation), actor_calls(observation)
    if len(sent.time) < MIN_GRAPHS:
        return None
    awaits = _awaits(observation, sent)
    time, tasks = _sent_at_once(observation, sent) if awaits else (sent.time, sent.tasks)
    if (count := len(time)) < MIN_GRAPHS:
        return None
    width = float(np.median(_in_flight(observation, time)))
    if called is not None and called.lost_s > unwanted_s(observation, time[0], time[-1]) / 2:
        return None
    left, last_end = _left(observation, time[1:])
    here = time_here(observation)
    rounds = np.diff(here(time))
    empty = left == 0
    gaps = (here(time[1:]) - here(last_end))[empty]
    awaited = float(rounds[empty].sum() / max(rounds.sum(), 1e-9))
    waits = awaited >= ALWAYS and (awaits or _follows(rounds[empty], gaps))
    return SubmissionLoop(
        begin=float(time[0]),
        end=float(sent.time[-1]),
        graphs=count,
        unit="graph" if count == len(sent.time) else "round",
        seconds=_seconds(observation, float(time[0]), float(sent.time[-1])),
        tasks=int(tasks.sum()),
        awaited=awaited,
        gap_s=float(np.median(gaps)) if len(gaps) else 0.0,
        round_s=float(np.median(rounds)),
        waits=bool(waits),
        window=0 if waits else _window(observation, time, tasks) or awaits * max(int(width), 1),
        width=width,
    )


def _sent_at_once(observation: Observation, sent: Submissions) -> tuple[Floats, Ints]:
    """Times at which a client that waits for results began to send more, and the number of tasks it sent then."""
    times = sent.time + observation.measured.epoch
    waited = sent_after_waiting(observation.tables, times, virtual=observation.trial.virtual)
    begins = np.flatnonzero(np.append(True, waited))
    return sent.time[begins], np.add.reduceat(sent.tasks, begins)


def sent_first(observation: Observation) -> int:
    """Number of tasks that the client had sent when the first task ended."""
    sent = submissions(observation)
    return int(sent.tasks[sent.time <= _ends(observation)[0]].sum())


def _in_flight(observation: Observation, moments: Floats) -> Floats:
    line = timeline(observation)
    cells = np.searchsorted(line.edges, moments, side="right") - 1
    most: Floats = np.maximum.reduceat(line.occupied + line.waiting, np.clip(cells, 0, len(line.occupied) - 1))
    return most


def _window(observation: Observation, time: Floats, tasks: Ints) -> int:
    """Tasks in flight after each graph, if nearly all are sent right after an end; else 0.

    Also 0 for a client with a regular pace: it sends right after ends by chance, if tasks take a multiple of its pace.
    """
    done, here = _ends(observation), time_here(observation)
    later = time[time > done[0]]
    between, paces = np.diff(here(done[done <= time[-1]])), np.diff(here(later))
    if len(later) < max(len(time) / 2, 2) or not len(between) or paces.std() < PROMPT * paces.mean():
        return 0
    ended = done[np.searchsorted(done, later, side="right") - 1]
    if np.quantile(here(later) - here(ended), ALWAYS) > PROMPT * float(between.mean()):
        return 0
    left, _ = _left(observation, later)
    return int(np.median(left)) + int(np.median(tasks))


def _awaits(observation: Observation, sent: Submissions) -> bool:
    """Whether the client was seen to wait for results for most of the loop."""
    begin, end = float(sent.time[0]), float(sent.time[-1])
    results = np.array([call not in (*SENDING, "scatter") for call in observation.client_calls], dtype=bool)
    awaited = _client_s(observation, begin, end)[results & observation.client_waits].sum()
    return bool(awaited > MOSTLY_AWAITS * _seconds(observation, begin, end))


def _client_s(observation: Observation, begin: float, end: float) -> Floats:
    """Seconds of each row of the table `client` within [begin, end)."""
    since, until = observation.client_spans
    seconds: Floats = np.clip(np.minimum(until, end) - np.maximum(since, begin), 0, None)
    return seconds


def _seconds(observation: Observation, begin: float, end: float) -> float:
    """Seconds from `begin` to `end`, less the client's waits for other clusters while this one had no task."""
    return float(np.diff(time_here(observation)(np.array([begin, end])))[0])


@once
def _ends(observation: Observation) -> Floats:
    ends: Floats = np.sort(task_column(observation, "done") - observation.measured.epoch)
    return ends


def _left(observation: Observation, moments: Floats) -> tuple[Ints, Floats]:
    """Tasks known and not ended at each moment, and the last end before it, by the scheduler's clock."""
    done = _ends(observation)
    # A task is known once it is runnable; until then an unfinished task holds it back.
    known = np.sort(observation.measured.runnable)
    ended = np.searchsorted(done, moments, side="right")
    return np.searchsorted(known, moments, side="left") - ended, done[np.maximum(ended - 1, 0)]


def _follows(rounds: Floats, gaps: Floats) -> bool:
    """Whether the length of rounds follows the work in them: a slope of 1 for a client that waits, else of 0.

    Where the work varies too little to tell, the client waits if the gaps are short.
    """
    if rounds.sum() <= 0:
        return False
    worked, share = rounds - gaps, float(gaps.sum() / rounds.sum())
    spread = float(worked.std())
    if spread <= 0.01 * worked.mean() or gaps.std() > SLOPE_ERROR * spread * np.sqrt(len(worked)):
        return share <= SHORT_GAP
    slope = float(np.mean((rounds - rounds.mean()) * (worked - worked.mean()))) / spread**2
    return slope > 0.5 and share <= LONG_GAP


def unwanted_s(observation: Observation, begin: float, end: float) -> float:
    line = timeline(observation)
    return line.integral(line.within(begin, end) * line.unwanted)


@dataclass(frozen=True)
class GraphPacking:
    """A loop that the client mostly spends on packing and sending the data of its calls."""

    nbytes: float  # bytes of a graph, median
    each_s: float  # seconds from one arrival to the next, median
    idle_s: float  # thread-seconds idle with no task waiting, from the first arrival to the last


@once
def packing(observation: Observation) -> GraphPacking | None:
    """A loop that mostly packs and sends: seen in the client's calls, or by the time its bytes need to travel."""
    found, nbytes = loop(observation), submissions(observation).nbytes
    if found is None or found.waits or found.window or (median := float(np.median(nbytes))) < HEAVY_GRAPH:
        return None
    packed = _client_s(observation, found.begin, found.end)[observation.client_sends & ~_hashes(observation)].sum()
    if max(packed, nbytes[1:].sum() / BANDWIDTH) < found.seconds / 2:
        return None
    return GraphPacking(median, found.round_s, unwanted_s(observation, found.begin, found.end))


def _hashes(observation: Observation) -> Bools:
    return np.array([str(what).startswith(HASHED) for what in observation.column("client", "what")], dtype=bool)


def mostly_in(observation: Observation, found: SubmissionLoop, call: str) -> Place | None:
    """Line of the longest call of this function in a loop, if its calls take most of the time; else None."""
    row, _ = _mostly(observation, found, np.array([each == call for each in observation.client_calls], dtype=bool))
    return None if row is None else Place.of(str(observation.column("client", "where")[row]))


def rests(observation: Observation, found: SubmissionLoop) -> bool:
    """Whether a client that shares the scheduler's event loop mostly leaves the loop free; False for other clients."""
    if not (observation.trial.facts.get("cluster") or {}).get("shares_loop"):
        return False
    time = observation.numbers("lag", "time") - observation.measured.epoch
    inside = (time >= found.begin) & (time <= found.end) & (worker_of_rows(observation, "lag", "process") == -1)
    return float(observation.numbers("lag", "seconds")[inside].sum()) < found.seconds / 2


def hashing(observation: Observation, found: SubmissionLoop) -> tuple[Place | None, str, float] | None:
    """Line, call and seconds of a loop whose time Dask spends mostly on hashing arguments; None if it does not."""
    row, seconds = _mostly(observation, found, observation.client_sends & _hashes(observation))
    if row is None:
        return None
    where, what = (str(observation.column("client", name)[row]) for name in ("where", "what"))
    return Place.of(where), what.removeprefix(HASHED), seconds


def _mostly(observation: Observation, found: SubmissionLoop, chosen: Bools) -> tuple[int | None, float]:
    """The longest of these rows of the table `client`, None unless they fill most of the loop; and their seconds."""
    seconds = np.where(chosen, _client_s(observation, found.begin, found.end), 0.0)
    total = float(seconds.sum())
    return None if total < found.seconds / 2 else int(seconds.argmax()), total


def loop_evidence(found: SubmissionLoop, lost_s: float) -> tuple[Evidence, ...]:
    return (
        Evidence(f"{found.unit}s sent one after another", found.graphs, "table graphs"),
        Evidence(SENT, found.tasks, "table graphs"),
        Evidence(
            "share of time in rounds that ended with no task left",
            round(found.awaited, 4),
            "tables graphs and tasks",
        ),
        Evidence(f"from one {found.unit} to the next, median, s", round(found.round_s, 4), "table graphs"),
        Evidence("pause with no task left, median, s", round(found.gap_s, 4), "tables graphs and tasks"),
        Evidence("thread-seconds idle in the loop, no task waiting", round(lost_s, 3), "tasks and worker time"),
    )


def tasks_per_graph(found: SubmissionLoop) -> str:
    each = found.tasks / found.graphs
    return "1 task" if each == 1 else f"{number(each)} tasks on average"


SHORT_S = 0.1  # seconds of the client; less is not worth a change, however short the trial
ONE_AT_A_TIME = 1.1  # mean calls of actors at once, up to which each call waits for the one before


def one_by_one(observation: Observation) -> ActorCalls | None:
    """Calls of actors on several workers, each of which waited for the one before; None where that costs little."""
    called = actor_calls(observation)
    if called is None or called.workers < 2 or called.calls < MIN_GRAPHS or called.at_once > ONE_AT_A_TIME:
        return None
    costs = observation.share_of(called.lost_s) >= NOTEWORTHY and called.lost_s >= SHORT_S * observation.threads
    return called if costs else None
