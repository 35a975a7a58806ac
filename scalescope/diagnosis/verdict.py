"""What is wrong with a sweep, and what to do about it.

Each measured point is put down to one `Cause`, by structure where the structure shows it. Each function of `RULES` then
looks at the whole case and returns one finding or None. What the records of the trials showed (`analysis.causes`)
stands beside that, and the two never accuse twice: of the idle threads that a finding of the records explains, the
rules speak no more. The verdict's line is that of the worst finding, by severity and then by worker time lost; there
always is one, `healthy` where nothing is to be said against anything. A summary is a whole sentence; a remedy is one
without its full stop. `analysis.causes.sweeps` says of each code here what it needs and what rules it out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from statistics import fmean

from scalescope.analysis.summary import PointSummary, label, percent, plural, summarise, varied
from scalescope.diagnosis.partitions import BAG_OPTION, BEAM_128, BEAM_OPTION, PartitionRule, matching
from scalescope.model.finding import Evidence, Finding, Severity, Verdict
from scalescope.model.metrics import PARTS, WORKER_TIME, Metrics
from scalescope.model.sweep import Sweep
from scalescope.model.trial import Trial, TrialState

MATERIAL = 0.10
"""Share of worker time below which idle threads are not worth a word."""
SUSPICIOUS = 0.30
"""Share of worker time not busy from which on a point needs an explanation, even if none is visible."""
ABOUT_HALF = 0.45
"""Share of worker time from which on a cause with a remedy is severe: 51 partitions on 100 workers must count."""
MOSTLY = 0.5
"""Share of the worker time not busy that findings of the records must explain for its cause to be known."""
CHAINED = 0.5
"""Most tasks ready at once, as a share of the widest stage, below which its tasks wait for each other."""
WAVE_TOLERANCE = 0.05
"""How far, in shares of worker time, idle time may be from what uneven waves predict."""

WITHOUT_TASKS = ("no_runnable_task", "tail")
"""The parts of worker time in which the graph offered nothing to do."""
EXCUSES = frozenset({"fewer-items-than-workers", "uneven-waves"})
"""Codes for idle threads that are nobody's fault; where every point has such a one, there is no healthy one to show."""
LONG_TASKS = frozenset({"straggler", "skewed-tasks", "slow-worker"})
"""Codes of findings of the records by which single tasks are long."""
EXPLAIN_WITHOUT_TASKS = LONG_TASKS | frozenset(
    {
        "results-awaited-in-loop",
        "slow-submission",
        "large-graph",
        "nested-client",
    }
)
"""Codes of findings of the records whose lost worker time is in these parts."""

Measured = tuple[PointSummary, Metrics]


class Cause(Enum):
    """Why threads of a point were idle."""

    NONE = "none"
    FEW_PARTITIONS = "few partitions"
    FEW_ITEMS = "few items"
    SEQUENTIAL = "sequential"
    UNEVEN_WAVES = "uneven waves"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Case:
    """What the rules look at.

    Attributes:
        sweep: The question.
        points: Its points, in order.
        recorded: What the trials' own records showed, one finding for each code.
        explained: What these explain, by id of the point and by code, in thread-seconds of one trial.
    """

    sweep: Sweep
    points: tuple[PointSummary, ...]
    recorded: tuple[Finding, ...] = ()
    explained: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def measured(self) -> tuple[Measured, ...]:
        """Points with a valid trial."""
        return tuple((point, point.metrics) for point in self.points if point.metrics is not None)

    def because(self, cause: Cause) -> tuple[Measured, ...]:
        """Measured points that are put down to a cause, worst first.

        A point is put down to its structure only for what the findings of its records leave unexplained.
        """
        found = [(point, metrics) for point, metrics in self.measured if cause_of(point) is cause]
        if cause not in (Cause.NONE, Cause.UNKNOWN):
            found = [item for item in found if self.idle(item[0]) >= MATERIAL]
        if cause is Cause.SEQUENTIAL:  # one long task is a long path too, and depends on nothing
            found = [item for item in found if not LONG_TASKS & self.explained.get(item[0].point.id, {}).keys()]
        return tuple(sorted(found, key=lambda item: (-round(self.idle(item[0]), 2), -item[0].point.threads)))

    def idle(self, summary: PointSummary) -> float:
        """The share of worker time without a task to run that no finding of the records explains."""
        total = summary.seconds(*WORKER_TIME)
        return self.idle_s(summary) / total if total > 0 else 0.0

    def idle_s(self, summary: PointSummary) -> float:
        """The same in thread-seconds, over all valid trials."""
        explained = summary.valid * self.explained_s(summary, EXPLAIN_WITHOUT_TASKS)
        return max(0.0, summary.seconds(*WITHOUT_TASKS) - explained)

    def explained_s(self, summary: PointSummary, codes: Collection[str] | None = None) -> float:
        """Thread-seconds of a trial of this point that findings of the records explain, all or those of some codes."""
        found = self.explained.get(summary.point.id, {})
        return sum(seconds for code, seconds in found.items() if codes is None or code in codes)

    def label(self, summary: PointSummary) -> str:
        """A point in words."""
        return label(summary.point, varied(point.point for point in self.points))


