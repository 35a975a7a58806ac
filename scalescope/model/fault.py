"""Faults on purpose: the values of the axis `fault`."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from scalescope.errors import InvalidField

NONE = "none"  # the value of the axis at which nothing is broken
# Default seconds from the start of the workload's call to the fault; seconds for which temporary faults last
AFTER_S, LASTS_S = 1.0, 3.0
KINDS = ("kill-worker", "pause-worker", "steal-cpu")
# Faults that people ask for but that do not exist, and the reason
NOT_POSSIBLE = {
    "delay-network": "only root can slow down the network between hosts",
    "fill-disk": "other programs use the same disk",
    "kill-scheduler": "Dask's scheduler saves no state: the trial would end, and there is no recovery to measure",
}

_FORM = re.compile(r"([a-z-]+)(?:@(\d+(?:\.\d+)?))?")


@dataclass(frozen=True)
class Fault:
    """A fault on purpose, and its time."""

    kind: str  # one of `KINDS`
    after_s: float = AFTER_S  # seconds after the start of the workload's call


def parse(where: str, value: object, allowed: Collection[str], cluster: str) -> Fault | None:
    """Read a value of the axis, such as `kill-worker@2.5`, on a cluster with `allowed` faults; None for `none`."""
    match = _FORM.fullmatch(value) if isinstance(value, str) else None
    kind = match[1] if match else ""
    if value == NONE:
        return None
    if kind in NOT_POSSIBLE:
        why = f"`{kind}` is not possible: {NOT_POSSIBLE[kind]}"
        raise InvalidField(where, value, f"one of {', '.join((NONE, *KINDS))}", next_step=why)
    if match is None or kind not in KINDS:
        raise InvalidField(where, value, f"one of {', '.join((NONE, *KINDS))}; seconds may follow, as kill-worker@2.5")
    if kind not in allowed:
        raise InvalidField(
            where, value, f"none: a {cluster} cluster supports no faults", next_step="use the cluster `local`"
        )
    return Fault(kind, float(match[2]) if match[2] else AFTER_S)
