from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scalescope.errors import BudgetSpent, InvalidField
from scalescope.run import engine, prices
from scalescope.store.schema import RunState

SWEEP: dict[str, Any] = {"workload": "futures-map", "axes": {"workers": [1, 2, 4]}, "params": {"items": 4}}


def carry_out(request: engine.Request) -> tuple[int, RunState]:
    """Trials that ran, and what became of the run."""
    finished = []
    with request.open_store() as store:
        run, waiting = engine.begin(request, store)
        session = engine.Session(request, run.id, store)
        try:
            engine.run_trials(session, waiting, finished=finished.append)
            engine.analyse(store, run.id)
        except BudgetSpent as error:
            engine.abort(store, run.id, error)
            assert session.pids == []
        return len(finished), store.run(run.id).state


def test_a_sweep_within_its_budget_runs_to_its_end(fake: Any, address: str) -> None:
    assert carry_out(engine.check(SWEEP, store=address, budget={"hours": 1})) == (3, RunState.COMPLETE)


def test_a_budget_ends_a_sweep_and_a_larger_one_continues_it(fake: Any, address: str) -> None:
    assert carry_out(engine.check(SWEEP, store=address, budget={"hours": 1e-12})) == (1, RunState.STOPPED)
    assert carry_out(engine.check(SWEEP, store=address, budget={"hours": 1e-12})) == (0, RunState.STOPPED)
    assert carry_out(engine.check(SWEEP, store=address)) == (2, RunState.COMPLETE)


def test_the_price_table_comes_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    table = tmp_path / "prices.yaml"
    table.write_text("currency: USD\nworker_hour: {gpu: 2.5}\n")
    monkeypatch.setenv(prices.VARIABLE, str(table))
    sweep = {**SWEEP, "cluster": {"kind": "slurm", "partition": "gpu"}}
    request = engine.check(sweep, store=address, budget={"money": 10})
    assert request.budget is not None
    assert request.budget.prices.of(request.sweep.cluster) == 2.5
    with pytest.raises(InvalidField, match="a worker-hour of cpu has no price"):
        engine.check({**SWEEP, "cluster": {"kind": "slurm", "partition": "cpu"}}, store=address, budget={"money": 10})
    table.write_text("worker_hour: [")
    with pytest.raises(InvalidField, match=prices.VARIABLE):
        engine.check(sweep, store=address, budget={"money": 10})
    monkeypatch.delenv(prices.VARIABLE)
    assert prices.load().of(request.sweep.cluster) is None
