"""Results that a loop awaits one by one: everything is sent first, then awaited in the same order.

```
for x in items:                                     for x, future in [(x, client.submit(f, x)) for x in items]:
    r = client.submit(f, x).result()         ->         r = future.result()
    write(x, r)                                         write(x, r)
```

What the loop does with results stays in the loop, in order. A loop whose results may change what is sent is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    Answer,
    Comprehension,
    Loop,
    Patched,
    Refused,
    Source,
    answer,
    becomes,
    bound,
    called,
    changed,
    effects,
    is_client,
    is_prefect_task,
    lazily,
    lazy_functions,
    root,
    targets,
    used,
    walk,
)

SENDS = ("submit", "compute")
# Functions that take all items of a generator before they return
WHOLE = {"sum", "list", "tuple", "set", "dict", "sorted", "max", "min", "frozenset"}
LEAVES = cst.Break | cst.Return | cst.Raise | cst.Yield | cst.Await | cst.Try | cst.Global | cst.Nonlocal | cst.Del
UNCERTAIN = "side effects of the loop's rounds would happen in another order"
# Names of modules; calling their functions does not count as changing them.
MODULES = {"np", "numpy", "pd", "pandas", "os", "json", "math", "time", "dask", "sys", "logging"}


@dataclass(frozen=True)
class Awaited:
    """An expression that waits for a result in a loop."""

    whole: cst.Call  # the call that waits
    sent: cst.BaseExpression  # expression that makes the future or the lazy collection
    lazy: bool = False  # True if `sent` is a collection


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    waiting = [each for each in walk(module) if isinstance(each, Loop) and _awaited(each)]
    near = source.nearest(waiting, place) or (waiting if len(waiting) == 1 and place is None else [])
    if not near and place is not None:  # the place may be in the loop's body, or in a function that the body calls
        near = [each for each in waiting if _is_in(source, each, place)]
        near = near if len(near) == 1 else []
    return answer(_rewritten, source, near, "no loop that awaits results was found at that line")


def _is_in(source: Source, node: cst.CSTNode, place: Place) -> bool:
    function = source.function(node)
    return isinstance(function, cst.FunctionDef) and function.name.value == place.function


def _awaited(loop: Loop) -> list[Awaited]:
    """Expressions that a loop itself awaits, without those in inner loops and functions."""
    found: list[Awaited] = []
    waiting: list[cst.CSTNode] = [loop.body] if isinstance(loop, cst.For) else _element(loop)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, cst.For | cst.While | cst.FunctionDef | cst.Lambda | cst.ClassDef | Comprehension):
            continue
        if isinstance(node, cst.Call) and (each := _waits(node) or _of_actor(node, loop)):
            found.append(each)
        waiting += node.children
    return found


def _of_actor(call: cst.Call, loop: Loop) -> Awaited | None:
    """The wait for a method of an item that the loop runs over: `[actor.step(x).result() for actor in actors]`."""
    names = targets(loop.target if isinstance(loop, cst.For) else loop.for_in.target)
    match call:
        case cst.Call(
            func=cst.Attribute(
                value=cst.Call(func=cst.Attribute(value=cst.Name(value=name))) as sent, attr=cst.Name(value="result")
            ),
            args=[],
        ) if name in names:
            return Awaited(call, sent)
    return None


def _element(loop: Comprehension) -> list[cst.CSTNode]:
    return [loop.key, loop.value] if isinstance(loop, cst.DictComp) else [loop.elt]


def _waits(call: cst.Call) -> Awaited | None:
    match call:
        case cst.Call(func=cst.Attribute(value=cst.Call() as sent, attr=cst.Name(value="result")), args=[]):
            if called(sent) in SENDS and isinstance(sent.func, cst.Attribute) and sent.args:
                return Awaited(call, sent)
        case cst.Call(func=cst.Attribute(value=cst.Name() as name, attr=cst.Name(value="result")), args=[]):
            return Awaited(call, name)
        case cst.Call(func=cst.Attribute(attr=cst.Name(value="gather")), args=[cst.Arg(value=cst.Call() as sent)]):
            if called(sent) == "submit" and isinstance(sent.func, cst.Attribute):
                return Awaited(call, sent)
        case cst.Call(func=cst.Attribute(value=value, attr=cst.Name(value="compute")), args=[]):
            return Awaited(call, value, lazy=True)
    return None


def _rewritten(source: Source, loop: Loop) -> Patched:
    found = _awaited(loop)
    if len(found) != 1:
        raise Refused("a round awaits more than one result")
    (awaited,) = found
    _check_task(source, awaited)
    if isinstance(loop, cst.For):
        return _statement(source, loop, awaited)
    return _comprehension(source, loop, awaited)


def _check_task(source: Source, awaited: Awaited) -> None:
    """Refuse tasks that change a global variable, because the next task may need the new value."""
    names = used(awaited.sent)
    for each in source.all(cst.FunctionDef):
        if each.name.value in names and any(isinstance(node, cst.Global | cst.Nonlocal) for node in walk(each)):
            raise Refused(f"`{each.name.value}` changes a global variable")


# ------------------------------------------------------------------ comprehensions


def _comprehension(source: Source, loop: Comprehension, awaited: Awaited) -> Patched:
    if isinstance(awaited.sent, cst.Name):
        raise Refused("the future was made before the loop")
    chain = [each for each in walk(loop.for_in) if isinstance(each, cst.CompFor)]
    if any(_awaited_in(each) for each in chain) or any(each.asynchronous for each in chain):
        raise Refused("a condition of the loop awaits a result")
    if isinstance(loop, cst.GeneratorExp) and not _is_consumed(source, loop):
        raise Refused("a generator may be left before its end")
    rest = _Without(awaited.whole)
    others = [each for part in _element(loop) if isinstance(each := part.visit(rest), cst.CSTNode)]
    if effects(*others) and effects(*_given(awaited)):
        raise Refused(UNCERTAIN)
    names = [name for each in chain for name in targets(each.target)]
    if isinstance(loop, cst.ListComp | cst.GeneratorExp) and loop.elt is awaited.whole:
        return _gathered(source, loop, awaited, chain)
    _check_shared(others, [awaited.sent], names)
    kept = [name for name in dict.fromkeys(names) if name in used(*others)]
    header, result, needs = _header(source, awaited, kept, source.text(loop.for_in))
    value = source.expression(f"{result}.result()" if not awaited.lazy else result)
    target = ", ".join([*kept, result])
    over = source.expression(f"[None for {target} in {header}]")
    assert isinstance(over, cst.ListComp)
    changed_loop = loop.deep_replace(awaited.whole, value)
    assert isinstance(changed_loop, Comprehension)
    changed_loop = changed_loop.with_changes(for_in=over.for_in)
    return _patched(source.edited({loop: becomes(changed_loop)}), needs)


def _awaited_in(each: cst.CompFor) -> bool:
    return any(_waits(node) for part in each.ifs for node in walk(part) if isinstance(node, cst.Call))


def _is_consumed(source: Source, loop: cst.GeneratorExp) -> bool:
    parents = source.ancestors(loop)
    next(parents)
    call = next(parents)
    return isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value in WHOLE


def _gathered(
    source: Source, loop: cst.ListComp | cst.GeneratorExp, awaited: Awaited, chain: list[cst.CompFor]
) -> Patched:
    """Rewrite a comprehension of plain results as `client.gather`, `task.map(...).result()` or `dask.compute`."""
    call, over = awaited.sent, source.text(loop.for_in)
    if awaited.lazy:
        computed = f"dask.compute(*[{source.text(call)} {over}])"
        computed = f"list({computed})" if isinstance(loop, cst.ListComp) else computed
        return _patched(source.edited({loop: becomes(source.expression(computed))}), "dask")
    assert isinstance(call, cst.Call)
    assert isinstance(call.func, cst.Attribute)
    receiver = source.text(call.func.value)
    single = len(chain) == 1 and not chain[0].ifs and called(call) == "submit" and isinstance(chain[0].target, cst.Name)
    plain = single and _is_target(call.args[-1], chain[0].target)
    items = source.text(chain[0].iter)
    if is_client(source, call.func.value):
        sent = f"[{source.text(call)} {over}]"
        if plain and len(call.args) == 2 and _is_plain(call.args[0]):
            sent = f"{receiver}.map({source.text(call.args[0].value)}, {items})"
        text = f"{receiver}.gather({sent})"
    elif plain and len(call.args) == 1 and is_prefect_task(source, receiver):
        text = f"{receiver}.map({items}).result()"
    else:
        name = source.unused("future")
        text = f"[{name}.result() for {name} in [{source.text(call)} {over}]]"
    return _patched(source.edited({loop: becomes(source.expression(text))}), "")


def _is_plain(arg: cst.Arg) -> bool:
    return arg.keyword is None and not arg.star


def _is_target(arg: cst.Arg, target: cst.CSTNode) -> bool:
    return _is_plain(arg) and isinstance(arg.value, cst.Name) and arg.value.value in targets(target)


# ------------------------------------------------------------------ statements


def _statement(source: Source, loop: cst.For, awaited: Awaited) -> Patched:
    if loop.orelse is not None or loop.asynchronous is not None or not isinstance(loop.body, cst.IndentedBlock):
        raise Refused("the loop has an `else`, or is asynchronous, or is one line")
    if any(isinstance(each, LEAVES) for each in walk(loop.body)):
        raise Refused("the loop may end early, or handles errors")
    body = [*loop.body.body]
    at = next(i for i, each in enumerate(body) if awaited.whole in walk(each))
    if not isinstance(body[at], cst.SimpleStatementLine):
        raise Refused("the result is awaited under a condition")
    ahead, rest = body[:at], body[at:]
    names, named = targets(loop.target), isinstance(awaited.sent, cst.Name)
    if named and awaited.sent.value not in bound(*ahead):  # type: ignore[attr-defined]
        raise Refused("the future was made before the loop")
    others = [each for part in rest if isinstance(each := part.visit(_Without(awaited.whole)), cst.CSTNode)]
    sent = [loop.iter, *ahead, awaited.sent]
    if effects(*others) and effects(*ahead_effects(source, ahead), *_given(awaited), loop.iter):
        raise Refused(UNCERTAIN)
    _check_shared(others, sent, [*names, *bound(*ahead)])
    if awaited.lazy and set(names) & used(*others) & {root(awaited.sent)}:
        raise Refused("the loop uses the computed collection again")
    later = used(*others) | _used_elsewhere(source, loop)
    kept = [name for name in dict.fromkeys([*names, *sorted(bound(*ahead))]) if name in later]
    if ahead:
        return _in_two_loops(source, loop, awaited, ahead, rest, kept)
    over = f"for {source.text(loop.target)} in {source.text(loop.iter)}"
    header, result, needs = _header(source, awaited, kept, over)
    first = rest[0]
    if awaited.lazy and len(rest) == 1 and _is_bare(first, awaited.whole):  # the results are not used
        line = source.statements(f"dask.compute(*[{source.text(awaited.sent)} {over}])\n")[0]
        line = line.with_changes(leading_lines=[*loop.leading_lines, *_comments(loop)])
        return _patched(source.edited({loop: becomes(line)}), "dask")
    value = source.expression(result if awaited.lazy else f"{result}.result()")
    target = source.expression(", ".join([*kept, result]))
    if isinstance(target, cst.Tuple):
        target = target.with_changes(lpar=(), rpar=())
    changed_loop = loop.deep_replace(awaited.whole, value)
    assert isinstance(changed_loop, cst.For)
    changed_loop = changed_loop.with_changes(target=target, iter=source.expression(header))
    return _patched(source.edited({loop: becomes(changed_loop)}), needs)


def _comments(loop: cst.For) -> list[cst.EmptyLine]:
    """The comments within a loop, each as a separate line."""
    found = [each for each in walk(loop) if isinstance(each, cst.Comment)]
    own = [each for line in loop.leading_lines for each in walk(line)]
    return [cst.EmptyLine(comment=each) for each in found if each not in own]


def ahead_effects(source: Source, ahead: Sequence[cst.CSTNode]) -> list[cst.CSTNode]:
    """Code before the wait that may have effects; of calls that send tasks or add to a graph, only arguments."""
    calls, lazy = [each for part in ahead for each in walk(part) if isinstance(each, cst.Call)], lazy_functions(source)
    sends = [each for each in calls if called(each) in SENDS or lazily(each, lazy)]
    rest = _Without(*sends)
    parts = [each for part in ahead if isinstance(each := part.visit(rest), cst.CSTNode)]
    return parts + [arg.value for send in sends for arg in send.args if arg.value not in sends]


def _in_two_loops(
    source: Source,
    loop: cst.For,
    awaited: Awaited,
    ahead: Sequence[cst.BaseStatement],
    rest: Sequence[cst.BaseStatement],
    kept: Sequence[str],
) -> Patched:
    pending = source.unused("pending")
    named = isinstance(awaited.sent, cst.Name)
    result = source.text(awaited.sent) if named else source.unused("result" if awaited.lazy else "future")
    row = ", ".join([*(name for name in kept if name != result), source.text(awaited.sent)])
    target = ", ".join([*(name for name in kept if name != result), result])
    row, over = (f"({row})", pending) if "," in target else (row, pending)
    needs = ""
    if awaited.lazy:
        over, needs = f"dask.compute({pending})[0]", "dask"
    (begin, append) = source.statements(f"{pending} = []\n{pending}.append({row})\n")
    first = loop.with_changes(body=loop.body.with_changes(body=[*ahead, append]), leading_lines=())
    value: cst.BaseExpression = awaited.whole
    if not named:
        value = source.expression(result if awaited.lazy else f"{result}.result()")
    (second,) = source.statements(f"for {target} in {over}:\n    pass\n")
    waits = rest[0].deep_replace(awaited.whole, value) if value is not awaited.whole else rest[0]
    assert isinstance(loop.body, cst.IndentedBlock)
    footer = loop.body.footer
    second = second.with_changes(body=loop.body.with_changes(body=[waits, *rest[1:]], footer=footer))
    first = first.with_changes(body=first.body.with_changes(footer=()))
    begin = begin.with_changes(leading_lines=loop.leading_lines)
    put = cst.FlattenSentinel([begin, first, second])
    return _patched(source.edited({loop: lambda updated: put}), needs)


def _is_bare(line: cst.CSTNode, call: cst.Call) -> bool:
    return (
        isinstance(line, cst.SimpleStatementLine)
        and len(line.body) == 1
        and isinstance(line.body[0], cst.Expr)
        and line.body[0].value is call
    )


def _used_elsewhere(source: Source, loop: cst.For) -> set[str]:
    """Names that the function also uses outside the loop, so that their values after the last round matter."""
    function = source.function(loop)
    gone = function.visit(_Without(loop))
    return used(gone) if isinstance(gone, cst.CSTNode) else set()


# ------------------------------------------------------------------ shared by comprehensions and statements


def _header(source: Source, awaited: Awaited, kept: Sequence[str], over: str) -> tuple[str, str, str]:
    """Expression that sends everything, name of a round's result or future, and module to import (or empty)."""
    text, result = source.text(awaited.sent), source.unused("result" if awaited.lazy else "future")
    row = f"({', '.join([*kept, text])})" if kept else text
    if not awaited.lazy:
        return f"[{row} {over}]", result, ""
    return (f"dask.compute([{row} {over}])[0]" if kept else f"dask.compute(*[{row} {over}])"), result, "dask"


