"""A large argument of delayed calls in a loop: it is made a part of the graph once, by `delayed(x)`."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.scatter import check_unchanged, large_argument, loops, outermost
from scalescope.remedies.source import (
    Answer,
    NotHere,
    Patched,
    Source,
    answer,
    becomes,
    before,
    decorators,
    dotted,
)

NAMES = ("delayed", "dask.delayed")


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    made = {each.name.value: mark for each in source.all(cst.FunctionDef) if (mark := _mark(each))}
    found = {call: name for call in source.all(cst.Call) if (name := _delayed(call, made)) and loops(source, call)}
    # a record names the line at which the graph was sent
    inside = [call for call in found if place is None or _shares_function(source, call, place)]

    def once(source: Source, call: cst.Call) -> Patched:
        function = call.func.args[0].value if isinstance(call.func, cst.Call) else call.func
        arg = large_argument(source, call, call.args, function, place)
        assert isinstance(arg.value, cst.Name)
        name = arg.value.value
        check_unchanged(source, call, arg, [*call.args], function)
        lazy = source.unused(f"{name}_once")
        (line,) = source.statements(f"{lazy} = {found[call]}({name})\n")
        edits = {arg: becomes(arg.with_changes(value=cst.Name(lazy))), outermost(source, call): before(line)}
        return Patched(source.edited(edits).module, f"`{name}` is in the graph once")

    if len(inside) > 1 and place is None:
        return NotHere("there are several loops of delayed calls")
    return answer(once, source, inside, "no loop of delayed calls stands there")


def _mark(function: cst.FunctionDef) -> str:
    return next((name for name in decorators(function) if name in NAMES), "")


def _delayed(call: cst.Call, made: dict[str, str]) -> str:
    """The name by which a call gets `delayed`: of `delayed(f)(x)`, or of `f(x)` with a decorated `f`."""
    match call.func:
        case cst.Call(func=inner, args=[cst.Arg(), *_]) if dotted(inner) in NAMES:
            return dotted(inner)
        case cst.Name(value=name):
            return made.get(name, "")
    return ""


def _shares_function(source: Source, call: cst.Call, place: Place) -> bool:
    function = source.function(call)
    if isinstance(function, cst.FunctionDef):
        return source.is_at(function, place) or function.name.value == place.function
    return place.function in ("", "<module>")
