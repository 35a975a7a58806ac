"""A sweep as its causes see it: its points, and what the records of its trials explain already."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from scalescope.analysis.summary import PointSummary, label, varied
from scalescope.diagnosis.cause import WITHOUT_TASKS, Cause
from scalescope.diagnosis.causes import by_code
from scalescope.model.finding import Evidence, Finding, Gain, Place, Severity
from scalescope.model.metrics import WORKER_TIME, Metrics
from scalescope.model.sweep import Sweep

Measured = tuple[PointSummary, Metrics]


@dataclass(frozen=True)
class SweepCase:
    """A sweep and what its trials show, as its causes look at it."""

    sweep: Sweep
    points: tuple[PointSummary, ...]  # points of the sweep, in order
    # Thread-seconds lost in one trial that findings of trials explain, by point id and cause code.
    explained: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    imports: frozenset[str] = frozenset()  # modules that the workload imports
    # Points whose tasks take no time; only the cause `experiments` looks at them.
    zero_length: tuple[PointSummary, ...] = ()
    spoilt: tuple[PointSummary, ...] = ()  # points without a valid trial, summarised from their other trials
    ran: str = ""  # what a single trial ran of the user's code: `script`, `block` or `cluster`; empty in a sweep

    @cached_property
    def measured(self) -> tuple[Measured, ...]:
        return _measured(self.points)

    @property
    def graphs(self) -> tuple[Measured, ...]:
        """Points whose graph is known: those measured, and those without a valid trial."""
        return self.measured + _measured(self.spoilt)

    @property
    def experiments(self) -> tuple[Measured, ...]:
        """Points that were measured, and those whose tasks take no time."""
        return self.measured + _measured(self.zero_length)

    def idle(self, summary: PointSummary) -> float:
        """Share of worker time, from 0 to 1, that had no task to run and that no finding of a trial explains."""
        total = summary.seconds(*WORKER_TIME)
        return self.idle_s(summary) / total if total > 0 else 0.0

    def idle_s(self, summary: PointSummary) -> float:
        return max(0.0, summary.seconds(*WITHOUT_TASKS) - summary.valid * self.explained_of(summary, *WITHOUT_TASKS))

    def explained_s(self, summary: PointSummary, codes: Collection[str] | None = None) -> float:
        """Thread-seconds that findings explain in a trial of this point; with `codes`, only findings of these codes."""
        return sum(seconds for code, seconds in self._explained(summary).items() if codes is None or code in codes)

    def explained_of(self, summary: PointSummary, *parts: str) -> float:
        """Thread-seconds explained by findings whose cause concerns one of these parts of worker time."""
        causes = by_code()
        codes = [code for code in self._explained(summary) if code in causes and {*parts} & {*causes[code].parts}]
        return self.explained_s(summary, codes)

    def ruled_out(self, summary: PointSummary, code: str) -> bool:
        """Whether a finding of the trials of this point rules out a cause there."""
        found = map(by_code().get, self._explained(summary))
        return any(code in cause.rules_out for cause in found if cause is not None)

    def label(self, summary: PointSummary) -> str:
        return label(summary.point, self._varied)

    @cached_property
    def _varied(self) -> tuple[str, ...]:
        return varied(point.point for point in self.points)

    def _explained(self, summary: PointSummary) -> Mapping[str, float]:
        return self.explained.get(summary.point.id, {})


def _measured(points: Sequence[PointSummary]) -> tuple[Measured, ...]:
    return tuple((point, point.metrics) for point in points if point.metrics is not None)


class SweepCause(Cause[SweepCase]):
    """A cause that only the points of a sweep show."""

    def finding(
        self,
        severity: Severity,
        summary: str,
        remedy: str,
        *evidence: Evidence,
        points: Sequence[PointSummary],
        lost_s: float = 0.0,
        confidence: float = 1.0,
        link: str = "",
        gain: Gain | None = None,
        place: Place | None = None,  # line of the user's code
    ) -> Finding:
        """A finding of this cause at some points, worst first; further arguments as in `Finding`."""
        if points and not self.helps(points[0]):
            remedy, gain = "", None
        ids = tuple(summary.point.id for summary in points)
        return Finding(self.code, severity, summary, remedy, evidence, confidence, ids, lost_s, link, gain, place)