def _given(awaited: Awaited) -> list[cst.CSTNode]:
    """Arguments that are evaluated when a task is sent; none for collections, whose methods only add to a graph."""
    if awaited.lazy or not isinstance(awaited.sent, cst.Call):
        return []
    return [arg.value for arg in awaited.sent.args]


def _check_shared(others: Sequence[cst.CSTNode], sent: Sequence[cst.CSTNode], own: Sequence[str]) -> None:
    """Refuse if the code after a result may change what a later round sends."""
    needed = used(*sent)
    rebound = (bound(*others) | _augmented(others)) & (needed | set(own))
    if rebound:
        raise Refused(f"a round uses `{min(rebound)}` from the round before")
    if touched := changed(*others) & (needed - set(own)) - MODULES:
        raise Refused(f"code after a result may change `{min(touched)}`, which the next round uses")
    if "random" in needed & used(*others):
        raise Refused("random numbers would be drawn in another order")


def _augmented(nodes: Sequence[cst.CSTNode]) -> set[str]:
    found = [each for every in nodes for each in walk(every) if isinstance(each, cst.AugAssign)]
    return set().union(*(used(each.target) for each in found)) if found else set()


def _patched(source: Source, needs: str) -> Patched:
    module = source.importing(needs) if needs else source.module
    return Patched(module, "everything is sent first, and then awaited")


class _Without(cst.CSTTransformer):
    """Removes nodes: an expression becomes `None`, a statement disappears."""

    def __init__(self, *gone: cst.CSTNode) -> None:
        super().__init__()
        self._gone = gone

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode):  # type: ignore[no-untyped-def]
        if original_node not in self._gone:
            return updated_node
        return cst.RemoveFromParent() if isinstance(original_node, cst.BaseStatement) else cst.Name("None")
