"""Puts a large argument of delayed calls in a loop into the graph only once, by `delayed(x)` before the loop."""

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
    lazily,
    lazy_functions,
)


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    made = lazy_functions(source)
    found = {call: name for call in source.all(cst.Call) if (name := lazily(call, made)) and loops(source, call)}
    # The place may be the line that sent the graph, so calls in the same function count.
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
    return answer(once, source, inside, "no loop of delayed calls was found near that line")


def _shares_function(source: Source, call: cst.Call, place: Place) -> bool:
    function = source.function(call)
    if function in source.reached(place):
        return True
    return isinstance(function, cst.FunctionDef) and function.name.value == place.function
