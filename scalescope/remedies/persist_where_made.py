"""Keeps in memory, where it is made, the collection that all computed values derive from: `x = f().persist()`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.persist import CHAINS, persisted
from scalescope.remedies.source import (
    DELAYED,
    HARMLESS,
    Answer,
    Patched,
    Refused,
    Source,
    answer,
    becomes,
    called,
    dotted,
    is_main,
    used,
    walk,
)

# Calls that need computed values; `set_index` computes divisions
VALUES = {"compute", "float", "int", "len", "print", "bool", "list", "sum", "min", "max", "set_index"}
MAKES_NONE = {"persist", "compute", "Client", "LocalCluster"}  # calls that make no lazy collection


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    around = [each for each in source.all(cst.FunctionDef) if source.is_at(each, place)]
    functions: list[cst.FunctionDef | cst.Module] = [*_users(source, around), *around] or [module]
    return answer(
        lambda source, function: _kept(source, function, place),
        source,
        functions,
        "no function is around that line",
    )


def _users(source: Source, functions: Sequence[cst.FunctionDef]) -> list[cst.FunctionDef | cst.Module]:
    """Functions (or the module) that call these functions, or pass them on."""
    names = {each.name.value for each in functions}
    found = dict.fromkeys(source.function(each) for each in source.all(cst.Name) if each.value in names)
    return [each for each in found if each not in functions]


@dataclass(frozen=True)
class _Step:
    """A statement of a function."""

    node: cst.CSTNode
    name: str = ""  # the only name that the statement binds
    value: cst.BaseExpression | None = None  # expression bound to the name, or an item of a loop; else None
    needs_values: bool = False


def _kept(source: Source, function: cst.FunctionDef | cst.Module, place: Place | None) -> Patched:
    known = {each.name.value: each for each in source.all(cst.FunctionDef)}
    steps = [*_steps(function if isinstance(function, cst.Module) else function.body, known)]
    found = {at: _ends(steps, at) for at, each in enumerate(steps) if _may_be_lazy(each.value)}
    here = {at for at, each in enumerate(steps) if source.leads_to(each.node, place)}
    above = {at: ends for at, ends in found.items() if here & (ends | {at})}
    every = set().union(*above.values())
    covering = [at for at, ends in above.items() if ends == every]
    if not covering or len(every) < 2:
        raise Refused("it is unclear which collection is computed several times")
    step = steps[max(covering)]
    value = step.value
    assert value is not None
    return Patched(source.edited({value: becomes(persisted(value))}).module, f"`{step.name}` is kept where it is made")


def _steps(body: cst.CSTNode, functions: dict[str, cst.FunctionDef]) -> Iterator[_Step]:
    for each in body.children:
        if isinstance(each, cst.With) or (isinstance(each, cst.If) and is_main(each)):
            yield from _steps(each.body, functions)
        elif isinstance(each, cst.SimpleStatementLine):
            match each.body:
                case [cst.Assign(targets=[cst.AssignTarget(target=cst.Name(name))], value=value)]:
                    yield _Step(each, name, value, _needs_values(value, functions))
                case _:
                    yield _Step(each, needs_values=True)
        elif isinstance(each, cst.For) and isinstance(each.iter, cst.Tuple | cst.List):
            needs = _needs_values(each.body, functions)
            yield from (_Step(each, value=item.value, needs_values=needs) for item in each.iter.elements)
        elif isinstance(each, cst.BaseStatement):
            yield _Step(each, needs_values=True)


def _needs_values(node: cst.CSTNode, functions: dict[str, cst.FunctionDef]) -> bool:
    names = {called(each) for each in walk(node) if isinstance(each, cst.Call)}
    return bool(VALUES & names) or any(
        VALUES & {called(each) for each in walk(functions[name].body) if isinstance(each, cst.Call)}
        for name in names & set(functions)
    )


def _may_be_lazy(value: cst.BaseExpression | None) -> bool:
    if not isinstance(value, (*CHAINS, cst.BinaryOperation)):
        return False
    if isinstance(value, cst.Call) and dotted(value.func) in HARMLESS - {*DELAYED}:
        return False  # a list or a number is no collection
    return not MAKES_NONE & {called(each) for each in walk(value) if isinstance(each, cst.Call)}


def _ends(steps: Sequence[_Step], at: int) -> set[int]:
    """Indices of later steps that need values of the collection that step `at` makes."""
    names, found = {steps[at].name}, set[int]()
    for number, step in enumerate(steps[at + 1 :], at + 1):
        is_used = bool(names & used(step.node if step.value is None else step.value))
        if is_used and step.needs_values:
            found.add(number)
        if step.name:
            names = names | {step.name} if is_used else names - {step.name}
    return found
