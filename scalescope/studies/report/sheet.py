"""What a study says, as texts and tables that a terminal, a page and Prefect show alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scalescope.report.table import MISSING, ReportTable, Tone


@dataclass(frozen=True)
class Note:
    """A sentence below the table."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class Sheet:
    """A study for people, besides its line and its links.

    Attributes:
        table: What was measured; None where there is nothing yet.
        notes: What goes with it, the most important first.
        asked: What was asked, as terms and texts.
        sure: What the answer rests on and how far it goes, as terms and texts.
        changelog: Address where the project tells of what it changed; may be empty, and may be any text.
        undecided: Whether there is an answer, and it is that nothing could be told.
    """

    table: ReportTable | None
    notes: tuple[Note, ...] = ()
    asked: tuple[tuple[str, str], ...] = ()
    sure: tuple[tuple[str, str], ...] = ()
    changelog: str = ""
    undecided: bool = False


def number(value: Any) -> str:
    """A metric or a value of an axis with up to six digits that count: `404`, `12.34`, `1,200`; a dash for none."""
    if value is None:
        return MISSING
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"


def pairs(values: Mapping[str, Any]) -> str:
    """`workers=200, items=199`."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def share(value: float) -> str:
    """`3 %` for 0.03, `0.5 %` for 0.005."""
    return f"{100 * value:.3g} %"
