"""What must hold for every kind of cluster, and for the folders that they are found in."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pkgutil import resolve_name

import pytest

from scalescope import clusters
from scalescope.clusters.jobqueue.reach_scheduler import UNREACHABLE_STATUS
from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec
from scalescope.clusters.jobqueue.worker_process import EXIT_NO_GPU
from scalescope.clusters.ssh.spec import SshSpec
from scalescope.errors import UsageError
from scalescope.model.cluster import ClusterSpec, kinds
from scalescope.model.extras import install_command
from scalescope.model.parameters import declared
from scalescope.slurm import failures
from scalescope.slurm.jobs import SlurmJob

MEMORY = {"memory_mb": 4096}


def example(kind: str) -> ClusterSpec:
    spec = kinds()[kind]
    return spec(**({} if spec.proven else MEMORY), **spec.example)


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_of_cluster_is_described_can_be_built_and_pickled(kind: str) -> None:
    spec = example(kind)
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert spec.summary().endswith(".")
    assert spec.title
    assert all(each.about.help.endswith(".") for each in declared(type(spec)))
    cluster = clusters.build(spec)
    assert (cluster.kind, cluster.spec) == (kind, spec)
    assert cluster.shows
    assert cluster.cannot_show


def test_kinds_of_clusters_on_this_machine_are_listed_first() -> None:
    assert list(kinds())[:3] == ["simulated", "light", "local"]
    order = [(not spec.here, not spec.proven) for spec in kinds().values()]
    assert order == sorted(order)


def test_cluster_specifications_need_only_the_standard_library() -> None:
    """The simulated clock is installed before anything else is loaded, and a driver may lack packages of a cluster."""
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
    ("spec", "missing", "extra"),
    [
        (SshSpec(hosts=("a",)), "asyncssh", "ssh"),
        (SlurmSpec(), "dask_jobqueue", "slurm"),
        (SlurmSpec(), "cryptography", "slurm"),
    ],
)
def test_a_missing_package_is_named_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, spec: ClusterSpec, missing: str, extra: str
) -> None:
    spec.require()
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError) as caught:
        spec.require()
    assert missing.replace("_", "-") in caught.value.what
    assert caught.value.next_step == install_command(extra)
    with pytest.raises(UsageError):
        clusters.build(spec)
    if missing == "cryptography":  # it makes the certificates
        SlurmSpec(tls=False).require()


def test_the_reaper_of_every_kind_of_cluster_can_be_loaded() -> None:
    names = {kind: spec.reaper for kind, spec in kinds().items() if spec.reaper}
    assert {"kubernetes", "slurm", "pbs"} < names.keys()
    assert all(callable(resolve_name(name)) for name in (*names.values(), kinds()["kubernetes"].reaper_of_others))


def test_exit_statuses_of_worker_processes_have_a_category() -> None:
    for status, category in ((UNREACHABLE_STATUS, "scheduler-unreachable"), (EXIT_NO_GPU, "too-few-gpus")):
        job = SlurmJob("7", "name", "FAILED", exit_code=f"{status}:0")
        assert failures.ended(job, of_workers=True).category == category