def diagnose(sweep: Sweep, trials: Sequence[Trial]) -> Verdict:
    """Judge a sweep. Warm-ups are left out; failed and invalid trials never count as measurements."""
    points = summarise(trials)
    by_code = _by_code(trials)
    merged = tuple(_merged(points, by_point) for by_point in by_code.values())
    case = Case(sweep, points, merged, _explained(by_code))
    findings = [*case.recorded, *(finding for rule in RULES if (finding := rule(case)))]
    if all(finding.severity is Severity.INFO for finding in findings):
        excused = any(finding.code in EXCUSES for finding in findings)
        if case.because(Cause.NONE) or not excused:
            findings.insert(0, healthy(case))
    order = list(Severity)
    findings.sort(key=lambda finding: (order.index(finding.severity), _precedence(case, finding.code), -finding.lost_s))
    first = findings[0]
    return Verdict(f"{first.summary} Fix: {first.remedy}." if first.remedy else first.summary, tuple(findings))


ByPoint = Mapping[str, Sequence[Finding]]
"""The findings of one code, by id of the point."""


def _by_code(trials: Sequence[Trial]) -> dict[str, ByPoint]:
    """The findings of trials, by code and point.

    A point has a finding when at least half of its trials have it: one flaky trial never decides. Trials that failed
    or are invalid count as well, for what spoilt them is in their records.
    """
    by_code: dict[str, dict[str, list[Finding]]] = {}
    counted = Counter(trial.point.id for trial in trials if not trial.warmup)
    for trial in trials:
        for finding in () if trial.warmup else trial.findings:
            by_code.setdefault(finding.code, {}).setdefault(trial.point.id, []).append(finding)
    kept = {
        code: {point: found for point, found in by_point.items() if 2 * len(found) >= counted[point]}
        for code, by_point in by_code.items()
    }
    return {code: by_point for code, by_point in kept.items() if by_point}


def _explained(by_code: Mapping[str, ByPoint]) -> dict[str, dict[str, float]]:
    """What the findings explain of a trial, in thread-seconds, by point and code; those for information nothing."""
    explained: dict[str, dict[str, float]] = {}
    for code, by_point in by_code.items():
        for point, found in by_point.items():
            lost = [finding.lost_s for finding in found if finding.severity is not Severity.INFO]
            if lost:
                explained.setdefault(point, {})[code] = fmean(lost)
    return explained


def _merged(points: Sequence[PointSummary], by_point: ByPoint) -> Finding:
    """One finding for several points, in the words of the worst."""
    order = list(Severity)
    worst_at, worst = min(
        ((point, finding) for point, found in by_point.items() for finding in found),
        key=lambda item: (order.index(item[1].severity), -item[1].lost_s),
    )
    summary = worst.summary
    if len(points) > 1:
        names = varied(point.point for point in points)
        where = next(label(point.point, names) for point in points if point.point.id == worst_at)
        others = f", and at {len(by_point) - 1:,} more of {len(points):,} points" if len(by_point) > 1 else ""
        summary = f"{summary.removesuffix('.')} ({where}{others})."
    return replace(
        worst,
        summary=summary,
        points=tuple(by_point),
        lost_s=sum(finding.lost_s for found in by_point.values() for finding in found),
    )


