"""A made-up history of nights, for the tests of its pages."""

from __future__ import annotations

import numpy as np

from scalescope.nightly.changes import find_changes, smallest_change
from scalescope.nightly.history import Alert, AlertState, History, Night, Series, Value


def made_up(nights: int = 30, workloads: int = 2, *, text: str = "") -> History:
    """Nights of some workloads, of which the first is 20 % slower since ten nights; `text` is in every text."""
    rng = np.random.default_rng(0)
    known = tuple(
        Night(f"{text}night-{i}", f"2026-01-{1 + i % 28:02d}T02:00:00+00:00", 3000.0, 90, 88, 1, 1, note=text)
        for i in range(nights)
    )
    series = []
    for number in range(workloads):
        numbers = np.exp(rng.normal(0, 0.01, nights))
        numbers[nights - 10 :] *= 1.0 if number else 1.2
        values = tuple(
            Value(night.id, float(value), f"reports/{i}.html")
            for i, (night, value) in enumerate(zip(known, numbers, strict=True))
        )
        found = tuple(find_changes(numbers.tolist()))
        settings = {f"{text}version": f"{text}1", "size": "20"}
        name, smallest = f"{text}workload-{number}", smallest_change(numbers.tolist())
        series.append(Series(name, name, settings, "makespan_s", values, found, smallest, stresses=f"{text}the tests"))
    links = ((f"{text}the script", "scripts/slow.py"), (f"{text}a trap", "javascript:window.stolen = 3"))
    alerts = tuple(
        Alert(f"{text}{state}", known[-1].id, state, (series[0].id,), f"{text}slower", f"{text}dask 2", links)
        for state in (AlertState.OPEN, AlertState.FALSE)
    )
    return History(f"{text}suite", known, tuple(series), alerts)
