"""A progress bar on a terminal and in a notebook."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from scalescope.errors import printable
from scalescope.model.words import duration
from scalescope.report.screen import Screen, stderr
from scalescope.run.progress import Listener, Progress
from scalescope.run.runner import Runner


@contextmanager
def bar(console: Screen) -> Iterator[Listener]:
    """Draw a bar at each progress report until the block ends, on a console that `is_watched`.

    No thread draws it, so that nothing disturbs a measurement. A notebook keeps it, with the duration of the run.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn  # imported only if somebody watches
    from rich.progress import Progress as Drawing
    from rich.table import Column
    from rich.text import Text

    grey = "bright_black"  # visible on white and on black: a notebook may have either
    columns = (
        BarColumn(20, style=grey, complete_style="green", finished_style="green", pulse_style=grey),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", style=grey),
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
    )
    drawing = Drawing(*columns, console=console, auto_refresh=False, transient=True, expand=True)
    task = drawing.add_task("", total=None, left="")

    def update(news: Progress) -> None:
        if news.total:
            drawing.update(task, completed=news.done, total=news.total)
        drawing.update(task, description=printable(news.text.partition("\n")[0]), left=news.left)

    if not console.is_jupyter:
        with drawing:

            def draw(news: Progress) -> None:
                if news.kept:
                    drawing.console.print(Text(printable(news.text)))
                update(news)
                drawing.refresh()

            yield draw
        return
    from IPython.display import display

    began, shown = time.monotonic(), display(drawing, display_id=True)

    def show(news: Progress) -> None:
        update(news)
        shown.update(drawing)

    yield show
    drawing.update(task, description=duration(time.monotonic() - began), left="")
    shown.update(drawing)


@contextmanager
def shown(runner: Runner | None) -> Iterator[Runner]:
    """The given runner; else a new one, which draws a bar on a terminal or in a notebook."""
    if runner is not None:
        yield runner
    elif (console := stderr()).is_watched:
        with bar(console) as listener:
            yield Runner(listener)
    else:
        yield Runner()
