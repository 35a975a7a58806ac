"""Results that a delayed function combines one after another: combine them in pairs, many pairs at once."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    Answer,
    Patched,
    Refused,
    Source,
    answer,
    becomes,
    before,
    called,
    lazily,
    lazy_functions,
)

PAIRS = """\
{pairs} = {items}
while len({pairs}) > 1:
    {pairs} = [{reduce}({function}, {pairs}[i : i + 2]) for i in range(0, len({pairs}), 2)]
"""
WHAT = "results are combined in pairs"


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    made = lazy_functions(source)
    chains: list[cst.Call | cst.For] = [each for each in source.all(cst.Call) if _reduces(each, made)]
    chains += [each for each in source.all(cst.For) if _adds_up(each, made)]
    chosen = [each for each in chains if source.is_at(source.function(each), place)]
    return answer(_in_pairs, source, chosen, "no delayed function combines results one after another there")


def _reduces(call: cst.Call, made: dict[str, str]) -> bool:
    match call.args:
        case [cst.Arg(value=function, keyword=None, star=""), cst.Arg(keyword=None, star="")]:
            return called(call) == "reduce" and bool(lazily(cst.Call(function), made))
    return False


def _adds_up(loop: cst.For, made: dict[str, str]) -> bool:
    """Whether a loop is `for item in items: total = combine(total, item)`."""
    match loop:
        case cst.For(
            target=cst.Name(value=item),
            body=cst.IndentedBlock(
                body=[
                    cst.SimpleStatementLine(
                        body=[
                            cst.Assign(
                                targets=[cst.AssignTarget(target=cst.Name(value=total))],
                                value=cst.Call(
                                    args=[cst.Arg(value=cst.Name(value=first)), cst.Arg(value=cst.Name(value=second))]
                                ) as call,
                            )
                        ]
                    )
                ]
            ),
            orelse=None,
        ):
            return (first, second) == (total, item) and bool(lazily(call, made))
    return False


def _in_pairs(source: Source, chain: cst.Call | cst.For) -> Patched:
    pairs = source.unused("pairs")
    if isinstance(chain, cst.Call):
        statement = source.statement(chain)
        if not isinstance(statement, cst.SimpleStatementLine):
            raise Refused("the call of `reduce` is not on a line of its own")
        function, items = (source.text(each.value) for each in chain.args)
        text = PAIRS.format(pairs=pairs, items=f"list({items})", reduce=source.text(chain.func), function=function)
        first = source.expression(f"{pairs}[0]")
        edited = source.edited({chain: becomes(first), statement: before(*source.statements(text))})
        return Patched(edited.module, WHAT)
    call = next(each for each in source.all(cst.Call, chain.body))
    total, function = source.text(call.args[0].value), source.text(call.func)
    items = f"[{total}, *{source.text(chain.iter)}]"
    text = PAIRS.format(pairs=pairs, items=items, reduce="functools.reduce", function=function)
    lines = [*source.statements(f"{text}{total} = {pairs}[0]\n")]
    lines[0] = lines[0].with_changes(leading_lines=chain.leading_lines)
    edited = source.edited({chain: lambda _: cst.FlattenSentinel(lines)})
    return Patched(edited.importing("functools"), WHAT)
