"""Passes `meta=`, as seen in a run, so that Dask need not call functions on made-up data to learn what they return."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import libcst as cst

from scalescope.model.finding import META_OF, Finding, Place
from scalescope.remedies.source import (
    Answer,
    Edits,
    NotHere,
    Patched,
    Source,
    argument,
    becomes,
    called,
    dotted,
    with_argument,
)

CALLS = ("map_partitions", "map_overlap", "apply")


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    """Add `meta=` to all calls that lack it, if their function contains the place or leads to it."""
    source = Source(module)
    metas = {each.what.removeprefix(META_OF): str(each.value) for each in finding.evidence if META_OF in each.what}
    functions = {each.name.value for each in source.all(cst.FunctionDef) if place and source.leads_to(each, place)}
    edits: Edits = {}
    for call in source.all(cst.Call):
        name = dotted(call.args[0].value) if called(call) in CALLS and call.args else ""
        if name in metas.keys() & functions and isinstance(call.func, cst.Attribute) and not argument(call, "meta"):
            edits[call] = becomes(with_argument(source, call, f"meta={metas[name]}"))
    if not edits:
        return NotHere("no call that lacks `meta=` has a function with a known result")
    return Patched(source.edited(edits).module, "`meta=` says what the function returns")


def common(metas: Sequence[str]) -> str:
    """The `meta=` that all calls of a function share; without a series' name if only that differs; else empty."""
    first: Any
    first, *others = [ast.literal_eval(each) if each else None for each in metas]
    if all(each == first for each in others):
        return metas[0]
    same = isinstance(first, tuple) and all(isinstance(each, tuple) and each[1] == first[1] for each in others)
    return repr((None, first[1])) if same else ""
