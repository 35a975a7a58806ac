"""The history of a suite: all its nights, and the series that they measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    drift: Change | None  # over the last weeks
    smallest: float  # change that the series could show, as a share

    @classmethod
    def of(cls, values: Sequence[tuple[Night, Measured]]) -> SeriesHistory:
        numbers = [measured.value for _, measured in values]
        changes, drift = tuple(find_changes(numbers)), find_drift(numbers)
        return cls(values[-1][1].series, tuple(values), changes, drift, smallest_change(numbers))

    def is_worse(self, change: Change) -> bool:
        return change.worse(larger_is_better=self.series.metric in LARGER_IS_BETTER)


@dataclass(frozen=True)
class History:
    """Finished nights, oldest first, and their series."""

    name: str
    nights: tuple[Night, ...]
    series: tuple[SeriesHistory, ...]

    @classmethod
    def of(cls, name: str, nights: Sequence[Night]) -> History:
        values: dict[str, list[tuple[Night, Measured]]] = {}
        for night in nights:
            for each in night.record.measured:
                values.setdefault(each.series.id, []).append((night, each))
        return cls(name, tuple(nights), tuple(map(SeriesHistory.of, values.values())))

    @classmethod
    def read(cls, store: Store, name: str) -> History:
        return cls.of(name, [night for night in nights(store, name) if night.study.finished_at])

    @property
    def alerts(self) -> list[Alert]:
        """All alerts, in the order in which they were raised."""
        return [alert for night in self.nights for alert in night.record.alerts]
