"""Output of the status commands of batch systems that cannot run here, and how long their jobs are waited for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scalescope.clusters.jobqueue import job_status, watching
from scalescope.clusters.jobqueue.base_cluster import SubmittedJob
from scalescope.clusters.jobqueue.base_spec import JobQueueSpec
from scalescope.clusters.jobqueue.batch_cluster import BatchCluster
from scalescope.clusters.jobqueue.job_status import JobStatus, StatusCommand
from scalescope.clusters.jobqueue.job_terms import JobTerms
from scalescope.clusters.jobqueue.systems import HtcondorSpec, LsfSpec, MoabSpec, OarSpec, PbsSpec
from scalescope.errors import ClusterError

# OpenPBS folds long lines
PBS = """\
Job Id: 7013474.pbs
    Job_Name = scalescope-0123456789ab
    Job_Owner = me@login2.example.org
    job_state = Q
    queue = v1_gpu72
    Error_Path = login2.example.org:/rds/general/user/me/home/project-
\tdirectory/scripts/job-01.pbs.e7013474
    Hold_Types = n
    Resource_List.select = 1:ncpus=4:mem=8gb:ngpus=1:gpu_type=RTX6000:mpiprocs=
\t4:ompthreads=1
    comment = Not Running: Insufficient amount of resource: ncpus (R: 4 A: 2 T:
\t 8)
    etime = Mon Feb 13 19:00:07 2023

Job Id: 7013475.pbs
    Job_Name = scalescope-0123456789ab
    job_state = R
    queue = v1_gpu72
    comment = Job run at Mon Feb 13 at 19:00 on (cx3-10-8:ncpus=4:mem=8388608kb)

Job Id: 7013476.pbs
    Job_Name = scalescope-0123456789ab
    job_state = H
    queue = v1_gpu72
"""
LSF = """\
7013474|PEND|normal|default|Job requirements for reserving resource (mem) not satisfied: 12 hosts;
7013475|RUN|normal|default|-
7013476|PSUSP|normal|default|The job was suspended by the user while pending;
"""
HTCONDOR = """\
7013474.0 1 1 1 3600 undefined
7013475.0 2 1 1 3600 undefined
7013476.0 5 1 1 undefined Error from slot1@node7: Failed to execute '/usr/bin/python': No such file or directory
"""
OAR = """\
Job_Id: 7013474
    job_array_id = 7013474
    name = scalescope-0123456789ab
    project = default
    state = Waiting
    queue = default
    walltime = 1:0:0
    message = R=4,W=1:0:0,J=B (Karma=0.001,quota_ok)

Job_Id: 7013475
    name = scalescope-0123456789ab
    state = Running
    message = Karma = 0.001

Job_Id: 7013476
    name = scalescope-0123456789ab
    state = Hold
    message = Job 7013476 hold
"""
MOAB = """\
job 7013474

AName: scalescope-0123456789ab
State: Idle
Creds:  user:me  group:us  account:team  class:batch  qos:normal
WallTime:   00:00:00 of 1:00:00
BLOCK MSG: non-idle state in local queue
"""
TOLD = {
    "pbs": (PbsSpec(memory_mb=1), job_status.PBS, PBS, "Insufficient amount of resource: ncpus (R: 4 A: 2 T: 8)"),
    "lsf": (LsfSpec(memory_mb=1), job_status.LSF, LSF, "resource (mem) not satisfied: 12 hosts"),
    "htcondor": (HtcondorSpec(memory_mb=1), job_status.HTCONDOR, HTCONDOR, "Failed to execute '/usr/bin/python'"),
    "oar": (OarSpec(memory_mb=1), job_status.OAR, OAR, "quota_ok"),
}
# Output and exit status of each command for a job that is no longer known
GONE = {
    "pbs": ("qstat: 7013474.pbs Job has finished, use -x or -H to obtain historical job information", 35),
    "lsf": ("Job <7013474> is not found", 255),
    "htcondor": ("", 0),
    "oar": ("No job specified", 1),
}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(watching, "SHORTEST_S", 0.0)


def cluster(spec: JobQueueSpec) -> BatchCluster:
    """Three jobs of a worker each; no worker has registered."""
    made = BatchCluster(spec)
    made._workers = 3
    suffix = ".0" if spec.kind == "htcondor" else ""
    made._jobs = [SubmittedJob(f"{7013474 + number}{suffix}", str(number), 1, 1) for number in range(3)]
    return made


def has_wait_ended(made: BatchCluster, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether waiting ends with a queue timeout once its time is over."""
    since = made._waiting_since
    assert since is not None
    made._waiting_since = since - made.spec.queue_timeout_s
    with pytest.raises(ClusterError) as caught:
        made._explain(0)
    return caught.value.category == "queue-timeout"


