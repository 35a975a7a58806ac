"""Sites that differ: nodes that are powered off, a full queue, a full disk, and plugins that change what was asked."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.opening import opening
from support.waiting import wait_for as until

from scalescope import leases, waiting
from scalescope.clusters.jobqueue.slurm_cluster import SlurmCluster
from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec, _cores_of_whole_nodes
from scalescope.errors import ClusterError, JobsEnded
from scalescope.slurm import commands as slurm_commands

Site = Callable[..., Any]
Opened = Callable[..., SlurmCluster]


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "leases"))
    monkeypatch.setattr(waiting, "AGAIN_S", 0.3)
    _cores_of_whole_nodes.cache_clear()


@pytest.fixture
def opened(site: Site) -> Iterator[Opened]:
    def spec(**given: Any) -> SlurmSpec:
        return SlurmSpec(**{"start_timeout_s": 60.0, "memory_mb": 400, **given})

    with opening(spec) as opened:
        yield opened


def told(cluster: SlurmCluster) -> list[str]:
    """What the cluster reports from now on."""
    said: list[str] = []
    cluster.report = said.append
    return said


# ------------------------------------------------------------------ nodes that are powered off


def test_powered_off_nodes_count_as_room_and_whole_nodes_cost_all_their_cores(site: Site) -> None:
    """sinfo hides powered-off nodes: without them there would be room for 2 of 4 jobs."""
    site(nodes=4, cloud=2, extra="SelectType=select/linear\nSelectTypeParameters=CR_Memory")
    run = slurm_commands.commands()
    shown = set(run(("sinfo", "-hN", "-o%N"), "").stdout.split())
    assert shown == {"n1", "n2"}
    room = SlurmSpec(memory_mb=400).require_room(4, 1, run=run)
    assert room is not None
    assert (room.most, room.now) == (4, 4)
    with pytest.raises(JobsEnded) as caught:
        SlurmSpec(memory_mb=400).require_room(5, 1, run=run)
    assert caught.value.category == "no-room"
    assert SlurmSpec(memory_mb=400).cores_per_worker(1) == 2  # the node has 2 cores, the job asked for 1
    assert SlurmSpec(memory_mb=800, workers_per_job=2).cores_per_worker(1) == 1


@pytest.mark.thorough
def test_all_cpus_of_powered_off_nodes_count_as_room(site: Site) -> None:
    site(nodes=4, cloud=2)
    run = slurm_commands.commands()
    room = SlurmSpec(memory_mb=400).require_room(8, 1, run=run)
    assert room is not None
    assert (room.most, room.now) == (8, 8)
    with pytest.raises(JobsEnded):
        SlurmSpec(memory_mb=400).require_room(9, 1, run=run)
    assert SlurmSpec(memory_mb=400, cores=2).cores_per_worker(1) == 2
    assert SlurmSpec(memory_mb=400).cores_per_worker(1) == 1


@pytest.mark.thorough
def test_jobs_wait_for_nodes_that_power_up_and_then_run(site: Site, opened: Opened) -> None:
    slurm = site(nodes=2, cloud=1, extra="SelectType=select/linear\nSelectTypeParameters=CR_Memory")
    cluster = opened()
    said = told(cluster)
    cluster.scale(2, 1)
    assert any("CONFIGURING" in text and f"{slurm.asleep[0]} powers up" in text for text in said), said
    facts = cluster.facts()
    assert facts["cores_per_worker"] == 2
    assert facts["changed"] == []


@pytest.mark.thorough
def test_nodes_that_never_power_up_are_named_in_the_error(site: Site, opened: Opened) -> None:
    slurm = site(
        nodes=2, cloud=1, resume_timeout_s=10, extra="SelectType=select/linear\nSelectTypeParameters=CR_Memory"
    )
    (slurm.folder / "no-power").touch()
    cluster = opened(queue_timeout_s=30.0, replace_jobs=2)
    said = told(cluster)
    with pytest.raises(ClusterError) as caught:
        cluster.scale(2, 1)
    (lost,) = slurm.asleep
    assert caught.value.category == "queue-timeout"
    assert "NODE_FAIL" in " ".join(said)
    assert f"on {lost}" in caught.value.cause


# ------------------------------------------------------------------ limits


def test_a_point_with_more_jobs_than_max_job_count_is_refused(site: Site, opened: Opened) -> None:
    site(extra="MaxJobCount=3")
    cluster = opened()
    with pytest.raises(JobsEnded) as caught:
        cluster.scale(4, 1)
    assert caught.value.category == "queue-full"
    assert "workers_per_job" in caught.value.next_step
    cluster.close()


@pytest.mark.thorough
def test_more_workers_per_job_fit_into_a_limited_queue(site: Site, opened: Opened) -> None:
    site(extra="MaxJobCount=4\nMinJobAge=2")
    cluster = opened(workers_per_job=2, memory_mb=800)
    cluster.scale(4, 1)
    assert len(cluster.facts()["jobs"]) == 2


@pytest.mark.thorough
def test_a_queue_full_of_other_jobs_is_waited_for_and_named(
    site: Site, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "AGAIN_S", 1.5)
    monkeypatch.setattr(waiting, "SAY_S", 2.0)
    slurm = site(extra="MaxJobCount=4\nMinJobAge=2")
    others = [slurm.submit("--hold") for _ in range(3)]
    cluster = opened()
    said = told(cluster)

    def go(text: str) -> None:
        said.append(text)
        if len(said) == 3:
            slurm.run("scancel", *others)

    cluster.report = go
    cluster.scale(2, 1)
    assert all("MaxJobCount" in text for text in said[:3]), said  # and not that the controller is silent


@pytest.mark.thorough
def test_a_full_disk_of_the_controller_is_waited_for_and_named(site: Site, opened: Opened, missing: Any) -> None:
    if os.getuid() != 0:
        missing("slurm", "only root can mount a small disk")
    slurm = site(state_mb=2)
    filler = slurm.folder / "state" / "filler"
    subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], stderr=subprocess.DEVNULL, check=False)
    cluster = opened()
    said: list[str] = []

    def go(text: str) -> None:
        said.append(text)
        filler.unlink(missing_ok=True)

    cluster.report = go
    cluster.scale(1, 1)
    assert "StateSaveLocation" in said[0]


# ------------------------------------------------------------------ what the site changes


@pytest.mark.thorough
def test_a_time_limit_shortened_by_a_slurm_plugin_is_reported_as_changed_and_as_cause_of_the_end(
    site: Site, opened: Opened
) -> None:
    slurm = site()
    cluster = opened(partition="capped", walltime="01:00:00")
    cluster.scale(1, 1)
    facts = cluster.facts()
    (change,) = facts["changed"]
    assert ("60 s" in change, "3600 s" in change.replace(",", "")) == (True, True)
    (job,) = facts["jobs"]
    slurm.run("scontrol", "update", f"JobId={job['id']}", "EndTime=now+1")

    def ended() -> JobsEnded | None:
        try:
            cluster._explain(0)
        except JobsEnded as error:
            return error
        return None

    error = until(ended, "its end is never seen", 60)
    assert error.category == "time-limit-reached"
    assert "60 s" in error.cause
    assert "cluster.walltime" not in error.next_step


def test_a_job_with_the_requested_resources_has_no_change_listed(site: Site, opened: Opened) -> None:
    slurm = site()
    cluster = opened(partition="main", walltime="00:01:30")  # Slurm rounds it up
    cluster.scale(1, 1)
    assert cluster.facts()["changed"] == []
    (job,) = cluster.facts()["jobs"]
    slurm.run("scontrol", "update", f"JobId={job['id']}", "TimeLimit=1")
    cluster._watch.refresh()
    assert len(cluster.facts()["changed"]) == 1
