"""A window of futures that is too small: so many more are submitted before the loop over `as_completed`."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import IN_FLIGHT, SENT, Finding, Place
from scalescope.remedies.source import Answer, NotHere, Patched, Setting, Source, answer, called, resized, walk


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    told = {each.what: each.value for each in finding.evidence}
    enough = told.get(IN_FLIGHT, told.get(SENT))  # all, where it awaits each
    if not isinstance(enough, int):
        return NotHere("the finding names no number of tasks")

    def wider(source: Source, call: cst.Call) -> Patched | Setting:
        return resized(source, [call.args[1].value], lambda now: max(now, enough), "{} tasks are in flight")

    source = Source(module)
    waits = [each for each in source.all(cst.Call) if called(each) == "as_completed"]
    functions = {source.function(each) for each in waits if source.is_at(source.function(each), place)}
    windows = [each for function in functions for each in source.all(cst.Call, function) if _is_window(source, each)]
    return answer(wider, source, windows if len(windows) == 1 else [], "no window of futures is plain to see")


def _is_window(source: Source, call: cst.Call) -> bool:
    """Whether it takes the first of an iterator, outside of the loop that submits one for each that ends."""
    if called(call) != "islice" or len(call.args) != 2:
        return False
    loops = [each for each in source.ancestors(call) if isinstance(each, cst.For | cst.While)]
    return all(isinstance(each, cst.For) and call in walk(each.iter) for each in loops)
