"""Tasks that send tasks: which they sent, and when they waited since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scalescope.analysis.events import Tables, told
from scalescope.model.records import SENT_BY_TASK, TASK_WAITS

Waits = Sequence[tuple[float, float, bool]]  # begin and end of each, and whether the task held its thread


@dataclass(frozen=True)
class SentGraph:
    """A graph that a task sent."""

    sender: int  # row of that task in the table `tasks`
    time: float  # when it arrived
    rows: tuple[int, ...]  # of what was in it


def sent_by_tasks(tables: Tables) -> list[SentGraph]:
    """In the order in which they arrived."""
    rows = dict[tuple[float, int], list[int]]()
    for _, each in told(tables.get("events", {}), SENT_BY_TASK):
        rows.setdefault((float(each["time"]), int(each["row"])), []).extend(each["rows"])
    return [SentGraph(sender, time, tuple(found)) for (time, sender), found in sorted(rows.items())]


def task_waits(tables: Tables) -> Mapping[int, Waits]:
    """By row of the table `tasks`, of those that sent tasks or gave up their thread."""
    found = dict[int, list[tuple[float, float, bool]]]()
    for _, each in told(tables.get("events", {}), TASK_WAITS):
        found.setdefault(int(each["row"]), []).extend((float(a), float(b), bool(held)) for a, b, held in each["waits"])
    return found
