"""Lets workers reduce data that the client would fetch whole: `x.compute().sum()` becomes `x.sum().compute()`."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    PURE_MODULES,
    Answer,
    Edits,
    Patched,
    Refused,
    Source,
    answer,
    becomes,
    called,
    root,
)

# Methods that Dask's frames and arrays share with pandas and NumPy, with the same results
REDUCES = {"sum", "mean", "min", "max", "count", "std", "var", "any", "all", "nunique", "value_counts", "agg", "size"}
METHODS = REDUCES | {"groupby", "fillna", "dropna", "round", "astype", "isin", "abs", "clip"}


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    calls = [each for each in source.all(cst.Call) if called(each) == "compute" and not each.args]
    own = [each for each in calls if isinstance(each.func, cst.Attribute) and root(each.func.value) not in PURE_MODULES]
    return answer(_later, source, source.nearest(own, place), "nothing is computed at that line")


def _later(source: Source, call: cst.Call) -> Patched:
    assert isinstance(call.func, cst.Attribute)
    use: cst.BaseExpression = call
    holder = source.parent(call)
    if isinstance(holder, cst.Assign) and isinstance(target := holder.targets[0].target, cst.Name):
        names = source.names(target.value, source.function(call))
        uses = [each for each in names if each is not target and source.lines(each)[0] > source.lines(call)[1]]
        if len(uses) != 1 or len(names) != 2:
            raise Refused(f"`{target.value}` is used several times, or not at all after it is computed")
        use = uses[0]
    whole = _chain(source, use)
    if whole is use:
        raise Refused("the code after `compute` may give other values on the workers")
    lazy = call.func.value
    if use is call:
        computed = whole.deep_replace(call, lazy)
        assert isinstance(computed, cst.BaseExpression)
        edits: Edits = {whole: becomes(cst.Call(cst.Attribute(computed, cst.Name("compute"))))}
    else:
        edits = {call: becomes(lazy), whole: becomes(cst.Call(cst.Attribute(whole, cst.Name("compute"))))}
    return Patched(source.edited(edits).module, "the workers reduce the data, and the client gets the result", "others")


def _chain(source: Source, node: cst.BaseExpression) -> cst.BaseExpression:
    """The longest chain of known methods that starts at `node` and ends with a reducing method; else `node` itself."""
    best = node
    while isinstance(up := source.parent(node), cst.Attribute | cst.Subscript | cst.Call):
        if isinstance(up, cst.Call) and (up.func is not node or called(up) not in METHODS):
            break
        if isinstance(up, cst.Subscript) and up.value is not node:
            break
        node = up
        if isinstance(node, cst.Call) and called(node) in REDUCES:
            best = node
    return best
