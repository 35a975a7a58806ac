"""Sized clusters on a real Slurm: the code runs as it stands, and tasks that outlive their jobs are named in time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec
from scalescope.run.progress import Progress
from scalescope.run.runner import Runner
from scalescope.run.sweep import run_sweep
from scalescope.studies.sizing import as_code
from scalescope.studies.sizing.choice import Configuration, SecondGroup

SHOWN = """
import json
client.wait_for_workers({workers}, timeout=120)
told = client.scheduler_info(n_workers=-1)["workers"].values()
print(json.dumps(sorted([each["nthreads"], each["memory_limit"] // 2**20, each["resources"]] for each in told)))
cluster.close()
"""
JOB = """
import time

def work(client, *, seconds: float = 0.1):
    client.gather(client.map(time.sleep, [seconds] * 4, pure=False))
"""


class _Heard(Runner):
    """Notes how many jobs there were when something was told."""

    def __init__(self, slurm: Any) -> None:
        self.slurm, self.told = slurm, list[tuple[str, int]]()

    def tell(self, progress: Progress) -> None:
        if "walltime" in progress.text:
            self.told.append((progress.text, len(self.slurm.run("squeue", "-h").split())))


@pytest.mark.parametrize(
    "group", [None, pytest.param(SecondGroup("merge", 1, 1, 600, 400), marks=pytest.mark.thorough)]
)
def test_the_code_generated_for_a_slurm_cluster_runs_unchanged(
    in_slurm: Any, tmp_path: Path, group: SecondGroup | None
) -> None:
    chosen = Configuration(2, 1, 400, 10.0, 9.0, 11.0, 0.1)
    code = as_code._slurm(chosen, group, SlurmSpec(), "00:05:00") + SHOWN.format(workers=3 if group else 2)
    (tmp_path / "sized.py").write_text(code)
    environ = {**os.environ, "SLURM_CONF": str(in_slurm.conf)}
    command = [sys.executable, "sized.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ, timeout=240)
    assert not done.returncode, done.stderr
    others = [[1, 600, {as_code.RESOURCE: 1}]] if group else []
    assert json.loads(done.stdout.splitlines()[-1]) == [[1, 400, {}]] * 2 + others
    in_slurm.run("scancel", "--user", str(os.getuid()))


def test_tasks_that_do_not_fit_are_named_before_jobs_are_submitted(
    in_slurm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SCALESCOPE_LEASES", str(tmp_path / "leases"))
    (tmp_path / "job.py").write_text(JOB)
    asked = {"workload": f"{tmp_path / 'job.py'}:work", "axes": {"workers": [1]}, "store": str(tmp_path / "runs.db")}
    run_sweep({**asked, "params": {"seconds": 200.0}})
    heard = _Heard(in_slurm)
    slurm = {"kind": "slurm", "walltime": "00:06:00", "memory_mb": 400, "start_timeout_s": 120.0}
    done = run_sweep({**asked, "params": {"seconds": 0.1}, "cluster": slurm}, heard)
    assert done.valid == 1
    [(text, jobs)] = heard.told
    assert "`sleep`" in text
    assert "second task" in text
    assert jobs == 0
