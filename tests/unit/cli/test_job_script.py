from __future__ import annotations

import json
import sys
import uuid

import pytest

from scalescope.cli import main as cli


def test_job_script_prints_the_script_that_would_be_submitted(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--cluster-option", "gpus=2", "--cluster-option", "walltime=10:00:00", "--workers", "7"]
    assert cli.run(["job-script", *options, "--cluster-option", "prologue=module load cuda"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("#!")
    for line in ("#SBATCH -t 10:00:00", "#SBATCH --gres=gpu:2", "module load cuda"):
        assert line in shown.splitlines()
    assert "--workers 2 --gpus" in shown


def test_json_output_has_the_jobs_and_the_script_of_pbs(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--cluster-option", "memory_mb=100", "--cluster-option", "workers_per_job=4", "--workers", "9"]
    assert cli.run(["job-script", "-c", "pbs", "--json", *options]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["jobs"] == 3
    assert shown["cluster"]["kind"] == "pbs"
    assert "#PBS -l select=1:ncpus=4:mem=100MB" in shown["job_script"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--cluster-option", "walltime=soon"], "cluster.walltime: expected a time"),
        (["-c", "local"], "a local cluster has no jobs"),
        (["-c", "slrum"], "did you mean 'slurm'"),
        (["--cluster-option", "cores=2", "--threads", "3"], "cluster.cores: expected at least 3"),
    ],
)
def test_job_script_of_an_impossible_cluster_is_refused(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["job-script", *arguments]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_job_script_without_dask_jobqueue_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "dask_jobqueue.slurm", None)
    assert cli.run(["job-script"]) == 2
    assert "[slurm]" in " ".join(capsys.readouterr().err.split())


def test_job_script_reads_a_cluster_saved_in_prefect(prefect_server: None, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"test-{uuid.uuid4().hex[:8]}"
    import scalescope_blocks

    scalescope_blocks.SlurmCluster(partition="long").save(name)
    assert cli.run(["job-script", "-c", f"slurm-cluster/{name}"]) == 0
    assert "#SBATCH -p long" in capsys.readouterr().out
