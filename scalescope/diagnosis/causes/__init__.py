"""Why worker time was lost: a closed set of causes, each with the evidence that it needs.

`CAUSES` is the catalogue: it is what runs, what `docs/causes.md` lists, and what tests go through. A cause looks at one
trial (`Observation`) and returns a finding or None; it says nothing unless its own evidence is there. Several can hold
at once. Causes that need a whole sweep are in `scalescope.diagnosis.verdict`.
"""

from __future__ import annotations

from scalescope.diagnosis.causes import data, failures, machine, placement, submission, tasks
from scalescope.diagnosis.causes.base import Cause
from scalescope.diagnosis.observation import Observation
from scalescope.model.finding import Finding, Severity

CAUSES: tuple[Cause, ...] = tuple(
    cause for module in (tasks, submission, placement, data, failures, machine) for cause in module.CAUSES
)


def find(observation: Observation) -> tuple[Finding, ...]:
    """All findings of one trial, the worst first: by severity, then by worker time lost."""
    found = [finding for cause in CAUSES if (finding := cause.find(observation)) is not None]
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: (order.index(finding.severity), -finding.lost_s)))
