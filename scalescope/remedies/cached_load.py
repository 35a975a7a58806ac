"""Caches what each task loads or sets up again, by `functools.lru_cache` on a function that only reads and computes.

The function is left alone if its callers, or methods of the result's class, may change the result.
"""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    ADDING,
    HARMLESS,
    LOOKS,
    TAKING,
    Answer,
    Patched,
    Refused,
    Source,
    answer,
    cached,
    called,
    dotted,
    is_pure,
    root,
    stored,
    walk,
)

READS = {
    *("pickle.load", "json.load", "np.load", "numpy.load", "joblib.load", "tomllib.load", "yaml.safe_load"),
    *("pd.read_csv", "pd.read_parquet", "pd.read_json", "pd.read_pickle", "open", "gzip.open", "lzma.open", "bz2.open"),
}
KEPT = 8  # number of results kept in each process
PLAIN = {"read", "decode", "reshape", "astype", "splitlines", "sleep", *LOOKS} - {"get"}  # `requests.get` has effects


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    around, *there = source.reached(place) if place else [module]
    functions = [each for each in (*there, around) if isinstance(each, cst.FunctionDef)]
    return answer(_cached, source, functions, "no function was found at that line")


def _cached(source: Source, function: cst.FunctionDef) -> Patched:
    name = function.name.value
    if function.decorators or function.asynchronous is not None:
        raise Refused(f"`{name}` is asynchronous, or has a decorator already")
    if source.function(function) is not source.module:
        raise Refused(f"`{name}` is made anew for each call of the function around it")
    _check_only_reads(source, function, name)
    frozen = _makes_frozen(source, function)
    uses = [each for each in source.all(cst.Name) if each.value == name and each is not function.name]
    for each in uses:
        call = source.parent(each)
        if not isinstance(call, cst.Call) or call.func is not each:
            raise Refused(f"`{name}` is the task itself, or is passed on")
        _check_unchanged(source, call, frozen)
    what = f"each process keeps the results of `{name}` for up to {KEPT} different arguments"
    return cached(source, function, f"functools.lru_cache(maxsize={KEPT})", what)


def _check_only_reads(source: Source, function: cst.FunctionDef, name: str) -> None:
    own = {each.name.value for each in walk(function.params) if isinstance(each, cst.Param)}
    assigned = [each for each in walk(function.body) if isinstance(each, cst.Assign) and _is_seeded(each.value)]
    own |= {dotted(each.targets[0].target) for each in assigned}
    calls = [each for each in walk(function.body) if isinstance(each, cst.Call)]
    made = {each.name.value: each for each in source.all(cst.ClassDef)}
    if any(isinstance(each, cst.Global | cst.Nonlocal | cst.Yield | cst.Del) for each in walk(function.body)):
        raise Refused(f"`{name}` may change something outside itself")
    for each in calls:
        text, mode = dotted(each.func), each.args[1] if len(each.args) > 1 else None
        reads = mode is None or (isinstance(mode.value, cst.SimpleString) and not set("wax+") & {*mode.value.value})
        if text.endswith("open") and not reads:
            raise Refused(f"`{name}` may open a file to write to it")
        plain = text in READS | HARMLESS or called(each) in PLAIN or is_pure(each) or _is_seeded(each)
        plain = plain or (text in made and _is_frozen(source, made[text]))
        if not plain and root(each.func) not in own:
            raise Refused(f"`{called(each)}`, which `{name}` calls, may have side effects")
    targets = [each.target for each in walk(function.body) if isinstance(each, cst.AssignTarget)]
    if any(isinstance(each, cst.Attribute) and root(each) != "self" for each in targets):
        raise Refused(f"`{name}` may change something outside itself")


def _is_seeded(node: cst.CSTNode) -> bool:
    """Whether a node makes a random generator with a seed, so that its numbers are the same each time."""
    match node:
        case cst.Call(func=cst.Attribute(value=cst.Call() as made)) if called(made) == "default_rng":
            return bool(made.args)
        case cst.Call():
            return called(node) == "default_rng" and bool(node.args)
    return False


def _is_frozen(source: Source, made: cst.ClassDef) -> bool:
    """Whether no method of a class changes its objects; False if the class has bases or decorators.

    Raises `Refused` if `__init__` does more than read or compute.
    """
    for each in source.all(cst.FunctionDef, made):
        if each.name.value == "__init__":
            _check_only_reads(source, each, "__init__")
        elif "self" in stored(each.body) or any(isinstance(one, cst.Global) for one in walk(each)):
            return False
    return not made.bases and not made.decorators


def _makes_frozen(source: Source, function: cst.FunctionDef) -> bool:
    """Whether a function returns a new object of a class of the module whose objects never change (`_is_frozen`)."""
    made = {each.name.value: each for each in source.all(cst.ClassDef)}
    match [each.value for each in walk(function.body) if isinstance(each, cst.Return)]:
        case [cst.Call(func=cst.Name(value=name))] if name in made:
            return _is_frozen(source, made[name])
    return False


def _check_unchanged(source: Source, call: cst.Call, frozen: bool) -> None:
    """Refuse if a caller may change the result, which all callers would share."""
    holder = source.parent(call)
    if not isinstance(holder, cst.Assign):
        if isinstance(holder, cst.Subscript | cst.Attribute):
            return  # only a part of the result is used
        raise Refused("the result is passed on, and may be changed")
    if len(holder.targets) != 1 or not isinstance(holder.targets[0].target, cst.Name):
        raise Refused("the result is passed on, and may be changed")
    name = holder.targets[0].target.value
    for each in source.all(cst.Name, source.function(call)):
        parent = source.parent(each)
        looked = isinstance(parent, cst.Subscript) and parent.value is each
        if isinstance(parent, cst.Attribute) and parent.value is each:
            looked = frozen or (parent.attr.value in LOOKS and isinstance(source.parent(parent), cst.Call))
        if each.value == name and parent is not holder.targets[0] and (not looked or _stores(source, each)):
            raise Refused(f"the result is passed on as `{name}`, and may be changed")


def _stores(source: Source, node: cst.CSTNode) -> bool:
    """Whether a part of a variable's value is changed here, as in `table[key].append(x)`."""
    while isinstance(up := source.parent(node), cst.Attribute | cst.Subscript | cst.Call):
        if isinstance(up, cst.Attribute) and up.attr.value in ADDING | TAKING:
            return True
        if isinstance(up, cst.Call) and up.func is not node:
            return False
        node = up
    return isinstance(up, cst.AssignTarget | cst.AugAssign | cst.Del)
