"""The same work takes longer on more workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scalescope.analysis.summary import PointSummary, settings
from scalescope.diagnosis.cause import NOTEWORTHY, Term, severity_of
from scalescope.diagnosis.sweep_case import Measured, SweepCase, SweepCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Gain
from scalescope.model.metrics import Metrics, PrefixWork
from scalescope.model.sweep import THREADS
from scalescope.model.words import number, percent, plural

# Least ratio of work to that on fewer threads. Twice the threads, 70 % busy, 10 % faster: 2 × 0.7 / 1.1 = 1.27.
GROWTH = 1.25
FASTER = 1.1  # speed-up below which more threads are not worth it

WORK_INFLATION = SweepCause(
    code="work-inflation",
    title="The same work takes longer on more workers",
    needs="For the same load (equal items or tasks), the total task time on the most threads is at least 1.25 times "
    "that on fewer, and the increase is at least 10 % of the worker time.",
    ruled_out_by="Busy time that other findings explain: waits in calls of distributed (waiting-tasks), the "
    "interpreter lock (gil-bound), a slow worker, a full host. If items or tasks differ, only longer tasks count; a "
    "few long tasks count only if none is a straggler.",
    remedy="Find what tasks share outside Dask and give it more capacity, or use no more workers than it can serve",
    link="https://distributed.dask.org/en/stable/diagnosing-performance.html",
    parts=("busy",),
    by_times=True,
    changes=(Term.WORK, Term.SPAN),
    premise="The same tasks take longer on more workers.",
)


@dataclass(frozen=True)
class _WorkGrowth:
    """Growth of a point's work against a point of fewer threads."""

    summary: PointSummary  # the point
    metrics: Metrics  # measurement of the point
    fewer: Measured  # the other point and its measurement
    prefix: str  # prefix of the tasks that grew most
    before: PrefixWork  # work of these tasks at the other point
    after: PrefixWork  # work of these tasks at this point
    excess_s: float  # thread-seconds per trial by which all prefixes' work grew, without what other findings explain

    @property
    def each(self) -> bool:
        """Whether the typical task takes longer, not just a few tasks."""
        return (self.after.median_s - self.before.median_s) * self.after.tasks >= self.excess_s / 2

    @property
    def share(self) -> float:
        return self.excess_s / sum(self.metrics.worker_time_s.values())

    @property
    def gain(self) -> Gain | None:
        saved_s = self.metrics.makespan_s * min(self.excess_s / self.metrics.work_s, 1.0)
        threads = self.summary.point.threads
        return WORK_INFLATION.gain(self.metrics, threads, saved_s, shorter_s=self.excess_s)


def _said(worst: _WorkGrowth) -> tuple[str, str]:
    before, after = worst.before, worst.after
    if worst.each:
        lock = "the interpreter lock, " if worst.summary.point.threads_per_worker > 1 else ""
        return (
            f"a typical one takes {words.duration(after.median_s)} instead of {words.duration(before.median_s)}: the "
            "tasks share something outside Dask that cannot serve more of them at once",
            f"find what they share ({lock}memory bandwidth, a disk or file system, a database, the cores of one host) "
            "and give it more capacity, or give each worker its own",
        )
    if (after.tasks - before.tasks) * after.median_s >= worst.excess_s / 2:
        return (
            f"there are {after.tasks:,} tasks instead of {before.tasks:,}, a typical one as long as before",
            "divide the same work among the tasks, instead of doing all or part of the work in each of them",
        )
    return (
        "a typical one takes as long as before, but some take longer, such as the first on each worker",
        "move what each worker does only once (imports, loading models) before the tasks: "
        "`distributed.worker.preload`; or measure with `warmups: 1`",
    )


