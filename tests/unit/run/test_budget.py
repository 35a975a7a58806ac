from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.requests import asked

from scalescope.errors import BudgetSpent, InvalidField
from scalescope.run import price_table
from scalescope.run.drivers import Drivers
from scalescope.run.request import RunRequest
from scalescope.run.sweep import abort, analyse, begin
from scalescope.run.trials import run_trials
from scalescope.store.schema import RunState

SWEEP: dict[str, Any] = {"workload": "futures-map", "axes": {"workers": [1, 2, 4]}, "params": {"items": 4}}


def carry_out(request: RunRequest) -> tuple[int, RunState]:
    """Trials that ran, and what became of the run."""
    finished = []
    with request.open_store() as store:
        run, waiting = begin(request, store)
        session = Drivers(request, run.id, store)
        try:
            run_trials(session, waiting, finished=finished.append)
            analyse(store, run.id)
        except BudgetSpent as error:
            abort(store, run.id, error)
            assert session.pids == []
        return len(finished), store.run(run.id).state


def test_a_sweep_within_its_budget_runs_to_its_end(fake: Any, address: str) -> None:
    assert carry_out(asked(SWEEP, store=address, budget={"hours": 1})) == (3, RunState.COMPLETE)


def test_a_budget_ends_a_sweep_and_a_larger_one_continues_it(fake: Any, address: str) -> None:
    assert carry_out(asked(SWEEP, store=address, budget={"hours": 0.01})) == (0, RunState.STOPPED)
    assert carry_out(asked(SWEEP, store=address)) == (3, RunState.COMPLETE)


def test_the_price_table_comes_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    table = tmp_path / "price_table.yaml"
    table.write_text("currency: USD\nworker_hour: {gpu: 2.5}\n")
    monkeypatch.setenv(price_table.VARIABLE, str(table))
    sweep = {**SWEEP, "cluster": {"kind": "slurm", "partition": "gpu"}}
    request = asked(sweep, store=address, budget={"money": 10})
    assert request.budget is not None
    assert request.budget.prices.of(request.sweep.cluster) == 2.5
    with pytest.raises(InvalidField, match="a worker-hour of cpu has no price"):
        asked({**SWEEP, "cluster": {"kind": "slurm", "partition": "cpu"}}, store=address, budget={"money": 10})
    table.write_text("worker_hour: [")
    with pytest.raises(InvalidField, match=price_table.VARIABLE):
        asked(sweep, store=address, budget={"money": 10})
    monkeypatch.delenv(price_table.VARIABLE)
    assert price_table.load().of(request.sweep.cluster) is None
