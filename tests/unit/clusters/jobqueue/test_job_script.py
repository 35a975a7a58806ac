"""Job scripts as text. For systems other than Slurm and Grid Engine nothing else is tested: none was ever run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dask.utils import parse_bytes

from scalescope.clusters.jobqueue import job_script
from scalescope.clusters.jobqueue.base_spec import JobQueueSpec, JobRequest
from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec
from scalescope.clusters.jobqueue.systems import HtcondorSpec, LsfSpec, MoabSpec, OarSpec, PbsSpec, SgeSpec
from scalescope.errors import InvalidField

REQUEST = JobRequest("3", 4, 2, label="scalescope-0123456789ab", address="tls://10.0.0.1:7", folder="/home/me/x")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a temporary folder, since dask-jobqueue makes the folder of the logs."""
    monkeypatch.chdir(tmp_path)


def directives(text: str, mark: str = "#SBATCH ") -> list[str]:
    return [line.removeprefix(mark) for line in text.splitlines() if line.startswith(mark)]


def text(spec: JobQueueSpec, request: JobRequest = REQUEST) -> str:
    return str(job_script.job(spec, request).job_script())


def command(found: str) -> list[str]:
    return found.strip().splitlines()[-1].split()


def option(found: str, name: str) -> str:
    """The value of an option: the last one if it is given twice."""
    words = command(found)
    return words[len(words) - words[::-1].index(name)]


# ------------------------------------------------------------------ Slurm


def test_a_slurm_job_script_of_default_options_is_complete() -> None:
    found = text(SlurmSpec(workers_per_job=4))
    assert directives(found) == [
        "-J scalescope-0123456789ab",
        "-n 1",
        "--cpus-per-task=8",
        "-t 01:00:00",
        '--error="/home/me/x/logs/3-%j.err"',
        '--output="/home/me/x/logs/3-%j.out"',
        "--comment=scalescope-0123456789ab",
        "--no-requeue",
    ]
    checked = subprocess.run(["bash", "-n"], input=found, text=True, capture_output=True, check=False)
    assert checked.stderr == ""
    words = command(found)
    assert words[:4] == [sys.executable, "-m", job_script.HOST, "tls://10.0.0.1:7"]
    assert [option(found, name) for name in ("--name", "--workers", "--nthreads")] == ["3", "4", "2"]
    assert words.count("--memory-limit") == words.count("--nthreads") == 1
    assert parse_bytes(option(found, "--memory-limit")) == 0
    assert "--processes" not in words
    assert option(found, "--tls-key") == "/home/me/x/tls/key.pem"


def test_a_slurm_job_script_contains_every_given_option() -> None:
    spec = SlurmSpec(
        partition="gpu,long",
        account="team",
        qos="high",
        walltime="1-02",
        cores=32,
        memory_mb=64_000,
        gpus=4,
        gres="gpu:h200,nvme:1",
        constraint="ib&[a100*2|h100]",
        exclude="n[1-3]",
        interface="ib0",
        local_directory="${SCRATCH}/dask",
        python="/opt/env/bin/python",
        prologue=("module load cuda",),
        directives_add=("--nice=100",),
        directives_skip=("-n 1",),
        lifetime_s=3600,
        lifetime_stagger_s=60,
        tls=False,
    )
    found = text(spec)
    given = directives(found)
    assert "-n 1" not in given
    for line in ("-p gpu,long", "-A team", "--qos=high", "-t 1-02", "--cpus-per-task=32", "--mem=64000M", "--nice=100"):
        assert line in given
    assert "--gres=gpu:h200:4,nvme:1" in given
    assert "--constraint=ib&[a100*2|h100]" in given
    assert "--exclude=n[1-3]" in given
    assert option(found, "--interface") == "ib0"
    assert option(found, "--local-directory") == '"${SCRATCH}/dask"'
    assert option(found, "--nthreads") == "2"  # not the cores of the job by its workers
    assert option(found, "--lifetime-stagger") == "60s"
    assert command(found)[0] == "/opt/env/bin/python"
    assert "--gpus" in command(found)
    assert "tls" not in command(found)[4:]
    lines = found.splitlines()
    assert lines.index("module load cuda") < next(i for i, line in enumerate(lines) if "PYTHONPATH" in line)


def test_a_job_with_fewer_workers_requests_fewer_resources() -> None:
    spec = SlurmSpec(gpus=4, memory_mb=8192, tls=False)
    found = text(spec, JobRequest("1", 1, 2))
    assert {"--gres=gpu:1", "--mem=2048M", "--cpus-per-task=2"} <= set(directives(found))


