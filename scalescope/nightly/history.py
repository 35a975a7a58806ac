"""What the history site shows: nights, series and alerts. The site's pages are made of these alone.

Whoever reads a store fills them in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from scalescope.nightly.changes import Change


class AlertState(StrEnum):
    """What became of an alert."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    ACCEPTED = "accepted"
    FALSE = "false"
    RESOLVED = "resolved"


@dataclass(frozen=True)
class Night:
    """One night of the suite.

    Attributes:
        id: As the store knows it.
        began: ISO 8601 time in UTC.
        elapsed_s: How long it took, in seconds.
        planned: Trials that were planned.
        valid: Those that count.
        failed: Those whose workload raised.
        invalid: Those that the machine spoilt.
        complete: Whether all that was planned ran within the budget.
        note: What went wrong or was left out, in a sentence; empty where nothing.
        facts: What else there is to say, by name: what changed of the packages.
    """

    id: str
    began: str
    elapsed_s: float
    planned: int
    valid: int
    failed: int = 0
    invalid: int = 0
    complete: bool = True
    note: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Value:
    """What one night says of one series.

    Attributes:
        night: Id of the night.
        value: In the unit of the series.
        runs: Ids of the runs that measured it.
    """

    night: str
    value: float
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alert:
    """A confirmed change of one or more series, from one cause.

    Attributes:
        id: As the store knows it.
        night: Id of the night that raised it.
        state: What became of it.
        series: Ids of the series concerned.
        line: What changed, in one sentence.
        culprit: Package and release, or why there is none, in one sentence.
        script: Text of the script that shows it; empty where there is none.
    """

    id: str
    night: str
    state: AlertState
    series: tuple[str, ...]
    line: str
    culprit: str = ""
    script: str = ""


@dataclass(frozen=True)
class Series:
    """One metric of one version of a workload, at one size, on one cluster and one kind of hardware.

    Attributes:
        id: Unique, as the store knows it.
        workload: Its name.
        settings: What tells it from the workload's other series: version, size, cluster, hardware, in their order.
        metric: Name of a metric (`scalescope.model.metrics.METRICS`).
        values: In the order of the nights; nights without a result are left out.
        changes: Its change points: `find_changes` of the values.
        drift: Its slow change over the last weeks (`find_drift`).
        smallest: The smallest change that it could show (`smallest_change`).
        stresses: What the workload stresses, in one line.
    """

    id: str
    workload: str
    settings: Mapping[str, str]
    metric: str
    values: tuple[Value, ...]
    changes: tuple[Change, ...] = ()
    drift: Change | None = None
    smallest: float = float("inf")
    stresses: str = ""


@dataclass(frozen=True)
class History:
    """All that the site shows.

    Attributes:
        suite: Name of the suite.
        nights: In their order.
        series: In the order in which they are shown.
        alerts: In the order in which they were raised.
    """

    suite: str
    nights: tuple[Night, ...]
    series: tuple[Series, ...]
    alerts: tuple[Alert, ...] = ()
