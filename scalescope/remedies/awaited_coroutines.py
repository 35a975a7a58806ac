"""A comprehension that awaits one coroutine after another: all are awaited together, by `asyncio.gather`."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import Answer, Patched, Refused, Source, answer, becomes, called, walk


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    awaits = [each for each in source.all(cst.ListComp) if isinstance(each.elt, cst.Await)]
    if place is not None:
        awaits = [each for each in awaits if source.is_at(each, place) or _calls_what_is_at(source, each, place)]
    return answer(_together, source, awaits, "no comprehension that awaits each result stands at that line")


def _calls_what_is_at(source: Source, comprehension: cst.ListComp, place: Place) -> bool:
    names = {called(each) for each in source.all(cst.Call, comprehension)}
    return any(each.name.value in names and source.is_at(each, place) for each in source.all(cst.FunctionDef))


def _together(source: Source, comprehension: cst.ListComp) -> Patched:
    element = cst.ensure_type(comprehension.elt, cst.Await).expression
    if any(isinstance(each, cst.Await) for each in walk(element)) or _awaits(comprehension.for_in):
        raise Refused("more than the result is awaited in each round")
    every = cst.Arg(comprehension.with_changes(elt=element), star="*")
    gathered = cst.Await(cst.Call(cst.parse_expression("asyncio.gather"), [every]))
    edited = source.edited({comprehension: becomes(gathered)}).importing("asyncio")
    return Patched(edited, "the coroutines are awaited together")


def _awaits(loop: cst.CompFor) -> bool:
    return loop.asynchronous is not None or any(isinstance(each, cst.Await) for each in walk(loop))
