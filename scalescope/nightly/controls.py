"""Recognises changes of the machine without a rerun, by control workloads: no package changes their tasks' code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, log1p, sqrt

import numpy as np

from scalescope.model.words import change
from scalescope.nightly.changes import MAD, WINDOW
from scalescope.nightly.night_record import Measured, Night, NightlySeries, NightRecord
from scalescope.workloads.suite import CONTROLS

METRIC = "work_s"  # metric of controls, whatever metric the night compares: the time inside tasks
CLEAR = 2.0  # smallest move of a control that counts, in scaled median absolute deviations / sqrt(new nights)


@dataclass(frozen=True)
class ControlMove:
    """The move of a control workload over the nights in which another series changed."""

    series: NightlySeries
    step: float  # logarithm of after / before

    @property
    def ratio(self) -> float:
        return exp(self.step)

    @property
    def words(self) -> str:
        return f"the work of {self.series.name}, whose code never changes, is {change(self.ratio)} over the same nights"


def is_control(series: NightlySeries) -> bool:
    return series.workload in CONTROLS


def explaining(
    tonight: NightRecord,
    moved: NightlySeries,
    effect: float,
    smallest: float,
    before: Sequence[Night],
    since: Sequence[Night],
) -> ControlMove | None:
    """Of the controls that explain a series' change but for a share of at most `smallest`, the one that moved most.

    `effect` is the logarithm of the change, positive if worse; `before` and `since` are the nights before and since it,
    without tonight. A control counts if it ran on the same hardware and kind of cluster and moved clearly, by at least
    half of `smallest`.
    """
    same = [each for each in tonight.measured if is_control(each.series) and _place(each.series) == _place(moved)]
    moves = [
        ControlMove(each.series, step) for each in same if (step := _step(tonight, each, before, since)) is not None
    ]
    limit = log1p(smallest)
    alike = [each for each in moves if each.step * effect > 0 and abs(each.step) >= max(abs(effect) - limit, limit / 2)]
    return max(alike, key=lambda each: abs(each.step), default=None)


def _step(tonight: NightRecord, control: Measured, before: Sequence[Night], since: Sequence[Night]) -> float | None:
    """Size of a control's move, as a logarithm; None if it is within its scatter or unknown."""
    python = tonight.lock.pins.get("python")

    def logs(nights: Sequence[Night]) -> list[float]:
        same = [night.record for night in nights if night.record.lock.pins.get("python") == python]
        found = [record.by_series.get(control.series.id) for record in same]
        return [log(each.value) for each in found if each and each.value > 0]

    old = logs(before[-WINDOW:])
    if not old or control.value <= 0:
        return None
    middle = float(np.median(old))
    new = [*logs(since), log(control.value)]
    step = float(np.median(new)) - middle
    scatter = MAD * float(np.median(np.abs(np.array(old) - middle)))
    return step if abs(step) > CLEAR * scatter / sqrt(len(new)) else None


def _place(series: NightlySeries) -> tuple[str, str]:
    return str(series.cluster["kind"]), series.hardware
