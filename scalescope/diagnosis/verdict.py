"""The verdict on a sweep: what its trials showed and what only the sweep shows, merged, ordered and worded.

No idle thread is explained twice: if a finding of the trials explains it, the structure of the graph is not blamed
as well. Known causes come first, then what limits trust, then advice; each by severity, precedence and worker
time lost. There always is a finding, `healthy` where there is no fault. Causes are also read off the graphs of trials
that are no data points, with less confidence and without a prediction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace
from statistics import fmean

from scalescope.analysis.summary import PointSummary, label, spoilt_points, summarise, varied
from scalescope.diagnosis import causes
from scalescope.diagnosis.cause import DOUBTED, LAST, NOTEWORTHY
from scalescope.diagnosis.causes.cores import HOST_OVERLOADED, OVERSUBSCRIBED_THREADS
from scalescope.diagnosis.causes.no_known_cause import HEALTHY, TOO_SHORT, UNKNOWN, healthy
from scalescope.diagnosis.evidence.graph_structure import sound
from scalescope.diagnosis.sweep_case import SweepCase
from scalescope.model.finding import PERHAPS, PROBABLY, UNSURE, Finding, Severity, Verdict
from scalescope.model.metrics import Metrics
from scalescope.model.sweep import Sweep
from scalescope.model.trial import Trial, ran_what

CROWDED = (HOST_OVERLOADED.code, OVERSUBSCRIBED_THREADS.code)  # findings that make all times doubtful
SHORT_S = 1.0  # thread-seconds per worker; if all calls of a real-time sweep take less, only losses in `GROWING` count
# Codes of causes whose share of the time stays the same if there is more of the same work.
GROWING = frozenset(
    {
        *("results-awaited-in-loop", "few-tasks-in-flight", "slow-submission", "too-few-partitions", "narrow-stage"),
        *("tiny-tasks", "gil-bound", "lock-bound", "recomputation", "nested-client", "oversubscribed-threads"),
    }
)
ByPoint = Mapping[str, Sequence[Finding]]  # findings of one code, by id of the point


def diagnose(sweep: Sweep, trials: Sequence[Trial]) -> Verdict:
    """Judge a sweep, or what `run`, `diagnose` or `watch` recorded. Warm-ups are left out."""
    trials, zero_length = _without_experiments(trials)
    points = summarise(trials)
    by_code = _by_code(trials)
    imports = frozenset(str(name) for trial in trials for name in trial.facts.get("imports") or ())
    spoilt = spoilt_points(trials)
    case = SweepCase(sweep, points, _explained(by_code), imports, summarise(zero_length), spoilt, ran_what(trials))
    findings = [_merged(points, by_point) for by_point in by_code.values()]
    findings += [finding for cause in causes.of_sweeps() if cause is not HEALTHY and (finding := cause.find(case))]
    had_cores = {point.point.id for point, metrics in case.measured if 0 < _without_core(metrics) < NOTEWORTHY}
    findings = _doubted(findings, {point.point.id for point, _ in case.measured}, had_cores)
    trifle = any(finding.code == TOO_SHORT.code for finding in findings)
    if trifle or _short(case):
        findings = [each for finding in findings if (each := _in_proportion(finding, trifle=trifle)) is not None]
    if not trifle and all(finding.severity is Severity.INFO for finding in findings):
        excused = any(cause.excusable for finding in findings if (cause := causes.by_code().get(finding.code)))
        if sound(case) or not excused:
            findings.insert(0, healthy(case))
    findings = [_with_measured(points, finding) for finding in findings]
    findings.sort(key=lambda finding: (_place(finding), finding.severity.rank, _precedence(finding), finding.rank()))
    return Verdict.of([_not_sure(findings), *findings[1:]])


def _not_sure(findings: Sequence[Finding]) -> Finding:
    """The first finding; if it is not sure, with the second cause and the cheapest run that tells the two apart."""
    first, *others = findings
    cause = causes.by_code().get(first.code)
    faults = [each for each in others if each.severity is not Severity.INFO and each.code != UNKNOWN.code]
    if first.confidence >= UNSURE or cause is None or cause is UNKNOWN or first.limits_trust:
        return first
    limit = next((each for each in faults if each.limits_trust and {*first.points[:1]} & {*each.points}), None)
    second = next((each for each in faults if not each.limits_trust), limit)
    other = causes.by_code().get(second.code) if second else None
    told = "the cause is unknown" if other is None else f"it is `{other.code}` ({other.title.lower()})"
    experiment = cause.told_by
    if limit is not None:
        experiment = "the same trial on an idle host"
    elif first.gain and first.gain.change:
        experiment = "the same trial with " + ", ".join(
            f"`{name}={value}`" for name, value in first.gain.change.items()
        )
    said = first.summary.removeprefix(PERHAPS)
    return replace(first, summary=f"{PROBABLY}{said} If not, {told}. To find out, run {experiment}.")


def _doubted(findings: Sequence[Finding], measured: Collection[str], had_cores: Set[str]) -> list[Finding]:
    limits = [finding for finding in findings if finding.limits_trust]
    limited = {point for finding in limits for point in finding.points}
    crowded = {point for finding in limits if finding.code in CROWDED for point in finding.points} - had_cores
    return [_doubted_at(finding, limited, crowded, measured) for finding in findings]


def _doubted_at(
    finding: Finding, limited: Collection[str], crowded: Collection[str], measured: Collection[str]
) -> Finding:
    if finding.limits_trust or finding.points[:1] == () or finding.points[0] not in limited:
        return finding
    cause = causes.by_code().get(finding.code)
    if cause is not None and cause.by_times and finding.points[0] in crowded:
        finding = finding.perhaps()
    gain = finding.gain if finding.points[0] in measured else None
    return replace(finding, confidence=DOUBTED * finding.confidence, gain=gain)


def _without_core(metrics: Metrics) -> float:
    """Share of the busy time in which tasks wanted a core and had none; 0 where that is not known."""
    parts = metrics.busy_time_s or {}
    return parts.get("for_core", 0.0) / max(sum(parts.values()), 1e-9)


def _place(finding: Finding) -> int:
    """Known causes first, then what limits trust, which is the verdict only where no cause is known."""
    if finding.limits_trust:
        return 1
    return 0 if finding.severity in (Severity.HIGH, Severity.MEDIUM) and finding.code != UNKNOWN.code else 2


def _short(case: SweepCase) -> bool:
    found = [(summary.point.threads_per_worker, metrics.elapsed_s) for summary, metrics in case.measured]
    return bool(found) and case.sweep.cluster.real_time and all(each * s < SHORT_S for each, s in found)


def _in_proportion(finding: Finding, *, trifle: bool) -> Finding | None:
    """The finding as it counts in short trials; None if it is left out. Failures and deaths stay as they are.

    A loss becomes information, unless it grows with the work (`GROWING`). If the trials are a trifle (`too-short`), a
    growing loss becomes information, and any other is left out.
    """
    cause = causes.by_code().get(finding.code)
    if cause is None or not (cause is UNKNOWN or cause.parts not in ((), ("lost",))):
        return finding
    if finding.code not in GROWING or finding.severity is Severity.INFO:
        return None if trifle else replace(finding, severity=Severity.INFO, gain=None)
    finding = replace(finding, summary=f"{finding.summary} This loss grows with the work.")
    return replace(finding, severity=Severity.INFO, gain=None) if trifle else finding


def _without_experiments(trials: Sequence[Trial]) -> tuple[Sequence[Trial], Sequence[Trial]]:
    """Trials to judge, and those with zero-length tasks; the latter are judged if there are no others."""
    beside = [trial for trial in trials if trial.point.has_zero_length_tasks]
    others = [trial for trial in trials if not trial.point.has_zero_length_tasks]
    return (others, beside) if others else (trials, ())


def _with_measured(points: Sequence[PointSummary], finding: Finding) -> Finding:
    if finding.gain is None or not finding.gain.change:
        return finding
    worst = next(each.point for each in points if each.point.id == finding.points[0])
    values = {**worst.values, **finding.gain.change}
    if values == worst.values:
        return finding
    found = [each.metrics.elapsed_s for each in points if each.metrics is not None and each.point.values == values]
    return replace(finding, gain=replace(finding.gain, measured_s=found[0])) if found else finding


def _precedence(finding: Finding) -> int:
    cause = causes.by_code().get(finding.code)
    return LAST if cause is None else cause.precedence


def _by_code(trials: Sequence[Trial]) -> dict[str, ByPoint]:
    """Findings of trials by code and point; only those that at least half of the point's trials have.

    If any trial is valid, findings of severity `INFO` from invalid trials are left out.
    """
    by_code: dict[str, dict[str, list[Finding]]] = {}
    trials = [trial for trial in trials if not trial.warmup]
    counted, is_any_valid = Counter(trial.point.id for trial in trials), any(trial.counts for trial in trials)
    for trial in trials:
        for finding in trial.findings:
            if finding.severity is Severity.INFO and is_any_valid and not trial.counts:
                continue
            by_code.setdefault(finding.code, {}).setdefault(trial.point.id, []).append(finding)
    kept = {
        code: {point: found for point, found in by_point.items() if 2 * len(found) >= counted[point]}
        for code, by_point in by_code.items()
    }
    return {code: by_point for code, by_point in kept.items() if by_point}


def _explained(by_code: Mapping[str, ByPoint]) -> dict[str, dict[str, float]]:
    """Thread-seconds per trial that findings explain, by point and code; `INFO` counts only for excusable causes."""
    explained: dict[str, dict[str, float]] = {}
    for code, by_point in by_code.items():
        cause = causes.by_code().get(code)
        excuses = cause is not None and cause.excusable
        for point, found in by_point.items():
            lost = [finding.lost_s for finding in found if excuses or finding.severity is not Severity.INFO]
            if lost:
                explained.setdefault(point, {})[code] = fmean(lost)
    return explained


def _merged(points: Sequence[PointSummary], by_point: ByPoint) -> Finding:
    worst_at, worst = min(
        ((point, finding) for point, found in by_point.items() for finding in found), key=lambda item: item[1].rank()
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
        points=(worst_at, *(each for each in by_point if each != worst_at)),
        lost_s=sum(finding.lost_s for found in by_point.values() for finding in found),
    )
