"""The stored result of a night, which is a study of kind `nightly`; it grows while the night runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from math import log
from typing import Any

from scalescope.analysis.summary import label
from scalescope.model import words
from scalescope.model.decision import Decision
from scalescope.model.environment import requirement
from scalescope.model.mapping import Mapped
from scalescope.model.metrics import METRICS, Unit
from scalescope.model.study import Study
from scalescope.model.sweep import Point, digest
from scalescope.model.words import plural
from scalescope.run import run_names
from scalescope.store.store import Store

MANY = 10_000  # most nights that are read: 27 years
# how to write a value, by unit; other units are names of counted things
_WRITTEN: Mapping[Unit, Callable[[float], str]] = {
    Unit.SECONDS: words.duration,
    Unit.BYTES: words.size,
    Unit.SHARE: lambda value: f"{100 * value:.3g} %",
}
TRACKED = 90  # nights that a track record covers


class AlertState(StrEnum):
    """State of an alert, set by a person or a later night."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    ACCEPTED = "accepted"
    FALSE = "false"
    RESOLVED = "resolved"


class ChangeOutcome(StrEnum):
    """Result of examining a change."""

    CONFIRMED = "confirmed"  # the rerun is slower, too
    REFUTED = "refuted"  # the rerun is not slower: the machine was different that night
    MACHINE = "machine"  # both nights had the same software, so only the machine can have changed
    UNDECIDED = "undecided"
    UNTESTABLE = "untestable"  # the rerun could not be made
    FASTER = "faster"  # an improvement: the rerun is faster, too
    WAITING = "waiting"  # no time was left for a rerun; the next night continues
    SUITE = "suite"  # the suite as a whole is slower; nothing is rerun


@dataclass(frozen=True)
class SoftwareLock(Mapped):
    """The software of a night."""

    text: str = ""  # environment of the trials, as a user would write it; empty: the present one
    pins: Mapping[str, str] = field(default_factory=dict)  # version of Python and of each package, by normalised name

    @property
    def pinned(self) -> str:
        """An environment with exactly these packages. Scalescope is not one of them, as no trial needs it."""
        return " ".join(requirement(name, version) for name, version in self.pins.items())


@dataclass(frozen=True)
class NightlySeries(Mapped):
    """The identity of a series. Values of different series are never compared."""

    workload: str
    version: int
    point: Mapping[str, Any]  # all values of axes except the environment
    cluster: Mapping[str, Any]
    hardware: str  # the scheduler's machine, and the workers' node types where known
    metric: str

    @cached_property
    def id(self) -> str:
        return digest(self.to_mapping())

    @property
    def name(self) -> str:
        return run_names.workload(self.workload)

    @property
    def size(self) -> str:
        """`4 workers, 64 items`; empty for the suite as a whole."""
        return label(Point.from_mapping(self.point)) if self.point else ""

    @property
    def words(self) -> str:
        """`bag-map (4 workers, 64 items, local)`."""
        return f"{self.name} ({', '.join(filter(None, (self.size, self.cluster['kind'])))})"

    def written(self, value: float) -> str:
        """A value with its unit: `1.23 s`, `12.5 MiB`, `85.3 %`, `7 workers`."""
        unit = METRICS[self.metric].unit
        return _WRITTEN[unit](value) if unit in _WRITTEN else f"{words.number(value)} {unit}"


@dataclass(frozen=True)
class Measured(Mapped):
    """The measurement of a series in a night."""

    series: NightlySeries
    value: float  # median of the valid trials, in the unit of the metric
    trials: int  # number of valid trials
    host: Mapping[str, Any] = field(default_factory=dict)  # facts of the machine at the last trial, and `series.OTHERS`
    runs: tuple[str, ...] = ()  # ids of the runs


@dataclass(frozen=True)
class Judged(Mapped):
    """A change of a series that a night has examined."""

    series: NightlySeries
    good: str  # id of the last night before the change
    before: float  # level in the unit of the series
    after: float
    outcome: ChangeOutcome
    reason: str
    ratio: float | None = None  # in the rerun: value in tonight's environment / in the good night's; None without rerun
    low: float | None = None  # ends of the interval of `ratio`
    high: float | None = None
    study: str = ""  # id of the comparison study
    since: str = ""  # cause of an improvement; the cause of a regression is in its alert
    control: float | None = None  # factor by which a control moved, if that explains the change
    why: str = ""  # part of the rerun's time that grew most; empty if unknown

    @property
    def size(self) -> float:
        """Size of the change in the rerun, in either direction, as a logarithm; 0 without a rerun."""
        return abs(log(self.ratio)) if self.ratio else 0.0


@dataclass(frozen=True)
class Drift(Mapped):
    """A slow change of a series without a step. It is reported, and not rerun."""

    series: NightlySeries
    nights: int  # number of nights that the drift spans
    before: float  # value at the start of the fitted line, in the unit of the series
    after: float
    low: float  # ends of the 95 % interval of the change, as a share
    high: float


