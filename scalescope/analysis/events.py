"""Reads structured events and fine metrics of a trial from its tables, such as waits of tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scalescope.model.records import TASK_WAITS

Columns = Mapping[str, Any]  # columns by name: `array.array`, numpy array or list, all of one length
Tables = Mapping[str, Columns]
Waits = Sequence[tuple[float, float, bool]]  # begin and end of each wait, and whether the task held its thread


def told(events: Columns, topic: str) -> list[tuple[float, Mapping[str, Any]]]:
    """Time and message of all events of one topic whose message is a JSON object."""
    rows = zip(*(events.get(name, ()) for name in ("topic", "time", "message")), strict=True)
    found = [(float(when), json.loads(message)) for name, when, message in rows if name == topic]
    return [(when, message) for when, message in found if isinstance(message, dict)]


def fine_seconds(tables: Tables) -> Iterator[tuple[str, str, str, float]]:
    """Context, prefix, activity and seconds of each of distributed's fine performance metrics whose unit is seconds."""
    table = tables.get("fine_metrics", {})
    columns = (table.get(name, ()) for name in ("context", "prefix", "activity", "unit", "value"))
    for context, prefix, activity, unit, value in zip(*columns, strict=True):
        if unit == "seconds":
            yield str(context), str(prefix), str(activity), float(value)


def task_waits(tables: Tables) -> Mapping[int, Waits]:
    """Waits of tasks that sent other tasks or gave up their thread, by row of the table `tasks`."""
    found = dict[int, list[tuple[float, float, bool]]]()
    for _, each in told(tables.get("events", {}), TASK_WAITS):
        found.setdefault(int(each["row"]), []).extend((float(a), float(b), bool(held)) for a, b, held in each["waits"])
    return found
