"""Writes the profile of busy threads for other viewers: https://www.speedscope.app, or collapsed stacks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from scalescope import __version__
from scalescope.analysis.events import Tables
from scalescope.errors import UsageError
from scalescope.model.finding import Place
from scalescope.report.files import replacing

SAMPLE_S = 0.01  # seconds of one thread that each sample represents
NO_STACK = "(stack not known)"


def write(tables: Tables, place: str | Path, form: str, *, title: str = "") -> int:
    """Write a profile to a path or address, in a form of `FORMS`; return the number of samples.

    Raises `UsageError` if no task was sampled, as on a simulated cluster.
    """
    rows = list(_rows(tables))
    if not rows:
        raise UsageError(
            "no busy thread was sampled in this trial",
            cause="the trial's tasks ran on a simulated cluster, or were shorter than the profiler's interval",
            next_step="record a run with real workers: `scalescope run`, or a sweep with `-c local`",
        )
    with replacing(place, "profile") as temporary:
        Path(temporary).write_text(FORMS[form](rows, title), encoding="utf-8")
    return sum(samples for *_, samples in rows)


Rows = list[tuple[str, tuple[str, ...], int]]


def _rows(tables: Tables) -> Iterator[tuple[str, tuple[str, ...], int]]:
    table = tables.get("inside", {})
    for prefix, stack, samples in zip(*(table.get(name, ()) for name in ("prefix", "stack", "samples")), strict=True):
        yield prefix, tuple(stack.split(";")) if stack else (NO_STACK,), int(samples)


def _collapsed(rows: Rows, title: str) -> str:
    """A line `frame;frame;frame SAMPLES` for each stack, as flamegraph.pl and others read."""
    return "".join(f"{';'.join((prefix, *stack))} {samples}\n" for prefix, stack, samples in rows)


def _speedscope(rows: Rows, title: str) -> str:
    """Speedscope's file format: a sampled profile for each prefix of tasks."""
    numbers: dict[str, int] = {}
    profiles: dict[str, dict[str, Any]] = {}
    for prefix, stack, samples in rows:
        profile = profiles.setdefault(
            prefix,
            {
                **{"type": "sampled", "name": prefix, "unit": "seconds", "startValue": 0, "endValue": 0.0},
                **{"samples": [], "weights": []},
            },
        )
        profile["samples"].append([numbers.setdefault(frame, len(numbers)) for frame in stack])
        profile["weights"].append(round(samples * SAMPLE_S, 6))
        profile["endValue"] = round(profile["endValue"] + samples * SAMPLE_S, 6)
    file = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": f"scalescope {__version__}",
        "name": title,
        "shared": {"frames": [_frame(each) for each in numbers]},
        "profiles": sorted(profiles.values(), key=lambda each: -each["endValue"]),
    }
    return json.dumps(file)


def _frame(text: str) -> dict[str, Any]:
    place = Place.of(text)
    return (
        {"name": place.function, "file": place.file, "line": place.line} if place and place.function else {"name": text}
    )


FORMS: Mapping[str, Callable[[Rows, str], str]] = {"speedscope": _speedscope, "collapsed": _collapsed}
