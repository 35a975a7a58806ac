"""`workers=` of a call: it is taken away, so that any worker may run the tasks."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import Answer, Patched, Refused, Source, answer, argument, becomes, called

CALLS = ("submit", "map", "compute", "persist", "gather")


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    calls = [each for each in source.all(cst.Call) if called(each) in CALLS and argument(each, "workers")]
    return answer(_removed, source, source.nearest(calls, place), "it is not one call that has `workers=`")


def _removed(source: Source, call: cst.Call) -> Patched:
    if argument(call, "resources"):
        raise Refused("the call asks for resources, too")
    args = [
        each for each in call.args if not (each.keyword and each.keyword.value in ("workers", "allow_other_workers"))
    ]
    if args and not isinstance(call.args[-1].comma, cst.Comma):
        args[-1] = args[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return Patched(source.edited({call: becomes(call.with_changes(args=args))}).module, "any worker may run the tasks")
