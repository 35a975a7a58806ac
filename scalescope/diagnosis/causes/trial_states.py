"""Causes that lie in the states of trials: none is valid, the workload failed, or the machine misbehaved."""

from __future__ import annotations

import re

from scalescope.diagnosis.sweep_case import SweepCase, SweepCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.trial import TrialState
from scalescope.model.words import plural

POINTS_SHOWN = 10  # points listed as evidence
ACCOMPANIES = 0.2  # confidence that such trials are the cause rather than a consequence

NOTHING_MEASURED = SweepCause(
    code="nothing-measured",
    title="No trial is a measurement",
    needs="No trial of the sweep is valid.",
    ruled_out_by="One valid trial. Warm-ups do not count.",
    remedy="Fix the reason named in the finding, then run the same sweep again",
    precedence=40,
)


@NOTHING_MEASURED.finds
def nothing_measured(case: SweepCase) -> Finding | None:
    """No trial is a data point."""
    if case.measured:
        return None
    reasons = sorted((reason for point in case.points for reason in point.reasons), key=lambda reason: -reason.count)
    if not reasons:
        what = "no trial was run" if not case.points else "no trial has a measurement"
        summary = f"Nothing was measured: {what}."
        return NOTHING_MEASURED.finding(
            Severity.HIGH, summary, "run the sweep again", confidence=ACCOMPANIES, points=()
        )
    trials = sum(reason.count for reason in reasons)
    none = "the only trial is not" if trials == 1 else f"none of the {trials:,} trials is"
    return NOTHING_MEASURED.finding(
        Severity.HIGH,
        f"Nothing was measured: {none} valid, most often because: {_reason(reasons[0].text)}.",
        _next_step(reasons[0].text) or "remove that reason, then run the same sweep again",
        Evidence("trials that are no data point", trials, "trial states"),
        confidence=ACCOMPANIES,
        points=case.points,
    )


FAILED_TRIALS = SweepCause(
    code="failed-trials",
    title="The workload raised",
    needs="Trials failed: the workload raised, or its result was wrong.",
    ruled_out_by="A machine that misbehaved (invalid-trials).",
    remedy="Run that point alone and fix the workload",
    precedence=50,
    spoils=60,
)


@FAILED_TRIALS.finds
def failed_trials(case: SweepCase) -> Finding | None:
    """A workload raised, or computed something wrong."""
    return _spoilt(
        case,
        FAILED_TRIALS,
        TrialState.FAILED,
        Severity.HIGH,
        "failed in the workload",
        "run that point alone and fix the workload; the performance of a wrong answer means nothing",
    )


INVALID_TRIALS = SweepCause(
    code="invalid-trials",
    title="The machine misbehaved",
    needs="Trials were invalid: workers missing or lost, recording incomplete, host overloaded, or timed out.",
    ruled_out_by="A workload that raised (failed-trials).",
    remedy="Run the same sweep again; on an overloaded host, use fewer workers or the simulated cluster",
)


@INVALID_TRIALS.finds
def invalid_trials(case: SweepCase) -> Finding | None:
    """The machine misbehaved."""
    return _spoilt(
        case,
        INVALID_TRIALS,
        TrialState.INVALID,
        Severity.MEDIUM,
        "did not count because the machine misbehaved",
        "run the same sweep again; where the host is overloaded, on fewer workers or on the simulated cluster",
        ACCOMPANIES,
    )


def _spoilt(
    case: SweepCase,
    cause: SweepCause,
    state: TrialState,
    severity: Severity,
    how: str,
    remedy: str,
    confidence: float = 1.0,
) -> Finding | None:
    counts = [(point, point.failed if state is TrialState.FAILED else point.invalid) for point in case.points]
    counts = [(point, count) for point, count in counts if count]
    if not counts:
        return None
    points = [point for point, _ in counts]
    total = sum(point.valid + point.failed + point.invalid for point in case.points)
    count = sum(reason.count for point in points for reason in point.reasons if reason.state is state)
    first = next(reason for reason in points[0].reasons if reason.state is state)
    return cause.finding(
        severity,
        f"{count:,} of {plural(total, 'trial')} {how}, first at {case.label(points[0])}: {_reason(first.text)}.",
        _next_step(first.text) or remedy,
        *(Evidence(f"{state} trials", count, case.label(point)) for point, count in counts[:POINTS_SHOWN]),
        confidence=confidence,
        points=points,
    )


def _next_step(text: str) -> str:
    found = re.search(r"^  next: (.+)", text, re.MULTILINE)
    return found[1] if found else ""


def _reason(text: str) -> str:
    return words.first_line(text, 200) or "no reason given"
