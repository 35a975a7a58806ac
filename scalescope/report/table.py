"""Tables: described once as columns and rows, and shown on a terminal, as Markdown, on a page and in Prefect."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from scalescope.errors import printable
from scalescope.model.words import MISSING

if TYPE_CHECKING:
    from rich.table import Table as RichTable

T = TypeVar("T")

GAP = 2
"""Spaces between two columns on a terminal."""


class Tone(StrEnum):
    """How a text is meant; the terminal and the page each have a colour for it, and no text relies on that."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    DOUBT = "doubt"
    FAINT = "faint"


STYLES = {Tone.PLAIN: "", Tone.GOOD: "green", Tone.BAD: "red", Tone.DOUBT: "yellow", Tone.FAINT: "dim"}
"""Of a terminal."""


@dataclass(frozen=True)
class Row:
    """One row of a table: its texts, and the tone of all of them."""

    cells: tuple[str, ...]
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class ReportTable:
    """A table of texts.

    Attributes:
        caption: What it shows.
        heads: Headings.
        rows: Cells.
        numbers: Columns that are set to the right, from 0.
        notice: What was left out, if anything.
    """

    caption: str
    heads: tuple[str, ...]
    rows: tuple[Row, ...]
    numbers: frozenset[int] = frozenset()
    notice: str = ""

    @classmethod
    def of(
        cls, caption: str, heads: Sequence[str], cells: Iterable[Sequence[str]], labels: int = 1, notice: str = ""
    ) -> ReportTable:
        """A table of which the first `labels` columns are words, and all others numbers."""
        rows = tuple(Row(tuple(each)) for each in cells)
        return cls(caption, tuple(heads), rows, frozenset(range(labels, len(heads))), notice)


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table whose rows are made from values of one type.

    Attributes:
        key: Name for programs; its unit is part of it.
        title: Heading for people.
        value: Reads the value from a row, None where there is none.
        show: How a value is written.
        short: Heading where there is too little room for the title; empty: the title.
        legend: What it is, in a few words; empty where the title says it.
        rank: The higher, the sooner it is left out where there is too little room; 0 never is.
    """

    key: str
    title: str
    value: Callable[[T], Any]
    show: Callable[[Any], str] = str
    short: str = ""
    legend: str = ""
    rank: int = 0

    def cell(self, row: T | None) -> str:
        """The text of a row; a dash where there is no row or no value."""
        value = None if row is None else self.value(row)
        return MISSING if value is None else self.show(value)

    @property
    def shortened(self) -> Column[T]:
        """The same under its short heading, which needs a legend."""
        return replace(self, title=self.short, legend=self.legend or self.title) if self.short else self


def fitting(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> list[Column[T]]:
    """The columns that fit side by side into `width` characters.

    First headings are shortened, then the columns of the highest rank go, together.
    """
    shown = list(columns)
    if _width(shown, rows) > width:
        shown = [column.shortened for column in shown]
    while _width(shown, rows) > width and (rank := max(column.rank for column in shown)):
        shown = [column for column in shown if column.rank != rank]
    return shown


def _width(columns: Sequence[Column[T]], rows: Sequence[T]) -> int:
    from rich.cells import cell_len

    widths = [max(map(cell_len, (column.title, *map(column.cell, rows)))) for column in columns]
    return sum(widths) + GAP * (len(columns) - 1)


def legend(columns: Iterable[Column[T]]) -> str:
    """What the headings mean that do not say so themselves."""
    return "; ".join(f"{column.title}: {column.legend}" for column in columns if column.legend)


def to_terminal(table: ReportTable) -> RichTable:
    """For rich. Numbers stay in one line; where it is narrow, words of the first column fold and of the last wrap."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    last = len(table.heads) - 1
    for i, head in enumerate(table.heads):
        made.add_column(
            Text(head),
            justify="right" if i in table.numbers else "left",
            overflow="fold",
            no_wrap=i in table.numbers or 0 < i < last,
            min_width=len(head) if i in (0, last) and i not in table.numbers else None,
        )
    for row in table.rows:
        made.add_row(*map(Text, row.cells), style=STYLES[row.tone])
    return made


def to_markdown(table: ReportTable) -> str:
    """As Markdown; text from outside is escaped."""
    lines = [table.heads, *(row.cells for row in table.rows)]
    text = ["| " + " | ".join(markdown_text(cell) for cell in line) + " |" for line in lines]
    text.insert(1, "|" + "".join(" ---: |" if i in table.numbers else " --- |" for i in range(len(table.heads))))
    return "\n".join(text)


def to_mappings(table: ReportTable) -> list[dict[str, str]]:
    """One mapping of headings to cells per row, for Prefect's tables; safe as HTML."""
    heads = [html_text(head) or "note" for head in table.heads]
    return [dict(zip(heads, map(html_text, row.cells), strict=True)) for row in table.rows]


def markdown_list(title: str, items: Sequence[str]) -> str:
    """A heading and a list; nothing where there are no items."""
    if not items:
        return ""
    return (f"**{title}**\n\n" if title else "") + "\n".join(f"- {markdown_text(item)}" for item in items)


def html_text(text: str) -> str:
    """Text that HTML cannot misread."""
    return html.escape(printable(text))


def markdown_text(text: object) -> str:
    """Text that neither Markdown nor HTML can misread, on one line."""
    flat = html.escape(" ".join(printable(str(text)).split()), quote=False)
    return re.sub(r"([\\`*_{}\[\]|~#])", r"\\\1", flat)
