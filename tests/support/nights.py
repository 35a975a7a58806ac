"""A made-up history of nights, for the tests of its pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

from scalescope.model.decision import Decision
from scalescope.model.study import Study
from scalescope.nightly.history import History
from scalescope.nightly.night_record import (
    Alert,
    AlertState,
    ChangeOutcome,
    Culprit,
    Judged,
    Measured,
    Night,
    NightlySeries,
    NightRecord,
    SoftwareLock,
)

FIRST = datetime(2026, 1, 1, 2, tzinfo=UTC)
TRIALS = {"planned": 90, "valid": 88, "failed": 1, "invalid": 1}


def made_up(nights: int = 30, workloads: int = 2, *, text: str = "") -> History:
    """Nights of some workloads: the first is 20 % slower since ten nights, the third drifts; `text` is in all."""
    rng = np.random.default_rng(0)
    point = {"workers": 20, "threads_per_worker": 1, "params": {}, "dask_config": {}}
    measured: list[list[Measured]] = [[] for _ in range(nights)]
    for number in range(workloads):
        numbers = np.exp(rng.normal(0, 0.01, nights))
        numbers[nights - 10 :] *= 1.0 if number else 1.2
        numbers *= np.linspace(1, 1.08, nights) if number == 2 else 1.0
        series = NightlySeries(
            f"{text}workload-{number}", 1, point, {"kind": f"{text}local"}, f"{text}2 cores", "makespan_s"
        )
        for found, value in zip(measured, numbers.tolist(), strict=True):
            found.append(Measured(series, value, 3, runs=(f"{text}run",)))
    slower = Judged(measured[0][0].series, "night-0", 1.0, 1.2, ChangeOutcome.CONFIRMED, text, 1.2)
    culprit = Culprit(f"{text}dask 2026.3.0")
    alerts = tuple(
        Alert(f"{text}{state}", f"night-{nights - 1}", culprit, (slower,), text, state, script="# slower")
        for state in (AlertState.OPEN, AlertState.FALSE)
    )
    return History.of(
        f"{text}suite",
        [
            Night(
                Study(
                    f"{text}night-{i}",
                    "nightly",
                    {},
                    line=text,
                    created_at=(FIRST + timedelta(days=i)).isoformat(),
                    finished_at=(FIRST + timedelta(days=i, minutes=50)).isoformat(),
                ),
                NightRecord(
                    SoftwareLock(pins={f"{text}dask": "2026.3.0"}),
                    tuple(found),
                    alerts=alerts if i == nights - 1 else (),
                    trials=TRIALS,
                    problems=(text,),
                ),
            )
            for i, found in enumerate(measured)
        ],
        [Decision(f"{text}workload-1", f"{text}noisy", "2027-01-31", who=f"{text}ann", created_at=FIRST.isoformat())],
    )
