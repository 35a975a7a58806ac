"""What must hold for every kind of cluster, and for the folders that they are found in."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest

from scalescope import clusters
from scalescope.clusters.jobqueue.reach_scheduler import UNREACHABLE_STATUS
from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec
from scalescope.clusters.jobqueue.worker_process import EXIT_NO_GPU
from scalescope.clusters.ssh.spec import SshSpec
from scalescope.errors import UsageError
from scalescope.model.cluster import ClusterSpec, cluster_spec, kinds
from scalescope.model.parameters import declared
from scalescope.slurm import failures
from scalescope.slurm.jobs import SlurmJob

MEMORY = {"memory_mb": 4096}


def example(kind: str) -> ClusterSpec:
    spec = kinds()[kind]
    return spec(**({} if spec.proven else MEMORY), **spec.example)


@pytest.mark.parametrize("kind", kinds())
def test_a_kind_says_what_it_is_and_can_be_built(kind: str) -> None:
    spec = example(kind)
    assert spec.summary().endswith(".")
    assert spec.title
    assert all(each.about.help.endswith(".") for each in declared(type(spec)))
    cluster = clusters.build(spec)
    assert (cluster.kind, cluster.spec) == (kind, spec)
    assert cluster.shows
    assert cluster.cannot_show


@pytest.mark.parametrize("kind", kinds())
def test_a_specification_can_be_sent_to_another_process(kind: str) -> None:
    assert pickle.loads(pickle.dumps(example(kind))) == example(kind)


def test_those_that_cost_nothing_come_first() -> None:
    assert (
        list(kinds())[:3] == [kind for kind, spec in kinds().items() if spec.here] == ["simulated", "virtual", "local"]
    )
    assert [kind for kind, spec in kinds().items() if not spec.proven] == list(kinds())[-6:]


def test_specifications_need_the_standard_library_alone() -> None:
    """The simulated clock is installed before anything else is loaded; and a driver may lack what a cluster needs."""
    code = """
import sys
from scalescope.model.cluster import kinds
assert len(kinds()) > 10
print(sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - {"scalescope"}))
"""
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.strip() == "['__main__']"


@pytest.mark.parametrize(
    ("spec", "missing", "says"),
    [
        (SshSpec(hosts=("a",)), "asyncssh", 'pip install "scalescope[ssh]"'),
        (SlurmSpec(), "dask_jobqueue", 'pip install "scalescope[slurm]"'),
        (SlurmSpec(), "cryptography", 'pip install "scalescope[slurm]"'),
    ],
)
def test_a_missing_package_is_named_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, spec: ClusterSpec, missing: str, says: str
) -> None:
    spec.require()
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=missing.replace("_", "-")) as caught:
        spec.require()
    assert caught.value.next_step == says
    with pytest.raises(UsageError):
        clusters.build(spec)
    if missing == "cryptography":  # it makes the certificates
        SlurmSpec(tls=False).require()


def test_every_kind_has_a_cluster() -> None:
    assert clusters.CLUSTERS.keys() == kinds().keys()


def test_exit_statuses_of_jobs_have_a_meaning() -> None:
    for status, category in ((UNREACHABLE_STATUS, "scheduler-unreachable"), (EXIT_NO_GPU, "too-few-gpus")):
        job = SlurmJob("7", "name", "FAILED", exit_code=f"{status}:0")
        assert failures.ended(job, of_workers=True).category == category


# Sweeps that were begun are found again by these digests: they must never change.
DIGESTS: list[tuple[Any, str]] = [
    ("simulated", "59e7fcd23015"),
    ({"kind": "simulated", "task_cost": "cpu", "scheduler_us": 30}, "ba1e9f12655c"),
    ({"kind": "simulated", "task_cost": "recorded", "durations": {"b": 1, "a": 0.5}}, "19c5b5691b57"),
    ("virtual", "04490a3766da"),
    ({"kind": "virtual", "hosts": 3, "check_limit": False, "start_timeout_s": 60}, "13d8739b4b52"),
    ("local", "44b7ca0d518e"),
    ({"kind": "local", "memory_limit_mb": 512}, "762e289c485b"),
    ("slurm", "6bc43171dc07"),
    ({"kind": "slurm", "workers_per_job": 8, "processes": 2, "cores": 16}, "c6639dca95b5"),
    ({"kind": "ssh", "hosts": "a,b"}, "926332ed1966"),
    (
        {"kind": "ssh", "hosts": ["node1"], "username": "me", "port": 2222, "key_file": "~/.ssh/id"},
        "ccab3567ac82",
    ),
    ({"kind": "scheduler", "address": "tcp://10.0.0.7:8786"}, "0e8fb1fe21cc"),
    ({"kind": "scheduler", "scheduler_file": "~/s.json", "start_timeout_s": 5}, "c80d4f53e5ef"),
    ({"kind": "custom", "cluster_class": "a.b:C"}, "27f22eab1f3c"),
    (
        {
            "kind": "custom",
            "cluster_class": "a.b:C",
            "arguments": '{"n":[1,{"x":null}]}',
            "secrets": {"token": "MY_TOKEN"},
        },
        "3135d1a6aa00",
    ),
    (
        {
            "kind": "slurm",
            "partition": "gpu,long",
            "account": 4711,
            "qos": "high",
            "walltime": "1-02:30:00",
            "memory_mb": 64_000,
            "gpus": 4,
            "gres": "gpu:h200,nvme:1",
            "constraint": "ib&[a100*2|h100]",
            "exclude": "n[1-3]",
            "interface": "ib0",
            "local_directory": "${SCRATCH}/dask",
            "prologue": "module load a\nmodule load b",
            "directives_add": ["--nice=100"],
            "directives_skip": ["-n 1"],
            "lifetime_s": 3600,
            "lifetime_stagger_s": 600,
            "tls": False,
        },
        "a4a730fb2846",
    ),
    ({"kind": "pbs", "memory_mb": 4096}, "bec6f06d9d24"),
    ({"kind": "lsf", "memory_mb": 4096}, "e74ca61891c8"),
    ({"kind": "htcondor", "memory_mb": 4096}, "6638edce1aef"),
]


@pytest.mark.parametrize(("given", "digest"), DIGESTS)
def test_a_sweep_keeps_its_id(given: Any, digest: str) -> None:
    from scalescope.model.sweep import Sweep

    assert Sweep("futures-map", cluster_spec(given)).id == digest
