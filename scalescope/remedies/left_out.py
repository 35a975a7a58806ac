"""Arguments that are better left out: joblib's `pre_dispatch`, and `scheduler` of a computation beside a cluster."""

from __future__ import annotations

from functools import partial

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import Answer, Patched, Source, answer, argument, becomes, called


def pre_dispatch(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    return _rewrite(module, place, ("Parallel",), "pre_dispatch", "joblib sends more calls at once")


def scheduler(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    return _rewrite(module, place, ("compute", "persist"), "scheduler", "the cluster computes")


def _rewrite(module: cst.Module, place: Place | None, calls: tuple[str, ...], name: str, what: str) -> Answer:
    source = Source(module)
    found = [each for each in source.all(cst.Call) if called(each) in calls and argument(each, name)]
    return answer(partial(_left_out, name, what), source, source.nearest(found, place), f"no `{name}=` stands there")


def _left_out(name: str, what: str, source: Source, call: cst.Call) -> Patched:
    kept = [each for each in call.args if each is not argument(call, name)]
    if kept:
        kept[-1] = kept[-1].with_changes(comma=call.args[-1].comma)
    return Patched(source.edited({call: becomes(call.with_changes(args=kept))}).module, what)
