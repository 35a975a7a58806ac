"""Pictures on the page of a study: a chart, a strip of releases, or a forest of ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scalescope.report.table import ReportTable
from scalescope.studies.comparison.judge import PairedComparison

# Ratios at which an axis may have ticks: those below 1, and about their inverses above 1.
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
ABOVE = (1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2, 5, 10, 20, 50, 100)
# Smallest distance between two ticks, as a share of the axis: closer ones would overlap.
APART = 0.11
# Longest and shortest axis on either side of 1, as logarithms; infinite ratios do not stretch it.
WIDEST = math.log(100)
NARROWEST = math.log(1.02)
MARGIN = 0.06


@dataclass(frozen=True)
class Whisker:
    """One row of the forest. Places are percent of the axis from its left edge; `right` counts from the right edge."""

    cells: tuple[str, ...]
    tone: str
    at: float | None  # place of the ratio; None without a ratio
    left: float
    right: float
    shown: bool


@dataclass(frozen=True)
class Forest:
    """Ratios with their intervals on a logarithmic axis."""

    table: ReportTable
    shown: tuple[Whisker, ...]
    hidden: tuple[Whisker, ...]  # rows without a difference
    ticks: tuple[tuple[float, str], ...]  # place and text of each tick
    one: float  # place of the ratio 1


@dataclass(frozen=True)
class Chart:
    """A chart that the page's script draws."""

    name: str
    title: str
    text: str  # description for readers who cannot see the chart
    legend: tuple[tuple[str, str], ...]  # colour and meaning of each line


@dataclass(frozen=True)
class Picture:
    """The picture of a study: usually one of these three kinds."""

    chart: Chart | None = None
    strip: Sequence[Any] = ()  # candidates of a search for a release
    forest: Forest | None = None


def forest(members: Sequence[PairedComparison], table: ReportTable) -> Forest:
    """The forest of all comparisons of a study; `table` has one row for each comparison."""
    axis = _Axis.of(members)
    rows = zip(members, table.rows, strict=True)
    whiskers = [_whisker(member, axis, row.cells, str(row.tone)) for member, row in rows]
    shown, hidden = (tuple(each for each in whiskers if each.shown is wanted) for wanted in (True, False))
    return Forest(table, shown, hidden, tuple(axis.ticks()), axis.place(1.0))


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float

    @classmethod
    def of(cls, members: Sequence[PairedComparison]) -> _Axis:
        given = [end for member in members for end in (member.low, member.ratio, member.high) if end is not None]
        ends = [math.log(end) for end in given if 0 < end < math.inf]
        low, high = max(-WIDEST, min([-NARROWEST, *ends])), min(WIDEST, max([NARROWEST, *ends]))
        margin = MARGIN * (high - low)
        return cls(low - margin, high + margin)

    def place(self, value: float) -> float:
        logarithm = math.log(value) if 0 < value < math.inf else math.copysign(math.inf, value - 1)
        return round(100 * min(1.0, max(0.0, (logarithm - self.low) / (self.high - self.low))), 3)

    def ticks(self) -> list[tuple[float, str]]:
        kept = [1.0]
        for value in sorted((*TICKS, *ABOVE), key=lambda value: -abs(math.log(value))):
            inside = self.low <= math.log(value) <= self.high
            if inside and all(abs(self.place(value) - self.place(other)) >= 100 * APART for other in kept):
                kept.append(value)
        return [(self.place(value), f"{value:g}") for value in sorted(kept)]


def _whisker(member: PairedComparison, axis: _Axis, cells: tuple[str, ...], tone: str) -> Whisker:
    if member.ratio is None or member.low is None or member.high is None:
        return Whisker(cells, tone, None, 0.0, 0.0, member.different)
    left, right = axis.place(member.low), round(100 - axis.place(member.high), 3)
    return Whisker(cells, tone, axis.place(member.ratio), left, right, member.different)
