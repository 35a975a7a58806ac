"""Makes an adaptive cluster keep idle workers: `minimum=` of `cluster.adapt` becomes as large as its `maximum=`."""

from __future__ import annotations

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
    with_argument,
)


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    calls = [each for each in source.all(cst.Call) if called(each) == "adapt"]
    return answer(_kept, source, source.nearest(calls, None), "the module has no call of `adapt`, or several")


def _kept(source: Source, call: cst.Call) -> Patched:
    most = argument(call, "maximum")
    if most is None or any(each.keyword is None for each in call.args):
        raise Refused("`adapt` has no `maximum=`, or has arguments without a name")
    text = f"minimum={source.text(most.value)}"
    return Patched(source.edited({call: becomes(with_argument(source, call, text))}).module, "idle workers are kept")
