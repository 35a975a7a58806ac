"""Result of isolating a symptom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scalescope.diagnosis.verdict import diagnose
from scalescope.isolation.reduce import Reduction
from scalescope.isolation.removals import Setting
from scalescope.model.finding import Finding, Severity
from scalescope.model.sweep import Sweep
from scalescope.model.trial import Trial


@dataclass(frozen=True)
class Seen:
    """A trial of the first run, and whether it shows the symptom by itself."""

    trial: Trial
    shows: bool


@dataclass(frozen=True)
class Isolation:
    """The smallest trial that still shows a symptom, and the steps that led to it."""

    run_id: str  # run in which the symptom was seen
    sweep: Sweep
    seen: tuple[Seen, ...]
    finding: Finding | None  # None if the symptom is a comparison of numbers
    symptom: str
    start: Trial  # trial that was reduced
    reduction: Reduction[Setting]
    trial: Trial
    notes: tuple[str, ...] = ()  # removals that could not be tried, with the reason

    @property
    def setting(self) -> Setting:
        return self.reduction.state

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of the isolated trial, worst first."""
        found = diagnose(self.setting.sweep, [self.trial]).findings
        return tuple(finding for finding in found if finding.severity is not Severity.INFO)

    def to_mapping(self) -> dict[str, Any]:
        return {
            "run": self.run_id,
            "symptom": self.symptom,
            "finding": None if self.finding is None else self.finding.to_mapping(),
            "start": self.start.point.to_mapping(),
            "isolated": self.setting.sweep.to_mapping(),
            "metrics": None if self.trial.metrics is None else self.trial.metrics.to_mapping(),
            "minimal": self.reduction.minimal,
            "stopped": self.reduction.stopped,
            "notes": list(self.notes),
            "steps": [
                {
                    "tried": step.words,
                    "sweep": step.state.sweep.to_mapping(),
                    "shows": step.reading.shows,
                    "kept": step.kept,
                    "reading": step.reading.text,
                    "problem": step.reading.problem,
                }
                for step in self.reduction.steps
            ],
        }
