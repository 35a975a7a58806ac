"""A comprehension that awaits one coroutine after another: all are awaited together, by `asyncio.gather`."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import Answer, Patched, Refused, Source, answer, becomes, walk


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    every = [each for each in source.all(cst.ListComp) if isinstance(each.elt, cst.Await)]
    awaits = [each for each in every if source.leads_to(each, place)]
    return answer(_together, source, awaits, "no comprehension that awaits each result stands at that line")


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
