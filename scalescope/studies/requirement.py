"""Requirements of `--require`: conditions on metrics at points of a sweep, which decide the command's exit status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.analysis.summary import PointSummary, is_meant, label, summarise, varied
from scalescope.errors import ExitStatus, InvalidField
from scalescope.model.sweep import ITEMS, Point
from scalescope.model.trial import Trial
from scalescope.model.words import number
from scalescope.studies.symptom import MetricSymptom, metric_symptom, numbers_of

OPTION = "--require"


@dataclass(frozen=True)
class Requirement:
    """A comparison that must hold at some points; made by `requirement`."""

    text: str
    condition: MetricSymptom
    at: str  # points that the requirement applies to, in the syntax of `analysis.summary.is_meant`; empty: all

    def means(self, point: Point) -> bool:
        return is_meant(point, self.at)


@dataclass(frozen=True)
class RequirementAnswer:
    """Result of a requirement."""

    text: str
    status: ExitStatus  # OK: met; FINDING: not met; FAILED, INFRASTRUCTURE: unknown; USAGE: no such point
    line: str


def requirement(text: str) -> Requirement:
    """Read `COMPARISON` or `COMPARISON at NAME=VALUE,NAME=VALUE`."""
    comparison, _, place = " ".join(text.split()).partition(" at ")
    try:
        condition = metric_symptom(comparison)
    except InvalidField as error:
        raise InvalidField(OPTION, text, error.allowed) from error
    return Requirement(" ".join(text.split()), condition, place)


def check_points(requirements: Sequence[Requirement], points: Sequence[Point]) -> None:
    for each in requirements:
        meant = [point for point in points if each.means(point)]
        if not meant:
            raise InvalidField(OPTION, each.text, f"a point of the sweep after `at`; the points are: {_listed(points)}")
        if ITEMS in each.condition.names and any(point.items is None for point in meant):
            raise InvalidField(OPTION, each.text, "numbers that the workload has; this workload has no items")


def judge(requirements: Sequence[Requirement], trials: Sequence[Trial]) -> tuple[RequirementAnswer, ...]:
    """Whether each requirement holds for the means over all repeats of a point."""
    summaries = summarise(trials)
    return tuple(_answer(each, summaries) for each in requirements)


def status(answers: Sequence[RequirementAnswer]) -> ExitStatus:
    """The exit status of all answers together; an unknown answer outranks a requirement that is not met."""
    found = {answer.status for answer in answers}
    order = (ExitStatus.USAGE, ExitStatus.FAILED, ExitStatus.INFRASTRUCTURE, ExitStatus.FINDING)
    return next((each for each in order if each in found), ExitStatus.OK)


def _answer(asked: Requirement, summaries: Sequence[PointSummary]) -> RequirementAnswer:
    points = [summary.point for summary in summaries]
    meant = [summary for summary in summaries if asked.means(summary.point)]
    if not meant:
        return _unknown(asked, ExitStatus.USAGE, f"no measured point matches; the points are: {_listed(points)}")
    names, held = varied(points), list[str]()
    for summary in meant:
        where = label(summary.point, names)
        if summary.metrics is None:
            why = summary.reasons[0].text.strip().partition("\n")[0] if summary.reasons else "nothing was measured"
            status = ExitStatus.FAILED if summary.failed else ExitStatus.INFRASTRUCTURE
            return _unknown(asked, status, f"{where}: {why}")
        means = {name: mean.mean for name, mean in summary.intervals.items()}
        numbers = {**numbers_of(summary.point, summary.metrics), **means}
        told = ", ".join(f"{name} is {number(numbers[name])}" for name in sorted(asked.condition.names))
        if not asked.condition.holds(numbers):
            return RequirementAnswer(asked.text, ExitStatus.FINDING, f"not met: {asked.text} ({told} at {where})")
        held.append(told)
    told = held[0] if len(held) == 1 else f"at all {len(held)} points"
    return RequirementAnswer(asked.text, ExitStatus.OK, f"met: {asked.text} ({told})")


def _unknown(asked: Requirement, status: ExitStatus, why: str) -> RequirementAnswer:
    return RequirementAnswer(asked.text, status, f"not known: {asked.text} ({why})")


def _listed(points: Sequence[Point]) -> str:
    names = varied(points)
    known = list(dict.fromkeys(label(point, names) for point in points))
    return "; ".join(known[:8] + ["..."] * (len(known) > 8))
