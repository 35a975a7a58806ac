"""Waits of tasks that sent tasks, or gave up their thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scalescope.analysis.events import Tables, told
from scalescope.model.records import TASK_WAITS

Waits = Sequence[tuple[float, float, bool]]  # begin and end of each wait, and whether the task held its thread


def task_waits(tables: Tables) -> Mapping[int, Waits]:
    """Waits by row of the table `tasks`."""
    found = dict[int, list[tuple[float, float, bool]]]()
    for _, each in told(tables.get("events", {}), TASK_WAITS):
        found.setdefault(int(each["row"]), []).extend((float(a), float(b), bool(held)) for a, b, held in each["waits"])
    return found
