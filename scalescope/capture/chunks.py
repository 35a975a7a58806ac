"""Turns what the recorder sends into the columns of `scalescope.model.records`."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Mapping
from operator import sub
from typing import Any

from scalescope.errors import CaptureError
from scalescope.model import spool
from scalescope.model.spool import Columns

_SECONDS = ("transfer", "deserialize", "disk_read", "disk_write")


def decode_tasks(sent: Mapping[str, Any], order: str) -> Columns:
    """The `tasks` of one chunk as columns.

    Args:
        sent: `tasks` of a chunk of the recorder.
        order: Byte order of the scheduler's machine.

    Raises:
        CaptureError: The chunk contradicts itself.
    """
    rows = sent["rows"]
    numbers = {name: _numbers(kind, packed, order) for name, (kind, packed) in sent["columns"].items()}
    keys = spool.texts(_numbers("i", sent["lengths"], order), zlib.decompress(sent["keys"]))
    if any(len(column) != rows for column in (keys, *numbers.values())):
        raise CaptureError(
            "a chunk of the task record contradicts itself",
            where=f"{rows} rows, {len(keys)} keys, columns of {sorted({len(c) for c in numbers.values()})}",
            cause="a defect of the recorder",
            next_step="report it, with the versions of distributed and scalescope",
        )
    workers, prefixes, groups = sent["workers"], sent["prefixes"], sent["groups"]
    columns = spool.empty("tasks")
    columns |= {
        "key": keys,
        "prefix": [prefixes[number] for number in numbers["prefix"]],
        "group": [groups[number] if number >= 0 else key for number, key in zip(numbers["group"], keys, strict=True)],
        "worker": [workers[number] for number in numbers["worker"]],
        "status": array("b", [outcome & 0xFF for outcome in numbers["outcome"]]),
        "retries": array("b", [outcome >> 8 & 0xFF for outcome in numbers["outcome"]]),
        "allowed": array("i", [outcome >> 16 for outcome in numbers["outcome"]]),
    }
    for name in ("thread", "nbytes", "runnable", "assigned", "start", "stop", "done", "span"):
        columns[name] = numbers[name]
    places, *seconds = (_numbers(kind, packed, order) for kind, packed in zip("iffff", sent["seconds"], strict=True))
    for name, values in zip(_SECONDS, seconds, strict=True):
        columns[name] = array("f", bytes(4 * rows))
        for place, value in zip(places, values, strict=True):
            columns[name][place] = value
    return columns


def decode_dependencies(sent: Mapping[str, Any], order: str) -> Columns:
    """The dependencies of one chunk as columns."""
    dependents, counts, needs = (_numbers("i", packed, order) for packed in sent["edges"])
    task = array("i")
    for row, count in zip(dependents, counts, strict=True):
        task.extend([row] * count)
    return {"task": task, "needs": needs}


def sent_bytes(sent: Mapping[str, Any]) -> int:
    """Size of the task columns of a chunk, as the scheduler sent them."""
    packed = [
        sent["keys"],
        sent["lengths"],
        *sent["seconds"],
        *sent["edges"],
        *(column for _, column in sent["columns"].values()),
    ]
    names = [name for table in ("workers", "prefixes", "groups") for name in sent[table]]
    return sum(map(len, packed)) + sum(map(len, names))


def clock_error(tasks: Columns) -> float:
    """The largest impossible interval between times of the scheduler and of a worker, in seconds.

    A task cannot end after the scheduler has learnt of it, nor start before it was assigned.
    """
    worst = max(map(sub, tasks["stop"], tasks["done"]), default=0.0)
    for assigned, start in zip(tasks["assigned"], tasks["start"], strict=True):
        if start and assigned - start > worst:
            worst = assigned - start
    return max(worst, 0.0)


def _numbers(kind: str, packed: bytes, order: str) -> array[Any]:
    return spool.numbers(kind, zlib.decompress(packed), order)
