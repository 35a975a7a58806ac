"""Clusters of real jobs on a real Slurm."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import distributed
import pytest
from support import another_user

from scalescope import leases
from scalescope.clusters.jobqueue.slurm_cluster import SlurmCluster
from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec
from scalescope.driver.process import Driver
from scalescope.errors import ClusterError, JobsEnded
from scalescope.model.sweep import PlannedTrial, Point
from scalescope.model.trial import TrialState


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SCALESCOPE_LEASES", str(tmp_path / "leases"))
    return tmp_path / "state"


def queue(slurm: Any, label: str) -> Counter[str]:
    """Jobs that are there, by state."""
    return Counter(slurm.run("squeue", "-h", "-n", label, "-o", "%T").split())


def job_ids(cluster: SlurmCluster) -> list[str]:
    return [job["id"] for job in cluster.facts()["jobs"]]


def addresses(cluster: SlurmCluster) -> set[str]:
    with cluster.client() as client:
        return set(client.nthreads())


def test_scaling_keeps_adds_or_closes_whole_jobs(opened: Any, in_slurm: Any) -> None:
    cluster = opened(workers_per_job=2, processes=1)
    cluster.scale(4, 1)
    four, jobs = addresses(cluster), job_ids(cluster)
    assert (len(four), len(jobs)) == (4, 2)
    assert queue(in_slurm, cluster.label) == {"RUNNING": 2}
    with cluster.client() as client:
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
        assert Counter(client.run(lambda: os.environ["SLURM_JOB_ID"]).values()) == dict.fromkeys(jobs, 2)
        assert len(set(client.run(os.getpid).values())) == 2  # two workers share a process
    cluster.scale(5, 1)
    assert four < addresses(cluster)
    assert job_ids(cluster)[:2] == jobs
    assert [job["workers"] for job in cluster.facts()["jobs"]] == [2, 2, 1]
    cluster.scale(2, 1)
    assert len(addresses(cluster)) == 2
    assert addresses(cluster) < four
    assert len(job_ids(cluster)) == 1
    cluster.scale(2, 2)  # other threads per worker need new jobs
    with cluster.client() as client:
        assert list(client.nthreads().values()) == [2, 2]
    assert not set(job_ids(cluster)) & set(jobs)


def test_no_job_lease_or_file_is_left_after_close(opened: Any, in_slurm: Any, state: Path) -> None:
    cluster = opened()
    (lease,) = leases.read_all()[0]
    assert lease.label == cluster.label
    cluster.scale(1, 1)
    assert queue(in_slurm, cluster.label)
    cluster.close()
    assert not queue(in_slurm, cluster.label)
    assert leases.read_all()[0] == []
    assert list((state / "scalescope" / "jobs").iterdir()) == []
    cluster.close()
    with pytest.raises(ClusterError, match="not open"):
        cluster.scale(1, 1)


def test_label_comment_and_options_of_a_cluster_reach_slurm(opened: Any, in_slurm: Any) -> None:
    cluster = opened(
        partition="main", memory_mb=300, walltime="7", prologue=("export GREETING=hello",), directives_add=("--nice=5",)
    )
    cluster.scale(1, 1)
    shown = in_slurm.run("scontrol", "show", "job", "-o", job_ids(cluster)[0])
    for text in (f"JobName={cluster.label}", f"Comment={cluster.label}", "TimeLimit=00:07:00", "MinMemoryNode=300M"):
        assert text in shown
    assert "Nice=5" in shown
    with cluster.client() as client:
        assert list(client.run(lambda: os.environ["GREETING"]).values()) == ["hello"]
        (limit,) = client.run(lambda dask_worker: dask_worker.memory_manager.memory_limit).values()
    assert abs(limit - 300 * 2**20) < 2**20  # dask-jobqueue writes it with two decimals


def test_every_worker_has_its_own_gpu(opened: Any) -> None:
    cluster = opened(gpus=2, memory_mb=400)
    cluster.scale(3, 1)  # a job with two and one with one
    with cluster.client() as client:
        seen = client.run(lambda: (os.environ["SLURM_JOB_ID"], os.environ["CUDA_VISIBLE_DEVICES"], os.getpid()))
    gpus = {(job, gpu) for job, gpu, _ in seen.values()}
    assert len(gpus) == 3
    assert all(gpu.isdigit() for _, gpu in gpus)
    assert len({pid for _, _, pid in seen.values()}) == 3


def test_a_client_without_the_certificates_cannot_connect(opened: Any, state: Path) -> None:
    cluster = opened()
    cluster.scale(1, 1)
    with cluster.client() as client:
        address = client.scheduler.address
        assert all(worker.startswith("tls://") for worker in client.nthreads())
    assert address.startswith("tls://")
    with pytest.raises(OSError, match=r"(?i)timed out|closed|reset|connect"):
        distributed.Client(address.replace("tls://", "tcp://"), timeout=2)
    host, port = address.removeprefix("tls://").rsplit(":", 1)
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, int(port)), 5) as plain, pytest.raises(ssl.SSLError):
        stranger.wrap_socket(plain).recv(1)
    folder = state / "scalescope" / "jobs" / cluster.label
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for secret in (folder / "tls/key.pem", folder / "dask.config"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert "PRIVATE KEY" not in cluster.facts()["job_script"]


def test_cancelled_jobs_are_replaced_before_the_next_trial_up_to_replace_jobs(opened: Any, in_slurm: Any) -> None:
    cluster = opened(replace_jobs=1)
    cluster.scale(2, 1)
    first, second = job_ids(cluster)
    cancel_and_wait(cluster, in_slurm, first, left=1)
    cluster.scale(2, 1)
    assert len(addresses(cluster)) == 2
    assert first not in job_ids(cluster)
    assert second in job_ids(cluster)
    assert cluster.facts()["jobs_replaced"] == 1
    cancel_and_wait(cluster, in_slurm, second, left=1)
    with pytest.raises(ClusterError, match=r"lost 2 jobs, more than it may replace \(1\)"):
        cluster.scale(2, 1)


def cancel_and_wait(cluster: SlurmCluster, slurm: Any, job: str, *, left: int) -> None:
    slurm.run("scancel", job)
    while len(addresses(cluster)) > left:
        time.sleep(0.1)


@pytest.mark.thorough
def test_a_job_that_is_cancelled_while_it_starts_is_replaced(opened: Any, in_slurm: Any) -> None:
    cluster = opened(prologue=("sleep 1",))
    said: list[str] = []

    def report(text: str) -> None:
        if not said:
            in_slurm.run("scancel", "--name", cluster.label)
        said.append(text)

    cluster.report = report
    cluster.scale(1, 1)
    assert len(addresses(cluster)) == 1
    assert cluster.facts()["jobs_replaced"] == 1
    assert any("replaced" in text and "CANCELLED" in text for text in said)


def test_the_logs_of_failed_jobs_are_kept(opened: Any, state: Path) -> None:
    cluster = opened(prologue=("echo something broke >&2", "exit 3"))
    with pytest.raises(JobsEnded) as caught:
        cluster.scale(1, 1)
    assert "something broke" in caught.value.cause
    cluster.close()
    folder = state / "scalescope" / "jobs" / cluster.label
    assert [path.name for path in folder.iterdir()] == ["logs"]


# ------------------------------------------------------------------ through the driver


def test_a_job_cancelled_during_a_trial_makes_only_that_trial_invalid(in_slurm: Any, tmp_path: Path) -> None:
    def progress(text: str) -> None:
        if text.startswith("running") and "2000" in text:
            threading.Timer(1.0, cancel_one).start()

    def cancel_one() -> None:
        in_slurm.run("scancel", in_slurm.run("squeue", "-h", "-t", "R", "-o", "%i").split()[0])

    spec = SlurmSpec(workers_per_job=2, processes=1, start_timeout_s=60)
    short = PlannedTrial(0, Point(4, params={"items": 8, "seconds": 0.05, "stages": 1}), 0)
    # Tasks that would run for long would keep the other job's workers busy, and all would be submitted anew.
    endless = PlannedTrial(1, Point(4, params={"items": 2000, "seconds": 1.0, "stages": 1}), 0)
    with Driver.start(spec, folder=tmp_path, on_progress=progress) as driver:
        first = driver.run(short, "futures-map", timeout_s=60)
        broken = driver.run(endless, "futures-map", timeout_s=60)
        again = driver.run(short, "futures-map", timeout_s=60)
    assert first.state is TrialState.VALID, first.reason
    facts = first.facts["cluster"]
    assert facts["job_script"].startswith("#!")
    assert [job["workers"] for job in facts["jobs"]] == [2, 2]
    assert broken.state is TrialState.INVALID
    assert "2 of 4 workers" in broken.reason
    # On a slow host the job's processes still end when the cluster stops waiting for its state.
    assert "CANCELLED" in broken.reason or "COMPLETING" in broken.reason
    assert broken.real_s < 30  # seconds, less than the timeout of 60 s
    assert again.state is TrialState.VALID, again.reason
    assert again.facts["cluster"]["label"] == facts["label"]
    assert again.facts["cluster"]["jobs_replaced"] == 1
    assert not queue(in_slurm, facts["label"])


@pytest.mark.thorough
@another_user.only_root
def test_another_user_gets_nothing_of_a_sweep_on_slurm(in_slurm: Any) -> None:
    got, tried = another_user.gets_of_a_sweep("-c", "slurm", "--cluster-option", "memory_mb=400")
    assert got == []
    assert len(tried["ports"]) >= 3
