"""Leaves out an argument (`workers`, `pre_dispatch`, `backend`, `require`, `scheduler`), a wait or a restart."""

from __future__ import annotations

from functools import partial

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    Answer,
    Patched,
    Refused,
    Source,
    answer,
    argument,
    becomes,
    called,
    dotted,
    is_sent,
)

TAKE = ("submit", "map", "compute", "persist", "gather")  # calls that take `workers=`


def workers(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    names = ("workers", "allow_other_workers")
    return _rewrite(module, place, TAKE, names, "any worker may run the tasks", "no single call has")


def pre_dispatch(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    return _rewrite(module, place, ("Parallel",), ("pre_dispatch",), "joblib sends more calls at once")


def scheduler(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    found = _rewrite(module, place, ("compute", "persist"), ("scheduler",), "the cluster computes")
    return found if isinstance(found, Patched) else _configured(module)


def _configured(module: cst.Module) -> Answer:
    """Leave out `dask.config.set(scheduler=...)`; there must be exactly one."""
    source = Source(module)
    calls = [each for each in source.all(cst.Call) if dotted(each.func).endswith("config.set")]

    def without(source: Source, call: cst.Call) -> Patched:
        line = source.parent(source.parent(call))
        if len(call.args) == 1 and isinstance(line, cst.SimpleStatementLine):
            return Patched(source.edited({line: lambda _: cst.RemoveFromParent()}).module, "the cluster computes")
        return _left_out(("scheduler",), "the cluster computes", source, call)

    chosen = [each for each in calls if argument(each, "scheduler")]
    otherwise = "none or several calls of `dask.config.set` have `scheduler=`"
    return answer(without, source, source.nearest(chosen, None), otherwise)


def backend(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    found = _rewrite(module, place, ("Parallel",), ("backend", "require"), "joblib computes on the cluster")
    if isinstance(found, Patched):
        return found
    return _rewrite(module, place, ("Parallel",), ("require",), "joblib computes on the cluster")


def restart(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    lines = source.at(cst.SimpleStatementLine, place)
    return answer(_without_restart, source, lines, "nothing restarts workers at that line")


def _without_restart(source: Source, line: cst.SimpleStatementLine) -> Patched:
    in_loop = any(isinstance(each, cst.For | cst.While) for each in source.ancestors(line))
    match line.body:
        case [cst.Expr(value=cst.Call(args=[]) as call)] if called(call) == "restart" and in_loop:
            edited = source.edited({line: lambda _: cst.RemoveFromParent()})
            return Patched(edited.module, "workers keep running from round to round")
    raise Refused("no loop restarts workers at that line")


def wait(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    lines = [each for each in source.all(cst.SimpleStatementLine) if _waited(each) and source.is_at(each, place)]
    return answer(_without_wait, source, lines, "no line there only waits for futures")


def _without_wait(source: Source, line: cst.SimpleStatementLine) -> Patched:
    name, end = _waited(line), source.lines(line)[1]
    uses = [each for each in source.names(name, source.function(line)) if source.lines(each)[0] > end]
    if not any(is_sent(source, each, ("map", "submit")) for each in uses):
        raise Refused(f"no later task takes `{name}`: later code may need files that its tasks wrote")
    return Patched(source.edited({line: lambda _: cst.RemoveFromParent()}).module, "tasks begin as their inputs arrive")


def _waited(line: cst.SimpleStatementLine) -> str:
    """The variable in a line that only waits for futures, such as `wait(futures)`; empty for other lines."""
    match line.body:
        case [cst.Expr(value=cst.Call(args=[cst.Arg(value=cst.Name(value=name)), *_]) as call)]:
            return name if called(call) in ("wait", "progress") else ""
    return ""


def _rewrite(
    module: cst.Module,
    place: Place | None,
    calls: tuple[str, ...],
    names: tuple[str, ...],  # arguments to remove from calls that have the first one
    what: str,
    otherwise: str = "no call there has",
) -> Answer:
    source = Source(module)
    found = [each for each in source.all(cst.Call) if called(each) in calls and argument(each, names[0])]
    return answer(partial(_left_out, names, what), source, source.nearest(found, place), f"{otherwise} `{names[0]}=`")


def _left_out(names: tuple[str, ...], what: str, source: Source, call: cst.Call) -> Patched:
    if "workers" in names and argument(call, "resources"):
        raise Refused("the call asks for resources, too")
    kept = [each for each in call.args if not (each.keyword and each.keyword.value in names)]
    if kept:
        kept[-1] = kept[-1].with_changes(comma=call.args[-1].comma)
    return Patched(source.edited({call: becomes(call.with_changes(args=kept))}).module, what)
