"""What the store keeps of a night: its software, what each series measured, changes looked into, and alerts.

It is the result of a study of kind `nightly`, and grows while the night runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from math import log
from typing import Any

from scalescope.analysis.summary import label
from scalescope.model.mapping import Mapped
from scalescope.model.study import Study
from scalescope.model.sweep import Point, digest
from scalescope.run import run_names
from scalescope.store.store import Store

MANY = 10_000
"""Most nights that are read: 27 years."""


class AlertState(StrEnum):
    """What a person, or a later night, said about an alert."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    ACCEPTED = "accepted"
    FALSE = "false"
    RESOLVED = "resolved"


class ChangeOutcome(StrEnum):
    """What looking into a change showed."""

    CONFIRMED = "confirmed"  # slower in the rerun, too
    REFUTED = "refuted"  # not in the rerun: the machine was different that night
    MACHINE = "machine"  # both nights had the same software, so only the machine can have changed
    UNDECIDED = "undecided"
    UNTESTABLE = "untestable"  # the rerun could not be made
    FASTER = "faster"  # an improvement, and faster in the rerun, too
    WAITING = "waiting"  # the time for reruns was used up; the next night goes on


@dataclass(frozen=True)
class SoftwareLock(Mapped):
    """The software of a night."""

    text: str = ""  # the environment of its trials; empty: the present one
    pins: Mapping[str, str] = field(default_factory=dict)  # version of Python and of each package, by normalised name

    @property
    def pinned(self) -> str:
        """An environment with exactly these packages. Scalescope itself is not among them: no trial needs it."""
        return " ".join(f"{name}=={version}" for name, version in self.pins.items())


@dataclass(frozen=True)
class NightlySeries(Mapped):
    """The identity of a series. Values of different series are never compared.

    Attributes:
        point: All values of axes except the environment.
        hardware: Of the scheduler's machine, and the node types of the workers where known.
    """

    workload: str
    version: int
    point: Mapping[str, Any]
    cluster: Mapping[str, Any]
    hardware: str
    metric: str

    @cached_property
    def id(self) -> str:
        """Stable identity."""
        return digest(self.to_mapping())

    @property
    def name(self) -> str:
        """The workload's name for people."""
        return run_names.workload(self.workload)

    @property
    def size(self) -> str:
        """`4 workers, 64 items`."""
        return label(Point.from_mapping(self.point))

    @property
    def words(self) -> str:
        """`bag-map (4 workers, 64 items, local)`."""
        return f"{self.name} ({self.size}, {self.cluster['kind']})"


@dataclass(frozen=True)
class Measured(Mapped):
    """What a night measured of a series.

    Attributes:
        value: Median of the valid trials, in the unit of the metric.
        trials: Number of valid trials.
        host: Facts of the machine, of the last trial, and the largest share of it that other processes had.
        runs: Ids of the runs.
    """

    series: NightlySeries
    value: float
    trials: int
    host: Mapping[str, Any] = field(default_factory=dict)
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judged(Mapped):
    """A change of a series that was looked into.

    Attributes:
        good: Id of the last night before it.
        before: Level until then, in the unit of the series.
        ratio: Tonight's environment against the good night's, as rerun; None without a rerun.
        low: Lower end of the interval of `ratio`.
        high: Upper end.
        study: Id of the comparison; may be empty.
        since: What brought an improvement. Alerts say what brought a regression.
    """

    series: NightlySeries
    good: str
    before: float
    after: float
    outcome: ChangeOutcome
    reason: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    study: str = ""
    since: str = ""

    @property
    def size(self) -> float:
        """How large it is in the rerun, in either direction; 0 without a rerun."""
        return abs(log(self.ratio)) if self.ratio else 0.0


@dataclass(frozen=True)
class Drift(Mapped):
    """A slow change of a series over its last nights, without a step. It is reported, and not rerun.

    Attributes:
        nights: Number of nights it spans.
        before: Start of the line through them, in the unit of the series.
        low: Lower end of the 95 % interval of the change, as a share.
    """

    series: NightlySeries
    nights: int
    before: float
    after: float
    low: float
    high: float


@dataclass(frozen=True)
class Culprit(Mapped):
    """What brought a change.

    Attributes:
        line: One sentence: what it was, or why it was not found.
        package: Normalised name; empty where none was found.
        good: Its last good release.
        bad: Its first bad release.
        changed: All differences between the two environments, in words.
        changelog: Address of the project's changelog; may be empty.
        studies: Ids of the searches.
    """

    line: str
    package: str = ""
    good: str = ""
    bad: str = ""
    changed: str = ""
    changelog: str = ""
    studies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alert(Mapped):
    """One confirmed cause, with all series that it affects.

    Attributes:
        id: Of the cause: the same cause has the same id in all nights of a history.
        night: Id of the night that raised it.
        changes: The largest first.
        command: Shows the largest change again.
        told: Whether the orchestrator was told.
        script: Text of a script that shows it without Scalescope; may be empty.
        shown: What running the script showed, or why there is none.
    """

    id: str
    night: str
    culprit: Culprit
    changes: tuple[Judged, ...]
    command: str
    state: AlertState = AlertState.OPEN
    told: bool = False
    script: str = ""
    shown: str = ""

    @property
    def series(self) -> frozenset[str]:
        """Ids of the series."""
        return frozenset(each.series.id for each in self.changes)


@dataclass(frozen=True)
class NightRecord(Mapped):
    """The result of a night.

    Attributes:
        alerts: Those that this night raised.
        trials: Number of planned trials, and of trials by state, without warm-ups.
        problems: What could not be measured, and why.
        ended_early: Why the budget ended it; empty where it did not.
    """

    lock: SoftwareLock = field(default_factory=SoftwareLock)
    measured: tuple[Measured, ...] = ()
    judged: tuple[Judged, ...] = ()
    drifts: tuple[Drift, ...] = ()
    alerts: tuple[Alert, ...] = ()
    trials: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    ended_early: str = ""


@dataclass(frozen=True)
class Night:
    """A night as the store has it: the study, and its result."""

    study: Study
    record: NightRecord

    @property
    def id(self) -> str:
        """Of the study."""
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
    """Replace parts of a stored night. Alerts are added to those that are there, or replace them by id."""

    def change(result: Mapping[str, Any]) -> dict[str, Any]:
        before = NightRecord.from_mapping(result)
        if "alerts" in parts:
            alerts = {each.id: each for each in (*before.alerts, *parts["alerts"])}
            return replace(before, **{**parts, "alerts": tuple(alerts.values())}).to_mapping()
        return replace(before, **parts).to_mapping()

    return NightRecord.from_mapping(store.studies.amend(night, change).result)
