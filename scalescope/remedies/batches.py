"""Enlarges the batches that a loop sends one after another, so that all of the work is sent at once.

```
for start in range(0, len(items), 8):                      for start in range(0, len(items), 64):
    batch = items[start : start + 8]               ->          batch = items[start : start + 64]
    done += client.gather(client.map(f, batch))                done += client.gather(client.map(f, batch))
```
"""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from scalescope.model.finding import ALL_ROUNDS, SENT, Finding, Place
from scalescope.remedies.source import (
    Answer,
    NotHere,
    Patched,
    Setting,
    Source,
    answer,
    called,
    dotted,
    resized,
    times_as_much,
    walk,
)


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    tasks = next((each.value for each in finding.evidence if each.what in (SENT, ALL_ROUNDS)), None)
    if not isinstance(tasks, int):
        return NotHere("the finding names no number of tasks")

    return _resized(module, place, lambda now: max(now, tasks))


def longer(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    """Make batches (each is one task) longer, by the factor in the finding."""
    times = times_as_much(finding)
    return NotHere("the finding has no factor") if times is None else _resized(module, place, lambda now: now * times)


def _resized(module: cst.Module, place: Place | None, change: Callable[[int], int]) -> Answer:
    def larger(source: Source, call: cst.Call) -> Patched | Setting:
        return resized(source, [call.args[2].value, *_steps(source, call)], change, "a batch has {} items")

    source = Source(module)
    calls = [each for each in source.all(cst.Call) if called(each) == "range" and len(each.args) == 3]
    batches = [each for each in calls if _steps(source, each)]
    near = [each for each in batches if place is not None and source.function(each) in source.reached(place)]
    return answer(larger, source, near or batches[: len(batches) == 1], "no loop over batches was found near that line")


def _steps(source: Source, call: cst.Call) -> list[cst.BaseExpression]:
    """The steps of slices `items[start : start + step]` in a loop over a range, to change with the range's step."""
    loop = source.parent(call)
    if not isinstance(loop, cst.For | cst.CompFor) or not isinstance(loop.target, cst.Name):
        return []
    start, found = loop.target.value, list[cst.BaseExpression]()
    body = loop if isinstance(loop, cst.For) else source.parent(loop)
    for each in walk(body):
        match each:
            case cst.Slice(
                lower=cst.Name(value=lower), upper=cst.BinaryOperation(left=left, operator=cst.Add(), right=right)
            ):
                if lower == dotted(left) == start and source.text(right) == source.text(call.args[2].value):
                    found.append(right)
    return found
