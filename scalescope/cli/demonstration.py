"""The case for which Scalescope was built: Apache Beam on Dask, where most of hundreds of workers sat idle.

A pipeline of three ten-second stages is swept on simulated workers, first unchanged, then with the remedy. Some points
run again in real time, to check the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scalescope.diagnosis.verdict import diagnose
from scalescope.model.finding import Verdict
from scalescope.model.sweep import Sweep
from scalescope.model.trial import Trial
from scalescope.report.terminal import print_run, render_comparison

if TYPE_CHECKING:
    from scalescope.store.store import SweepRun

SIZES = (1, 2, 10, 50, 100, 150, 190, 199, 200, 250, 300)
ITEMS = (50, 100, 150, 200, 250, 300)
POINTS: list[dict[str, Any]] = [
    *({"workers": size, "items": size, "seconds": 10.0} for size in SIZES),
    *({"workers": 100, "items": items, "seconds": 10.0} for items in ITEMS),
]
REMEDY = {"npartitions": "items"}
AGAIN: list[dict[str, Any]] = [
    {"workers": 20, "items": 20, "seconds": 0.05},
    {"workers": 50, "items": 50, "seconds": 0.8, **REMEDY},
    {"workers": 50, "items": 100, "seconds": 0.8, **REMEDY},
]
SIMULATED: dict[str, Any] = {
    "workload": "beam-pardo",
    "cluster": "simulated",
    "points": [*POINTS, *({**point, **REMEDY} for point in POINTS), *AGAIN],
    "params": {"stages": 3},
}
REAL: dict[str, Any] = {**SIMULATED, "cluster": {"kind": "light", "hosts": 2}, "points": AGAIN}

Carry = Callable[[Mapping[str, Any]], "SweepRun"]  # carries a sweep out and returns its run


@dataclass(frozen=True)
class DemoPart:
    """Some trials of a run, shown like a separate run."""

    sweep: Sweep
    trials: tuple[Trial, ...]
    verdict: Verdict

    @classmethod
    def of(cls, run: SweepRun, wanted: Callable[[Trial], bool]) -> DemoPart:
        trials = tuple(trial for trial in run.trials if wanted(trial))
        return cls(run.sweep, trials, diagnose(run.sweep, trials))


def show(console: Console, carry: Carry) -> SweepRun:
    """Run the sweeps and print their results; return the first run with only its unchanged trials."""
    simulated = carry(SIMULATED)
    long = [trial for trial in simulated.trials if trial.point.params["seconds"] == 10.0]
    before = DemoPart.of(simulated, lambda trial: trial in long and trial.point.params["npartitions"] is None)
    after = DemoPart.of(simulated, lambda trial: trial in long and trial.point.params["npartitions"] is not None)

    _title(console, "Apache Beam on Dask, unchanged: three stages of 10 s, simulated")
    print_run(console, before)
    _title(console, "The same sweep with the remedy: --dask_npartitions=<items>")
    console.print(render_comparison(before, after, ("as it comes", "with the remedy"), width=console.width))

    _title(console, "Can you trust the simulation? Three points in real time, with shorter sleeps")
    console.print(_agreement(DemoPart.of(simulated, lambda trial: trial not in long), carry(REAL)))
    return replace(simulated, trials=before.trials, planned=len(before.trials), verdict=before.verdict)


def _agreement(simulated: DemoPart, real: SweepRun) -> Table:
    table = Table(box=None, pad_edge=False)
    titles = ("workers", "items", "partitions", "simulated s", "real s", "difference", "workers used: simulated, real")
    for title in titles:
        table.add_column(title, justify="right")
    measured = {trial.point.id: trial for trial in real.trials if not trial.warmup}
    for ours in sorted(simulated.trials, key=lambda trial: (trial.point.workers, trial.point.items or 0)):
        table.add_row(*(Text(cell) for cell in _row(ours, measured[ours.point.id])))
    return table


def _row(ours: Trial, theirs: Trial) -> tuple[str, ...]:
    point = ours.point
    shown = (str(point.workers), str(point.items), str(point.params["npartitions"] or "Beam's rule"))
    if ours.metrics is None or theirs.metrics is None or not theirs.counts:
        return (*shown, "", "", f"no data: {theirs.reason or ours.reason}", "")
    difference = ours.metrics.makespan_s / theirs.metrics.makespan_s - 1
    used = f"{ours.metrics.workers_used}, {theirs.metrics.workers_used}"
    return (*shown, f"{ours.metrics.makespan_s:.2f}", f"{theirs.metrics.makespan_s:.2f}", f"{difference:+.1%}", used)


def _title(console: Console, text: str) -> None:
    console.print(Text(f"\n{text}\n", style="bold"))
