"""The tables of what tasks did inside, as workers tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalescope.model.records import from_rows


def inside(seconds: Mapping[str, tuple[float, float]], stacks: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Seconds on a core and off it by prefix, and samples by stack of the first of them; an empty one is the rest."""
    fine = [
        {"context": "execute", "prefix": prefix, "activity": activity, "unit": "seconds", "value": value}
        for prefix, pair in seconds.items()
        for activity, value in zip(("thread-cpu", "thread-noncpu"), pair, strict=True)
    ]
    first = next(iter(seconds), "")
    rows = [{"prefix": first, "stack": stack, "samples": samples} for stack, samples in (stacks or {}).items()]
    return {"fine_metrics": from_rows("fine_metrics", fine), "inside": from_rows("inside", rows)}
