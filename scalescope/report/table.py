"""Tables as columns and rows, and their output to terminals, Markdown, web pages and Prefect."""

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
GAP = 2  # spaces between two columns on a terminal


class Tone(StrEnum):
    """Meaning of a text, which terminals and pages show as colour; the text must be clear without colour."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    DOUBT = "doubt"
    FAINT = "faint"


STYLES = {Tone.PLAIN: "", Tone.GOOD: "green", Tone.BAD: "red", Tone.DOUBT: "yellow", Tone.FAINT: "dim"}  # in a terminal


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    cells: tuple[str, ...]
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class ReportTable:
    """A table of texts."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[Row, ...]
    numbers: frozenset[int] = frozenset()  # indices of right-aligned columns
    notice: str = ""  # sentence on what was left out

    @classmethod
    def of(
        cls, caption: str, heads: Sequence[str], cells: Iterable[Sequence[str]], labels: int = 1, notice: str = ""
    ) -> ReportTable:
        """A table whose first `labels` columns are words and whose other columns are numbers."""
        rows = tuple(Row(tuple(each)) for each in cells)
        return cls(caption, tuple(heads), rows, frozenset(range(labels, len(heads))), notice)


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table whose rows are made from values of one type."""

    key: str  # name of the column for programs, with the unit
    title: str
    value: Callable[[T], Any]  # gives the value of a row; None for a row without a value
    show: Callable[[Any], str] = str
    short: str = ""  # heading if space is short; empty: the title
    legend: str = ""  # explanation of the heading
    rank: int = 0  # if space is short, columns with the highest rank are left out first; rank 0 always stays

    def cell(self, row: T | None) -> str:
        value = None if row is None else self.value(row)
        return MISSING if value is None else self.show(value)

    @property
    def shortened(self) -> Column[T]:
        return replace(self, title=self.short, legend=self.legend or self.title) if self.short else self


def fitting(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> list[Column[T]]:
    """The columns that fit into `width` characters, with short headings or without the highest ranks if needed."""
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
    return "; ".join(f"{column.title}: {column.legend}" for column in columns if column.legend)


def to_terminal(table: ReportTable) -> RichTable:
    """A table for rich, in which only the first and the last column wrap, and never if they hold numbers."""
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
    lines = [table.heads, *(row.cells for row in table.rows)]
    text = ["| " + " | ".join(markdown_text(cell) for cell in line) + " |" for line in lines]
    text.insert(1, "|" + "".join(" ---: |" if i in table.numbers else " --- |" for i in range(len(table.heads))))
    return "\n".join(text)


def to_mappings(table: ReportTable) -> list[dict[str, str]]:
    """For each row, a mapping of headings to cells that are safe as HTML, for Prefect's tables."""
    heads = [html_text(head) or "note" for head in table.heads]
    return [dict(zip(heads, map(html_text, row.cells), strict=True)) for row in table.rows]


def markdown_list(title: str, items: Sequence[str]) -> str:
    """A heading and a list; empty without items."""
    if not items:
        return ""
    return (f"**{title}**\n\n" if title else "") + "\n".join(f"- {markdown_text(item)}" for item in items)


def html_text(text: str) -> str:
    """The text escaped for HTML."""
    return html.escape(printable(text))


def markdown_text(text: object) -> str:
    """The text as one line, escaped for Markdown and HTML."""
    return re.sub(r"([\\`*_{}\[\]|~#])", r"\\\1", html.escape(" ".join(printable(str(text)).split()), quote=False))
