"""A made-up history of nights, for the tests of its pages."""

from __future__ import annotations

import numpy as np

from scalescope.nightly.changes import find_changes, find_drift, smallest_change
from scalescope.nightly.history import Alert, AlertState, History, Night, Series, Value


def made_up(nights: int = 30, workloads: int = 2, *, text: str = "") -> History:
    """Nights of some workloads: the first is 20 % slower since ten nights, the third drifts; `text` is in all."""
    rng = np.random.default_rng(0)
    known = tuple(
        Night(f"{text}night-{i}", f"2026-01-{1 + i % 28:02d}T02:00:00+00:00", 3000.0, 90, 88, 1, 1, note=text)
        for i in range(nights)
    )
    series = []
    for number in range(workloads):
        numbers = np.exp(rng.normal(0, 0.01, nights))
        numbers[nights - 10 :] *= 1.0 if number else 1.2
        numbers *= np.linspace(1, 1.08, nights) if number == 2 else 1.0
        values = tuple(
            Value(night.id, float(value), (f"{text}run",)) for night, value in zip(known, numbers, strict=True)
        )
        found = tuple(find_changes(numbers.tolist()))
        drift = find_drift(numbers.tolist())
        settings = {f"{text}version": f"{text}1", "size": "20"}
        name, smallest = f"{text}workload-{number}", smallest_change(numbers.tolist())
        series.append(
            Series(name, name, settings, "makespan_s", values, found, drift, smallest, stresses=f"{text}the tests")
        )
    alerts = tuple(
        Alert(
            f"{text}{state}", known[-1].id, state, (series[0].id,), f"{text}slower", f"{text}dask 2", f"# {text}slower"
        )
        for state in (AlertState.OPEN, AlertState.FALSE)
    )
    return History(f"{text}suite", known, tuple(series), alerts)
