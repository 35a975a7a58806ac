"""`pre_dispatch` of joblib, which sends only so many calls at a time: left out, joblib sends enough for all workers."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import Answer, Patched, Source, answer, argument, becomes, called


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    calls = [each for each in source.all(cst.Call) if called(each) == "Parallel" and argument(each, "pre_dispatch")]
    return answer(_left_out, source, source.nearest(calls, place), "no `pre_dispatch` of joblib stands at that line")


def _left_out(source: Source, call: cst.Call) -> Patched:
    kept = [each for each in call.args if each is not argument(call, "pre_dispatch")]
    if kept:
        kept[-1] = kept[-1].with_changes(comma=call.args[-1].comma)
    return Patched(
        source.edited({call: becomes(call.with_changes(args=kept))}).module, "joblib sends more calls at once"
    )