def cause_of(summary: PointSummary) -> Cause:
    """Put the idle threads of one point down to a cause; only its own numbers count."""
    metrics = summary.metrics
    if metrics is None:
        return Cause.NONE
    threads, items = summary.point.threads, summary.point.items
    if _idle(summary) >= MATERIAL:
        possible = threads if items is None else min(threads, items)
        # Tasks of one stage that could not run at once wait for each other, however few they are; one chain is a chain.
        chained = metrics.widest_stage == 1 or metrics.peak_runnable < CHAINED * metrics.widest_stage
        sequential = metrics.parallelism < threads / 2 and (metrics.tasks >= threads or chained)
        if sequential and chained and items is None:
            return Cause.SEQUENTIAL
        if metrics.peak_runnable < possible and metrics.widest_stage < possible:
            return Cause.FEW_PARTITIONS
        if items is not None and items < threads and metrics.peak_runnable < threads:
            return Cause.FEW_ITEMS
        if sequential:
            return Cause.SEQUENTIAL
        if any(_explained_by_waves(summary, tasks) for tasks in (metrics.widest_stage, items or 0)):
            return Cause.UNEVEN_WAVES
    return Cause.UNKNOWN if 1 - summary.share("busy") >= SUSPICIOUS else Cause.NONE


# ------------------------------------------------------------------ rules


def nothing_measured(case: Case) -> Finding | None:
    """No trial is a data point."""
    if case.measured:
        return None
    reasons = sorted((reason for point in case.points for reason in point.reasons), key=lambda reason: -reason.count)
    if not reasons:
        what = "no trial was run" if not case.points else "no trial has a measurement"
        return Finding("nothing-measured", Severity.HIGH, f"Nothing was measured: {what}.", "run the sweep again")
    trials = sum(reason.count for reason in reasons)
    return Finding(
        "nothing-measured",
        Severity.HIGH,
        f"Nothing was measured: of {plural(trials, 'trial')} none is valid, most often because: "
        f"{_line(reasons[0].text)}.",
        "remove that reason, then run the same sweep again",
        evidence=(Evidence("trials that are no data point", trials, "trial states"),),
        points=tuple(point.point.id for point in case.points),
    )


def failed_trials(case: Case) -> Finding | None:
    """A workload raised, or computed something false."""
    return _spoilt(
        case,
        TrialState.FAILED,
        Severity.HIGH,
        "failed-trials",
        "failed in the workload",
        "run that point alone and mend the workload; performance of a wrong answer means nothing",
    )


def invalid_trials(case: Case) -> Finding | None:
    """The machine misbehaved."""
    return _spoilt(
        case,
        TrialState.INVALID,
        Severity.MEDIUM,
        "invalid-trials",
        "did not count because the machine misbehaved",
        "run the same sweep again; where the host is overloaded, on fewer workers or on the simulated cluster",
    )


def too_few_partitions(case: Case) -> Finding | None:
    """The graph never has as many tasks at once as there are threads, although there are items enough."""
    found = case.because(Cause.FEW_PARTITIONS)
    if not found:
        return None
    worst, metrics = found[0]
    asked = _partitions_asked(worst)
    alike = [item for item in found if item[0].point.environment == worst.point.environment]  # releases differ
    rule, confidence = (None, 0.9) if asked else _rule_of(case, alike)
    idle = case.idle(worst)
    severity = Severity.LOW if idle < 0.2 else Severity.MEDIUM if idle < ABOUT_HALF else Severity.HIGH
    if worst.point.items is None:
        severity, confidence = Severity.MEDIUM, 0.6
    return Finding(
        "too-few-partitions",
        severity,
        f"{_asked_and_used(worst, metrics)}: {_partition_cause(case, worst, metrics, rule)}.",
        _partition_remedy(case, worst, rule),
        evidence=(*_structure(worst, metrics), *_prediction(rule, alike)),
        confidence=confidence,
        points=_ids(found),
        lost_s=sum(case.idle_s(summary) for summary, _ in found),
        link=rule.link if rule else "",
    )


def fewer_items_than_workers(case: Case) -> Finding | None:
    """There is not enough to do; nobody's fault."""
    found = case.because(Cause.FEW_ITEMS)
    if not found:
        return None
    worst, metrics = found[0]
    items, workers = worst.point.items or 0, worst.point.workers
    fewer = "fewer items than workers" if items < workers else "fewer items than threads"
    return Finding(
        "fewer-items-than-workers",
        Severity.INFO,
        f"{plural(items, 'item')} on {plural(workers, 'worker')}: {fewer}, so that at most "
        f"{plural(metrics.peak_runnable, 'task')} could run at once.",
        "ask for no more workers than there are items, or for more items",
        evidence=_structure(worst, metrics),
        points=_ids(found),
        lost_s=sum(case.idle_s(summary) for summary, _ in found),
    )


