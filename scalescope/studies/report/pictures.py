"""Pictures of a study that need no script: a strip of releases, and a forest of ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.studies.comparison.judge import Comparison
from scalescope.studies.comparison.report import whole_table
from scalescope.studies.release.judge import State
from scalescope.studies.release.report import WORDS, Candidate
from scalescope.studies.report.sheet import Table

TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
"""Ratios below 1 that an axis may name; above 1 it names their inverses, rounded as people would."""
ABOVE = (1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2, 5, 10, 20, 50, 100)
APART = 0.11
"""Share of the axis by which two of its numbers must be apart to be read."""
WIDEST = math.log(100)
"""Of the axis on either side of 1, at most; it is not stretched for what is infinite."""
NARROWEST = math.log(1.02)
MARGIN = 0.06


@dataclass(frozen=True)
class Step:
    """A release in the strip.

    Attributes:
        label: Its name.
        word: What it is.
        state: Class of the style sheet.
        boundary: Whether it is the first bad one, right after the boundary.
    """

    label: str
    word: str
    state: str
    boundary: bool


@dataclass(frozen=True)
class Whisker:
    """A comparison in the forest; places are percent of the width of the axis.

    Attributes:
        cells: Texts of its row, the first being its name.
        tone: Class of the style sheet.
        at: Place of the ratio; None where there is none.
        left: Place of the lower end of its interval.
        right: Place of the upper end, counted from the right edge.
        shown: Whether B is slower or faster.
    """

    cells: tuple[str, ...]
    tone: str
    at: float | None
    left: float
    right: float
    shown: bool


@dataclass(frozen=True)
class Forest:
    """Ratios with their intervals on a logarithmic axis.

    Attributes:
        table: All texts; the plot stands behind its first column.
        shown: Rows of what is different.
        hidden: Rows of what is not.
        ticks: Places and texts of the axis.
        one: Place of the ratio 1.
    """

    table: Table
    shown: tuple[Whisker, ...]
    hidden: tuple[Whisker, ...]
    ticks: tuple[tuple[float, str], ...]
    one: float


def strip(candidates: Sequence[Candidate]) -> list[Step]:
    """All candidates in their order, tried or not."""
    return [
        Step(
            each.label,
            "not tried" if each.state is None else WORDS[each.state],
            "open" if each.state is None else "undecided" if each.state is State.OPEN else str(each.state),
            each.boundary == "first bad",
        )
        for each in candidates
    ]


def forest(members: Sequence[Comparison]) -> Forest:
    """All comparisons of a study."""
    table = whole_table(members)
    axis = _Axis.of(members)
    whiskers = [
        _whisker(member, axis, row.cells, str(row.tone)) for member, row in zip(members, table.rows, strict=True)
    ]
    return Forest(
        table,
        tuple(each for each in whiskers if each.shown),
        tuple(each for each in whiskers if not each.shown),
        tuple(axis.ticks()),
        axis.place(1.0),
    )


@dataclass(frozen=True)
class _Axis:
    """From the logarithm of one ratio to that of another."""

    low: float
    high: float

    @classmethod
    def of(cls, members: Sequence[Comparison]) -> _Axis:
        given = [end for member in members for end in (member.low, member.ratio, member.high) if end is not None]
        ends = [math.log(end) for end in given if 0 < end < math.inf]
        low, high = max(-WIDEST, min([-NARROWEST, *ends])), min(WIDEST, max([NARROWEST, *ends]))
        margin = MARGIN * (high - low)
        return cls(low - margin, high + margin)

    def place(self, value: float) -> float:
        """In percent from the left; what lies beyond an end is set there."""
        logarithm = math.log(value) if 0 < value < math.inf else math.copysign(math.inf, value - 1)
        return round(100 * min(1.0, max(0.0, (logarithm - self.low) / (self.high - self.low))), 3)

    def ticks(self) -> list[tuple[float, str]]:
        kept = [1.0]
        for value in sorted((*TICKS, *ABOVE), key=lambda value: -abs(math.log(value))):
            inside = self.low <= math.log(value) <= self.high
            if inside and all(abs(self.place(value) - self.place(other)) >= 100 * APART for other in kept):
                kept.append(value)
        return [(self.place(value), f"{value:g}") for value in sorted(kept)]


def _whisker(member: Comparison, axis: _Axis, cells: tuple[str, ...], tone: str) -> Whisker:
    if member.ratio is None or member.low is None or member.high is None:
        return Whisker(cells, tone, None, 0.0, 0.0, member.different)
    left, right = axis.place(member.low), round(100 - axis.place(member.high), 3)
    return Whisker(cells, tone, axis.place(member.ratio), left, right, member.different)