@dataclass(frozen=True)
class Culprit(Mapped):
    """The cause of a change."""

    line: str  # the cause in words, or why none was found
    package: str = ""  # normalised name of the package; empty if none was found
    good: str = ""  # last good release
    bad: str = ""  # first bad release
    changed: str = ""  # all differences between the two environments
    changelog: str = ""  # address of the changelog
    studies: tuple[str, ...] = ()  # ids of the `find-release` studies
    found: bool = True  # False if no cause was found; `line` then says why


@dataclass(frozen=True)
class Alert(Mapped):
    """One confirmed cause, with all series that it affects."""

    id: str  # identifies the cause: the same in all nights of a history
    night: str  # id of the night that raised it
    culprit: Culprit
    changes: tuple[Judged, ...]  # the largest first
    command: str  # command that shows the largest change again
    state: AlertState = AlertState.OPEN
    told: bool = False  # True once the orchestrator has the event
    script: str = ""  # script that shows the change without Scalescope; may be empty
    shown: str = ""  # last line of the script when it was run, or the reason why there is no script
    issue: str = ""  # address of the issue
    issue_says: str = ""  # digest of the state, cause and series that the issue shows

    @property
    def series(self) -> frozenset[str]:
        """Ids of the affected series."""
        return frozenset(each.series.id for each in self.changes)


@dataclass(frozen=True)
class TrackRecord(Mapped):
    """How often the nights of a history were right about changes."""

    nights: int = 0  # number of nights counted
    reruns: int = 0  # changes, for better or worse, that a rerun confirmed or refuted
    refuted: int = 0
    overlap: float | None = None  # mean share of changed series on which two successive nights agree (Jaccard 1901)

    @classmethod
    def of(cls, records: Sequence[NightRecord]) -> TrackRecord:
        """The track record of the last nights, given oldest first."""
        last = records[-TRACKED:]
        known = (ChangeOutcome.CONFIRMED, ChangeOutcome.FASTER, ChangeOutcome.REFUTED)
        outcomes = [each.outcome for record in last for each in record.judged if each.outcome in known]
        pairs = [(set(one.changed), set(other.changed)) for one, other in itertools.pairwise(last)]
        shares = [len(one & other) / len(one | other) for one, other in pairs if one | other]
        overlap = sum(shares) / len(shares) if shares else None
        return cls(len(last), len(outcomes), outcomes.count(ChangeOutcome.REFUTED), overlap)

    @property
    def words(self) -> str:
        refuted = f"Reruns refuted {self.refuted} of {plural(self.reruns, 'change')}"
        agreed = (
            ""
            if self.overlap is None
            else f"; consecutive nights had {100 * self.overlap:.0f} % of their changed series in common"
        )
        return f"{refuted}{agreed}, over {plural(self.nights, 'night')}."


@dataclass(frozen=True)
class NightRecord(Mapped):
    """The result of a night."""

    lock: SoftwareLock = field(default_factory=SoftwareLock)
    measured: tuple[Measured, ...] = ()
    judged: tuple[Judged, ...] = ()
    drifts: tuple[Drift, ...] = ()
    alerts: tuple[Alert, ...] = ()  # raised by this night
    standing: tuple[Alert, ...] = ()  # raised by earlier nights, and confirmed again by reruns of this one
    trials: Mapping[str, int] = field(default_factory=dict)  # planned trials, and trials by state; without warm-ups
    problems: tuple[str, ...] = ()  # failures to measure or to report, with their causes, in sentences
    ended_early: str = ""  # reason why the budget ended the night early; else empty
    decisions: tuple[Decision, ...] = ()  # people's decisions in force that night
    changed: tuple[str, ...] = ()  # ids of all series whose level has changed, rerun or not
    track: TrackRecord = field(default_factory=TrackRecord)  # track record of this and earlier nights

    @property
    def regressions(self) -> tuple[Alert, ...]:
        """Alerts that this night confirmed, new ones first."""
        return (*self.alerts, *self.standing)

    @cached_property
    def by_series(self) -> dict[str, Measured]:
        """Measurements by id of the series."""
        return {each.series.id: each for each in self.measured}


@dataclass(frozen=True)
class Night:
    """A stored night."""

    study: Study
    record: NightRecord

    @property
    def id(self) -> str:
        return self.study.id

    @property
    def elapsed_s(self) -> float:
        """Seconds from its beginning to its end; it must have ended."""
        began, ended = map(datetime.fromisoformat, (self.study.created_at, self.study.finished_at))
        return (ended - began).total_seconds()


def nights(store: Store, history: str = "") -> list[Night]:
    """The nights of a history, or of all histories, oldest first."""
    found = store.studies.newest(limit=MANY, kind="nightly")
    wanted = [study for study in reversed(found) if history in ("", study.question["history"])]
    return [Night(study, NightRecord.from_mapping(study.result)) for study in wanted]


def amend(store: Store, night: str, **parts: Any) -> NightRecord:
    """Replace parts of a stored night. Alerts are added, or replace those with the same id."""

    def change(result: Mapping[str, Any]) -> dict[str, Any]:
        before, after = NightRecord.from_mapping(result), dict(parts)
        for kind in parts.keys() & {"alerts", "standing"}:
            after[kind] = tuple({each.id: each for each in (*getattr(before, kind), *parts[kind])}.values())
        return replace(before, **after).to_mapping()

    return NightRecord.from_mapping(store.studies.amend(night, change).result)
