"""Makes a cluster or client before a loop and closes it after the loop, instead of in each round."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    Answer,
    Changed,
    Patched,
    Refused,
    Source,
    answer,
    becomes,
    bound,
    cached,
    called,
    dotted,
    used,
    walk,
)

MADE, CLOSED = ("LocalCluster", "Client"), ("close", "shutdown")
WHAT = "one cluster serves all rounds"


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    loops = [each for each in walk(module) if isinstance(each, cst.For | cst.While) and place is not None]
    near = source.nearest(loops, place)
    return answer(_before, source, near, "no loop is around that line")


def kept(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    """Cache the cluster or client that a function without parameters returns, if the module closes neither."""
    source = Source(module)
    functions = [each for each in source.all(cst.FunctionDef) if place is not None and source.is_at(each, place)]
    return answer(_cached, source, source.nearest(functions, place), "no function there makes the cluster")


def _cached(source: Source, function: cst.FunctionDef) -> Patched:
    name, calls = function.name.value, source.all(cst.Call)
    returned = [each for each in walk(function.body) if isinstance(each, cst.Return)]
    if any(isinstance(each, cst.Param) for each in walk(function.params)) or function.decorators or not returned:
        raise Refused(f"`{name}` has parameters or decorators, or returns nothing")
    if any(called(each) in CLOSED for each in calls) or any(isinstance(each, cst.With) for each in walk(function)):
        raise Refused(f"the module calls `close` or `shutdown`, or `{name}` has a `with`")
    if any(
        isinstance(each, cst.With) and any(_calls(item.item, name) for item in each.items)
        for each in source.all(cst.With)
    ):
        raise Refused(f"a `with` closes what `{name}` returns")
    return cached(source, function, "functools.cache", WHAT)


def _calls(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Call) and called(node) == name


def _before(source: Source, loop: cst.For | cst.While) -> Patched:
    if not isinstance(loop.body, cst.IndentedBlock) or any(isinstance(each, cst.Return) for each in walk(loop)):
        raise Refused("the loop contains a `return`, or is one line")
    for each in loop.body.body:
        if isinstance(each, cst.With) and all(_makes(item.item) for item in each.items):
            return _around(source, loop, each)
    lines = [each for each in loop.body.body if isinstance(each, cst.SimpleStatementLine) and len(each.body) == 1]
    made = {name: line for line in lines if (name := _name_made(line))}
    closed = [line for line in lines if _name_closed(line) in made]
    if {_name_closed(line) for line in closed} != set(made) or not made:
        raise Refused("the cluster is not made and closed by lines of the loop itself")
    if len(made) + len(closed) == len(loop.body.body):
        raise Refused("the loop does nothing but make and close the cluster")
    _check_alike(loop, [*made.values()], set(made))
    gone: dict[cst.CSTNode, Callable[[cst.CSTNode], Changed]] = dict.fromkeys(
        (*made.values(), *closed), lambda updated: cst.RemoveFromParent()
    )

    def around(updated: cst.CSTNode) -> Changed:
        assert isinstance(updated, cst.For | cst.While)
        first, *rest = made.values()
        first = first.with_changes(leading_lines=loop.leading_lines)
        plain = [each.with_changes(leading_lines=()) for each in (*rest, updated, *closed)]
        return cst.FlattenSentinel([first, *plain])

    return Patched(source.edited({**gone, loop: around}).module, WHAT)


def _around(source: Source, loop: cst.For | cst.While, held: cst.With) -> Patched:
    names = {dotted(item.asname.name) for item in held.items if item.asname is not None}
    _check_alike(loop, held.items, names)
    if not isinstance(held.body, cst.IndentedBlock):
        raise Refused("the `with` is on one line")
    lines = [line for each in loop.body.body for line in (held.body.body if each is held else [each])]
    edited = loop.with_changes(leading_lines=(), body=loop.body.with_changes(body=lines))
    outer = held.with_changes(leading_lines=loop.leading_lines, body=held.body.with_changes(body=[edited]))
    return Patched(source.edited({loop: becomes(outer)}).module, WHAT)


def _check_alike(loop: cst.For | cst.While, made: Sequence[cst.CSTNode], names: set[str]) -> None:
    if differs := (used(*made) - names) & bound(loop):
        raise Refused(f"`{min(differs)}` differs from round to round")


def _makes(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and called(node) in MADE


def _name_made(line: cst.SimpleStatementLine) -> str:
    match line.body[0]:
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value) if _makes(value):
            return name
    return ""


def _name_closed(line: cst.SimpleStatementLine) -> str:
    match line.body[0]:
        case cst.Expr(value=cst.Call(func=cst.Attribute(value=cst.Name(value=name), attr=cst.Name(value=last)))):
            return name if last in CLOSED else ""
    return ""
