"""The history of a suite: all its nights, and the series that they measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scalescope.model.decision import Decision
from scalescope.nightly import decisions
from scalescope.nightly.changes import Change, find_changes, find_drift, smallest_change
from scalescope.nightly.night_record import Alert, Measured, Night, NightlySeries, nights
from scalescope.store.store import Store
from scalescope.studies.symptom import LARGER_IS_BETTER


@dataclass(frozen=True)
class SeriesHistory:
    """A series over all nights that measured it."""

    series: NightlySeries
    values: tuple[tuple[Night, Measured], ...]  # nights without a result are left out
    changes: tuple[Change, ...]  # change points
    drift: Change | None  # slow change over the last weeks
    smallest: float  # smallest change, as a share, that would be found in the series
    decisions: tuple[Decision, ...] = ()  # decisions about the series

    @classmethod
    def of(cls, values: Sequence[tuple[Night, Measured]], decided: Sequence[Decision] = ()) -> SeriesHistory:
        """Judge a series, separately before and after the start of the last accepted level."""
        series, numbers = values[-1][1].series, [measured.value for _, measured in values]
        first = decisions.baseline(series, [night.study.created_at for night, _ in values], decided)
        before, since = numbers[:first], numbers[first:]
        changes = [*find_changes(before), *(_later(each, first) for each in find_changes(since))]
        drift = find_drift(since)
        return cls(
            series,
            tuple(values),
            tuple(changes),
            drift and _later(drift, first),
            smallest_change(since),
            tuple(decisions.about(series, decided)),
        )

    def is_worse(self, change: Change) -> bool:
        return change.worse(larger_is_better=self.series.metric in LARGER_IS_BETTER)


def _later(change: Change, nights: int) -> Change:
    return replace(change, index=change.index + nights)


@dataclass(frozen=True)
class History:
    """Finished nights, oldest first, and their series."""

    name: str
    nights: tuple[Night, ...]
    series: tuple[SeriesHistory, ...]
    decisions: tuple[Decision, ...] = ()  # decisions in force

    @classmethod
    def of(cls, name: str, nights: Sequence[Night], decided: Sequence[Decision] = ()) -> History:
        values: dict[str, list[tuple[Night, Measured]]] = {}
        for night in nights:
            for each in night.record.measured:
                values.setdefault(each.series.id, []).append((night, each))
        series = tuple(SeriesHistory.of(each, decided) for each in values.values())
        return cls(name, tuple(nights), series, tuple(decided))

    @classmethod
    def read(cls, store: Store, name: str) -> History:
        ended = [night for night in nights(store, name) if night.study.finished_at]
        return cls.of(name, ended, decisions.in_force(store, name))

    @property
    def alerts(self) -> list[Alert]:
        """All alerts, in the order in which they were raised."""
        return [alert for night in self.nights for alert in night.record.alerts]
