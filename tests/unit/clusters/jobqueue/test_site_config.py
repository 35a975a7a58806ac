"""Configuration that sites have published for dask-jobqueue, shortened, gives the defaults of fields."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import pytest

from scalescope.clusters.jobqueue import job_script
from scalescope.clusters.jobqueue.base_spec import JobQueueSpec
from scalescope.errors import InvalidField
from scalescope.model.cluster import cluster_spec

Write = Callable[[str], Path]

CHEYENNE = """
distributed: {worker: {memory: {spill: false}}}
jobqueue:
  pbs:
    name: dask-worker
    cores: 36
    memory: '109 GB'
    processes: 9
    interface: ib0
    queue: regular
    walltime: '00:30:00'
    resource-spec: select=1:ncpus=36:mem=109GB
  slurm:
    cores: 1
    memory: '25 GB'
    project: PXYZ123
    job-extra: {-C geyser}
"""
CORI = """
jobqueue:
  slurm:
    cores: 64
    memory: 115GB
    processes: 4
    queue: debug
    walltime: '00:10:00'
    job-extra: ['-C haswell', '-L project, SCRATCH, cscratch1']
"""
COMET = """
jobqueue:
  slurm:
    cores: 24
    memory: 120GB
    processes: 1
    interface: ib0
    death-timeout: 60
    local-directory: /scratch/$USER/$SLURM_JOB_ID
    queue: compute
    walltime: '00:30:00'
    job-mem: 120GB
"""
LEVANTE = """
jobqueue:
  slurm:
    queue: compute
    account: ab0246
    cores: 4
    processes: 4
    memory: 128GB
    walltime: '00:30:00'
    interface: ib0
    job-extra-directives: [--exclusive, --nodes=1]
    worker-extra: [--nthreads, 4]
    job-cpu: 128
    scheduler-options: {interface: eth0, dashboard_address: ':46405'}
"""
CALIFORNIA = """
jobqueue:
  slurm:
    cores: 10
    processes: 5
    memory: 120GB
    walltime: 0-2:00:00
    queue: standard
    account: lab
    local-directory: $TMPDIR
    job-extra-directives: [--cpus-per-task=1]
    job-script-prologue: [module load python, ulimit -n 4096]
"""
LSF = "jobqueue: {lsf: {cores: 2, processes: 2, memory: 4GiB, ncpus: 4, walltime: '01:30', project: p, lsf-units: MB}}"

SITES: dict[str, tuple[str, str, dict[str, Any], set[str], list[str]]] = {
    "Cheyenne": (
        "pbs",
        CHEYENNE,
        {
            **{"cores": 36, "workers_per_job": 9, "memory_mb": 103951, "interface": "ib0", "queue": "regular"},
            **{"walltime": "00:30:00", "resource_spec": "select=1:ncpus=36:mem=109GB"},
        },
        {"name"},
        ["threads_per_worker to 4"],
    ),
    "Geyser": (
        "slurm",
        CHEYENNE,
        {"cores": 1, "memory_mb": 23842, "account": "PXYZ123", "directives_add": ("-C geyser",)},
        set(),
        [],
    ),
    "Cori": (
        "slurm",
        CORI,
        {
            **{"cores": 64, "workers_per_job": 4, "memory_mb": 109673, "partition": "debug", "walltime": "00:10:00"},
            "directives_add": ("-C haswell",),
        },
        {"job-extra (-L project, SCRATCH, cscratch1)"},
        ["threads_per_worker to 16"],
    ),
    "Comet": (
        "slurm",
        COMET,
        {
            **{"cores": 24, "workers_per_job": 1, "memory_mb": 114441, "partition": "compute", "walltime": "00:30:00"},
            **{"interface": "ib0", "local_directory": "/scratch/$USER/$SLURM_JOB_ID"},
        },
        {"death-timeout", "job-mem"},
        ["threads_per_worker to 24"],
    ),
    "Levante": (
        "slurm",
        LEVANTE,
        {
            **{"cores": 4, "workers_per_job": 4, "memory_mb": 122071, "partition": "compute", "walltime": "00:30:00"},
            **{"account": "ab0246", "interface": "ib0", "scheduler_interface": "eth0"},
            "directives_add": ("--exclusive", "--nodes=1"),
        },
        {"job-cpu", "worker-extra", "scheduler-options"},
        [],
    ),
    "California": (
        "slurm",
        CALIFORNIA,
        {
            **{"cores": 10, "workers_per_job": 5, "memory_mb": 114441, "partition": "standard", "account": "lab"},
            **{"walltime": "0-2:00:00", "local_directory": "$TMPDIR", "directives_add": ("--cpus-per-task=1",)},
            "prologue": ("module load python", "ulimit -n 4096"),
        },
        set(),
        ["threads_per_worker to 2", "`--cpus-per-task=1` asks for 1"],
    ),
    "a site with LSF": (
        "lsf",
        LSF,
        {"cores": 2, "workers_per_job": 2, "memory_mb": 4096, "walltime": "01:30", "account": "p"},
        {"ncpus"},
        [],
    ),
}


@pytest.mark.parametrize("name", SITES)
def test_the_configuration_of_a_site_gives_the_defaults(site: Write, name: str) -> None:
    kind, text, expected, left_out, notes = SITES[name]
    path = site(text)
    spec = cluster_spec(kind)
    assert isinstance(spec, JobQueueSpec)
    assert {field: getattr(spec, field) for field in expected} == expected
    assert spec.of_site() == dict.fromkeys(expected, str(path))
    assert set(spec.site_config().left_out) == left_out
    assert len(spec.notes(1)) == len(notes)
    assert all(text in note for text, note in zip(notes, spec.notes(1), strict=True))
    assert cluster_spec(spec.to_mapping()) == spec


def test_given_values_override_the_configuration_of_a_site(site: Write) -> None:
    site(CALIFORNIA)
    given = {"partition": "", "account": "", "cores": 0, "workers_per_job": 0, "local_directory": "", "prologue": ()}
    spec = cluster_spec({"kind": "slurm", **given, "walltime": "10", "directives_add": []})
    assert spec.of_site() == {"memory_mb": str(dask.config.paths[0])}
    assert isinstance(spec, JobQueueSpec)
    text = job_script.text(spec, 1, 1)
    assert "#SBATCH -t 10\n" in text
    for word in ("#SBATCH -p", "#SBATCH -A", "module load", "--local-directory"):
        assert word not in text


def test_the_error_for_an_impossible_default_of_a_site_names_its_file(site: Write) -> None:
    path = site(CALIFORNIA)
    with pytest.raises(InvalidField) as found:
        cluster_spec({"kind": "slurm", "gpus": 4})
    assert found.value.field == "cluster.workers_per_job"
    assert str(path) in found.value.next_step
    assert cluster_spec({"kind": "slurm", "gpus": 4, "workers_per_job": 0}).of_site()["partition"] == str(path)


def test_environment_variables_override_files_of_a_site(site: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    site(CALIFORNIA)
    monkeypatch.setenv("DASK_JOBQUEUE__SLURM__QUEUE", "night")
    monkeypatch.setenv("DASK_JOBQUEUE__SLURM__WALLTIME", "36000")  # as YAML reads 10:00:00
    spec = cluster_spec("slurm")
    assert (spec.to_mapping()["partition"], spec.of_site()["partition"]) == ("night", "environment")
    assert "walltime" in spec.site_config().left_out
    assert spec.to_mapping()["walltime"] == "01:00:00"
