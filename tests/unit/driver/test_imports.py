"""Modules that a workload imports are imported in the scheduler and in every worker before its trial."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from scalescope.clusters.light.spec import LightSpec
from scalescope.clusters.local.spec import LocalSpec
from scalescope.driver import open_cluster
from scalescope.driver.open_cluster import OpenCluster
from scalescope.driver.process import Driver
from scalescope.driver.protocol import Open, RunTrial
from scalescope.driver.trial_run import TrialRunner
from scalescope.model.cluster import ClusterSpec
from scalescope.model.sweep import PlannedTrial, Point

WORKLOAD = """
    def computes(number):
        import beside
        import ends_the_process
        import not_there
        return beside.add(number)

    def another(number):
        import colorsys

    def lacking(client):
        client.map(computes, [])
        def lacks():
            import sys
            return "beside" not in sys.modules or "colorsys" in sys.modules
        return [*client.run(lacks).values(), client.run_on_scheduler(lacks)]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(textwrap.dedent(WORKLOAD))
    (tmp_path / "beside.py").write_text("def add(number):\n    return number + 1\n")
    (tmp_path / "ends_the_process.py").write_text("import sys\n\nsys.exit('no licence')\n")
    return tmp_path


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(LocalSpec(), id="local", marks=pytest.mark.thorough),
        pytest.param(LightSpec(hosts=2, check_limit=False), id="light"),
    ],
)
def test_modules_of_the_workload_are_imported_in_every_process_even_in_added_workers(
    spec: ClusterSpec, folder: Path, tmp_path: Path
) -> None:
    with Driver.start(spec, folder=tmp_path) as driver:
        for number, workers in enumerate([1, 3]):
            trial = PlannedTrial(number, Point(workers, 1), 0)
            outcome = driver.run(trial, f"{folder}/mine.py:lacking", timeout_s=60)
            assert outcome.reason == ""
            assert outcome.result == [False] * (workers + 1)


def test_a_slow_import_gives_a_warning_and_the_trial_runs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "beside.py").write_text("import time\n\ntime.sleep(2)\n")
    monkeypatch.setattr(open_cluster, "IMPORT_TIMEOUT_S", 0.5)
    monkeypatch.setattr(sys, "path", [*sys.path])
    opened = OpenCluster(lambda phase, limit_s, text: None)
    opened.open(Open(LightSpec(hosts=1, check_limit=False).to_mapping(), str(tmp_path)))
    try:
        attempt = TrialRunner(opened, "").run(
            RunTrial("k", Point(2, 1).to_mapping(), 0, False, f"{folder}/mine.py:lacking", 60.0, str(tmp_path))
        )
    finally:
        opened.clear()
        opened.close()
    assert attempt.raised == ""
    [warning] = attempt.warnings
    assert "(TimeoutError" in warning
