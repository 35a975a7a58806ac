"""Gives each task of `client.map`, or of a list of `client.submit` calls, several items, because tasks are too short.

The tasks' lists of results are joined into one list.
"""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    OF_TASKS,
    Answer,
    Edits,
    NotHere,
    Patched,
    Refused,
    Source,
    answer,
    becomes,
    binding,
    called,
    effects,
    of_client,
    times_as_much,
    used,
)

Sends = cst.Call | cst.ListComp  # `client.map(f, items)`, or `[client.submit(f, item) for item in items]`


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    items = times_as_much(finding)
    if items is None:
        return NotHere("the finding does not say how much larger tasks should be")

    def longer(source: Source, sends: Sends) -> Patched:
        return _longer(source, sends, items)

    source = Source(module)
    sends: list[Sends] = [each for each in source.all(cst.Call) if of_client(source, each, "map")]
    sends += [each for each in source.all(cst.ListComp) if of_client(source, each.elt, "submit")]
    near = source.nearest(sends, place) or sends[: len(sends) == 1]
    return answer(longer, source, near, "no call of `client.map` or list of `client.submit` was found at that line")


def _longer(source: Source, sends: Sends, items: int) -> Patched:
    call = sends if isinstance(sends, cst.Call) else sends.elt
    assert isinstance(call, cst.Call)
    assert isinstance(call.func, cst.Attribute)
    positional = [each for each in call.args if each.keyword is None and not each.star]
    named = [each for each in call.args if each.keyword is not None]
    if len(positional) + len(named) != len(call.args):
        raise Refused("some arguments are passed with `*` or `**`")
    if {each.keyword.value for each in named if each.keyword} - OF_TASKS:
        raise Refused("the tasks have keyword arguments")
    function = source.text(positional[0].value)
    if not isinstance(positional[0].value, cst.Name | cst.Attribute):
        function = f"({function})"
    if isinstance(sends, cst.ListComp):
        arguments, variables, over = _loop(source, sends, positional[1:], named)
    elif len(positional) == 2:
        arguments, variables, over = "item", "item", positional[1].value
    else:
        raise Refused("the tasks have several arguments")
    task = f"lambda batch: [{function}({arguments}) for {variables} in batch]"
    given = "".join(f", {source.text(each).rstrip(', ')}" for each in named)
    lists = f"list(toolz.partition_all({items}, {source.text(over)}))"
    changed = source.expression(f"{source.text(call.func.value)}.map({task}, {lists}{given})")
    gather = _gathered(source, sends)
    whole = gather.deep_replace(sends, changed)
    assert isinstance(whole, cst.Call)
    flat = source.expression(f"[result for batch in {source.module.code_for_node(whole)} for result in batch]")
    edits: Edits = {gather: becomes(flat)}
    if gather.args[0].value is not sends:
        edits[sends] = becomes(changed)
    return Patched(source.edited(edits).importing("toolz"), f"a task has {items:,} items")


def _loop(
    source: Source, sends: cst.ListComp, positional: list[cst.Arg], named: list[cst.Arg]
) -> tuple[str, str, cst.BaseExpression]:
    """The task's positional arguments and the loop's target as source text, and the loop's iterable."""
    loop = sends.for_in
    if loop.inner_for_in or loop.ifs or loop.asynchronous:
        raise Refused("the comprehension has a condition or several loops")
    own = used(loop.target)
    if not all(used(each) <= own for each in positional) or effects(*(each.value for each in (*positional, *named))):
        raise Refused("an argument does not come from the item: it may be a future")
    if any(used(each) & own for each in named):
        raise Refused("a keyword argument differs from task to task")
    arguments = ", ".join(source.text(each).rstrip(", ") for each in positional)
    return arguments, source.text(loop.target), loop.iter


def _gathered(source: Source, sends: Sends) -> cst.Call:
    """The call of `gather`; it must be the only use of the futures."""
    user = source.parent(sends)
    if isinstance(user, cst.Assign):
        target = user.targets[0].target
        scope = source.function(sends)
        if not isinstance(target, cst.Name) or binding(source, target.value, scope) is not sends:
            raise Refused("the futures are not kept in just one variable")
        uses = [each for each in source.names(target.value, scope) if each is not target]
        if len(uses) != 1:
            raise Refused("the futures are used several times")
        user = source.parent(uses[0])
    holder = source.parent(user) if isinstance(user, cst.Arg) else None
    if not isinstance(holder, cst.Call) or called(holder) != "gather" or len(holder.args) != 1:
        raise Refused("the futures are used for more than `gather`")
    return holder
