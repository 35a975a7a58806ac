"""The critical path of the recorded graph, and its replays on other numbers of threads and with other tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.graph import Graph
from scalescope.analysis.replay import Replay, errors
from scalescope.analysis.summary import PointSummary, settings
from scalescope.analysis.work_span import critical_path, work_span
from scalescope.model.trial import Trial
from scalescope.model.words import MISSING, percent, plural, ratio, seconds
from scalescope.report.table import ReportTable

MOST_PREFIXES = 20
MOST_REPLAYED = 150_000  # tasks replayed in all, in about 2 s: a large trial gets only the first replays
MOST_MEASURED = 6
DOUBTFUL = 0.2  # error of a replay from which on its other answers are not reliable
# the change in words, the factor of tasks, and how to make it
CHANGES: tuple[tuple[str, float, Callable[[Replay], Replay]], ...] = (
    ("twice as many partitions", 2.0, lambda replay: replay.with_partitions(2.0)),
    ("ten times as many partitions", 10.0, lambda replay: replay.with_partitions(10.0)),
    ("half as many partitions", 0.5, lambda replay: replay.with_partitions(0.5)),
    ("tasks half as long", 1.0, lambda replay: replay.with_durations(0.5)),
    ("tasks twice as long", 1.0, lambda replay: replay.with_durations(2.0)),
)


def path(attempts: Attempts, graph: Graph) -> tuple[ReportTable | None, str]:
    """What the critical path consists of, and what follows from its length."""
    spans = work_span(attempts, graph)
    longest = critical_path(attempts, graph)
    useful = f"From about {plural(spans.useful_workers, 'thread')} on, more of them help this graph by less than 5 %."
    if longest is None:
        return None, f"Which tasks it consists of is not known: dependencies were not recorded. {useful}"
    shares, count = longest.shares(), dict.fromkeys(longest.by_prefix, 0)
    for prefix in longest.prefixes:
        count[prefix] += 1
    cells = tuple(
        (prefix, f"{count[prefix]:,}", seconds(taken), percent(shares[prefix]))
        for prefix, taken in list(longest.by_prefix.items())[:MOST_PREFIXES]
    )
    text = (
        f"The longest path has {plural(len(longest.keys), 'task')} and takes {seconds(longest.span_s)} s, "
        f"{percent(longest.span_s / attempts.makespan)} of the makespan: no number of workers makes this graph faster "
        f"than that. {useful}"
    )
    return ReportTable.of(
        "What the critical path consists of", ("task prefix", "tasks", "seconds", "share"), cells
    ), text


def what_if(
    trial: Trial, attempts: Attempts, graph: Graph, summaries: Sequence[PointSummary]
) -> tuple[ReportTable | None, str]:
    """Makespans on other numbers of threads and with other task sizes, and how reliable they are."""
    tasks, here = len(attempts.start), trial.point.threads
    if tasks > MOST_REPLAYED:
        return None, f"Not replayed: it has more than {MOST_REPLAYED:,} tasks."
    replay = Replay.of(attempts, graph)
    if replay is None:
        return None, "Not replayed: dependencies were not recorded."
    measured = _same_but_workers(trial, summaries) | {here: attempts.makespan}
    left, replayed = MOST_REPLAYED, {}
    for threads in _worth_asking(here, measured):
        if left >= tasks:
            replayed[threads], left = replay.makespan(threads), left - tasks
    cells = []
    for threads in sorted(replayed):
        what = plural(threads, "thread") + (", as it was" if threads == here else "")
        cells.append(_row(what, replayed[threads], replayed[here], measured.get(threads)))
    for text, times, change in CHANGES:
        if left >= times * tasks:
            left -= int(times * tasks)
            cells.append(_row(f"{plural(here, 'thread')}, {text}", change(replay).makespan(here), replayed[here], None))
    heads = ("what", "makespan s", "speed-up", "measured s", "error")
    return ReportTable.of("The recorded graph, replayed", heads, tuple(cells)), _believed(replayed, measured)


def _worth_asking(here: int, measured: dict[int, float]) -> Iterator[int]:
    """Numbers of threads, the most telling first: this one, the nearest measured ones, then others."""
    near = sorted(measured, key=lambda threads: max(threads / here, here / threads))
    yield from dict.fromkeys([here, *near[:MOST_MEASURED], 2 * here, max(1, here // 2), 4 * here])


def _row(what: str, makespan: float, reference: float, measured: float | None) -> tuple[str, ...]:
    faster = ratio(reference / makespan) if makespan > 0 else MISSING
    error = MISSING if measured is None else _error(makespan / measured - 1)
    return (what, seconds(makespan), faster, seconds(measured), error)


def _believed(replayed: dict[int, float], measured: dict[int, float]) -> str:
    compared = errors(replayed, measured)
    how = "List scheduling of the recorded durations; contention and transfers between workers are not modelled. "
    if not compared:
        return how + "It could not be compared with any measurement."
    worst = max(compared.values(), key=abs)
    doubt = ": do not rely on it here" if abs(worst) > DOUBTFUL else ""
    return how + f"Against {plural(len(compared), 'measured point')} it is off by {_error(worst)} at most{doubt}."


def _error(share: float) -> str:
    """`+1.2 %`; without a sign if it rounds to zero."""
    return "0.0 %" if abs(share) < 0.0005 else f"{100 * share:+.1f} %"


def _same_but_workers(trial: Trial, summaries: Sequence[PointSummary]) -> dict[int, float]:
    """Measured makespans by threads, of points that differ from this one only in workers."""
    here = trial.point
    return {
        summary.point.threads: summary.metrics.makespan_s
        for summary in summaries
        if summary.metrics is not None
        and summary.point.items == here.items
        and settings(summary.point) == settings(here)
    }