@WORK_INFLATION.finds
def work_inflation(case: SweepCase) -> Finding | None:
    """`lost_s`: thread-seconds beyond those on fewer threads at equal load, without what findings of trials explain."""
    found = [grown for points in _alike(case) for grown in _grown(case, points)]
    if not found:
        return None
    worst = max(found, key=lambda grown: grown.share)
    before, after = worst.before, worst.after
    tasks = f"`{worst.prefix}` tasks"
    more, fewer, paying = case.label(worst.summary), case.label(worst.fewer[0]), _paying(case, worst)
    what, remedy = _said(worst)
    enough = "" if paying is worst.summary else f"; until then ask for {case.label(paying)}: more would hardly help"
    return WORK_INFLATION.finding(
        severity_of(worst.share),
        f"The same work takes longer on more threads: {tasks} take {number(after.work_s)} thread-seconds ({more}), "
        f"and {number(before.work_s)} ({fewer}), which costs {percent(worst.share)} of the worker time; {what}.",
        remedy + enough,
        Evidence("thread-seconds on more threads", round(after.work_s, 3), f"work of the {tasks}, {more}"),
        Evidence("thread-seconds on fewer threads", round(before.work_s, 3), f"work of the {tasks}, {fewer}"),
        Evidence("task on more threads, s", round(after.median_s, 4), f"median, {plural(after.tasks, 'task')}"),
        Evidence("task on fewer threads, s", round(before.median_s, 4), f"median, {plural(before.tasks, 'task')}"),
        Evidence("seconds of the call on more threads", round(worst.metrics.elapsed_s, 3), more),
        Evidence("seconds of the call on fewer threads", round(worst.fewer[1].elapsed_s, 3), fewer),
        points=[grown.summary for grown in sorted(found, key=lambda grown: -grown.share)],
        lost_s=sum(grown.summary.valid * grown.excess_s for grown in found),
        confidence=0.8 if worst.each else 0.6,
        gain=worst.gain,
    )


def _alike(case: SweepCase) -> Iterator[Sequence[Measured]]:
    """Groups of points that differ only in workers, threads and items, in order of threads."""
    groups: dict[str, list[Measured]] = {}
    for summary, metrics in case.measured:
        rest = {name: value for name, value in settings(summary.point).items() if name != THREADS}
        groups.setdefault(repr(sorted(rest.items())), []).append((summary, metrics))
    for points in groups.values():
        yield sorted(points, key=lambda point: point[0].point.threads)


def _grown(case: SweepCase, points: Sequence[Measured]) -> Iterator[_WorkGrowth]:
    """Points with the most threads whose work grew, each with the smaller point where the growth shows best."""
    most = points[-1][0].point.threads
    fewer = [point for point in points if point[0].point.threads < most]
    for summary, metrics in points[len(fewer) :]:
        grown = [found for other in fewer if (found := _against(case, other, (summary, metrics)))]
        if grown:
            yield max(grown, key=lambda found: found.excess_s)


def _against(case: SweepCase, fewer: Measured, more: Measured) -> _WorkGrowth | None:
    (first, small), (summary, large) = fewer, more
    before, after = small.work_by_prefix or {}, large.work_by_prefix or {}
    excess = {
        name: _excess_s(first.items, before[name], summary.items, after[name]) for name in after if name in before
    }
    total = sum(excess.values())
    if total <= 0 or sum(after[name].work_s for name in excess) < GROWTH * (
        sum(after[name].work_s for name in excess) - total
    ):
        return None
    worst = max(excess, key=lambda name: excess[name])
    net = total - case.explained_of(summary, "busy")
    grown = _WorkGrowth(summary, large, fewer, worst, before[worst], after[worst], net)
    if grown.share < NOTEWORTHY or (not grown.each and case.explained_s(summary, ("straggler", "skewed-tasks"))):
        return None
    return grown


def _excess_s(few: int | None, before: PrefixWork, many: int | None, after: PrefixWork) -> float:
    """Thread-seconds by which a prefix's work grew; at unequal load, by which tasks took longer than items explain."""
    if few == many and (few is not None or before.tasks == after.tasks):
        return max(after.work_s - before.work_s, 0.0)
    of_a_task = max(many / few * before.tasks / after.tasks, 1.0) if few and many else 1.0
    return max(after.median_s - before.median_s * of_a_task, 0.0) * after.tasks


def _paying(case: SweepCase, worst: _WorkGrowth) -> PointSummary:
    alike = next(points for points in _alike(case) if any(summary is worst.summary for summary, _ in points))
    enough = (
        summary
        for summary, metrics in alike
        if summary.items == worst.summary.items and metrics.elapsed_s <= FASTER * worst.metrics.elapsed_s
    )
    return next(enough, worst.summary)
