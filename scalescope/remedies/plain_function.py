"""Turns a task's coroutine function that awaits nothing into a plain function, to run on the worker's threads."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import Answer, Patched, Refused, Source, answer, becomes, is_sent, walk

WAITS = cst.Await | cst.Yield


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    coroutines = [each for each in source.all(cst.FunctionDef) if each.asynchronous is not None]
    return answer(_plain, source, source.nearest(coroutines, place), "no coroutine function was found near that line")


def _plain(source: Source, function: cst.FunctionDef) -> Patched:
    name = function.name.value
    inside = [*walk(function.body)]
    if any(isinstance(each, WAITS) or getattr(each, "asynchronous", None) is not None for each in inside):
        raise Refused(f"`{name}` awaits something")
    uses = [each for each in source.all(cst.Name) if each.value == name and each is not function.name]
    if not uses or not all(is_sent(source, each, ("map", "submit")) for each in uses):
        raise Refused(f"`{name}` is used for more than tasks")
    plain = function.with_changes(asynchronous=None)
    return Patched(source.edited({function: becomes(plain)}).module, f"`{name}` runs on threads of the workers")