def sequential_graph(case: Case) -> Finding | None:
    """There are tasks enough, but they wait for each other."""
    found = case.because(Cause.SEQUENTIAL)
    if not found:
        return None
    worst, metrics = found[0]
    return Finding(
        "sequential-graph",
        Severity.MEDIUM,
        f"{_asked_and_used(worst, metrics)}: its {plural(metrics.tasks, 'task')} depend on each other so that no more "
        f"than {metrics.parallelism:.3g} threads can be busy on average (T1/T∞).",
        f"ask for about {max(1, math.ceil(metrics.parallelism)):,} threads, or shorten the longest dependency path "
        f"({metrics.span_s:.3g} s)",
        evidence=(
            *_structure(worst, metrics),
            Evidence("longest dependency path T∞, s", metrics.span_s, "column span of the tasks"),
            Evidence("work T1, s", metrics.work_s, "durations of the tasks"),
        ),
        confidence=0.9,
        points=_ids(found),
        lost_s=sum(case.idle_s(summary) for summary, _ in found),
    )


def uneven_waves(case: Case) -> Finding | None:
    """Equal tasks that do not divide by the threads: the last wave is not full."""
    found = case.because(Cause.UNEVEN_WAVES)
    if not found:
        return None
    worst, metrics = found[0]
    threads = worst.point.threads
    tasks = next(n for n in (metrics.widest_stage, worst.point.items or 0) if _explained_by_waves(worst, n))
    return Finding(
        "uneven-waves",
        Severity.INFO,
        f"{plural(tasks, 'task')} on {plural(threads, 'thread')} take {math.ceil(tasks / threads)} waves, and the last "
        f"one has only {(tasks - 1) % threads + 1:,} ({case.label(worst)}).",
        "make the number of tasks a multiple of the threads, or the tasks smaller",
        evidence=_structure(worst, metrics),
        confidence=0.8,
        points=_ids(found),
        lost_s=sum(case.idle_s(summary) for summary, _ in found),
    )


def idle_workers_cause_unknown(case: Case) -> Finding | None:
    """Much worker time is not busy, and the structure does not show why."""
    found = tuple(
        (summary, metrics)
        for summary, metrics in case.because(Cause.UNKNOWN)
        if case.explained_s(summary) < MOSTLY * (1 - summary.share("busy")) * sum(metrics.worker_time_s.values())
    )
    if not found:
        return None
    worst, metrics = max(found, key=lambda item: 1 - item[0].share("busy"))
    part = max((part for part in WORKER_TIME if part != "busy"), key=lambda part: worst.share(part))
    return Finding(
        "idle-workers-cause-unknown",
        Severity.MEDIUM,
        f"{percent(1 - worst.share('busy'))} of the worker time is not busy at {case.label(worst)}, most of it "
        f"`{PARTS[part].title}` ({percent(worst.share(part))}); the cause is not known yet.",
        NEXT_EXPERIMENT[part],
        evidence=_structure(worst, metrics),
        confidence=0.5,
        points=_ids(found),
        lost_s=_lost(found, *(part for part in WORKER_TIME if part != "busy")),
    )


def healthy(case: Case) -> Finding:
    """Nothing to be said against anything."""
    good = [summary for summary, _ in case.measured if cause_of(summary) is Cause.NONE]
    points = plural(len(case.measured), "point")
    where = f"all {points}" if len(good) > 1 else "the one point measured"
    evidence: tuple[Evidence, ...] = ()
    rest = ""
    if len(good) < len(case.measured):
        where = f"{len(good):,} of {points}"
        rest = "; at the others the number of tasks allows no more"
    if good:
        lowest = min(good, key=lambda summary: summary.share("busy"))
        evidence = (Evidence("lowest share of worker time busy", round(lowest.share("busy"), 4), case.label(lowest)),)
        where += f" (at least {percent(lowest.share('busy'))} of the worker time busy)"
    return Finding(
        "healthy",
        Severity.INFO,
        f"No fault found: workers are used well at {where}{rest}.",
        "",
        evidence=evidence,
        points=_ids(case.measured),
    )


