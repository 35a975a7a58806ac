"""States of jobs and queues as `qstat` of Grid Engine writes them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from scalescope.clusters.jobqueue import grid_engine
from scalescope.clusters.jobqueue.base_cluster import SubmittedJob
from scalescope.clusters.jobqueue.grid_engine import JOB_STATES, QUEUE_STATES, GridEngine, GridEngineJob
from scalescope.clusters.jobqueue.job_terms import JobTerms
from scalescope.clusters.jobqueue.sge_cluster import SgeCluster
from scalescope.clusters.jobqueue.systems import SgeSpec
from scalescope.errors import ClusterError, JobsEnded


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SgeCluster:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("verify", "reasons"):
        monkeypatch.setattr(GridEngine, name, lambda engine, *given: [])
    made = SgeCluster(SgeSpec())
    made._workers = 1
    made._jobs = [SubmittedJob("7", "1", 1, 1)]
    return made


@pytest.mark.parametrize("state", ["qw", "hqw", "Rq", "Rqw", "hRwq"])
def test_a_rescheduled_job_that_waits_again_counts_towards_the_queue_timeout(
    cluster: SgeCluster, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GridEngine, "jobs", lambda engine, label: [GridEngineJob("7", state, "")])
    assert cluster._look(1).in_queue
    assert cluster._waiting_since is not None
    cluster._waiting_since -= cluster.spec.queue_timeout_s
    with pytest.raises(ClusterError) as caught:
        cluster._look(1)
    assert caught.value.category == ("job-held" if "h" in state else "queue-timeout")


FULL, IN_ERROR = "all.q@a is full", f"all.q@b is temporarily not available{grid_engine.in_words('E')}"


@pytest.mark.parametrize(
    ("reasons", "step"),
    [
        ([FULL], ""),
        ([FULL, IN_ERROR], ""),
        ([IN_ERROR], "cluster.queue"),
        ([FULL, 'exceeds limit "u/////" in rule "r"'], "quota"),
    ],
)
def test_the_next_step_fits_the_reasons_why_a_job_waits(reasons: list[str], step: str) -> None:
    found = grid_engine.next_step(reasons)
    assert step in found
    assert bool(found) is bool(step)


@pytest.mark.parametrize("state", ["r", "t", "Rr", "Rt"])
def test_a_job_that_has_a_host_is_not_in_the_queue(
    cluster: SgeCluster, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GridEngine, "jobs", lambda engine, label: [GridEngineJob("7", state, "all.q@node1")])
    monkeypatch.setattr(GridEngine, "unreachable", lambda engine: set())
    assert not cluster._look(1).in_queue


def test_a_silent_host_whose_workers_are_connected_has_not_lost_its_job(
    cluster: SgeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GridEngine, "jobs", lambda engine, label: [GridEngineJob("7", "r", "all.q@node1")])
    monkeypatch.setattr(GridEngine, "unreachable", lambda engine: {"all.q@node1"})
    present = Counter({"1": 1})
    monkeypatch.setattr(cluster, "_present", lambda: present)
    assert not cluster._look(1).in_queue
    present.clear()
    with pytest.raises(JobsEnded) as caught:
        cluster._look(1)
    assert caught.value.category == "node-lost"


# ------------------------------------------------------------------ every state that Grid Engine has

# The table of sge_status(5), 8.1.9; the letters of queues are those of qstat(1).
STATES = {
    "waiting": "qw Rq",
    "held": "hqw hRwq",
    "running": "r hr t Rr Rt",
    "suspended": "s ts S tS T tT Rs Rts RS RtS RT RtT",
    "start-failed": "Eqw Ehqw EhRqw",
    "deleted": "dr dt dRr dRt ds dS dT dRs dRS dRT",
    "finished": "z",
}


@pytest.mark.parametrize("category", STATES)
def test_each_state_of_a_job_has_a_category(category: str) -> None:
    assert set(STATES) == set(JOB_STATES.values())
    for state in STATES[category].split():
        job = GridEngineJob("7", state, "")
        assert job.category == category, state
        assert job.is_pending is (category in ("waiting", "held"))
        assert job.has_failed is (category == "start-failed")
        assert job.is_deleted is (category in ("deleted", "finished"))


@pytest.mark.parametrize("state", ["x", "rx", "N", "qwX"])
def test_an_unknown_state_of_a_job_gets_no_category_and_is_quoted(
    cluster: SgeCluster, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = GridEngineJob("7", state, "all.q@node1")
    assert (job.category, job.is_pending, job.has_failed, job.is_deleted) == ("", False, False, False)
    monkeypatch.setattr(GridEngine, "jobs", lambda engine, label: [job])
    monkeypatch.setattr(GridEngine, "unreachable", lambda engine: set())
    assert f"state {state} is not known" in cluster._look(1).words


def test_each_state_of_a_queue_is_described_in_words() -> None:
    letters = "uaACsSdDEcoP"
    assert set(letters) == set(QUEUE_STATES)
    assert len({grid_engine.in_words(letter) for letter in letters}) == len(letters)
    assert "state x, which is not known" in grid_engine.in_words("x")
    assert all(QUEUE_STATES[letter] in grid_engine.in_words("du") for letter in "du")
    assert "exit 1" in grid_engine.in_words("E", "exit 1")
    assert grid_engine.in_words("") == ""


@pytest.mark.parametrize(
    ("state", "word"), [("hqw", "held"), ("s", "suspended"), ("T", "suspended"), ("r", ""), ("qw", "")]
)
def test_jobs_that_are_held_or_suspended_are_described_as_such(
    cluster: SgeCluster, state: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GridEngine, "jobs", lambda engine, label: [GridEngineJob("7", state, "all.q@node1")])
    monkeypatch.setattr(GridEngine, "unreachable", lambda engine: set())
    words = cluster._look(1).words
    assert all((each in words) is (each == word) for each in ("held", "suspended"))


SCRIPT = """#!/usr/bin/env bash
#$ -N scalescope-LABEL
#$ -q long.q
#$ -P team
#$ -l h_rt=01:00:00
#$ -pe smp 4
python -pe smp 9 -q other
"""


def test_the_requested_terms_of_a_job_are_read_from_its_script() -> None:
    assert grid_engine.asked(SCRIPT) == JobTerms(time_s=3600, partition="long.q", account="team", cores=4)
    assert grid_engine.asked("#$ -N x\n") == JobTerms()


@pytest.mark.parametrize(
    ("terms", "changed"),
    [
        (JobTerms(time_s=3600, partition="long.q", account="team", cores=4), set()),
        (JobTerms(), set()),
        (JobTerms(time_s=60, partition="long.q", cores=4), {"time_s"}),
        (JobTerms(time_s=3600, partition="short.q", account="guests", cores=1), {"partition", "account", "cores"}),
    ],
)
def test_terms_of_a_job_that_grid_engine_changed_are_reported(
    cluster: SgeCluster, terms: JobTerms, changed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster._asked = {"7": grid_engine.asked(SCRIPT)}
    monkeypatch.setattr(GridEngine, "jobs", lambda engine, label: [GridEngineJob("7", "r", "all.q@node1", terms)])
    monkeypatch.setattr(GridEngine, "unreachable", lambda engine: set())
    words = cluster._look(1).words
    assert cluster._changes.keys() == changed
    assert ("in place of" in words) is bool(changed)


def test_only_suspended_jobs_of_grid_engine_count_as_suspended(
    cluster: SgeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        GridEngineJob(str(number), state, "all.q@node1") for number, state in enumerate(("r", "s", "S", "qw", "dr"))
    ]
    monkeypatch.setattr(GridEngine, "jobs", lambda engine, label: found)
    assert cluster._suspended() == ["1", "2"]
