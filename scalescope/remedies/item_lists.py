"""Tasks of `client.map` that are too short: each gets a list of items, and what comes back is made one list again."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.map_calls import OF_TASKS
from scalescope.remedies.source import (
    Answer,
    Changed,
    NotHere,
    Patched,
    Refused,
    Source,
    answer,
    becomes,
    binding,
    called,
    is_client,
    times_as_much,
)


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    items = times_as_much(finding)
    if items is None:
        return NotHere("the finding names no size")

    def longer(source: Source, call: cst.Call) -> Patched:
        return _longer(source, call, items)

    source = Source(module)
    calls = [each for each in source.all(cst.Call) if called(each) == "map" and isinstance(each.func, cst.Attribute)]
    calls = [each for each in calls if isinstance(each.func, cst.Attribute) and is_client(source, each.func.value)]
    near = source.nearest(calls, place) or calls[: len(calls) == 1]
    return answer(longer, source, near, "no call of `client.map` stands at that line")


def _longer(source: Source, call: cst.Call, items: int) -> Patched:
    positional = [each for each in call.args if each.keyword is None and not each.star]
    named = [each for each in call.args if each.keyword is not None]
    if len(positional) != 2 or len(positional) + len(named) != len(call.args):
        raise Refused("the tasks have several arguments")
    if {each.keyword.value for each in named if each.keyword} - OF_TASKS:
        raise Refused("the tasks have arguments by name")
    function, over = (source.text(each.value) for each in positional)
    task = source.expression(f"f(lambda batch: [{function}(item) for item in batch])")
    lists = source.expression(f"f(list(toolz.partition_all({items}, {over})))")
    assert isinstance(task, cst.Call)
    assert isinstance(lists, cst.Call)
    args = [positional[0].with_changes(value=task.args[0].value), positional[1].with_changes(value=lists.args[0].value)]
    changed = call.with_changes(args=[*args, *named])
    gather = _gathered(source, call)
    whole = gather.deep_replace(call, changed)
    assert isinstance(whole, cst.Call)
    flat = source.expression(f"[result for batch in {source.module.code_for_node(whole)} for result in batch]")
    edits: dict[cst.CSTNode, Callable[[cst.CSTNode], Changed]] = {gather: becomes(flat)}
    if gather.args[0].value is not call:
        edits[call] = becomes(changed)
    return Patched(source.edited(edits).importing("toolz"), f"a task has {items:,} items")


def _gathered(source: Source, call: cst.Call) -> cst.Call:
    """The only call that uses the futures, of `gather`."""
    user = source.parent(call)
    if isinstance(user, cst.Assign):
        target = user.targets[0].target
        scope = source.function(call)
        if not isinstance(target, cst.Name) or binding(source, target.value, scope) is not call:
            raise Refused("the futures have several names")
        uses = [each for each in source.all(cst.Name, scope) if each.value == target.value and each is not target]
        if len(uses) != 1:
            raise Refused("the futures are used several times")
        user = source.parent(uses[0])
    holder = source.parent(user) if isinstance(user, cst.Arg) else None
    if not isinstance(holder, cst.Call) or called(holder) != "gather" or len(holder.args) != 1:
        raise Refused("the futures are not only gathered")
    return holder