def test_dask_cuda_starts_the_workers_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_script, "has_dask_cuda", lambda: True)
    assert not job_script.uses_dask_cuda(SlurmSpec())
    spec = SlurmSpec(gpus=2, interface="ib0", cuda_options=("--rmm-pool-size=0.8", "--enable-cudf-spill"))
    found = job_script.text(spec, 2, 1)
    assert " -m dask cuda worker tls://" in found
    assert {"--rmm-pool-size=0.8", "--enable-cudf-spill"} <= set(command(found))
    assert option(found, "--local-directory") == '"${TMPDIR:-/tmp}"'
    assert "--workers" not in command(found)
    assert {"--tls-key", "--no-dashboard", "scalescope.clusters.no_http"} <= set(command(found))
    assert "--death-timeout" not in command(found)  # dask cuda ends at an unknown option
    monkeypatch.setattr(job_script, "has_dask_cuda", lambda: False)
    with pytest.raises(InvalidField) as caught:
        job_script.text(spec, 2, 1)
    assert caught.value.field == "cluster.cuda_options"


def test_a_previewed_job_script_has_placeholders_for_values_known_later(tmp_path: Path) -> None:
    found = job_script.text(SlurmSpec(workers_per_job=8), 100, 1)
    for word in ("scalescope-LABEL", "FOLDER/logs", "tls://SCHEDULER:0", "--workers 8"):
        assert word in found
    assert "--workers 3 " in job_script.text(SlurmSpec(workers_per_job=8), 3, 1)
    assert "tcp://SCHEDULER:0" in job_script.text(SlurmSpec(tls=False), 3, 1)
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ the others


OTHERS: list[tuple[JobQueueSpec, str, list[str]]] = [
    (
        PbsSpec(memory_mb=4096, queue="workq", account="team", directives_add=("-j oe",)),
        "#PBS ",
        ["-N scalescope-0123456789ab", "-q workq", "-A team", "-l walltime=01:00:00", "-j oe"],
    ),
    (PbsSpec(memory_mb=1, resource_spec="select=1:ncpus=9"), "#PBS ", ["-l select=1:ncpus=9"]),
    (PbsSpec(memory_mb=40_960, workers_per_job=4), "#PBS ", ["-l select=1:ncpus=8:mem=40GB"]),
    (MoabSpec(memory_mb=4096, queue="batch"), "#PBS ", ["-N scalescope-0123456789ab", "-q batch"]),
    (
        LsfSpec(memory_mb=4096, queue="normal", account="team", walltime="10:30:01"),
        "#BSUB ",
        ["-J scalescope-0123456789ab", "-q normal", '-P "team"', "-n 8", "-W 10:31"],
    ),
    (
        SgeSpec(queue="all.q", account="team", parallel_environment="smp", directives_add=("-p -5",)),
        "#$ ",
        ["-N scalescope-0123456789ab", "-q all.q", "-P team", "-l h_rt=01:00:00", "-pe smp 8", "-S /bin/bash", "-p -5"],
    ),
    (
        OarSpec(memory_mb=4096, account="team"),
        "#OAR ",
        ["-n scalescope-0123456789ab", "--project team", "-l /nodes=1/core=8,walltime=01:00:00"],
    ),
]


@pytest.mark.parametrize(("spec", "mark", "expected"), OTHERS, ids=lambda value: getattr(value, "kind", ""))
def test_job_scripts_of_other_batch_systems_contain_their_directives(
    spec: JobQueueSpec, mark: str, expected: list[str]
) -> None:
    found = text(spec)
    assert set(expected) <= set(directives(found, mark))
    assert command(found)[1:3] == ["-m", job_script.HOST]
    assert option(found, "--nthreads") == "2"


def test_htcondor_jobs_get_their_memory_in_bytes_and_their_accounting_group() -> None:
    added = {"directives_add": ("+Group = a=b",), "prologue": ("true",)}
    found = text(HtcondorSpec(memory_mb=4096, workers_per_job=4, account="team", disk_mb=10, **added))
    given = dict(line.split(" = ", 1) for line in found.splitlines() if " = " in line)
    expected = {"batch_name": "scalescope-0123456789ab", "accounting_group": "team", "+Group": "a=b"}
    expected |= {"allowed_job_duration": "3600", "MY.DaskWorkerMemory": str(4096 * 2**20), "MY.DaskWorkerCores": "8"}
    assert expected.items() <= given.items()
    assert given["Arguments"].startswith("\"-c 'true; export PYTHONPATH")
    assert found.rstrip().endswith("Queue")


NEVER_RUN = [spec for spec in (*(each[0] for each in OTHERS), HtcondorSpec(memory_mb=1)) if not spec.proven]


@pytest.mark.parametrize("spec", NEVER_RUN, ids=lambda spec: spec.kind)
def test_a_cluster_can_be_built_for_every_batch_system(spec: JobQueueSpec) -> None:
    from scalescope import clusters

    built: Any = clusters.build(spec)
    assert built.kind == spec.kind
    assert not built.spec.proven
