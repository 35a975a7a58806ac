"""What the command line writes: tables and JSON to standard output, errors and progress to standard error."""

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
    from scalescope.run.progress import Listener, Progress

OF_SOME = (ExitStatus.FINDING, ExitStatus.BUDGET_SPENT, ExitStatus.FAILED)
EVERY = tuple(status for status in ExitStatus if status not in OF_SOME)
"""Exit statuses that every command may have; the others are named by the commands that have them."""
DONE = "done"
"""What 0 means where a command judges nothing."""


def epilog(*used: ExitStatus, ok: str = "", finding: str = "") -> str:
    """The exit statuses of a command, for its help.

    Args:
        used: Those besides the ones that every command may have.
        ok: What 0 means where it is not the usual.
        finding: What 1 means where it is not the usual.
    """
    words = {ExitStatus.OK: ok or ("" if ExitStatus.FINDING in used else DONE), ExitStatus.FINDING: finding}
    shown = sorted({*EVERY, *used})
    return "Exit status: " + "; ".join(f"{int(status)} {words.get(status) or status.help}" for status in shown) + "."


# ------------------------------------------------------------------ standard output


def stdout() -> Screen:
    """A console on standard output."""
    return Screen(highlight=False)


def print_json(data: object) -> None:
    """Data for programs."""
    print(json.dumps(data, indent=2, allow_nan=False))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, whole: Sequence[int] = ()) -> None:
    """Print a table; the last column wraps first where the terminal is narrow, those in `whole` never do."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for number, title in enumerate(titles):
        width = max([len(title), *(len(row[number]) for row in rows)])
        least = None if number == len(titles) - 1 else min(width, 22)
        table.add_column(title, overflow="fold", min_width=least, no_wrap=number in whole)
    for row in rows:
        table.add_row(*map(Text, row))
    stdout().print(table)


# ------------------------------------------------------------------ standard error


def say(text: str, style: str = "") -> None:
    """A line for the person who waits."""
    stderr().print(Text(text, style=style))


def say_error(text: str) -> None:
    """What went wrong."""
    stderr().print(Text.assemble(("error: ", "bold red"), text))


@contextmanager
def progress(*, verbose: bool = False) -> Iterator[Listener]:
    """Show how far a run is: a bar on a terminal, else a line per trial; with `verbose` the log as well."""
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
