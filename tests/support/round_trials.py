"""Trials with round numbers, and a terminal that remembers."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from rich.console import Console

from scalescope.diagnosis.verdict import diagnose
from scalescope.model.finding import Verdict
from scalescope.model.metrics import Metrics
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial, TrialState

FACTS = {
    "cluster": {
        "kind": "simulated",
        "clock": "virtual",
        "shows": "how the real scheduler divides work",
        "cannot_show": "contention between processes",
    }
}


@dataclass(frozen=True)
class FinishedRun:
    sweep: Sweep
    trials: tuple[Trial, ...]
    verdict: Verdict | None


@pytest.fixture(scope="session")
def trial() -> Callable[..., Trial]:
    """A trial of `items` seconds of work in equal `partitions`, all at once on as many workers."""

    def build(workers: int, items: int, partitions: int, *, stretch: float = 1.0, **given: Any) -> Trial:
        point = Point(workers, 1, {"items": items, **given.pop("params", {})})
        used = min(workers, partitions)
        span = items / used
        makespan = span * stretch
        metrics = Metrics(
            makespan_s=makespan,
            elapsed_s=makespan,
            work_s=float(items),
            span_s=span,
            ideal_s=span,
            efficiency=items / (workers * makespan),
            schedule_quality=1 / stretch,
            parallelism=float(used),
            tasks=partitions,
            widest_stage=partitions,
            workers_used=used,
            peak_parallelism=used,
            mean_parallelism=items / makespan,
            peak_runnable=partitions,
            worker_time_s={
                "busy": float(items),
                "no_runnable_task": (workers - used) * makespan,
                "not_assigned": used * makespan - items,
            },
        )
        repeat = given.pop("repeat", 0)
        state = given.pop("state", TrialState.VALID)
        return Trial(
            f"{point.id}-r{repeat}",
            point,
            repeat,
            False,
            state,
            metrics=metrics if state is TrialState.VALID else None,
            **{"facts": FACTS, **given},
        )

    return build


@pytest.fixture(scope="session")
def finished() -> Callable[..., FinishedRun]:
    """A run with its verdict."""

    def build(*trials: Trial, workload: str = "beam-pardo") -> FinishedRun:
        sweep = Sweep(workload)
        return FinishedRun(sweep, trials, diagnose(sweep, trials))

    return build


@pytest.fixture(scope="session")
def printed() -> Callable[..., str]:
    """What a terminal without colours shows of something; spaces at the ends of lines are cut."""

    def show(something: Any, width: int = 100) -> str:
        console = Console(width=width, file=io.StringIO(), color_system=None, legacy_windows=False)
        if callable(something):
            something(console)
        else:
            console.print(something)
        return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())

    return show
