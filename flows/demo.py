"""The demonstration: the case for which Scalescope was built, from the question to the remedy.

A team ran Apache Beam on Dask with hundreds of workers; with few all were busy, with many most sat idle. Here the same
pipeline (three stages of ten-second sleeps) is swept on simulated workers, first as it comes, then with the remedy; and
some of its points run again in real time, to show that the simulation can be believed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scalescope.model.cluster import SimulatedSpec, VirtualSpec

if TYPE_CHECKING:
    from scalescope.model.trial import Trial
    from scalescope.store.store import SweepRun

SIZES = (1, 2, 10, 50, 100, 150, 190, 199, 200, 250, 300)
ITEMS = (50, 100, 150, 200, 250, 300)
AS_IT_COMES: dict[str, Any] = {
    "workload": "beam-pardo",
    "points": [{"workers": size, "items": size} for size in SIZES] + [{"workers": 100, "items": n} for n in ITEMS],
    "params": {"stages": 3, "seconds": 10.0},
}
WITH_THE_REMEDY = {**AS_IT_COMES, "params": {**AS_IT_COMES["params"], "npartitions": "items"}}
AGAIN: dict[str, Any] = {
    "workload": "beam-pardo",
    "points": [
        {"workers": 20, "items": 20, "seconds": 0.05},
        {"workers": 100, "items": 100, "seconds": 0.7, "npartitions": "items"},
        {"workers": 100, "items": 200, "seconds": 0.7, "npartitions": "items"},
    ],
    "params": {"stages": 3},
}

Carry = Callable[[Mapping[str, Any]], "SweepRun"]
"""Carries a sweep out and returns its run."""


def prepare(folder: Path) -> str:
    """Keep everything that the demonstration writes in `folder`; returns the store's address."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PREFECT_HOME", str(folder.absolute() / "prefect"))
    return str(folder.absolute() / "scalescope.db")


def show(console: Console, carry: Carry) -> None:
    """Run the sweeps one after the other and print what they say."""
    from scalescope.report.terminal import print_run, render_comparison

    _title(console, "Apache Beam on Dask, as it comes: three stages of 10 s, simulated")
    before = carry({**AS_IT_COMES, "cluster": SimulatedSpec.kind})
    print_run(console, before)

    _title(console, "The same sweep with the remedy: --dask_npartitions=<items>")
    after = carry({**WITH_THE_REMEDY, "cluster": SimulatedSpec.kind})
    console.print(render_comparison(before, after, ("as it comes", "with the remedy"), width=console.width))

    _title(console, "Can the simulation be believed? Three points in real time, with shorter sleeps")
    real = carry({**AGAIN, "cluster": VirtualSpec.kind, "warmups": 1})
    simulated = carry({**AGAIN, "cluster": SimulatedSpec.kind})
    console.print(_agreement(simulated, real))


def _agreement(simulated: SweepRun, real: SweepRun) -> Table:
    table = Table(box=None, pad_edge=False)
    titles = ("workers", "items", "partitions", "simulated s", "real s", "difference", "workers used: simulated, real")
    for title in titles:
        table.add_column(title, justify="right")
    measured = {trial.point.id: trial for trial in real.trials if not trial.warmup}
    for ours in sorted(simulated.trials, key=lambda trial: (trial.point.workers, trial.point.items or 0)):
        theirs = measured[ours.point.id]
        table.add_row(*(Text(cell) for cell in _row(ours, theirs)))
    return table


def _row(ours: Trial, theirs: Trial) -> tuple[str, ...]:
    point = ours.point
    shown = (str(point.workers), str(point.items), str(point.params["npartitions"] or "Beam's rule"))
    if ours.metrics is None or theirs.metrics is None or not theirs.counts:
        return (*shown, "", "", f"no data: {theirs.reason or ours.reason}", "")
    difference = ours.metrics.makespan_s / theirs.metrics.makespan_s - 1
    used = f"{ours.metrics.workers_used}, {theirs.metrics.workers_used}"
    return (
        *shown,
        f"{ours.metrics.makespan_s:.2f}",
        f"{theirs.metrics.makespan_s:.2f}",
        f"{difference:+.1%}",
        used,
    )


def _title(console: Console, text: str) -> None:
    console.print(Text(f"\n{text}\n", style="bold"))