NEXT_EXPERIMENT: dict[str, str] = {
    "transfer": "next, compare with larger inputs per task or fewer workers: transfer should shrink",
    "serialisation": "next, look for large objects inside tasks (scatter them) and run again",
    "spill": "next, run with more memory per worker or smaller partitions: spilling should end",
    "no_runnable_task": "next, double the partitions (or items) at this point: if the time falls, there were too few",
    "not_assigned": "next, run this point on the simulated cluster with scheduler_us = 0: if the idle time goes, the "
    "scheduler is the limit, and tasks should be longer",
    "late_start": "next, look when workers joined (table `workers`): start the workload after the last one",
    "lost": "next, read the logs of the workers that died (table `logs`)",
    "tail": "next, compare the longest task of the last stage with the median one: split it, or start it first",
}
"""What to try when nothing but the kind of lost time is known."""

RULES: tuple[Callable[[Case], Finding | None], ...] = (
    nothing_measured,
    failed_trials,
    invalid_trials,
    too_few_partitions,
    fewer_items_than_workers,
    sequential_graph,
    uneven_waves,
    idle_workers_cause_unknown,
)
_FIRST = ("poisonous-task", "worker-died", "workers-missing", "nothing-measured", "failed-trials", "healthy")
"""Of findings of one severity these come first, in this order; the others by worker time lost."""
_SPOIL = ("poisonous-task", "worker-died", "workers-missing", "nested-client", "host-overloaded")
"""What can keep a trial from being measured at all: why nothing was measured comes before that nothing was."""


def _precedence(case: Case, code: str) -> int:
    first = _FIRST if case.measured else (*_SPOIL, *_FIRST)
    return first.index(code) if code in first else len(first)


# ------------------------------------------------------------------ parts of findings


def _idle(summary: PointSummary) -> float:
    """The share of worker time for which the graph offered nothing to do."""
    return summary.share(*WITHOUT_TASKS)


def _explained_by_waves(summary: PointSummary, tasks: int) -> bool:
    """Whether so many equal tasks leave idle in their last wave just what was measured."""
    threads = summary.point.threads
    if tasks <= threads:
        return False
    unused = 1 - tasks / (threads * math.ceil(tasks / threads))
    return any(abs(lost - unused) <= WAVE_TOLERANCE for lost in (_idle(summary), 1 - summary.share("busy")))


def _partitions_asked(summary: PointSummary) -> str:
    """The parameter by which this point sets its partitions itself, or an empty string."""
    return next((name for name in ("npartitions", "partition_size") if summary.point.params.get(name) is not None), "")


def _by_default(found: Sequence[Measured]) -> set[tuple[int, int]]:
    """Items and tasks of the widest stage, of the points that leave the partitions to a library."""
    return {
        (summary.point.items, metrics.widest_stage)
        for summary, metrics in found
        if summary.point.items is not None and not _partitions_asked(summary)
    }


def _rule_of(case: Case, found: Sequence[Measured]) -> tuple[PartitionRule | None, float]:
    """The library default that predicts the widest stage of every such point, and how sure the finding is."""
    counts = _by_default(found)
    rule = matching(counts)
    if rule is not None and (_is_beam(case) or (_is_bag(case) and rule is not BEAM_128)):
        return rule, 1.0
    # Of a workload of the user's own only the numbers are known: they must agree more than once.
    several = len({partitions for _, partitions in counts}) > 1
    return (rule, 0.7) if rule is not None and several else (None, 0.9)


def _is_beam(case: Case) -> bool:
    return case.sweep.workload.startswith("beam-")


def _is_bag(case: Case) -> bool:
    return case.sweep.workload.startswith("bag-")


def _partition_cause(case: Case, worst: PointSummary, metrics: Metrics, rule: PartitionRule | None) -> str:
    point, asked = worst.point, _partitions_asked(worst)
    tasks = plural(metrics.widest_stage, "task")
    if rule is not None and point.items is not None:
        by = (
            f"Apache Beam leaves it to {rule.library}, which"
            if _is_beam(case) and rule is not BEAM_128
            else rule.library
        )
        become = "is" if point.items == 1 else "are"
        return (
            f"{by} {rule.text}, so {plural(point.items, 'item')} {become} {plural(metrics.widest_stage, 'partition')}"
        )
    if asked:
        return f"{asked}={point.params[asked]} was asked for, so the widest stage has {tasks}"
    items = "" if point.items is None else f" and {plural(point.items, 'item')}"
    return f"the widest stage of the graph has {tasks} for {plural(point.threads, 'thread')}{items}"