@pytest.mark.parametrize("kind", TOLD)
def test_states_of_jobs_and_reasons_for_waiting_are_read_from_the_output_of_each_batch_system(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, command, text, reason = TOLD[kind]
    first, second, third = command.read(text)
    assert [command.category(each.state) for each in (first, second, third)] == ["waiting", "running", "held"]
    made = cluster(spec)
    assert {first.id, second.id, third.id} == {job.id for job in made._jobs}
    monkeypatch.setattr(StatusCommand, "ask", lambda command, ids: command.read(text))
    waiting = made._explain(0)
    assert waiting is not None
    assert waiting.in_queue
    assert reason in waiting.words
    assert has_wait_ended(made, monkeypatch)
    monkeypatch.setattr(StatusCommand, "ask", lambda command, ids: [JobStatus(ids[0], second.state)])
    waiting = made._explain(0)
    assert waiting is not None
    assert not waiting.in_queue  # from here on, the time of a start counts
    assert all(job.id in waiting.words for job in made._jobs[1:])


@pytest.mark.parametrize("kind", TOLD)
def test_a_job_that_is_gone_is_distinguished_from_a_command_that_fails(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = TOLD[kind][1]
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert command.ask(["7013474"]) is None  # there is no such command
    program = tmp_path / command.name
    said, status = GONE[kind]
    for text, ends, known in ((said, status, []), ("cannot connect to server pbs (errno=111)", 1, None)):
        program.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {ends}\n")
        program.chmod(0o755)
        assert command.ask(["7013474"]) == known


# All states that the manuals list
STATES = {
    "pbs": (job_status.PBS, "B C E F H M Q R S T U W X"),
    "lsf": (job_status.LSF, "PEND PROV PSUSP RUN USUSP SSUSP DONE EXIT UNKWN WAIT ZOMBI POST_DONE POST_ERR FWD_PEND"),
    "htcondor": (job_status.HTCONDOR, "0 1 2 3 4 5 6 7"),
    "oar": (
        job_status.OAR,
        "Waiting Hold toLaunch toError toAckReservation Launching Running Suspended Resuming Finishing Terminated "
        "Error",
    ),
    "moab": (
        job_status.MOAB,
        "Idle Starting Running Suspended Hold UserHold SystemHold BatchHold Deferred Migrated Staging Staged NotQueued "
        "Blocked Vacated Removed Completed",
    ),
}


@pytest.mark.parametrize("kind", STATES)
def test_each_known_job_state_has_one_category_and_an_unknown_one_is_shown_unchanged(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, states = STATES[kind]
    known = [state for each in command.states.values() for state in each.split()]
    assert sorted(known) == sorted(states.split())
    assert command.states.keys() <= job_status.CATEGORIES.keys()
    spec = {**{name: row[0] for name, row in TOLD.items()}, "moab": MoabSpec(memory_mb=1)}[kind]
    made = cluster(spec)
    for state in (*known, "NEW_IN_99"):
        category = command.category(state)
        monkeypatch.setattr(StatusCommand, "ask", lambda status, ids, state=state: [JobStatus(ids[0], state)])
        waiting = made._look(3)
        assert waiting.in_queue is (category in job_status.QUEUED)
        assert ("not known to Scalescope" in waiting.words) is (not category)
        assert category in ("running", "ended") or re.search(rf"(\(|state ){state}\b", waiting.words)


@pytest.mark.parametrize("kind", TOLD)
def test_a_held_job_ends_the_wait_with_the_command_that_releases_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, command, text, _ = TOLD[kind]
    monkeypatch.setattr(StatusCommand, "ask", lambda command, ids: command.read(text)[2:])
    made = cluster(spec)
    made._look(3)
    assert made._waiting_since is not None
    made._waiting_since -= made.spec.queue_timeout_s + 1
    with pytest.raises(ClusterError) as caught:
        made._look(3)
    assert caught.value.category == "job-held"
    assert command.release.format(made._jobs[2].id) in caught.value.cause


def test_moab_is_asked_for_one_job_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    program = tmp_path / "checkjob"
    program.write_text(f"#!/bin/sh\n[ $# = 1 ] && sed s/7013474/$1/ <<'END'\n{MOAB}END\n")
    program.chmod(0o755)
    told = job_status.MOAB.ask(["7013474", "7013475"])
    assert told is not None
    assert [(each.id, each.state) for each in told] == [("7013474", "Idle"), ("7013475", "Idle")]
    assert told[0].terms == JobTerms(3600, partition="batch", account="team")
    assert "non-idle" in told[0].reason


@pytest.mark.parametrize("spec", [OarSpec(memory_mb=1), PbsSpec(memory_mb=1)], ids=lambda spec: spec.kind)
def test_jobs_of_unknown_state_are_waited_for_until_the_queue_timeout(
    spec: OarSpec | PbsSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    made = cluster(spec)
    waiting = made._explain(0)
    assert waiting is not None
    assert waiting.in_queue
    assert has_wait_ended(made, monkeypatch)


@pytest.mark.parametrize(
    ("asked", "changed"),
    [
        ({"walltime": "01:00:00", "queue": "v1_gpu72", "account": "team"}, set()),
        ({"walltime": "00:59:30"}, set()),
        ({"walltime": "02:00:00", "queue": "long", "account": "guests"}, {"time_s", "partition", "account"}),
    ],
)
def test_terms_of_a_job_that_pbs_changed_are_reported(
    asked: dict[str, str], changed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = "    Resource_List.walltime = 01:00:00\n    Account_Name = team\n"
    told = job_status.PBS.read(PBS.replace("    Hold_Types = n\n", terms))
    assert told[0].terms == JobTerms(3600, partition="v1_gpu72", account="team")
    assert told[1].terms == JobTerms(partition="v1_gpu72")
    monkeypatch.setattr(StatusCommand, "ask", lambda status, ids: told[:2])
    made = cluster(PbsSpec(memory_mb=1, **asked))
    words = made._look(3).words
    assert made._changes.keys() == changed
    assert ("in place of" in words) is bool(changed)


def test_the_status_of_lsf_and_htcondor_yields_the_terms_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    lsf = job_status.LSF.read(
        "7013474|PEND|guests|default|New job is waiting for scheduling: 1 host;\n7013475|RUN|-|-|-\n"
    )
    assert [job.terms for job in lsf] == [JobTerms(partition="guests", account="default"), JobTerms()]
    assert "New job is waiting" in lsf[0].reason
    htcondor = job_status.HTCONDOR.read(
        "7013474.0 1 2 512 600 undefined\n7013475.0 2 1 undefined undefined undefined\n"
    )
    assert htcondor[0].terms == JobTerms(600, 512, cores=2)
    assert htcondor[1].terms == JobTerms(cores=1)
    for spec, told, changed in (
        (LsfSpec(memory_mb=1, queue="night", account="default"), lsf, {"partition"}),
        (LsfSpec(memory_mb=1), lsf, set()),
        (HtcondorSpec(memory_mb=512, walltime="00:10:00", cores=2), htcondor[:1], set()),
        (HtcondorSpec(memory_mb=1024), htcondor[:1], {"time_s", "memory_mb", "cores"}),
    ):
        monkeypatch.setattr(StatusCommand, "ask", lambda status, ids, told=told: told)
        made = cluster(spec)  # type: ignore[arg-type]
        made._look(3)
        assert made._changes.keys() == changed


def test_suspended_jobs_are_cancelled_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made, cancelled = cluster(PbsSpec(memory_mb=1)), []
    monkeypatch.setattr(made, "_cancel", cancelled.extend)
    states = dict(zip((job.id for job in made._jobs), "RSR", strict=True))
    monkeypatch.setattr(StatusCommand, "ask", lambda status, ids: [JobStatus(each, states[each]) for each in ids])
    [error] = made._give_back_suspended()
    assert error.category == "suspended"
    assert cancelled == ["7013475"]
    states["7013475"] = "R"
    assert made._give_back_suspended() == []
