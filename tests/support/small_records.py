"""Small records, written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scalescope.analysis.measure import measure
from scalescope.model.records import from_rows
from scalescope.model.sweep import Point
from scalescope.model.trial import Trial, TrialState

EPOCH = 1_000.0


def _task(number: int, given: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "start": 0.0,
        "stop": 0.0,
        "key": f"work-{number}",
        "prefix": "work",
        "group": "work",
        "runnable": 0.0,
    }
    row |= given
    for moment in ("runnable", "assigned", "start", "stop", "done"):
        if moment in given or moment == "runnable":
            row[moment] = row.get(moment, 0.0) + EPOCH
    row["span"] = given.get("span", max(row["stop"] - row["start"], 0.0))
    return row


def _worker(name: str, given: dict[str, Any]) -> dict[str, Any]:
    row = {"worker": name, "name": name, "host": "h", "nthreads": 1, "joined": -5.0, "left": 0.0, "reason": ""} | given
    return row | {"joined": row["joined"] + EPOCH, "left": row["left"] + EPOCH if row["left"] else 0.0}


@pytest.fixture(scope="session")
def records() -> Callable[..., dict[str, Any]]:
    """Tables of a trial: tasks as mappings (times relative to its begin, runnable at 0), workers as name -> mapping."""

    def build(tasks: list[dict[str, Any]], workers: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return {
            "tasks": from_rows("tasks", [_task(i, task) for i, task in enumerate(tasks)]),
            "workers": from_rows("workers", [_worker(name, given) for name, given in workers.items()]),
        }

    return build


@pytest.fixture(scope="session")
def bag_trial(records: Callable[..., dict[str, Any]]) -> Callable[..., Trial]:
    """A trial as a bag would give it, measured from records: `sizes[i]` items in partition i, a second each.

    Each partition is a chain of `stages` tasks; a free worker takes the next partition.
    """

    def build(workers: int, sizes: list[int], *, stages: int = 1, threads: int = 1, **given: Any) -> Trial:
        free = [0.0] * workers * threads
        rows: list[dict[str, Any]] = []
        for size in sizes:
            slot = free.index(min(free))
            for stage in range(stages):
                begin = free[slot]
                row = {"worker": f"w{slot // threads}", "start": begin, "stop": begin + size, "group": f"stage-{stage}"}
                rows.append(row | {"runnable": begin if stage else 0.0, "span": size * (stage + 1.0)})
                free[slot] = begin + size
        present = {f"w{i}": {"nthreads": threads} for i in range(workers)}
        params = {"items": sum(sizes)} | given.pop("params", {})
        point = Point(workers, threads, {name: value for name, value in params.items() if value is not Ellipsis})
        metrics = measure(records(rows, present), threads=point.threads, elapsed_s=max(free))
        repeat = given.pop("repeat", 0)
        return Trial(f"{point.id}-r{repeat}", point, repeat, False, TrialState.VALID, metrics=metrics, **given)

    return build
