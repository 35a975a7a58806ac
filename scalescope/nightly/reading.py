"""The history of all nights, as the site shows it, from a store."""

from __future__ import annotations

from datetime import datetime

from scalescope import workloads
from scalescope.model.trial import TrialState
from scalescope.model.words import plural
from scalescope.nightly import alerts, history, night_record
from scalescope.nightly.changes import find_changes, find_drift, smallest_change
from scalescope.nightly.night_record import Measured
from scalescope.run import run_names
from scalescope.store.store import Store
from scalescope.studies.release.mixtures import difference
from scalescope.workloads.suite import SUITE


def read(store: Store, name: str) -> history.History:
    """All finished nights of a history, their series and alerts.

    Raises:
        StoreError: The store refuses.
    """
    nights = [night for night in night_record.nights(store, name) if night.study.finished_at]
    found: dict[str, list[tuple[str, Measured]]] = {}
    for night in nights:
        for each in night.record.measured:
            found.setdefault(each.series.id, []).append((night.id, each))
    return history.History(
        name,
        tuple(_night(night, before) for night, before in zip(nights, [None, *nights], strict=False)),
        tuple(_series(values) for values in found.values()),
        tuple(_alert(each) for night in nights for each in night.record.alerts),
    )


def _night(night: night_record.Night, before: night_record.Night | None) -> history.Night:
    began, ended = (datetime.fromisoformat(each) for each in (night.study.created_at, night.study.finished_at))
    kept = night.record
    return history.Night(
        id=night.id,
        began=night.study.created_at,
        elapsed_s=(ended - began).total_seconds(),
        planned=kept.trials.get("planned", 0),
        valid=kept.trials.get(TrialState.VALID, 0),
        failed=kept.trials.get(TrialState.FAILED, 0),
        invalid=kept.trials.get(TrialState.INVALID, 0),
        complete=not kept.ended_early,
        note=" ".join(filter(None, [night.study.line, *kept.problems])),
        facts={"packages": _packages(kept.lock, before.record.lock if before else None)},
    )


def _packages(now: night_record.SoftwareLock, before: night_record.SoftwareLock | None) -> str:
    """What changed since the night before: all of them would hide everything else."""
    if before is None:
        return plural(len(now.pins), "package")
    return difference(before.pins, now.pins) if now.pins != before.pins else "as the night before"


def _series(values: list[tuple[str, Measured]]) -> history.Series:
    series = values[-1][1].series
    numbers = [each.value for _, each in values]
    settings = {"version": f"version {series.version}", "size": series.size, "cluster": str(series.cluster["kind"])}
    return history.Series(
        id=series.id,
        workload=run_names.workload(series.workload),
        settings={**settings, "hardware": series.hardware},
        metric=series.metric,
        values=tuple(history.Value(night, each.value, each.runs) for night, each in values),
        changes=tuple(find_changes(numbers)),
        drift=find_drift(numbers),
        smallest=smallest_change(numbers),
        stresses=_stresses(series.workload),
    )


def _stresses(workload: str) -> str:
    """What a workload of the suite is for, in one line."""
    if workload not in {entry.workload for entry in SUITE}:
        return ""
    return workloads.load(workload).summary


def _alert(alert: night_record.Alert) -> history.Alert:
    return history.Alert(
        id=alert.id,
        night=alert.night,
        state=alert.state,
        series=tuple(sorted(alert.series)),
        line=alerts.line(alert),
        culprit=alert.culprit.line,
        script=alert.script,
    )
