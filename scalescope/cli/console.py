"""What the command line writes to standard error: errors, and how far a sweep is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

if TYPE_CHECKING:
    from scalescope.run.progress import Listener
    from scalescope.run.progress import Progress as SweepProgress


def stderr() -> Console:
    """A console on standard error; plain text where that is no terminal."""
    return Console(file=sys.stderr, highlight=False, soft_wrap=True)


def say(text: str, style: str = "") -> None:
    """A line for the person who waits."""
    stderr().print(Text(text, style=style))


def say_error(text: str) -> None:
    """What went wrong."""
    stderr().print(Text.assemble(("error: ", "bold red"), text))


@contextmanager
def sweep_progress() -> Iterator[Listener]:
    """Show how far a sweep is: a bar on a terminal, else a line per trial.

    The bar is drawn when there is news and never by a thread: while a trial is measured, nothing else should run.
    """
    console = stderr()
    if not console.is_terminal:
        yield _line
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("", total=None)

        def draw(progress: SweepProgress) -> None:
            text = progress.text.partition("\n")[0]
            bar.update(task, completed=progress.done, total=progress.total, description=text, refresh=True)

        yield draw


def _line(progress: SweepProgress) -> None:
    if progress.trial is not None or progress.notable:
        print(f"{progress.done}/{progress.total} {progress.text}", file=sys.stderr, flush=True)
