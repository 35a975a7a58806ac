"""Writes results to standard output, errors and progress to standard error."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from scalescope.errors import ExitStatus
from scalescope.report.screen import Screen, stderr

if TYPE_CHECKING:
    from scalescope.report.brief import BriefAnswer
    from scalescope.run.progress import Listener, Progress

# Exit statuses that only some commands have
FINDING_OR_END = (ExitStatus.FINDING, ExitStatus.BUDGET_SPENT, ExitStatus.FAILED)


def exit_statuses(*some: ExitStatus, ok: str = "", finding: str = "") -> str:
    """Text on exit statuses for a command's help; `some`: those of `FINDING_OR_END` that the command has."""
    words = {ExitStatus.OK: ok or ("" if ExitStatus.FINDING in some else "done"), ExitStatus.FINDING: finding}
    shown = sorted({*ExitStatus} - {*FINDING_OR_END} | {*some})
    return "Exit status: " + "; ".join(f"{int(status)} {words.get(status) or status.help}" for status in shown) + "."


def stdout() -> Screen:
    return Screen(highlight=False)


def print_json(data: object) -> None:
    print(json.dumps(data, indent=2, allow_nan=False))


def print_brief(answer: BriefAnswer, *, as_json: bool) -> None:
    """Print the short answer: text, or JSON in one line."""
    print(json.dumps(answer.to_json(), allow_nan=False) if as_json else answer.text())


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, whole: Sequence[int] = ()) -> None:
    """Print a table; on a narrow terminal the last column wraps first, and those in `whole` never do."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for number, title in enumerate(titles):
        width = max([len(title), *(len(row[number]) for row in rows)])
        least = None if number == len(titles) - 1 else min(width, 22)
        table.add_column(title, overflow="fold", min_width=least, no_wrap=number in whole)
    for row in rows:
        table.add_row(*map(Text, row))
    stdout().print(table)


def say(text: str, style: str = "") -> None:
    stderr().print(Text(text, style=style))


def say_error(text: str) -> None:
    stderr().print(Text.assemble(("error: ", "bold red"), text))


@contextmanager
def progress(*, verbose: bool = False) -> Iterator[Listener]:
    """Show the progress of a run: a bar on a terminal, else a line for each trial; with `verbose` the log too."""
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    console = stderr()
    if verbose or not console.is_watched:
        yield _liner(all_of_it=verbose)
        return
    from scalescope.run.progress_bar import bar

    with bar(console) as listener:
        yield listener


def _liner(*, all_of_it: bool) -> Listener:
    def line(news: Progress) -> None:
        if all_of_it or news.trial is not None or news.notable:
            counted = f"{news.done}/{news.total} " if news.total else ""
            say(f"{counted}{news.line}")

    return line
