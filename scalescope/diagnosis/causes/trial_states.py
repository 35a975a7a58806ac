"""States of trials: no task ran in any, the workload failed, or the machine misbehaved."""

from __future__ import annotations

from scalescope.analysis.attempts import NO_TASK
from scalescope.diagnosis.sweep_case import SweepCase, SweepCause
from scalescope.errors import told
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.trial import TrialState
from scalescope.model.words import plural

# Meaning of library errors whose text does not explain them, and what to do, by name of the error
ERRORS = {
    "PoolTimeout": "there are more requests at once than the HTTP client has connections (16 in Prefect): submit some "
    "hundred tasks, `wait(futures)`, then submit more; or raise `PREFECT_API_REQUEST_TIMEOUT` (seconds)"
}
SHOWN = 10  # points listed as evidence
ACCOMPANIES = 0.2  # confidence that failed or invalid trials are the cause rather than a consequence

NOTHING_MEASURED = SweepCause(
    code="nothing-measured",
    title="Nothing was measured",
    needs="No trial is valid: none was run, or no task ran in any of them.",
    ruled_out_by="One valid trial; warm-ups do not count. Another reason why trials do not count (invalid-trials).",
    remedy="Compute through the client that the workload is given",
    precedence=40,
    premise="No task came to this cluster.",
)


@NOTHING_MEASURED.finds
def nothing_measured(case: SweepCase) -> Finding | None:
    """No trial has a measurement: none was run, or no task came to the cluster."""
    reasons = [reason for point in case.points for reason in point.reasons]
    if case.measured or not all(reason.text.startswith(NO_TASK) for reason in reasons):
        return None
    if any(case.ruled_out(point, NOTHING_MEASURED.code) for point in case.points):
        return None
    what, remedy = "no trial was run", "run the same command again; if its budget was spent, with a larger one"
    if case.ran:
        what, remedy = "no task ran on the cluster", "compute through the client whose cluster is recorded"
    elif reasons:
        what, remedy = "no task ran on the cluster", "compute through the client that the workload is given"
    elif case.points:
        what = "no trial has a measurement"
    return NOTHING_MEASURED.finding(
        Severity.HIGH,
        f"Nothing was measured: {what}.",
        remedy,
        Evidence("trials without a measurement", sum(reason.count for reason in reasons), "trial states"),
        confidence=ACCOMPANIES,
        points=case.points,
    )


FAILED_TRIALS = SweepCause(
    code="failed-trials",
    title="The workload raised",
    needs="Trials failed: the workload raised, or its result was wrong.",
    ruled_out_by="Trials spoilt by the machine (invalid-trials).",
    remedy="Run the failed point alone and fix the workload",
    precedence=50,
    premise="The error is recorded.",
)


@FAILED_TRIALS.finds
def failed_trials(case: SweepCase) -> Finding | None:
    """Trials whose workload raised or computed something wrong."""
    remedy = "run the failed point alone and fix the workload; times of a wrong answer mean nothing"
    return _spoilt(case, FAILED_TRIALS, TrialState.FAILED, "failed", remedy)


INVALID_TRIALS = SweepCause(
    code="invalid-trials",
    title="Trials do not count",
    needs="Trials were invalid: workers missing or lost, recording incomplete, host overloaded, or timed out.",
    ruled_out_by="A workload that raised (failed-trials). Workers that died (worker-died, worker-killing-task).",
    remedy="Run the same sweep again; on an overloaded host, use fewer workers or the simulated cluster",
    premise="The trial says why it does not count.",
)


@INVALID_TRIALS.finds
def invalid_trials(case: SweepCase) -> Finding | None:
    """Trials that do not count, through no known fault of the workload."""
    remedy = "run the same sweep again; if the host is overloaded, use fewer workers or the simulated cluster"
    return _spoilt(case, INVALID_TRIALS, TrialState.INVALID, "did not count", remedy)


def _spoilt(case: SweepCase, cause: SweepCause, state: TrialState, how: str, remedy: str) -> Finding | None:
    points = [
        point
        for point in case.points
        if (point.failed if state is TrialState.FAILED else point.invalid) and not case.ruled_out(point, cause.code)
    ]
    found = [[reason for reason in point.reasons if reason.state is state] for point in points]
    if not points or (not case.measured and all(each.text.startswith(NO_TASK) for own in found for each in own)):
        return None
    counts = [sum(reason.count for reason in own) for own in found]
    count, first = sum(counts), found[0][0].text
    meaning = next((f": {known}" for name, known in ERRORS.items() if name in first), "")
    total = sum(point.valid + point.failed + point.invalid for point in case.points)
    if case.ran:
        summary, remedy = (
            f"{words.capital(_reason(first))}{meaning}.",
            "" if state is TrialState.FAILED else "run the same command once more",
        )
    else:
        which = f"{count:,} of {plural(total, 'trial')}" if count < total or total > 1 else "The only trial"
        at = f", first at {case.label(points[0])}" if len(case.points) > 1 else ""
        summary = f"{which} {how}{at}: {_reason(first)}{meaning}."
    failed = state is TrialState.FAILED or not case.measured
    return cause.finding(
        Severity.HIGH if failed else Severity.MEDIUM,
        summary,
        told(first).get("next", remedy),
        *[Evidence(f"{state} trials", n, case.label(point)) for point, n in zip(points, counts, strict=True)][:SHOWN],
        confidence=1.0 if state is TrialState.FAILED else ACCOMPANIES,
        points=points,
    )


def _reason(text: str) -> str:
    return words.first_line(text, 200) or "no reason given"
