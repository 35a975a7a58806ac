"""No fault found."""

from __future__ import annotations

from scalescope.diagnosis.evidence.graph_structure import points_of, sound
from scalescope.diagnosis.sweep_case import SweepCase, SweepCause
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.metrics import WORKING
from scalescope.model.words import percent, plural

HEALTHY = SweepCause(
    code="healthy",
    title="No fault found",
    needs="Points were measured, and no finding is worse than information.",
    ruled_out_by="Any finding of low severity or worse.",
    remedy="",
    precedence=60,
)


@HEALTHY.finds
def healthy(case: SweepCase) -> Finding:
    """No fault was found; `diagnose` decides whether there is any other finding."""
    good = sound(case)
    points = plural(len(case.measured), "point")
    where = f"all {points}" if len(good) > 1 else "the one point measured"
    evidence: tuple[Evidence, ...] = ()
    rest = ""
    if len(good) < len(case.measured):
        where = f"{len(good):,} of {points}"
        rest = "; at the others the number of tasks allows no more"
    if good:
        lowest = min(good, key=lambda summary: summary.share(*WORKING))
        evidence = (Evidence("lowest share of worker time busy", round(lowest.share(*WORKING), 4), case.label(lowest)),)
        where += f" (at least {percent(lowest.share(*WORKING))} of the worker time busy)"
    summary = f"No fault found: workers are used well at {where}{rest}."
    return HEALTHY.finding(Severity.INFO, summary, "", *evidence, points=points_of(case.measured))
