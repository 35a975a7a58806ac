"""Files that `xarray.open_mfdataset` opens one after another in the client: `parallel=True` opens them in tasks."""

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
    dotted,
    with_argument,
)


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    """Change the call at the place, or the call whose `preprocess=` function is there."""
    source = Source(module)
    calls = [each for each in source.all(cst.Call) if called(each) == "open_mfdataset"]
    around = {each.name.value for each in source.at(cst.FunctionDef, place)}
    near = source.nearest(calls, place) or [
        each for each in calls if (given := argument(each, "preprocess")) and dotted(given.value) in around
    ]
    return answer(_parallel, source, near, "no `open_mfdataset` was found near that line")


def _parallel(source: Source, call: cst.Call) -> Patched:
    if argument(call, "parallel"):
        raise Refused("the call has `parallel=` already")
    changed = with_argument(source, call, "parallel=True")
    return Patched(source.edited({call: becomes(changed)}).module, "files are opened in tasks", "others")
