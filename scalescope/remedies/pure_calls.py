"""Equal calls of a delayed function: `pure=True` makes them one task."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    DELAYED,
    Answer,
    Changed,
    NotHere,
    Patched,
    Source,
    answer,
    becomes,
    dotted,
    with_argument,
)


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    if place is None or not place.name:
        return NotHere("the finding names no function whose calls are equal")
    source = Source(module)
    marks: list[cst.Decorator | cst.Call] = [
        mark
        for each in source.all(cst.FunctionDef)
        for mark in each.decorators
        if each.name.value == place.name and dotted(mark.decorator) in DELAYED
    ]
    marks += [each for each in source.all(cst.Call) if dotted(each.func) in DELAYED and _takes(each, place.name)]
    return answer(
        _marked, source, [marks] if marks else [], f"`{place.name}` is not made lazy here by a plain `delayed`"
    )


def _takes(call: cst.Call, name: str) -> bool:
    match call.args:
        case [cst.Arg(value=cst.Name(value=taken), keyword=None)]:
            return taken == name
    return False


def _marked(source: Source, marks: list[cst.Decorator | cst.Call]) -> Patched:
    edits: dict[cst.CSTNode, Callable[[cst.CSTNode], Changed]] = {}
    for each in marks:
        call = each if isinstance(each, cst.Call) else cst.Call(each.decorator)
        pure = with_argument(source, call, "pure=True")
        edits[each] = becomes(pure if isinstance(each, cst.Call) else each.with_changes(decorator=pure))
    return Patched(source.edited(edits).module, "equal calls are one task")
