"""GPU cases through the whole chain, on worker processes that see the stand-in for NVML."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import matrix
from cases import local

STAND_IN = Path(__file__).parents[1] / "stand_in"
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
def test_what_holds_gpus_back_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVML_CARD", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(STAND_IN), os.environ.get("PYTHONPATH")))))
    results = matrix.run(CASES)
    assert [(each.case.name, each.codes) for each in results if not each.right and not each.spoilt] == []
    measured = [trial.metrics for each in results for trial in each.trials if trial.metrics]
    assert len(measured) == 7
    for metrics in measured:
        assert sum(metrics.gpu_time_s.values()) == pytest.approx(metrics.worker_time_s["busy"])
