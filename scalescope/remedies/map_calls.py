"""Calls of `client.submit` in a comprehension: one `client.map`, which sends them as one graph."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    Answer,
    Patched,
    Refused,
    Source,
    answer,
    becomes,
    called,
    effects,
    is_client,
)

# Arguments of `submit` and `map` that are not passed on to the task
OF_TASKS = {"pure", "priority", "workers", "retries", "resources", "allow_other_workers"}


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    loops = [
        each for each in source.all(cst.ListComp) if isinstance(each.elt, cst.Call) and called(each.elt) == "submit"
    ]
    return answer(_mapped, source, source.nearest(loops, place), "no list of calls of `submit` stands at that line")


def _mapped(source: Source, loop: cst.ListComp) -> Patched:
    call, over = loop.elt, loop.for_in
    assert isinstance(call, cst.Call)
    if not isinstance(call.func, cst.Attribute) or not is_client(source, call.func.value):
        raise Refused("it is not plain that a Dask client sends it")
    if over.inner_for_in or over.ifs or over.asynchronous or not isinstance(over.target, cst.Name):
        raise Refused("the loop has a condition, or several variables")
    positional = [each for each in call.args if each.keyword is None and not each.star]
    named = [each for each in call.args if each.keyword is not None]
    if len(positional) + len(named) != len(call.args) or len(positional) != 2:
        raise Refused("the tasks have several arguments")
    others = {each.keyword.value for each in named if each.keyword} - OF_TASKS
    if others or effects(*(each.value for each in named)):
        raise Refused("an argument by name may differ from task to task")
    if not (isinstance(positional[1].value, cst.Name) and positional[1].value.value == over.target.value):
        raise Refused("the argument of a task is not the item itself")
    receiver, function = source.text(call.func.value), source.text(positional[0].value)
    given = "".join(f", {source.text(each).rstrip(',').rstrip()}" for each in named)
    text = f"{receiver}.map({function}, {source.text(over.iter)}{given})"
    return Patched(source.edited({loop: becomes(source.expression(text))}).module, "one `client.map` sends all tasks")
