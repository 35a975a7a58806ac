"""A comprehension or loop that awaits one coroutine after another: all are awaited together, by `asyncio.gather`."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import Answer, Patched, Refused, Source, answer, becomes, binding, walk


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    every: list[cst.ListComp | cst.For] = [e for e in source.all(cst.ListComp) if isinstance(e.elt, cst.Await)]
    every += [each for each in source.all(cst.For) if _collects(each)]
    awaits = [each for each in every if source.leads_to(each, place)]
    return answer(_together, source, awaits, "no comprehension or loop that awaits each result was found at that line")


def _collects(loop: cst.For) -> tuple[cst.Await, str] | None:
    """The `await` and the name of the list, if the loop only does `name = await call` and `found.append(name)`."""
    match loop:
        case cst.For(
            asynchronous=None,
            body=cst.IndentedBlock(
                body=[
                    cst.SimpleStatementLine(
                        body=[
                            cst.Assign(
                                targets=[cst.AssignTarget(target=cst.Name(value=name))], value=cst.Await() as awaited
                            )
                        ]
                    ),
                    cst.SimpleStatementLine(
                        body=[
                            cst.Expr(
                                value=cst.Call(
                                    func=cst.Attribute(value=cst.Name(value=found), attr=cst.Name(value="append")),
                                    args=[cst.Arg(value=cst.Name(value=appended))],
                                )
                            )
                        ]
                    ),
                ]
            ),
            orelse=None,
        ) if name == appended:
            return awaited, found
    return None


def _together(source: Source, comprehension: cst.ListComp | cst.For) -> Patched:
    if isinstance(comprehension, cst.For):
        return _after_the_loop(source, comprehension)
    element = cst.ensure_type(comprehension.elt, cst.Await).expression
    if any(isinstance(each, cst.Await) for each in walk(element)) or _awaits(comprehension.for_in):
        raise Refused("more than the result is awaited in each round")
    every = cst.Arg(comprehension.with_changes(elt=element), star="*")
    gathered = cst.Await(cst.Call(cst.parse_expression("asyncio.gather"), [every]))
    edited = source.edited({comprehension: becomes(gathered)}).importing("asyncio")
    return Patched(edited, "the coroutines are awaited together")


def _after_the_loop(source: Source, loop: cst.For) -> Patched:
    collected = _collects(loop)
    assert collected is not None
    awaited, found = collected
    made = binding(source, found, source.function(loop))
    if not isinstance(made, cst.List) or made.elements:
        raise Refused(f"`{found}` is not an empty list before the loop")
    if any(isinstance(each, cst.Await) for each in walk(awaited.expression)):
        raise Refused("more than the result is awaited in each round")
    (line,) = source.statements(f"{found}[:] = await asyncio.gather(*{found})\n")
    changed = cst.ensure_type(loop.deep_replace(awaited, awaited.expression), cst.For)
    edited = source.edited({loop: lambda _: cst.FlattenSentinel([changed, line])})
    return Patched(edited.importing("asyncio"), "the coroutines are awaited together")


def _awaits(loop: cst.CompFor) -> bool:
    return loop.asynchronous is not None or any(isinstance(each, cst.Await) for each in walk(loop))
