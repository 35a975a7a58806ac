"""What the store keeps of a night: its lock, what each series measured, which changes were looked into, its alerts.

It is the result of a study of kind `nightly`, and grows while the night runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from math import log
from typing import Any

from scalescope.analysis.summary import label
from scalescope.model.mapping import Mapped
from scalescope.model.study import Study, StudyKind
from scalescope.model.sweep import Point, digest
from scalescope.nightly.history import AlertState
from scalescope.run import run_names
from scalescope.store.store import Store

MANY = 10_000
"""Nights that are read at most: 27 years."""


@dataclass(frozen=True)
class SoftwareLock(Mapped):
    """The software of a night.

    Attributes:
        text: What its trials ran with, as an environment; empty for the present one.
        pins: Version of every package in it, and of Python, by normalised name.
    """

    text: str = ""
    pins: Mapping[str, str] = field(default_factory=dict)

    @property
    def pinned(self) -> str:
        """An environment with exactly these packages. Scalescope itself is not among them: no trial needs it."""
        return " ".join(f"{name}=={version}" for name, version in self.pins.items())


@dataclass(frozen=True)
class NightlySeries(Mapped):
    """What is never compared across: one version of a workload, at one size, on one cluster and kind of hardware.

    Attributes:
        workload: Its name or reference.
        version: Of the workload.
        point: All values of axes, but for the environment.
        cluster: Its specification.
        hardware: Of the machine that the scheduler ran on, and the kinds of nodes of its workers where known.
        metric: What is measured.
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
    def size(self) -> str:
        """`4 workers, 64 items`."""
        return label(Point.from_mapping(self.point))

    @property
    def words(self) -> str:
        """It in a few words."""
        return f"{run_names.workload(self.workload)} ({self.size}, {self.cluster['kind']})"


@dataclass(frozen=True)
class Measured(Mapped):
    """What a night measured of a series.

    Attributes:
        series: Which.
        value: Median of its valid trials, in the unit of the metric.
        trials: How many these are.
        host: What is known of the machine: facts of the last trial, and the share of it that others had at most.
        runs: Ids of the runs.
    """

    series: NightlySeries
    value: float
    trials: int
    host: Mapping[str, Any] = field(default_factory=dict)
    runs: tuple[str, ...] = ()


class ChangeOutcome(StrEnum):
    """What came of a change that was looked into.

    `confirmed`: the rerun is slower, too. `faster`: an improvement, and the rerun is faster, too. `refuted`: the rerun
    does not show it: the machine was different that night. `machine`: the environments are equal, so that nothing but
    the machine can have changed. `undecided`: the pairs do not tell. `untestable`: the rerun could not be made.
    `waiting`: the time for reruns was used up; the next night goes on.
    """

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    MACHINE = "machine"
    UNDECIDED = "undecided"
    UNTESTABLE = "untestable"
    FASTER = "faster"
    WAITING = "waiting"


@dataclass(frozen=True)
class Judged(Mapped):
    """A change of a series, and what came of looking into it.

    Attributes:
        series: Of which.
        good: Id of the last night before it.
        before: Level until then.
        after: Level since.
        outcome: What it is.
        reason: That in a sentence.
        ratio: Tonight's environment against the good night's, as rerun; None where there was no rerun.
        low: Lower end of its interval.
        high: Upper end.
        study: Id of the comparison; may be empty.
        since: What brought an improvement, in words; an alert says what brought a regression.
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
        """How large the rerun shows it, whichever way; 0 where there was none."""
        return abs(log(self.ratio)) if self.ratio else 0.0


@dataclass(frozen=True)
class Drift(Mapped):
    """A slow change of a series over its last nights that is no step; it is told, and not rerun.

    Attributes:
        series: Of which.
        nights: Over how many.
        before: Begin of the line through them, in the unit of the series.
        after: Its end.
        low: Lower end of the 95 % interval of the change, as a share.
        high: Upper end.
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
        line: It in a sentence, or why there is none.
        package: Normalised name; empty where none was found.
        good: Its last release that is good.
        bad: Its first release that is not.
        changed: All that differs between the two environments, in words.
        changelog: Address where the project tells of it; may be empty.
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
    """One confirmed cause, with all series that it concerns.

    Attributes:
        id: Of the cause, in this history: the same cause has the same alert.
        night: Id of the night that raised it.
        culprit: What brought it.
        changes: Of the series, the largest first.
        command: Shows the largest of them again.
        state: What became of it.
        told: Whether the orchestrator was told.
        script: Text of a script that shows it without Scalescope; empty where there is none.
        shown: What came of running the script, or why there is none.
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
    """All of it.

    Attributes:
        lock: The software.
        measured: In the order in which they ran.
        judged: Changes that were looked into.
        drifts: Of the series that were measured.
        alerts: Those that this night raised.
        trials: How many were planned, and how many of each state there are; without warm-ups.
        problems: What could not be measured, and why.
        ended_early: Why the budget ended it early; empty where it did not.
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
    """A night as the store has it.

    Attributes:
        study: With its id, question and times.
        record: Its result, read.
    """

    study: Study
    record: NightRecord

    @property
    def id(self) -> str:
        """Of the study."""
        return self.study.id


def nights(store: Store, history: str = "") -> list[Night]:
    """The nights of a history, or of all, oldest first.

    Raises:
        StoreError: The store refuses.
    """
    found = store.studies.newest(limit=MANY, kind=StudyKind.NIGHTLY)
    of_it = [study for study in reversed(found) if history in ("", study.question["history"])]
    return [Night(study, NightRecord.from_mapping(study.result)) for study in of_it]


def amend(store: Store, night: str, **parts: Any) -> NightRecord:
    """Replace parts of what is kept of a night; alerts are added to those that are there, or replace them by id.

    Raises:
        StoreError: The store refuses.
    """

    def change(result: Mapping[str, Any]) -> dict[str, Any]:
        before = NightRecord.from_mapping(result)
        if "alerts" in parts:
            alerts = {each.id: each for each in (*before.alerts, *parts["alerts"])}
            return replace(before, **{**parts, "alerts": tuple(alerts.values())}).to_mapping()
        return replace(before, **parts).to_mapping()

    return NightRecord.from_mapping(store.studies.amend(night, change).result)
