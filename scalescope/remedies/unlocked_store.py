"""Sets `lock=False` in calls of `store` whose targets allow several writers; with True, chunks are written in turn."""

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
    binding,
    called,
    dotted,
    with_argument,
)

# These make arrays in memory or in a mapped file, where each byte can be written alone; in Zarr, only whole chunks can.
BYTES = ("np.empty", "np.zeros", "np.ones", "np.full", "np.memmap", "np.lib.format.open_memmap")


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    calls = [each for each in source.all(cst.Call) if called(each) == "store"]
    near = source.nearest(calls, place) or (calls if len(calls) == 1 else [])  # the place may be in a task
    return answer(_unlocked, source, near, "no call of `store` was found near that line")


def _unlocked(source: Source, call: cst.Call) -> Patched:
    lock = argument(call, "lock")
    if lock is not None and dotted(lock.value) != "True":
        raise Refused("the `lock=` of `store` is not `True`")
    is_function = isinstance(call.func, cst.Attribute) and dotted(call.func.value) in ("da", "dask.array")
    positional = [each.value for each in call.args if each.keyword is None]
    target = positional[1 if is_function else 0] if len(positional) > is_function else None
    if not isinstance(target, cst.Name):
        raise Refused("the target is not a variable")
    made = binding(source, target.value, source.function(call)) or binding(source, target.value, source.module)
    if not isinstance(made, cst.Call) or dotted(made.func).replace("numpy.", "np.") not in BYTES:
        raise Refused(f"`{target.value}` may not support several writers at once")
    changed = with_argument(source, call, "lock=False")
    return Patched(source.edited({call: becomes(changed)}).module, "chunks are written at the same time")
