"""Diagnosis of a recorded program: measured and judged like a trial of a sweep."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalescope.capture import host
from scalescope.capture.recording import worker_rows
from scalescope.diagnosis import verdict
from scalescope.diagnosis.account import account
from scalescope.diagnosis.observation import Observation
from scalescope.driver.attempt import judge
from scalescope.errors import UsageError
from scalescope.model import spool
from scalescope.model.cluster import cluster_spec
from scalescope.model.finding import Severity, Verdict
from scalescope.model.metrics import Metrics
from scalescope.model.standstill import STANDSTILL, Standstill
from scalescope.model.sweep import PlannedTrial, Point, Sweep
from scalescope.model.trial import Trial
from scalescope.own_code.record import Recorded
from scalescope.owner import opener
from scalescope.report import html as page
from scalescope.report import terminal
from scalescope.report.notebook import Shown, table
from scalescope.report.screen import Screen
from scalescope.run.trials import judged
from scalescope.store.schema import RunState
from scalescope.store.store import Store, SweepRun

if TYPE_CHECKING:
    import pandas

    from scalescope.analysis.difference import Account
    from scalescope.report.brief import BriefAnswer

WIDTH = 100


class Diagnosis(Shown):
    """Record and diagnosis of a block; all properties but `is_over` raise `UsageError` until the block has ended."""

    def __init__(self) -> None:
        self._run: SweepRun | None = None
        self._tables: Mapping[str, Any] = {}

    def _shown(self) -> SweepRun:
        if self._run is None:
            raise UsageError("the block has not ended", next_step="read the diagnosis after the `with` statement")
        return self._run

    def judge(self, folder: Path, end: str = "", packages: Mapping[str, str] | None = None, rounds: Any = None) -> None:
        """Judge the records in a folder (`scalescope.own_code.record`).

        `end`: a sentence on how the program's process ended, if it ended before the recording did.
        `packages`: versions of packages in the program's Python; None: this Python.
        `rounds`: the fact `rounds`, if this cluster is one of several that were made one after another.
        """
        recorded = Recorded.read(folder)
        recorded.attempt.facts["rounds"] = rounds
        self._run, self._tables = _judged(recorded, folder, end, host.packages() if packages is None else packages)

    @property
    def is_over(self) -> bool:
        return self._run is not None

    @property
    def name(self) -> str:
        """Name of the script or block, with the number of the cluster unless that is the first."""
        return self._shown().sweep.workload

    @property
    def verdict(self) -> str:
        return self.judgement.line

    @property
    def metrics(self) -> Metrics | None:
        """Measurements; None if no task was recorded."""
        return self.trial.metrics

    @property
    def trial(self) -> Trial:
        return self._shown().trials[0]

    @property
    def account(self) -> Account | None:
        """How the trial's thread-seconds were spent; None if no task was recorded."""
        seen = Observation.of(self.trial, self._tables)
        return None if seen.attempts is None else account(seen)

    @property
    def tasks(self) -> pandas.DataFrame:
        """A row for each attempt at a task: columns of `tasks` in scalescope/model/records.py; needs pandas."""
        return table({name: list(values) for name, values in self._tables.get("tasks", {}).items()})

    def report(self, path: str) -> str:
        """Write a self-contained HTML file; returns its path."""
        return page.write(path, self._shown(), lambda trial: self._tables)

    def patch(self, change: Callable[[Verdict], Verdict]) -> None:
        """Replace the verdict by one whose findings have patches."""
        self._run = replace(self._shown(), verdict=change(self.judgement))

    def save(self, store: str = "") -> str:
        """Save the run in a store (empty: the default store); returns its id for `scalescope show` and `report`."""
        shown, plan = self._shown(), [PlannedTrial(0, self.trial.point, 0)]
        with Store.open(store) as kept:
            run = kept.begin(shown.sweep, plan, workload_version=1, fresh=True, facts=shown.facts)
            kept.save(run.id, self.trial, self._tables)
            kept.finish(run.id, RunState.COMPLETE, self.judgement)
        self._run = replace(shown, id=run.id)
        return run.id

    def brief(self, id: str = "", notes: Iterable[str] = (), next: Sequence[str] = ()) -> BriefAnswer:
        """The short answer; `id` is the return value of `save`."""
        from scalescope.report.brief import of_run

        return of_run(self._shown(), id, notes=notes, next=next)

    def __str__(self) -> str:
        run, console = self._shown(), Screen(width=WIDTH, color_system=None)
        with console.capture() as captured:
            console.print(terminal.render(run.sweep, run.trials, self.judgement, width=WIDTH, tracebacks=False))
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def __repr__(self) -> str:
        return self.judgement.text if self.is_over else "the diagnosis of a block that has not ended"

    @property
    def judgement(self) -> Verdict:
        judgement = self._shown().verdict
        assert judgement is not None
        return judgement


def _judged(
    recorded: Recorded, spools: Path, end: str, packages: Mapping[str, str]
) -> tuple[SweepRun, Mapping[str, Any]]:
    attempt, address, threads = recorded.attempt, recorded.address, recorded.threads
    if not recorded.over:
        _complete(recorded, spools, end)
    each = math.ceil(sum(threads.values()) / len(threads)) if threads else 1
    stands = attempt.facts[STANDSTILL]
    if stands and not attempt.raised:
        attempt.problem = "the tasks stood still at the end"
    if not threads:
        attempt.missing = "the cluster had no workers"
    if len(set(threads.values())) > 1:
        attempt.warnings.append(
            f"workers have different numbers of threads; the metrics assume {each} per worker (the mean, rounded up)"
        )
    point = Point(len(threads) or 1, each)
    state, reason = judge(attempt)
    trial = Trial(
        *(PlannedTrial(0, point, 0).key, point, 0, False, state, reason),
        started_at=recorded.started_at,
        real_s=recorded.real_s,
        facts={
            **{fact: value for fact, value in attempt.facts.items() if value is not None},
            "packages": dict(packages),
        },
        warnings=tuple(attempt.warnings),
    )
    trial, tables = judged(trial, spools, attempt.elapsed_s)
    if stands and not any(finding.severity is Severity.HIGH for finding in trial.findings):
        trial = replace(trial, reason=f"{trial.reason}; {Standstill.from_mapping(stands).sentence()}")
    trial = replace(trial, records="in memory")
    reachable = "inproc:0" if address.startswith("inproc") else address  # `SchedulerSpec` needs HOST:PORT
    cluster = cluster_spec({"kind": "scheduler", "address": reachable})
    sweep = Sweep(recorded.name, cluster=cluster, points=({"workers": point.workers},))
    judgement = verdict.diagnose(sweep, [trial])
    run = SweepRun("", sweep, 1, RunState.COMPLETE, 1, (trial,), judgement, recorded.started_at)
    known = {"packages": dict(packages)}
    return replace(run, finished_at=datetime.now(UTC).isoformat(), facts=known), tables


def _complete(recorded: Recorded, spools: Path, end: str) -> None:
    """Add to an unfinished recording its workers, and the reason why it is unfinished."""
    if end and not recorded.attempt.raised:
        recorded.attempt.raised = end
    workers = worker_rows(recorded.members)
    if workers["worker"] and "workers" not in spool.read(spools / "tasks.spool", partial=True):
        with open(spools / "workers.spool", "wb", opener=opener) as stream:
            spool.write_chunk(stream, "workers", workers)
