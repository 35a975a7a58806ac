"""GPU cases through the whole chain, on worker processes that see the stand-in for NVML."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import wait_for

sys.path.insert(0, str(Path(__file__).parent))

import matrix
from cases import Case, local

STAND_IN = Path(__file__).parents[1] / "stand_in"
SEEN = os.pathsep.join(filter(None, (str(STAND_IN), os.environ.get("PYTHONPATH"))))
TASKS = f"{STAND_IN / 'card_tasks.py'}:run"
CASES = (
    local("healthy/gpu-fed", TASKS, 1, items=15, kernel_s=0.2),
    local("gpu-starved/reads", TASKS, 1, items=15, kernel_s=0.1, read_s=0.3),
    local("gpu-starved/python", TASKS, 1, items=15, kernel_s=0.1, python_s=0.3),
    local("gpu-contended/2-to-8", TASKS, (2, 4, 8), items=24, kernel_s=0.1),
    local("gpu-unused/prepares", TASKS, 2, items=6, kernel_s=0.4, others=30),
    local("gpu-missing/raises", TASKS, 1, error="No CUDA GPUs are available"),
    local("gpu-memory-full/raises", TASKS, 1, error="CUDA out of memory. Tried to allocate 58.59 GiB"),
)


@pytest.mark.thorough  # half a minute of worker processes; the rules are tested on tables
def test_each_gpu_case_has_its_expected_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVML_CARD", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", SEEN)
    results = matrix.run(CASES)
    assert [(each.case.name, each.codes) for each in results if not each.right and not each.spoilt] == []
    measured = [trial.metrics for each in results for trial in each.trials if trial.metrics]
    assert len(measured) == 7
    for metrics in measured:
        assert sum(metrics.gpu_time_s.values()) == pytest.approx(metrics.worker_time_s["busy"])


@pytest.fixture
def four_cards(tmp_path: Path) -> Iterator[str]:
    """Address of a scheduler with four workers, each with its own GPU: the folders `card-0` to `card-3`."""
    file, dask = tmp_path / "scheduler.json", [sys.executable, "-m", "dask"]
    where = ["--scheduler-file", str(file), "--no-dashboard"]
    with contextlib.ExitStack() as stack:

        def start(*arguments: str, **environ: str) -> None:
            environ = {**os.environ, "PYTHONPATH": SEEN, **environ}
            process = stack.enter_context(subprocess.Popen([*dask, *arguments, *where], env=environ))
            stack.callback(process.kill)

        start("scheduler", "--host", "127.0.0.1", "--port", "0")
        wait_for(file.exists, "the scheduler does not start")
        for i in range(4):
            (tmp_path / f"card-{i}").mkdir()
            start("worker", "--nthreads", "1", "--no-nanny", NVML_CARD=str(tmp_path / f"card-{i}"))
        yield json.loads(file.read_text())["address"]


@pytest.mark.thorough
def test_of_four_gpu_cards_the_one_slowed_by_heat_is_found(tmp_path: Path, four_cards: str) -> None:
    def found(name: str) -> list[str]:
        cluster = {"kind": "scheduler", "address": four_cards}
        case = Case(name, name.partition("/")[0], TASKS, (4,), cluster=cluster, params={"items": 60, "kernel_s": 0.2})
        [result] = matrix.run((case,))
        return [code for code in result.codes if code != "host-overloaded"]

    assert found("healthy/four-cards") in (["healthy"], [])
    (tmp_path / "card-2/card.json").write_text(json.dumps({"throttle": 0x40, "slower": 3}))
    assert found("gpu-slow/heat") == ["gpu-slow"]
