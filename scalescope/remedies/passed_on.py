"""Results that the client gathers only to send them with the next step: their futures are passed on instead."""

from __future__ import annotations

from functools import partial

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    Answer,
    Patched,
    Refused,
    Source,
    answer,
    becomes,
    binding,
    binds,
    bound,
    called,
    dotted,
    is_client,
    is_prefect_task,
    of_client,
    walk,
)

SENDS = ("map", "submit")


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    gathers = [each for each in source.all(cst.Assign) if _gathered(source, each) is not None]
    functions = list(dict.fromkeys(source.function(each) for each in gathers))
    near = source.nearest(functions, place)
    return answer(partial(_passed_on, gathers), source, near, "no results are gathered there for the next step")


def _passed_on(gathers: list[cst.Assign], source: Source, function: cst.FunctionDef | cst.Module) -> Patched:
    between = [each for each in gathers if source.function(each) is function and _only_sent(source, each)]
    if not between:
        raise Refused("the gathered results are used for more than sending the next step")
    edited = source.edited({each: becomes(each.with_changes(value=_gathered(source, each))) for each in between})
    return Patched(edited.module, "futures are passed on to the next step", values="fewer")


def _gathered(source: Source, assign: cst.Assign) -> cst.BaseExpression | None:
    """The futures of `name = client.gather(futures)` or `name = future.result()`; None for another statement."""
    match assign:
        case cst.Assign(
            targets=[cst.AssignTarget(target=cst.Name())],
            value=cst.Call(func=cst.Attribute(value=cst.Call() as future, attr=cst.Name(value="result")), args=[]),
        ) if _sends(source, future):
            return future
        case cst.Assign(
            targets=[cst.AssignTarget(target=cst.Name())],
            value=cst.Call(
                func=cst.Attribute(value=client, attr=cst.Name(value="gather")),
                args=[cst.Arg(keyword=None, star="", value=futures)],
            ),
        ) if is_client(source, client):
            return futures
    return None


def _only_sent(source: Source, assign: cst.Assign) -> bool:
    """Whether the results are used only as arguments of tasks, until the name is bound again."""
    target = cst.ensure_type(assign.targets[0].target, cst.Name)
    within, line = source.function(assign), source.parent(assign)
    uses = [each for each in source.names(target.value, within) if each is not target]
    if binding(source, target.value, within) is not assign.value:
        begin, end = source.lines(assign)[1], _bound_again(source, target.value, within, line)
        uses = [each for each in uses if begin < source.lines(each)[0] <= end and not _is_target(source, each)]
    return bool(uses) and all(_is_sent(source, each) for each in uses)


def _bound_again(source: Source, name: str, within: cst.CSTNode, line: cst.CSTNode) -> int:
    """Last line of the next statement that binds the name, else of `within`; 0 if loops or blocks make it unclear."""
    block = source.parent(line)
    lines = [source.parent(each) for each in source.all(cst.Assign, within) if name in bound(each)]
    loops = any(isinstance(each, cst.For | cst.While) for each in source.ancestors(line))
    elsewhere = len(lines) != sum(binds(each, name) for each in walk(within))
    if loops or elsewhere or any(source.parent(each) is not block for each in lines):
        return 0
    later = [each for each in lines if source.lines(each)[0] > source.lines(line)[0]]
    return source.lines(later[0])[1] if later else source.lines(within)[1]


def _is_target(source: Source, use: cst.Name) -> bool:
    return isinstance(source.parent(use), cst.AssignTarget)


def _is_sent(source: Source, use: cst.Name) -> bool:
    arg = source.parent(use)
    call = source.parent(arg)
    if not isinstance(arg, cst.Arg) or arg.value is not use or arg.star or not isinstance(call, cst.Call):
        return False
    if not _sends(source, call):
        return False
    is_function = call.args[0] is arg and is_client(source, cst.ensure_type(call.func, cst.Attribute).value)
    return not is_function


def _sends(source: Source, call: cst.Call) -> bool:
    """Whether a call of a client or a Prefect task sends tasks."""
    if not isinstance(call.func, cst.Attribute) or called(call) not in SENDS:
        return False
    return of_client(source, call, *SENDS) or is_prefect_task(source, dotted(call.func.value))
