"""Scatters a large argument of many calls once; the calls get the future."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    OF_TASKS,
    Answer,
    Loop,
    Patched,
    Refused,
    Source,
    answer,
    becomes,
    before,
    bound,
    called,
    changed,
    of_client,
    stored,
    targets,
    used,
    walk,
)

ONCE = ("scatter", "delayed")
CONSTANTS = {"None", "True", "False"}
OPTIONS = OF_TASKS | {"key", "actor", "batch_size"}


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    calls = [each for each in source.all(cst.Call) if of_client(source, each, "submit", "map")]

    def scattered(source: Source, call: cst.Call) -> Patched:
        return _scattered(source, call, large_argument(source, call, call.args[1:], call.args[0].value, place))

    return answer(scattered, source, source.nearest(calls, place), "no call of `submit` or `map` is at that line")


def before_the_loop(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    """Move a `scatter` out of the loop that repeats it, to the line before the loop."""
    source = Source(module)
    lines = source.at(cst.SimpleStatementLine, place)
    return answer(_moved, source, lines, "no line there scatters")


def _moved(source: Source, line: cst.SimpleStatementLine) -> Patched:
    match line.body:
        case [cst.Assign(targets=[cst.AssignTarget(target=cst.Name())], value=cst.Call() as call)]:
            around = [each for each in loops(source, call) if isinstance(each, cst.For)]
            if called(call) != "scatter" or not around:
                raise Refused("the line does not call `scatter` in a `for` loop")
        case _:
            raise Refused("the result of `scatter` is not assigned to one variable")
    rest = cst.ensure_type(around[-1].deep_remove(line), cst.For)
    if used(*call.args) & changed(rest):
        raise Refused("the loop changes the data that it scatters")
    moved = line.with_changes(leading_lines=())
    edited = source.edited({line: lambda _: cst.RemoveFromParent(), around[-1]: before(moved)})
    return Patched(edited.module, "the data is scattered once")


def large_argument(
    source: Source, call: cst.Call, given: object, function: cst.CSTNode, place: Place | None
) -> cst.Arg:
    """The argument that the finding names, or else the only argument that is a variable set outside the loops."""
    inside = {
        name for each in loops(source, call) for name in targets(each.target if isinstance(each, cst.For) else each)
    }
    for each in loops(source, call):
        inside |= bound(*([each] if isinstance(each, cst.For) else [each.for_in]))
    args = [each for each in given if isinstance(each, cst.Arg) and not each.star]  # type: ignore[attr-defined]
    passed = [each for each in args if each.keyword is None or each.keyword.value not in OPTIONS]
    fixed = [each for each in passed if isinstance(each.value, cst.Name) and each.value.value not in inside | CONSTANTS]
    fixed = [each for each in fixed if not (called(call) == "map" and each.keyword is None)]
    fixed = [each for each in fixed if not any(f.name.value == each.value.value for f in source.all(cst.FunctionDef))]  # type: ignore[attr-defined]
    there = _there_already(source)
    fixed = [each for each in fixed if each.value.value not in there]  # type: ignore[attr-defined]
    wanted = place.name if place else ""
    if named := [
        each for each in fixed if (wanted and _parameter(source, function, args, each) == wanted) or _is(each, wanted)
    ]:
        return named[0]
    if len(fixed) != 1:
        raise Refused("it is unclear which argument is the large one")
    return fixed[0]


def _there_already(source: Source) -> set[str]:
    """Names of values made by `scatter` or `delayed`, which are on workers or in the graph only once."""
    made = [each for each in source.all(cst.Assign) if isinstance(each.value, cst.Call)]
    return bound(*(each for each in made if isinstance(each.value, cst.Call) and called(each.value) in ONCE))


def _is(arg: cst.Arg, name: str) -> bool:
    return (
        bool(name) and isinstance(arg.value, cst.Name) and name in (arg.value.value, arg.keyword and arg.keyword.value)
    )


def _parameter(source: Source, function: cst.CSTNode, args: list[cst.Arg], arg: cst.Arg) -> str:
    """The parameter that takes an argument; empty if the function's definition is unknown."""
    if arg.keyword is not None:
        return arg.keyword.value
    for each in source.all(cst.FunctionDef):
        if isinstance(function, cst.Name) and each.name.value == function.value:
            names = [one.name.value for one in each.params.params]
            return names[args.index(arg)] if args.index(arg) < len(names) else ""
    return ""


def loops(source: Source, call: cst.Call) -> list[Loop]:
    """Loops of the same function around a call, the innermost first."""
    found = []
    for each in source.ancestors(call):
        if isinstance(each, cst.FunctionDef | cst.Lambda):
            break
        if isinstance(each, Loop):
            found.append(each)
    return found


def outermost(source: Source, call: cst.Call) -> cst.BaseStatement:
    """The outermost `for` loop around a call or, without a loop, the statement that contains the call."""
    around = [each for each in loops(source, call) if isinstance(each, cst.For)]
    return around[-1] if around else source.statement(call)


def check_unchanged(source: Source, call: cst.Call, arg: cst.Arg, args: list[cst.Arg], function: cst.CSTNode) -> None:
    """Refuse an argument that may change between calls, or that tasks change, because they would share it."""
    assert isinstance(arg.value, cst.Name)
    name, taken = arg.value.value, _parameter(source, function, args, arg)
    for task in source.all(cst.FunctionDef):
        if isinstance(function, cst.Name) and task.name.value == function.value and taken in stored(task.body):
            raise Refused(f"the task changes `{taken}`")
    for each in loops(source, call):
        others = [one for one in walk(each) if isinstance(one, cst.Call) and one is not call and call not in walk(one)]
        lines = each.body.body if isinstance(each, cst.For) else []
        if name in changed(*(one for one in lines if call not in walk(one))) | bound(each):
            raise Refused(f"the loop may change `{name}`")
        if any(name in changed(one) for one in others):
            raise Refused(f"the loop may change `{name}`")


def _scattered(source: Source, call: cst.Call, arg: cst.Arg) -> Patched:
    assert isinstance(arg.value, cst.Name)
    assert isinstance(call.func, cst.Attribute)
    name = arg.value.value
    check_unchanged(source, call, arg, [*call.args[1:]], call.args[0].value)
    future, client = source.unused(f"{name}_on_workers"), source.text(call.func.value)
    (line,) = source.statements(f"[{future}] = {client}.scatter([{name}], broadcast=True)\n")
    changed_arg = arg.with_changes(value=cst.Name(future))
    patched = source.edited({arg: becomes(changed_arg), outermost(source, call): before(line)})
    return Patched(patched.module, f"`{name}` is sent to the workers once")
