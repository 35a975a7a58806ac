"""Picks the changes of a series that deserve a rerun. Pure functions.

- From `SETTLED` nights on, a change is a change point (`changes.find_changes`) that began in the last `RECENT` nights.
- In a younger series, tonight must differ from the median of the earlier nights by more than the smallest effect. From
  `YOUNG` nights on, tonight must also lie beyond all nights before the change, and each change is rerun once.

The last good night is the night before the change point or, in a young series, the last night nearer to the median than
to tonight. The rerun decides whether the change is real: this takes minutes instead of more nights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log
from statistics import median, median_high, median_low
from typing import Any

from scalescope.model.decision import Decision
from scalescope.model.trial import Trial
from scalescope.nightly import decisions
from scalescope.nightly.changes import BASELINE, LEAST, find_changes, find_drift
from scalescope.nightly.controls import METRIC, ControlMove, explaining
from scalescope.nightly.night_record import (
    AlertState,
    ChangeOutcome,
    Drift,
    Measured,
    Night,
    NightlySeries,
    NightRecord,
)
from scalescope.store.store import SweepRun
from scalescope.studies.symptom import LARGER_IS_BETTER, quantity
from scalescope.workloads.suite import CONTROLS

SETTLED = BASELINE + LEAST  # nights that a series needs to have change points
YOUNG = SETTLED // 2  # nights after which a series shows its scatter
# A change point is rerun if it is at most this many nights old (muted nights do not count): `LEAST` nights until it is
# found, and two spare ones.
RECENT = LEAST + 2
# facts of the machine that each night keeps
HOST = ("hostname", "cpu_model", "usable_cpus", "cgroup_cpus", "memory_bytes", "platform", "load_average")
OTHERS = "taken by others"  # name of a fact: share of CPU time that other processes and virtual machines took
OVER = (AlertState.FALSE, AlertState.RESOLVED)  # states after which the level before the alert is expected again


@dataclass(frozen=True)
class ChangeCandidate:
    """A series whose level has changed; unless `answered` or explained by `control`, it deserves a rerun."""

    tonight: Measured
    good: Night  # the last night before the change
    good_measured: Measured
    before: float  # level before the change, in the unit of the series
    after: float
    worse: bool
    answered: bool = False  # True if an earlier night has judged the change
    control: ControlMove | None = None  # control workload whose own move explains the change

    @property
    def series(self) -> NightlySeries:
        return self.tonight.series

    @property
    def size(self) -> float:
        """Size of the change as a logarithm, in either direction."""
        return abs(log(self.after / self.before)) if self.after > 0 and self.before > 0 else inf


def measured(runs: Iterable[SweepRun], metric: str) -> list[Measured]:
    """Measurements of the series that have valid trials in the runs of a night."""
    values: dict[str, tuple[NightlySeries, list[float], list[Trial], dict[str, None]]] = {}
    for run in runs:
        compared = METRIC if run.sweep.workload in CONTROLS else metric
        number = quantity(compared)
        for trial in run.trials:
            value = None if trial.warmup else number.of(trial)
            if value is None:
                continue
            series = _series(run, trial, compared)
            _, numbers, trials, ids = values.setdefault(series.id, (series, [], [], {}))
            numbers.append(value)
            trials.append(trial)
            ids[run.id] = None
    return [
        Measured(series, median(numbers), len(numbers), _host(trials), tuple(ids))
        for series, numbers, trials, ids in values.values()
    ]


def _series(run: SweepRun, trial: Trial, metric: str) -> NightlySeries:
    point = replace(trial.point, environment="").to_mapping()
    cluster = run.sweep.cluster_of(trial.point).to_mapping()
    return NightlySeries(run.sweep.workload, run.workload_version, point, cluster, _hardware(trial), metric)


def _hardware(trial: Trial) -> str:
    host = trial.facts.get("host", {})
    parts = [str(host.get("cpu_model") or "unknown CPU"), f"{host.get('usable_cpus') or host.get('cpus')} CPUs"]
    parts += [f"{host['memory_bytes'] / 2**30:.0f} GiB"] if host.get("memory_bytes") else []
    pods = trial.facts.get("cluster", {}).get("pods", ())
    return ", ".join([*parts, *sorted({str(pod.get("instance_type")) for pod in pods if pod.get("instance_type")})])


def _host(trials: Sequence[Trial]) -> dict[str, Any]:
    facts = trials[-1].facts.get("host", {})
    loads = [trial.facts.get("host", {}).get("load") or {} for trial in trials]
    taken = [load["others"] + load["stolen"] for load in loads if "others" in load]
    found = {name: facts[name] for name in HOST if facts.get(name) is not None}
    return {**found, **({OTHERS: round(max(taken), 3)} if taken else {})}


def candidates(tonight: NightRecord, past: Sequence[Night], smallest: float) -> list[ChangeCandidate]:
    """All series whose level has changed, the largest change first. `past`: oldest first; `smallest`: a share."""
    heard = [each for each in tonight.measured if not decisions.is_muted(each.series, tonight)]
    found = [_candidate(tonight, each, past, smallest) for each in heard]
    return sorted((each for each in found if each is not None), key=lambda each: -each.size)


def _candidate(
    record: NightRecord, tonight: Measured, past: Sequence[Night], smallest: float
) -> ChangeCandidate | None:
    kept = since_baseline(tonight.series, past, record.decisions)
    if not kept:
        return None
    nights = [night for night, _ in kept]
    values = [*(each.value for _, each in kept), tonight.value]
    if len(values) < SETTLED:
        better = median_high if tonight.series.metric in LARGER_IS_BETTER else median_low
        before, after, begin, first = better(values[:-1]), values[-1], 0, len(nights)
        index = max(i for i, value in enumerate(values[:-1], 1) if abs(value - before) <= abs(after - before) / 2)
        if len(values) >= YOUNG and min(values[:index]) <= tonight.value <= max(values[:index]):
            return None
    else:
        heard = [not decisions.is_muted(tonight.series, night.record) for night in nights]
        changes = find_changes(values)
        if not changes or sum(heard[changes[-1].index :]) >= RECENT:
            return None
        index, before, after = changes[-1].index, changes[-1].before, changes[-1].after
        begin, first = (changes[-2].index if len(changes) > 1 else 0), index
    if abs(after - before) <= smallest * before:
        return None
    worse = (after > before) != (tonight.series.metric in LARGER_IS_BETTER)
    judged = len(values) >= YOUNG and answered(tonight.series, nights[index:])
    found = ChangeCandidate(tonight, *kept[index - 1], before, after, worse, judged)
    effect = found.size if worse else -found.size
    return replace(
        found, control=explaining(record, found.series, effect, smallest, nights[begin:first], nights[first:])
    )


def drifts(tonight: NightRecord, past: Sequence[Night]) -> list[Drift]:
    """Slow changes over the last weeks in the series that a night measured."""
    values: dict[str, list[tuple[str, float]]] = {each.series.id: [] for each in tonight.measured}
    for night in past:
        for each in night.record.measured:
            values.get(each.series.id, []).append((night.study.created_at, each.value))
    found = []
    for each in tonight.measured:
        if decisions.is_muted(each.series, tonight):
            continue
        before = values[each.series.id]
        first = decisions.baseline(each.series, [begun for begun, _ in before], tonight.decisions)
        numbers = [*(value for _, value in before[first:]), each.value]
        if drift := find_drift(numbers):
            nights = len(numbers) - drift.index
            found.append(Drift(each.series, nights, drift.before, drift.after, drift.low, drift.high))
    return found


def since_baseline(
    series: NightlySeries, past: Sequence[Night], decided: Sequence[Decision]
) -> list[tuple[Night, Measured]]:
    """Nights that measured a series since its last accepted level or confirmed change (unless its alert is `OVER`)."""
    found: list[tuple[Night, Measured]] = []
    for night in past:
        alerts = (series.id in alert.series for alert in night.record.alerts if alert.state not in OVER)
        faster = (each.series.id == series.id for each in night.record.judged if each.outcome is ChangeOutcome.FASTER)
        if any(alerts) or any(faster):
            found = []
        if each := night.record.by_series.get(series.id):
            found.append((night, each))
    return found[decisions.baseline(series, [night.study.created_at for night, _ in found], decided) :]


def answered(series: NightlySeries, since: Sequence[Night]) -> bool:
    """Whether a night since the change has judged the series, with another outcome than WAITING and no control."""
    answers = (each for night in since for each in night.record.judged if each.series.id == series.id)
    return any(each.outcome is not ChangeOutcome.WAITING and each.control is None for each in answers)


def back(tonight: NightRecord, before: Mapping[str, float], smallest: float, metric: str) -> bool:
    """Whether series are back at their levels before a change; `before`: these levels by id of the series."""
    values = {each.series.id: each.value for each in tonight.measured}
    if not all(each in values for each in before):
        return False
    if metric in LARGER_IS_BETTER:
        return all(values[each] >= before[each] * (1 - smallest) for each in before)
    return all(values[each] <= before[each] * (1 + smallest) for each in before)


def machine(now: Mapping[str, Any], then: Mapping[str, Any]) -> str:
    """Differences of the machine between two nights, in words."""
    parts = []
    for name in (*HOST, OTHERS):
        left, right = then.get(name), now.get(name)
        if left != right and not (name == "load_average" and abs(float(left or 0) - float(right or 0)) < 1):
            parts.append(f"{name.replace('_', ' ')} {_short(left)} before, {_short(right)} tonight")
    return "; ".join(parts) or "none in the recorded facts"


def _short(value: object) -> str:
    return "unknown" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
