"""Replaces a sleep before the first task, meant for workers to come, by `client.wait_for_workers(n)`."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    Answer,
    Patched,
    Refused,
    Source,
    answer,
    argument,
    becomes,
    called,
    dotted,
    is_client,
)

SENDS = {"submit", "map", "compute", "persist", "scatter", "run", "get", "delayed"}


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    here = [each for each in source.at(cst.Call, place) if dotted(each.func) in ("time.sleep", "sleep")]
    return answer(_awaited, source, here, "the client does not sleep at that line")


def _awaited(source: Source, sleep: cst.Call) -> Patched:
    if not isinstance(source.parent(sleep), cst.Expr):
        raise Refused("the sleep is part of a larger expression")
    line = source.lines(sleep)[0]
    earlier = [each for each in source.all(cst.Call, source.function(sleep)) if source.lines(each)[0] < line]
    if any(called(each) in SENDS for each in earlier):
        raise Refused("tasks sent before the sleep may need that time")
    numbers = [each.args[0].value for each in earlier if called(each) == "scale" and each.args]
    asked = [each for call in earlier if (each := argument(call, "n_workers"))]
    numbers = numbers or [each.value for each in asked if source.text(each.value) != "0"]
    clients = {each.value for each in source.all(cst.Name) if is_client(source, each)}
    if len(numbers) != 1 or len(clients) != 1:
        raise Refused("it is unclear which client waits for how many workers")
    text = f"{clients.pop()}.wait_for_workers({source.text(numbers[0])})"
    return Patched(source.edited({sleep: becomes(source.expression(text))}).module, "the client waits for all workers")
