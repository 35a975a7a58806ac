"""Reverses a sort whose order makes the longest task the last to be sent."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    Answer,
    Patched,
    Source,
    answer,
    argument,
    becomes,
    called,
    dotted,
    is_sent,
    with_argument,
)


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    found = [each for each in source.all(cst.Call) if called(each) in ("sorted", "sort") and _is_sent(source, each)]
    return answer(_reversed, source, found if len(found) == 1 else [], "none or several lists are sorted and then sent")


def _is_sent(source: Source, call: cst.Call) -> bool:
    """Whether the sorted items are an argument of a call that sends tasks, or the iterable of a loop that does."""
    name = ""
    match call.func, source.parent(call):
        case cst.Attribute(value=cst.Name(value=name)), _:  # `items.sort()`
            pass
        case _, cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]):
            pass
    uses: list[cst.CSTNode] = [*source.names(name, source.function(call))] if name else [call]
    return any(is_sent(source, each, ("map",)) for each in uses)


def _reversed(source: Source, call: cst.Call) -> Patched:
    given = argument(call, "reverse")
    now = given is not None and dotted(given.value) == "True"
    changed = with_argument(source, call, f"reverse={not now}")
    return Patched(source.edited({call: becomes(changed)}).module, "the other end of the list is sent first")