def _partition_remedy(case: Case, worst: PointSummary, rule: PartitionRule | None) -> str:
    point, asked = worst.point, _partitions_asked(worst)
    enough = point.threads if point.items is None else min(point.threads, point.items)
    here = " (in a sweep: params: {npartitions: items})" if "npartitions" in point.params else ""
    if asked == "npartitions":
        return f"set npartitions to at least {enough:,}{here}"
    if asked == "partition_size":
        return f"set partition_size to at most {max(1, (point.items or 1) // enough):,}"
    if rule is None:
        return f"divide the input into at least {enough:,} partitions{here}"
    if rule is BEAM_128:
        return BEAM_OPTION + here
    return (f"upgrade Apache Beam to 2.63 or later and {BEAM_OPTION}" if _is_beam(case) else BAG_OPTION) + here


def _asked_and_used(summary: PointSummary, metrics: Metrics) -> str:
    point = summary.point
    threads = f" of {plural(point.threads_per_worker, 'thread')}" if point.threads_per_worker > 1 else ""
    return f"{plural(point.workers, 'worker')}{threads} asked for, {metrics.workers_used:,} used"


def _structure(summary: PointSummary, metrics: Metrics) -> tuple[Evidence, ...]:
    """The numbers that every finding about idle threads rests on."""
    point = summary.point
    items = () if point.items is None else (Evidence("items", point.items, "the point's parameters"),)
    return (
        Evidence("threads asked for", point.threads, "the point"),
        *items,
        Evidence("workers used", metrics.workers_used, "table tasks"),
        Evidence("most tasks running or runnable at once", metrics.peak_runnable, "table tasks"),
        Evidence("tasks of the widest stage", metrics.widest_stage, "table tasks, by task group"),
        Evidence("tasks", metrics.tasks, "table tasks"),
        Evidence("share of worker time busy", round(summary.share("busy"), 4), "worker time"),
        Evidence("share without a runnable task", round(summary.share("no_runnable_task"), 4), "worker time"),
    )


def _prediction(rule: PartitionRule | None, found: Sequence[Measured]) -> tuple[Evidence, ...]:
    if rule is None or found[0][0].point.items is None:
        return ()
    return (
        Evidence("partitions that this default predicts", rule.partitions(found[0][0].point.items), rule.formula),
        Evidence("pairs of items and partitions that it predicts exactly", len(_by_default(found)), "all that differ"),
    )


def _spoilt(case: Case, state: TrialState, severity: Severity, code: str, how: str, remedy: str) -> Finding | None:
    """One finding for all trials in one state."""
    points = [point for point in case.points if (point.failed if state is TrialState.FAILED else point.invalid)]
    if not points:
        return None
    total = sum(point.valid + point.failed + point.invalid for point in case.points)
    count = sum(reason.count for point in points for reason in point.reasons if reason.state is state)
    first = next(reason for reason in points[0].reasons if reason.state is state)
    return Finding(
        code,
        severity,
        f"{count:,} of {plural(total, 'trial')} {how}, first at {case.label(points[0])}: {_line(first.text)}.",
        remedy,
        evidence=tuple(
            Evidence(
                f"{state} trials", point.failed if state is TrialState.FAILED else point.invalid, case.label(point)
            )
            for point in points[:10]
        ),
        points=tuple(point.point.id for point in points),
    )


def _lost(found: Sequence[Measured], *parts: str) -> float:
    return sum(summary.seconds(*parts) for summary, _ in found)


def _ids(found: Sequence[Measured]) -> tuple[str, ...]:
    return tuple(summary.point.id for summary, _ in found)


def _line(text: str, limit: int = 200) -> str:
    """The first line of a text, without a full stop of its own."""
    first = (text.strip() or "no reason given").splitlines()[0].rstrip(". ")
    return first if len(first) <= limit else first[: limit - 1] + "…"
