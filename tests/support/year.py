"""Nights without Dask: noise with known changes goes through the judgement of a night, and what it tells is kept."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from scalescope.model.study import Study
from scalescope.nightly import whole_suite
from scalescope.nightly.changes import EFFECT, Floats
from scalescope.nightly.night_record import (
    Alert,
    ChangeOutcome,
    Culprit,
    Judged,
    Measured,
    Night,
    NightlySeries,
    NightRecord,
    SoftwareLock,
    TrackRecord,
)
from scalescope.nightly.parameters import NightlyParameters
from scalescope.nightly.reruns import Reruns
from scalescope.nightly.series import candidates
from scalescope.run.runner import Runner
from scalescope.studies.comparison.judge import ComparisonQuestion, PairedComparison, further, judge
from scalescope.workloads.suite import CONTROLS

HISTORY = 90  # nights that are looked at again
LOCK_NIGHTS = 3  # nights after which some package that changes nothing has a new release


def rerun(rng: np.random.Generator, ratio: float) -> PairedComparison:
    """A paired rerun of two environments: of the noise of a trial, both share 4.5 %, and 2.2 % is its own."""
    question, pairs = ComparisonQuestion(), list[tuple[float, float]]()
    while more := further(question, pairs):
        for _ in range(more):
            shared, a, b = rng.normal(0, (0.045, 0.022, 0.022))
            pairs.append((float(np.exp(shared + a)), float(ratio * np.exp(shared + b))))
    return judge(question, pairs)


@cache
def _named(series: int, controls: int, hardware: str) -> list[NightlySeries]:
    names = [*(f"workload-{i}" for i in range(series)), *CONTROLS[:controls]]
    return [NightlySeries(name, 1, {"workers": 4}, {"kind": "local"}, hardware, "makespan_s") for name in names]


@dataclass(frozen=True)
class Event:
    """What changes some series, from its first night to before its last; without a release it is the machine."""

    first: int
    factors: Floats  # one per series
    release: str = ""
    last: int = 10_000
    controls: float = 1.0  # factor on the controls

    def holds(self, night: int) -> bool:
        return self.first <= night < self.last


@dataclass(frozen=True)
class Told:
    night: int
    what: str  # `alert`, `suite`, or an outcome without an alert
    cause: str  # the release, if it is right
    series: int = 1  # number of them


@dataclass(frozen=True)
class _Simulated(Reruns):
    """Reruns of which the true ratio is known."""

    year: Year
    at: int  # tonight

    def _compare(self, of: Any, good: str) -> Any:
        found = rerun(self.year.rng, self.year.true(of, self.at))
        return SimpleNamespace(result=found.to_mapping(), line=found.line, study_id="rerun")


@dataclass
class Year:
    """A suite with the given noise (a row per night, a column per series), night by night."""

    noise: Floats
    controls: Floats  # noise of the controls, the same number of rows
    events: Sequence[Event]
    missing: Collection[int] = ()
    muted: Collection[tuple[int, int]] = ()  # night and series that are not looked into
    moved: int = 10_000  # night from which there is other hardware
    seed: int = 0
    past: list[Night] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)

    def run(self) -> Year:
        self.rng = np.random.default_rng(self.seed)
        for night in range(len(self.noise)):
            if night not in self.missing:
                self._night(night)
        return self

    @property
    def track(self) -> TrackRecord:
        return TrackRecord.of([night.record for night in self.past])

    def count(self, what: str) -> int:
        return sum(each.what == what for each in self.told)

    @property
    def false(self) -> list[Told]:
        return [each for each in self.told if each.what in ("alert", "suite") and not each.cause]

    def first(self, release: str, what: str = "alert") -> int | None:
        """Nights until a release was told, counted from 0; None if it never was."""
        [event] = [each for each in self.events if each.release == release]
        nights = [each.night for each in self.told if each.what == what and each.cause == release]
        return min(nights) - event.first if nights else None

    def _series(self, night: int) -> list[NightlySeries]:
        return _named(self.noise.shape[1], self.controls.shape[1], f"hardware {int(night >= self.moved)}")

    def _factors(self, night: int, *, release: bool) -> Floats:
        """What the software, or the machine, makes of each series."""
        factors = np.ones(self.noise.shape[1])
        for event in self.events:
            if event.holds(night) and bool(event.release) is release:
                factors = factors * event.factors
        return factors

    def _measure(self, night: int) -> NightRecord:
        values = np.exp(self.noise[night]) * self._factors(night, release=True) * self._factors(night, release=False)
        machine = math.prod(event.controls for event in self.events if event.holds(night))
        both = [*values, *(np.exp(self.controls[night]) * machine)]
        pins = {each.release: str(1 + each.holds(night)) for each in self.events if each.release}
        lock = SoftwareLock(pins={"python": "3.11", "other": str(night // LOCK_NIGHTS), **pins})
        measured = [Measured(one, float(value), 3) for one, value in zip(self._series(night), both, strict=True)]
        return NightRecord(lock, tuple(measured))

    def _night(self, night: int) -> None:
        record, past = self._measure(night), self.past[-HISTORY:]
        places = {each.id: place for place, each in enumerate(self._series(night))}
        found = candidates(record, past, EFFECT)
        record = replace(record, changed=tuple(each.series.id for each in found))
        again = _Simulated(NightlyParameters(), "", record.lock, "", Runner(), math.inf, self, night)
        for each in sorted(found, key=lambda each: not each.worse):
            if not each.answered and (night, places[each.series.id]) not in self.muted:
                record = replace(record, judged=(*record.judged, again.judge(each)))
        for judged in record.judged:
            if judged.outcome is not ChangeOutcome.CONFIRMED:
                self.told.append(Told(night, str(judged.outcome), ""))
        record = replace(record, alerts=tuple(self._alerts(night, places, record.judged)))
        for suite in whole_suite.judge(record, past):
            record = replace(record, judged=(*record.judged, suite.judged))
            what = str(suite.judged.outcome)
            self.told.append(Told(night, f"suite {what}" if what != "suite" else what, self._suite_cause(night, suite)))
        self.past.append(Night(Study(f"{night}", "nightly", {}), record))

    def true(self, changed: Any, night: int) -> float:
        """What the software makes of a series tonight, against its last good night."""
        name = changed.series.workload
        if name in CONTROLS:
            return 1.0
        now, then = (self._factors(each, release=True) for each in (night, int(changed.good.id)))
        return float((now / then)[int(name.split("-")[1])])

    def _cause(self, place: int, good: str, night: int) -> str:
        """The release that brought a change of a series between two nights, or nothing."""
        between = [each for each in self.events if each.release and each.holds(night) and not each.holds(int(good))]
        return next((each.release for each in between if each.factors[place] > 1), "")

    def _alerts(self, night: int, places: dict[str, int], every: Sequence[Judged]) -> list[Alert]:
        groups: dict[str, list[Judged]] = {}
        for each in every:
            if each.outcome is ChangeOutcome.CONFIRMED:
                cause = self._cause(places[each.series.id], each.good, night)
                groups.setdefault(cause or f"nothing {each.series.id} {night}", []).append(each)
        new = []
        for cause, changes in groups.items():
            known = [i for i, other in enumerate(self.past) if any(each.id == cause for each in other.record.alerts)]
            alert = Alert(cause, str(night), Culprit(cause), tuple(changes), "")
            if known:
                self._extend(known[0], cause, changes)
            else:
                new.append(alert)
                self.told.append(Told(night, "alert", "" if cause.startswith("nothing") else cause, len(changes)))
        return new

    def _extend(self, place: int, cause: str, changes: Sequence[Judged]) -> None:
        night = self.past[place]
        alerts = [
            replace(each, changes=(*each.changes, *changes)) if each.id == cause else each
            for each in night.record.alerts
        ]
        self.past[place] = replace(night, record=replace(night.record, alerts=tuple(alerts)))

    def _suite_cause(self, night: int, found: whole_suite.SuiteChange) -> str:
        """The release that made most series slower within a few nights of the change."""
        good = int(found.good.id)
        return next(
            (
                each.release
                for each in self.events
                if each.release and good - 5 <= each.first <= night and float(np.mean(each.factors > 1)) > 0.5
            ),
            "",
        )
