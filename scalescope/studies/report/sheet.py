"""Texts and tables of a study, the same for a terminal, a page and Prefect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scalescope.model import words
from scalescope.model.words import MISSING
from scalescope.report.table import ReportTable, Tone


@dataclass(frozen=True)
class Note:
    """A sentence below the table."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class Sheet:
    """The report of a study, without its headline and its links."""

    table: ReportTable | None  # None if nothing is measured yet
    notes: tuple[Note, ...] = ()  # the most important first
    asked: tuple[tuple[str, str], ...] = ()  # the question, as (term, text)
    sure: tuple[tuple[str, str], ...] = ()  # basis and limits of the answer, as (term, text)
    changelog: str = ""  # address of release notes; untrusted text from package metadata
    code: tuple[str, str] = ("", "")  # a heading, and code to paste; empty: none
    undecided: bool = False  # True if the study ended without a decision


def number(value: Any) -> str:
    """Up to six significant digits: `404`, `12.34`, `1,200`; a dash for None."""
    if value is None:
        return MISSING
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return words.number(value, 6)


def share(value: float) -> str:
    """`3 %` for 0.03, `0.5 %` for 0.005."""
    return f"{100 * value:.3g} %"
