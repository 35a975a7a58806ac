"""Keeps in memory a collection that is computed several times, by `x = x.persist()` before the first computation.

If each round of a loop makes the collection from that of the previous round, it is kept in each round.
"""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    PURE_MODULES,
    Answer,
    Patched,
    Refused,
    Source,
    answer,
    becomes,
    before,
    binding,
    called,
    root,
    used,
    walk,
)

# Methods whose results are already in memory
COMPUTES = ("compute", "persist")
CHAINS = (cst.Call, cst.Attribute, cst.Subscript)  # expressions that need no parentheses before a dot


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    calls = [
        call for call in source.all(cst.Call) if called(call) == "compute" and isinstance(call.func, cst.Attribute)
    ]
    functions = {source.function(call): None for call in calls}
    around = [each for each in functions if source.is_at(each, place)]
    inner = [each for each in around if isinstance(each, cst.FunctionDef)] or around
    return answer(_kept, source, inner, "nothing is computed several times in the function at that line")


def _kept(source: Source, function: cst.FunctionDef | cst.Module) -> Patched:
    calls = [each for each in source.all(cst.Call, function) if called(each) == "compute"]
    own = [each for each in calls if source.function(each) is function and isinstance(each.func, cst.Attribute)]
    own = [each for each in own if isinstance(each.func, cst.Attribute) and root(each.func.value) not in PURE_MODULES]
    names = [root(each.func.value) for each in own if isinstance(each.func, cst.Attribute)]
    loops = [any(isinstance(up, cst.For) for up in source.ancestors(each)) for each in own]
    several = [name for name in dict.fromkeys(names) if names.count(name) > 1 or loops[names.index(name)]]
    if len(several) != 1 or not several[0]:
        raise Refused("it is unclear which collection is computed several times")
    name = several[0]
    made = binding(source, name, function)
    if made is None and (step := _step(source, name, own[names.index(name)])):
        return Patched(source.edited({step: becomes(persisted(step))}).module, f"`{name}` is kept in each round")
    if made is None:
        raise Refused(f"`{name}` is assigned more than once, or not in this function")
    if any(called(each) in COMPUTES for each in walk(made) if isinstance(each, cst.Call)):
        raise Refused(f"`{name}` is kept already")
    first = own[names.index(name)]
    (line,) = source.statements(f"{name} = {name}.persist()\n")
    statement = _in_one_block(source, made, first)
    return Patched(source.edited({statement: before(line)}).module, f"`{name}` is computed once and kept")


def _step(source: Source, name: str, use: cst.Call) -> cst.BaseExpression | None:
    """The only expression that the loop around `use` binds to the name, if it needs the previous round's value."""
    loop = next((each for each in source.ancestors(use) if isinstance(each, cst.For | cst.While)), None)
    made = None if loop is None else binding(source, name, loop)
    if made is None or name not in used(made) or not isinstance(made, (*CHAINS, cst.BinaryOperation)):
        return None
    return None if any(called(each) in COMPUTES for each in walk(made) if isinstance(each, cst.Call)) else made


def persisted(value: cst.BaseExpression) -> cst.Call:
    """The expression with `.persist()`."""
    inner = value if isinstance(value, CHAINS) else value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.Call(cst.Attribute(inner, cst.Name("persist")))


def _in_one_block(source: Source, made: cst.CSTNode, first: cst.CSTNode) -> cst.CSTNode:
    """The statement that contains `first`, in the block where the collection is made."""
    block = next(each for each in source.ancestors(made) if isinstance(each, cst.IndentedBlock | cst.Module))
    around: list[cst.CSTNode] = [each for each in block.body if first in walk(each)]
    if not around or made in walk(around[0]):
        raise Refused("the collection is made and computed in different blocks")
    return around[0]
