"""Faults on purpose: the values of the axis `fault`."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from scalescope.errors import InvalidField

NONE = "none"
"""The value of the axis at which nothing is broken."""
AFTER_S, LASTS_S = 1.0, 3.0
"""Seconds after the begin of the workload's call, unless the value says so; seconds that what passes lasts."""

KINDS = ("kill-worker", "pause-worker", "steal-cpu")
NOT_POSSIBLE = {
    "delay-network": "the network between hosts belongs to root",
    "fill-disk": "the disk is not the trial's alone",
    "kill-scheduler": "Dask's scheduler keeps nothing: there is no recovery to measure, and the trial ends",
}
"""What people ask for as well, and why it cannot be had."""

_FORM = re.compile(r"([a-z-]+)(?:@(\d+(?:\.\d+)?))?")


@dataclass(frozen=True)
class Fault:
    """What is broken, and when.

    Attributes:
        kind: One of `KINDS`.
        after_s: Seconds after the begin of the workload's call.
    """

    kind: str
    after_s: float = AFTER_S


def parse(where: str, value: object, allowed: Collection[str], cluster: str) -> Fault | None:
    """Read a value of the axis, such as `kill-worker` or `kill-worker@2.5`; None is `none`.

    Args:
        where: Name of the field in errors.
        value: As it was given.
        allowed: Kinds that the cluster can have.
        cluster: Its kind, for errors.

    Raises:
        InvalidField: There is no such fault, or not on this cluster.
    """
    match = _FORM.fullmatch(value) if isinstance(value, str) else None
    kind = match[1] if match else ""
    if value == NONE:
        return None
    if kind in NOT_POSSIBLE:
        raise InvalidField(where, value, f"one of {', '.join((NONE, *KINDS))}; {NOT_POSSIBLE[kind]}")
    if match is None or kind not in KINDS:
        raise InvalidField(where, value, f"one of {', '.join((NONE, *KINDS))}, or as kill-worker@2.5 with the seconds")
    if kind not in allowed:
        raise InvalidField(
            where, value, f"none: on a {cluster} cluster nothing can be broken", next_step="use the cluster `local`"
        )
    return Fault(kind, float(match[2]) if match[2] else AFTER_S)
