"""Finds changes of the suite as a whole: many small moves in one direction that no series shows by itself.

All series of a night share its machine, so one night is one observation. Each series is divided by its own median; the
median of these ratios over all series is the level of the suite in a night. Change points of these levels are found as
in a series, with a smaller effect, but with a larger normal deviate because nothing is rerun.
`python -m evidence year` measures how often the found changes are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log1p
from statistics import NormalDist

import numpy as np

from scalescope.analysis.culprits import changed_packages
from scalescope.model.words import change
from scalescope.nightly.changes import LEAST, WINDOW, Change, Floats, find_changes
from scalescope.nightly.controls import explaining, is_control
from scalescope.nightly.night_record import ChangeOutcome, Judged, Night, NightlySeries, NightRecord
from scalescope.nightly.series import SETTLED, answered, since_baseline
from scalescope.studies.symptom import LARGER_IS_BETTER

NAME = "the suite"
NIGHTS = WINDOW + SETTLED  # nights that are examined
LATELY = 14  # number of latest nights in which a change counts as new; small changes take long to show
FEWEST = 8  # fewest series of a suite: with fewer, a single series could move the median
EFFECT = 0.01  # smallest change of the suite that is reported, as a share
DEVIATE = 4.0  # smallest normal deviate that is reported; a lower one gives more false alarms on noisy machines


@dataclass(frozen=True)
class SuiteLevels:
    """The suite in each night, on one kind of cluster and hardware."""

    series: NightlySeries  # series that represents the suite
    members: tuple[NightlySeries, ...]
    nights: tuple[Night, ...]  # nights of the rows of `logs`; the last row is tonight, which is not in here
    logs: Floats  # a row per night, a column per member, relative to the member's median; nan if not measured

    @property
    def levels(self) -> list[float]:
        """The level of the suite in each night (row); 1 is the median night."""
        found: list[float] = np.exp(np.nanmedian(self.logs, axis=1)).tolist()
        return found

    @property
    def changes(self) -> list[Change]:
        found = find_changes(self.levels, EFFECT)
        return [each for each in found if each.deviate >= DEVIATE and abs(each.relative) >= EFFECT]

    def lasts(self, last: Change) -> bool:
        """Whether the latest nights still show at least half of a change, so that it is not just a few slow nights."""
        step, now = log(last.after / last.before), log(float(np.median(self.levels[-LEAST:])) / last.before)
        return now * step > 0 and abs(now) >= abs(step) / 2

    def steps(self, index: int) -> Floats:
        """The change of each member between the nights before row `index` and those from it on, as a logarithm."""
        before, after = self.logs[max(0, index - WINDOW) : index], self.logs[index:]
        return np.asarray(np.nanmedian(after, axis=0) - np.nanmedian(before, axis=0))


@dataclass(frozen=True)
class SuiteChange:
    """A change of the suite that has not been reported before."""

    judged: Judged
    largest: NightlySeries  # the member that moved furthest in the same direction
    good: Night  # the last night before the change
    changed: str  # packages that changed in the same night


def is_suite(series: NightlySeries) -> bool:
    return series.workload == NAME


def suites(tonight: NightRecord, past: Sequence[Night]) -> list[SuiteLevels]:
    """The suite on each kind of cluster and hardware, over the last `NIGHTS` nights; without controls.

    A series counts only from its last confirmed change on, because that change has been reported.
    """
    recent = past[-NIGHTS + 1 :]
    told = {
        each.series.id for each in tonight.judged if each.outcome in (ChangeOutcome.CONFIRMED, ChangeOutcome.FASTER)
    }
    groups: dict[tuple[str, str, str], list[tuple[NightlySeries, Floats]]] = {}
    for each in tonight.measured:
        if is_control(each.series) or each.series.id in told:
            continue
        values = {
            night.id: measured.value for night, measured in since_baseline(each.series, recent, tonight.decisions)
        }
        column = np.array([*(values.get(night.id, 0.0) for night in recent), each.value])
        if each.value > 0 and (column > 0).sum() >= SETTLED:
            logs = np.log(np.where(column > 0, column, np.nan))
            place = (str(each.series.cluster["kind"]), each.series.hardware, each.series.metric)
            groups.setdefault(place, []).append((each.series, logs - np.nanmedian(logs)))
    return [_levels(*place, recent, columns) for place, columns in groups.items() if len(columns) >= FEWEST]


def _levels(
    kind: str, hardware: str, metric: str, nights: Sequence[Night], columns: Sequence[tuple[NightlySeries, Floats]]
) -> SuiteLevels:
    logs = np.column_stack([column for _, column in columns])
    whole = 2 * np.isfinite(logs).sum(axis=1) >= len(columns)  # nights that measured at least half of the members
    return SuiteLevels(
        NightlySeries(NAME, 1, {}, {"kind": kind}, hardware, metric),
        tuple(series for series, _ in columns),
        tuple(night for night, kept in zip(nights, whole, strict=False) if kept),
        logs[whole],
    )


def judge(tonight: NightRecord, past: Sequence[Night]) -> list[SuiteChange]:
    """Changes of the suite that began in the last `LATELY` nights, still hold, and have not been judged."""
    found = []
    for suite in suites(tonight, past):
        changes = suite.changes
        if not changes or len(suite.logs) - changes[-1].index > LATELY or not suite.lasts(changes[-1]):
            continue
        if not answered(suite.series, suite.nights[changes[-1].index :]):
            begin = changes[-2].index if len(changes) > 1 else 0
            found.append(_judged(tonight, suite, begin, changes[-1]))
    return found


def _judged(tonight: NightRecord, suite: SuiteLevels, begin: int, last: Change) -> SuiteChange:
    before, since = suite.nights[begin : last.index], suite.nights[last.index :]
    good, first = before[-1].record.lock.pins, since[0].record.lock.pins
    changed = ", ".join(map(str, changed_packages(good, first) or changed_packages(good, tonight.lock.pins)))
    worse = last.worse(larger_is_better=suite.series.metric in LARGER_IS_BETTER)
    sign, steps = (1 if last.after > last.before else -1), suite.steps(last.index)
    effect = abs(log1p(last.relative)) * (1 if worse else -1)
    control = explaining(tonight, suite.series, effect, EFFECT / 2, before, since)
    # corrected for the number of nights at which a change could begin
    p = min(1.0, (LATELY - LEAST + 1) * 2 * NormalDist().cdf(-last.deviate))
    words = (
        f"{suite.series.metric} of the whole suite is {change(1 + last.relative)} since {since[0].id} (p = {p:.1g}); "
        f"{(steps * sign > 0).sum()} of {len(steps)} series moved in this direction."
    )
    if good == tonight.lock.pins:
        outcome, words = ChangeOutcome.MACHINE, f"{words} The software is the same: look at the machine."
    elif control:
        outcome, words = ChangeOutcome.MACHINE, f"{words} The machine changed: {control.words}."
    else:
        outcome, words = ChangeOutcome.SUITE if worse else ChangeOutcome.FASTER, f"{words} Changed then: {changed}."
    judged = Judged(
        suite.series,
        before[-1].id,
        last.before,
        last.after,
        outcome,
        words,
        ratio=1 + last.relative,
        low=1 + last.low,
        high=1 + last.high,
        since=changed if outcome is ChangeOutcome.FASTER else "",
        control=control.ratio if control else None,
    )
    return SuiteChange(judged, suite.members[int(np.argmax(steps * sign))], before[-1], changed)
