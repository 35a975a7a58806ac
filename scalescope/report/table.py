"""Tables, described once as columns and rows, for terminals, Markdown, pages and Prefect."""

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
    """Meaning of a text. Terminal and page colour it; the text must not rely on that."""

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
    numbers: frozenset[int] = frozenset()  # right-aligned columns, from 0
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

    key: str  # name for programs, with the unit
    title: str
    value: Callable[[T], Any]  # None if a row has no value
    show: Callable[[Any], str] = str
    short: str = ""  # heading when space is short; empty: the title
    legend: str = ""  # explains the heading
    rank: int = 0  # columns of the highest rank are left out first when space is short; rank 0 never is

    def cell(self, row: T | None) -> str:
        value = None if row is None else self.value(row)
        return MISSING if value is None else self.show(value)

    @property
    def shortened(self) -> Column[T]:
        return replace(self, title=self.short, legend=self.legend or self.title) if self.short else self


def fitting(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> list[Column[T]]:
    """The columns that fit into `width` characters: first shorten headings, then drop the highest ranks."""
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
    """A table for rich: numbers never wrap; words of the first column fold, and of the last wrap."""
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
    """For each row a mapping of headings to cells, for Prefect's tables; safe as HTML."""
    heads = [html_text(head) or "note" for head in table.heads]
    return [dict(zip(heads, map(html_text, row.cells), strict=True)) for row in table.rows]


def markdown_list(title: str, items: Sequence[str]) -> str:
    """A heading and a list; empty without items."""
    if not items:
        return ""
    return (f"**{title}**\n\n" if title else "") + "\n".join(f"- {markdown_text(item)}" for item in items)


def html_text(text: str) -> str:
    """Text that HTML cannot misread."""
    return html.escape(printable(text))


def markdown_text(text: object) -> str:
    """One line of text that neither Markdown nor HTML can misread."""
    return re.sub(r"([\\`*_{}\[\]|~#])", r"\\\1", html.escape(" ".join(printable(str(text)).split()), quote=False))
