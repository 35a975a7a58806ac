"""Shows a watched cluster; on a terminal, keys sort, look into a group of tasks or a worker, and hold the picture."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from rich.console import Group as Lines
from rich.live import Live
from rich.text import Text

from scalescope.cli.watch_display import line, picture
from scalescope.errors import ClusterError
from scalescope.model.words import cut, duration, middle_cut, size
from scalescope.own_code.cluster_watch import ClusterWatch, Group, Look
from scalescope.report.hang_lines import WIDTH, flat, standing
from scalescope.report.screen import stderr

HELP = "↑ ↓ choose, Enter open, b back, w workers, s sort, f freeze, r report, q end"
ARROWS = {"\x1b[A": "k", "\x1b[B": "j", "\x1b[D": "b", "\x1b[C": "\n", "\x1b": "b", "\r": "\n"}
KEY = re.compile(r"\x1b\[[A-D]|[\s\S]")  # a key as a terminal sends it
NAME = 34  # most characters of a name
# Sort orders of each list: the name that is shown, and the sort key
SORTS: Mapping[str, tuple[tuple[str, Callable[[Any], Any]], ...]] = {
    "groups": (
        ("most left", lambda each: each.done - each.total),
        ("name", lambda each: each.name),
        ("last to end", lambda each: -(each.remaining_s or 0.0)),
    ),
    "workers": (
        ("most tasks", lambda each: -each["tasks"]),
        ("memory", lambda each: -each["memory"]),
        ("name", lambda each: each["name"]),
    ),
}


@dataclass
class KeyedDisplay:
    """A display that keys change; `wants_report` becomes true if somebody asks for the report."""

    watch: ClusterWatch
    live: Live
    keys: int  # descriptor from which keys are read
    records: bool = False  # True if a report will be written
    shown: str = "groups"  # list shown: `groups` or `workers`
    inside: tuple[str, str] | None = None  # kind and name of the row whose details are shown
    row: int = 0  # selected row
    sorts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SORTS, 0))
    frozen: bool = False
    wants_report: bool = False
    note: str = ""
    _look: Look | None = None
    _workers: list[dict[str, Any]] = field(default_factory=list)
    _details: list[tuple[str, int]] = field(default_factory=list)

    def show(self, look: Look) -> None:
        if not self.frozen:
            self._look = look
            self._ask()
            self._draw()

    def wait(self, seconds: float) -> None:
        """Obey keys for `seconds`; raises `KeyboardInterrupt` if a key ends the watch."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self.keys], [], [], left)
            if ready:
                for typed in KEY.findall(os.read(self.keys, 64).decode("utf-8", "replace")):
                    self.press(ARROWS.get(typed, typed))

    def press(self, key: str) -> None:
        if key == "q" or (key == "r" and self.records):
            self.wants_report = key == "r"
            raise KeyboardInterrupt
        self.note = "the report needs --record" if key == "r" else ""
        if key == "f":
            self.frozen = not self.frozen
        elif key == "w":
            self.shown, self.inside, self.row = ("groups" if self.shown == "workers" else "workers"), None, 0
        elif key == "s":
            self.sorts[self.shown] = (self.sorts[self.shown] + 1) % len(SORTS[self.shown])
        elif key in ("j", "k"):
            self.row = max(min(self.row + (1 if key == "j" else -1), len(self._rows()) - 1), 0)
        elif key == "\n" and self._rows():
            chosen = self._rows()[self.row]
            self.inside = ("group", chosen.name) if isinstance(chosen, Group) else ("worker", chosen["address"])
        elif key == "b":
            self.inside = None
        if key in ("w", "\n", "f"):
            self._ask()
        self._draw()

    def _ask(self) -> None:
        """Ask the scheduler for the details that the picture shows and a `Look` lacks."""
        try:
            if self.inside is not None:
                self._details = self.watch.inside(*self.inside)
            elif self.shown == "workers":
                self._workers = self.watch.workers()
        except ClusterError:
            if self.frozen:  # otherwise the next look reports it
                return
            raise

    def _rows(self) -> list[Any]:
        _, key = SORTS[self.shown][self.sorts[self.shown]]
        return sorted(self._workers if self.shown == "workers" else self._look.groups if self._look else (), key=key)

    def _draw(self) -> None:
        if self._look is not None:
            self.live.update(self.picture(self.live.console.width, self.live.console.height - 1), refresh=True)

    def picture(self, width: int, height: int) -> Lines:
        assert self._look is not None
        address, width = self.watch.asker.address, min(width, WIDTH)
        head = picture(address, replace(self._look, groups=()), width, max(height - 8, 4))
        room = max(height - len(head.renderables) - 2, 1)
        state = ["FROZEN: f continues"] if self.frozen else []
        if self.inside is not None:
            state.append(f"inside {self.inside[1]}")
            lines = [
                Text(f"{middle_cut(word, NAME + 20):<{NAME + 20}} {number:>10,}") for word, number in self._details
            ]
            lines = lines or [Text("Nothing to show: it has ended, or left the cluster.")]
        else:
            state.append(f"{self.shown} by {SORTS[self.shown][self.sorts[self.shown]][0]}")
            first = max(self.row - room + 1, 0)
            lines = [self._line(each, number == self.row) for number, each in enumerate(self._rows())][first:]
        state += [self.note] if self.note else []
        title = Text(cut(flat("; ".join(state)), width), "bold yellow" if self.frozen else "bold")
        return Lines(*head.renderables, title, *lines[:room], Text(cut(HELP, width), "dim"))

    def _line(self, each: Any, selected: bool) -> Text:
        if isinstance(each, Group):
            ends = "" if each.remaining_s is None else duration(each.remaining_s)
            text = f"{middle_cut(each.name, NAME):<{NAME}}{each.done:>10,} of {each.total:>10,} {ends:>10}"
        else:
            load = f"{each['tasks']:>6,} tasks on {each['threads']:>3} threads {size(each['memory']):>9}"
            text = f"{middle_cut(each['name'], NAME):<{NAME}}{load}  {each['status']}"
        return Text(flat(text), "reverse" if selected else "")


