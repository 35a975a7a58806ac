"""What each task loads again: `functools.lru_cache` on a function that only reads what its arguments name."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    HARMLESS,
    Answer,
    Patched,
    Refused,
    Source,
    answer,
    cached,
    called,
    dotted,
    root,
    walk,
)

READS = {
    *("pickle.load", "json.load", "np.load", "numpy.load", "joblib.load", "tomllib.load", "yaml.safe_load"),
    *("pd.read_csv", "pd.read_parquet", "pd.read_json", "pd.read_pickle", "open", "gzip.open", "lzma.open", "bz2.open"),
}
KEPT = 8  # results that are kept in each process
SENDS = ("submit", "map", "delayed", "map_blocks", "map_partitions", "apply")


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    around = [each for each in source.all(cst.FunctionDef) if place is not None and source.is_at(each, place)]
    return answer(_cached, source, source.nearest(around, place), "no function stands at that line")


def _cached(source: Source, function: cst.FunctionDef) -> Patched:
    name = function.name.value
    if function.decorators or function.asynchronous is not None:
        raise Refused(f"`{name}` has a decorator already")
    if source.function(function) is not source.module:
        raise Refused(f"`{name}` is made anew for each call of the function around it")
    _check_only_reads(source, function)
    uses = [each for each in source.all(cst.Name) if each.value == name and each is not function.name]
    for each in uses:
        call = source.parent(each)
        if not isinstance(call, cst.Call) or call.func is not each:
            raise Refused(f"`{name}` is the task itself, or is passed on")
        _check_unchanged(source, call)
    what = f"each process calls `{name}` once for each argument"
    return cached(source, function, f"functools.lru_cache(maxsize={KEPT})", what)


def _check_only_reads(source: Source, function: cst.FunctionDef) -> None:
    name = function.name.value
    own = {each.name.value for each in walk(function.params) if isinstance(each, cst.Param)}
    calls = [each for each in walk(function.body) if isinstance(each, cst.Call)]
    names = {dotted(each.func) for each in calls}
    if not names & READS:
        raise Refused(f"`{name}` is not known to read a file")
    if any(isinstance(each, cst.Global | cst.Nonlocal | cst.Yield | cst.Del) for each in walk(function.body)):
        raise Refused(f"`{name}` changes something outside")
    for each in calls:
        text, mode = dotted(each.func), each.args[1] if len(each.args) > 1 else None
        reads = mode is None or (isinstance(mode.value, cst.SimpleString) and not set("wax+") & {*mode.value.value})
        if text.endswith("open") and not reads:
            raise Refused(f"`{name}` writes")
        plain = text in READS | HARMLESS or called(each) in ("read", "decode", "reshape", "astype", "splitlines")
        if not plain and root(each.func) not in own:
            raise Refused(f"it is not known what `{called(each)}` does in `{name}`")
    targets = [each.target for each in walk(function.body) if isinstance(each, cst.AssignTarget)]
    if any(isinstance(each, cst.Attribute) for each in targets):
        raise Refused(f"`{name}` changes something outside")


def _check_unchanged(source: Source, call: cst.Call) -> None:
    """Refuse where a caller may change what all callers would then share."""
    holder = source.parent(call)
    if not isinstance(holder, cst.Assign):
        if isinstance(holder, cst.Subscript | cst.Attribute):
            return  # it only looks into it
        raise Refused("what it returns is passed on, and may be changed")
    if len(holder.targets) != 1 or not isinstance(holder.targets[0].target, cst.Name):
        raise Refused("what it returns is passed on, and may be changed")
    name = holder.targets[0].target.value
    for each in source.all(cst.Name, source.function(call)):
        parent = source.parent(each)
        looked = isinstance(parent, cst.Subscript) and parent.value is each
        stores = looked and isinstance(source.parent(parent), cst.AssignTarget | cst.AugAssign | cst.Del)
        if each.value == name and parent is not holder.targets[0] and (not looked or stores):
            raise Refused(f"what it returns is passed on as `{name}`, and may be changed")
