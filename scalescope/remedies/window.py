"""Widens a window of futures: more are sent before the loop over `as_completed`, or `wait` returns at the first."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import IN_FLIGHT, SENT, Finding, Place
from scalescope.remedies.source import (
    Answer,
    NotHere,
    Patched,
    Refused,
    Setting,
    Source,
    answer,
    becomes,
    called,
    resized,
    walk,
    with_argument,
)


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    told = {each.what: each.value for each in finding.evidence}
    enough = told.get(IN_FLIGHT, told.get(SENT))  # `SENT`: all tasks, if each is awaited singly
    if not isinstance(enough, int):
        return NotHere("the finding names no number of tasks")

    def wider(source: Source, uses: tuple[cst.BaseExpression, ...]) -> Patched | Setting:
        return resized(source, uses, lambda now: max(now, enough), "{} tasks are in flight")

    source = Source(module)
    waits = [each for each in source.all(cst.Call) if called(each) == "as_completed"]
    functions = {source.function(each) for each in waits if source.is_at(source.function(each), place)}
    windows: list[tuple[cst.BaseExpression, ...]] = [
        (each.args[1].value,)
        for function in functions
        for each in source.all(cst.Call, function)
        if _is_window(source, each)
    ]
    windows += [each for wait in waits if source.function(wait) in functions if (each := _sliced(source, wait))]
    return answer(wider, source, windows if len(windows) == 1 else [], "none or several windows of futures were found")


def first_completed(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    """Make `done, pending = wait(pending)` return when the first future has ended, not when all have."""
    source = Source(module)
    waits = [each for each in source.at(cst.Call, place) if called(each) == "wait"]
    return answer(_with_first, source, waits, "no `wait` was found at that line")


def _with_first(source: Source, call: cst.Call) -> Patched:
    match source.parent(call), call.args:
        case (
            cst.Assign(
                targets=[
                    cst.AssignTarget(target=cst.Tuple(elements=[_, cst.Element(value=cst.Name(value=pending))])),
                ]
            ),
            [cst.Arg(value=cst.Name(value=waited), keyword=None, star=""), *_],
        ) if pending == waited:
            changed = with_argument(source, call, 'return_when="FIRST_COMPLETED"')
            return Patched(source.edited({call: becomes(changed)}).module, "`wait` ends with the first future")
    raise Refused("the loop does not wait again for the unfinished futures")


def _sliced(source: Source, wait: cst.Call) -> tuple[cst.BaseExpression, ...]:
    """The two sizes if the call contains `items[:8]`, and code outside the call contains `items[8:]`; else empty."""
    ends = {each: _half(each) for each in source.all(cst.Subscript, source.function(wait))}
    for head, (begin, size) in ends.items():
        if head not in walk(wait) or begin is not None or size is None:
            continue
        for rest, (lower, upper) in ends.items():
            same = rest not in walk(wait) and source.text(rest.value) == source.text(head.value)
            if same and upper is None and lower is not None and source.text(lower) == source.text(size):
                return size, lower
    return ()


def _half(node: cst.Subscript) -> tuple[cst.BaseExpression | None, cst.BaseExpression | None]:
    """Both ends of a slice without a step; None and None for other subscripts."""
    match node.slice:
        case [cst.SubscriptElement(slice=cst.Slice(lower=lower, upper=upper, step=None))]:
            return lower, upper
    return None, None


def _is_window(source: Source, call: cst.Call) -> bool:
    """Whether the call is `islice(items, n)`, and is not in the body of a loop."""
    if called(call) != "islice" or len(call.args) != 2:
        return False
    loops = [each for each in source.ancestors(call) if isinstance(each, cst.For | cst.While)]
    return all(isinstance(each, cst.For) and call in walk(each.iter) for each in loops)