@contextmanager
def keyed(watch: ClusterWatch, live: Live, *, records: bool) -> Iterator[KeyedDisplay]:
    """A display that obeys keys of standard input, whose settings are restored at the end."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield KeyedDisplay(watch, live, descriptor, records)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Display(Protocol):
    """Shows each look at the cluster, and waits between looks."""

    wants_report: bool  # True if somebody asked for the report, which ends the watch

    def show(self, look: Look) -> None: ...

    def wait(self, seconds: float) -> None: ...


@contextmanager
def shown(watch: ClusterWatch, *, records: bool = False) -> Iterator[Display]:
    """Show looks on standard error: on a terminal a picture, which obeys keys typed there; else a line per look."""
    console = stderr()
    if not console.is_watched:
        yield _Liner()
        return
    with Live(console=console, auto_refresh=False) as live:
        if not sys.stdin.isatty():
            yield _Picture(watch, live)
            return
        with keyed(watch, live, records=records) as display:
            yield display


class _Picture:
    """A picture that is drawn anew for each look."""

    wants_report = False

    def __init__(self, watch: ClusterWatch, live: Live) -> None:
        self._watch, self._live = watch, live

    def show(self, look: Look) -> None:
        console = self._live.console
        self._live.update(picture(self._watch.asker.address, look, console.width, console.height - 1), refresh=True)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


class _Liner:
    """One line for each look, and stuck tasks that were not shown before."""

    wants_report = False

    def __init__(self) -> None:
        self._told: object = None

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def show(self, look: Look) -> None:
        stands = look.standstill and look.standstill.tasks
        lines = [line(look), *(standing(look.standstill) if stands != self._told else ())]
        self._told = stands
        print("\n".join(lines), file=sys.stderr, flush=True)
