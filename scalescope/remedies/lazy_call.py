"""Delays the call of a function whose result is passed to `delayed`: `delayed(f(x))` becomes `delayed(f)(x)`."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import DELAYED, Answer, Edits, NotHere, Patched, Source, becomes, dotted


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    ran = {each.name.value for each in source.at(cst.FunctionDef, place)}
    edits: Edits = {}
    for each in source.all(cst.Call):
        match each:
            case cst.Call(args=[cst.Arg(value=cst.Call(func=cst.Name() as function) as inner)]):
                if dotted(each.func) in DELAYED and function.value in ran:
                    lazy = each.with_changes(args=[cst.Arg(function)])
                    edits[each] = becomes(inner.with_changes(func=lazy))
    if not edits:
        return NotHere("no call of `delayed` gets the result of the function at that line")
    return Patched(source.edited(edits).module, "`delayed` gets the function, not its result")
