from __future__ import annotations

import random
import re
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scalescope import owner, waiting
from scalescope.clusters.jobqueue.slurm_watch import ENDING_S, JobWatch
from scalescope.clusters.jobqueue.watching import LONGEST_S, excerpt
from scalescope.errors import ClusterError, JobsEnded
from scalescope.slurm import commands as slurm_commands
from scalescope.slurm import job_facts
from scalescope.slurm import jobs as slurm_jobs
from scalescope.waiting import PATIENCE_S

LABEL = "scalescope-0123456789ab"
ME = owner.user()


def line(number: int, state: str, reason: str = "None", *, start: str = "N/A", nodes: str = "", **given: str) -> str:
    user, name, partition = given.get("user", ME), given.get("name", LABEL), given.get("partition", "main")
    times = f"2026-01-01T10:00:00|{start}|N/A"
    terms = given.get("terms", "1:00:00|400M|(null)|(null)|1")
    return f"{number}|{state}|{partition}|{times}|{nodes}|{user}|{name}|{reason}|{terms}|{LABEL}"


@dataclass
class Slurm:
    """Answers commands as Slurm would, and records them."""

    queue: list[str] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)
    node_states: str = ""
    silent: bool = False
    asked: list[Sequence[str]] = field(default_factory=list)

    def __call__(self, command: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        self.asked.append(command)
        if self.silent:
            return subprocess.CompletedProcess(command, 1, "", "slurm_load_jobs error: Unable to contact controller")
        if command[0] == "scontrol":
            found = self.shown.get(command[-1])
            return subprocess.CompletedProcess(command, int(found is None), found or "", "")
        text = {"squeue": "\n".join(self.queue), "sinfo": self.node_states}
        return subprocess.CompletedProcess(command, 0, text[command[0]], "")

    @property
    def looks(self) -> int:
        return sum(command[0] == "squeue" for command in self.asked)


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def slurm() -> Slurm:
    return Slurm()


@pytest.fixture
def watch(slurm: Slurm, clock: Clock, tmp_path: Path) -> JobWatch:
    return JobWatch(LABEL, log_directory=tmp_path, run=slurm, queue_timeout_s=600, clock=clock, rng=random.Random(1))


# ------------------------------------------------------------------ nothing is wrong


def test_a_single_squeue_command_shows_all_jobs(watch: JobWatch, slurm: Slurm) -> None:
    assert watch.check(4, 4) is None
    assert slurm.asked == []  # all are there
    slurm.queue = [line(number, "RUNNING", nodes=f"n{number}") for number in range(1, 200)]
    waiting = watch.check(199, 0)
    assert waiting is not None
    assert (waiting.reason, waiting.estimated_start) == ("", None)
    assert len(slurm.asked) == 1
    assert len(watch.jobs()) == 199


def test_waiting_is_reported_with_its_reason_and_estimated_start(watch: JobWatch, slurm: Slurm) -> None:
    slurm.queue = [
        line(1, "RUNNING", nodes="n1"),
        line(2, "PENDING", "Resources", start="2099-01-01T10:00:00"),
        line(3, "PENDING", "Priority"),
        line(4, "PENDING", "Priority", start="2099-01-02T10:00:00"),
    ]
    waiting = watch.check(4, 1)
    assert waiting is not None
    assert waiting.reason == "Priority"
    assert waiting.estimated_start == slurm_jobs.when("2099-01-01T10:00:00")
    assert all(each in waiting.words for each in ("2 Slurm jobs", "(Priority)", "2099-01-01 10:00", "queue_timeout_s"))


WAITING = "None Resources Priority BeginTime Dependency Licenses Prolog QOSMaxJobsPerUserLimit QOSMaxGRESPerUser"


def test_reasons_to_wait_raise_no_error(watch: JobWatch, slurm: Slurm) -> None:
    more = ("QOSGrpNodeLimit", "AssocGrpCpuLimit", "NewInSlurm99", "ReqNodeNotAvail, Reserved for maintenance")
    slurm.queue = [line(number, "PENDING", reason) for number, reason in enumerate((*WAITING.split(), *more))]
    assert watch.check(1, 0) is not None


# ------------------------------------------------------------------ how often Slurm is asked


def test_slurm_is_asked_less_often_the_longer_nothing_changes(watch: JobWatch, slurm: Slurm, clock: Clock) -> None:
    slurm.queue = [line(1, "PENDING", "Priority")]
    times = []
    for _ in range(3000):  # ten minutes
        before = slurm.looks
        watch.check(1, 0)
        if slurm.looks > before:
            times.append(clock.now - 100)
        clock.now += 0.2
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) < 45
    assert max(gaps[:4]) <= 1.6
    assert max(gap for gap, began in zip(gaps, times, strict=False) if began < 40) < 10
    assert LONGEST_S * 0.7 < max(gaps) < LONGEST_S * 1.3
    assert len({round(gap, 1) for gap in gaps[-8:]}) > 1, "no jitter"


def test_slurm_is_asked_more_often_after_a_change(watch: JobWatch, slurm: Slurm, clock: Clock) -> None:
    slurm.queue = [line(1, "PENDING", "Priority")]
    for _ in range(1000):
        watch.check(1, 0)
        clock.now += 0.2
    slurm.queue = [line(1, "RUNNING", nodes="n1")]
    clock.now += 2 * LONGEST_S
    watch.check(1, 0)
    looks = slurm.looks
    clock.now += 1.3
    watch.check(1, 0)
    assert slurm.looks == looks + 1


def test_slurm_is_asked_at_once_when_workers_disappear(watch: JobWatch, slurm: Slurm, clock: Clock) -> None:
    slurm.queue = [line(1, "RUNNING", nodes="n1")]
    watch.check(1, 0)
    watch.check(1, 1)
    clock.now += 0.1
    slurm.queue = [line(1, "CANCELLED", nodes="n1")]
    with pytest.raises(JobsEnded) as found:
        watch.check(1, 0)
    assert "CANCELLED" in found.value.what


# ------------------------------------------------------------------ jobs that ended


def test_many_jobs_that_ended_alike_raise_one_error(watch: JobWatch, slurm: Slurm, tmp_path: Path) -> None:
    slurm.queue = [line(n, "FAILED", "NonZeroExitCode", nodes="n1") for n in range(1, 17)]
    slurm.queue += [line(17, "CANCELLED", nodes="n2"), line(18, "RUNNING")]
    slurm.shown = {"1": f"JobId=1 JobName={LABEL} JobState=FAILED Reason=NonZeroExitCode ExitCode=127:0 StdErr="}
    (tmp_path / f"{LABEL}-1.err").write_text("line 14: /opt/python: No such file or directory\n")
    with pytest.raises(JobsEnded) as found:
        watch.check(18, 0)
    error = found.value
    assert all(each in error.what for each in ("16", LABEL, "FAILED NonZeroExitCode", "ExitCode=127:0"))
    assert all(each in error.where for each in ("1, 2, 3, 4, 5, 6, 7, 8", "8 more on n1", "1 CANCELLED"))
    assert "/opt/python" in error.cause
    assert error.category == "program-missing"
    assert len(error.job_ids) == 17
    assert not error.may_return
    assert sum(command[0] == "scontrol" for command in slurm.asked) == 1


def test_dismissed_jobs_are_never_mentioned_again(watch: JobWatch, slurm: Slurm) -> None:
    slurm.queue = [line(1, "CANCELLED", nodes="n1")]
    with pytest.raises(JobsEnded) as found:
        watch.check(1, 0)
    assert found.value.may_return
    watch.dismiss(found.value.job_ids)
    waiting = watch.check(1, 0)
    assert waiting is not None
    assert "no job" in waiting.words


@pytest.mark.parametrize(
    "shown",
    [{}, {"7": "JobId=7 JobName=other JobState=RUNNING Reason=None NodeList=n3"}],
    ids=["gone", "another's now"],
)
def test_a_job_that_slurm_has_forgotten_raises_an_error(watch: JobWatch, slurm: Slurm, shown: dict[str, str]) -> None:
    slurm.shown = shown
    watch.expect(["7"])
    with pytest.raises(JobsEnded) as found:
        watch.check(1, 0)
    assert (found.value.category, found.value.job_ids) == ("forgotten", ("7",))


def test_a_preempted_job_is_named_with_its_node_before_it_has_ended(
    watch: JobWatch, slurm: Slurm, clock: Clock
) -> None:
    slurm.queue = [line(number, "COMPLETING", nodes=node) for number, node in ((1, "n1"), (2, "n2"), (3, "n1"))]
    slurm.shown = {"1": f"JobId=1 JobName={LABEL} JobState=COMPLETING PreemptTime=2026-01-01T10:00:00 ExitCode=0:15"}
    watch.check(3, 0)
    clock.now += ENDING_S + 1
    with pytest.raises(JobsEnded) as found:
        watch.check(3, 0)
    assert (found.value.category, found.value.may_return) == ("preempted", True)
    assert re.findall(r"[\d, ]+ on n\d", found.value.where) == [" 1, 3 on n1", " 2 on n2"]


@pytest.mark.parametrize(
    ("job", "node", "category", "may_return"),
    [
        (("CANCELLED",), "down*", "node-lost", True),
        (("CANCELLED",), "draining", "cancelled", True),
        (("FAILED", "NonZeroExitCode"), "down*", "failed", False),
        (("FAILED", "NonZeroExitCode"), "draining", "failed", False),
    ],
)
def test_a_node_is_blamed_only_for_a_job_that_did_not_end_by_itself(
    watch: JobWatch, slurm: Slurm, job: tuple[str, ...], node: str, category: str, may_return: bool
) -> None:
    slurm.queue = [line(1, *job, nodes="n3")]
    slurm.node_states = f"n3|{node}|Not responding"
    with pytest.raises(JobsEnded) as found:
        watch.check(1, 0)
    assert (found.value.category, found.value.may_return) == (category, may_return)
    assert ("down* (Not responding)" in found.value.cause) is (category == "node-lost")


def test_a_requested_start_time_is_mentioned_while_jobs_wait(watch: JobWatch, slurm: Slurm) -> None:
    slurm.queue = [line(1, "PENDING", "BeginTime")]
    watch.asked = "asked for"
    waiting = watch.check(1, 0)
    assert waiting is not None
    assert "(BeginTime): asked for" in waiting.words
    watch.begin()
    waiting = watch.check(1, 0)
    assert waiting is not None
    assert "asked for" not in waiting.words


def test_a_job_that_is_completing_gets_time_before_it_counts_as_ended(
    watch: JobWatch, slurm: Slurm, clock: Clock
) -> None:
    slurm.queue = [line(1, "COMPLETING", "TimeLimit", nodes="n3")]
    assert watch.check(1, 0) is not None
    clock.now += ENDING_S + 1
    with pytest.raises(JobsEnded) as found:
        watch.check(1, 0)
    assert found.value.category == "time-limit-reached"


def test_a_job_that_ran_and_waits_again_was_requeued(watch: JobWatch, slurm: Slurm) -> None:
    slurm.queue = [line(1, "PENDING", "BeginTime"), line(2, "RUNNING")]
    assert watch.check(2, 0)  # the first one never ran
    slurm.queue = [line(1, "PENDING", "BeginTime"), line(2, "PENDING", "BeginTime")]
    watch._hurry()
    with pytest.raises(JobsEnded) as caught:
        watch.check(2, 0)
    assert (caught.value.category, caught.value.job_ids, caught.value.may_return) == ("requeued", ("2",), True)


def test_jobs_of_other_users_or_with_other_names_are_ignored(watch: JobWatch, slurm: Slurm) -> None:
    slurm.queue = [line(1, "FAILED", user="root2"), line(2, "FAILED", name=LABEL + "0"), "nonsense", "a|b"]
    watch.check(1, 0)
    assert watch.jobs() == []


# ------------------------------------------------------------------ jobs that never start


@pytest.mark.parametrize(
    ("reason", "category"),
    [
        ("PartitionTimeLimit", "time-limit-too-long"),
        ("PartitionDown", "partition-closed"),
        ("PartitionNodeLimit", "too-many-nodes"),
        ("DependencyNeverSatisfied", "dependency-failed"),
        ("JobHeldUser", "job-held"),
        ("JobHeldAdmin", "job-held"),
        ("launch failed requeued held", "job-held"),
        ("InvalidAccount", "account-refused"),
        ("InvalidQOS", "account-refused"),
        ("User's group not permitted to use this partition", "partition-not-allowed"),
        ("BadConstraints", "no-such-node"),
        ("QOSMaxCpuPerJobLimit", "job-limit"),
        ("AssocMaxWallDurationPerJobLimit", "account-time-limit"),
        ("QOSMaxMemoryPerJob", "job-limit"),
        ("MaxMemPerLimit", "too-much-memory"),
        ("ReservationDeleted", "reservation-gone"),
        ("QOSMinCpuNotSatisfied", "job-limit"),
    ],
)
def test_a_job_that_can_never_start_raises_an_error_at_once(
    watch: JobWatch, slurm: Slurm, reason: str, category: str
) -> None:
    slurm.node_states = "main 5:00"
    slurm.queue = [line(1, "PENDING", reason), line(2, "PENDING", "Resources")]
    with pytest.raises(JobsEnded) as found:
        watch.check(2, 0)
    assert reason in found.value.what
    assert found.value.category == category
    assert ("(main 5:00)" in found.value.cause) is (category == "time-limit-too-long")
    assert "{" not in found.value.next_step
    assert found.value.job_ids == ("1",)
    assert not found.value.may_return


@pytest.mark.parametrize(
    "reason",
    [
        "Resources",
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
        "ReqNodeNotAvail, UnavailableNodes:n[14-15]",
        "ReqNodeNotAvail, May be reserved for other job",
    ],
)
def test_nodes_that_are_down_or_drained_are_named_and_waited_for(
    slurm: Slurm, clock: Clock, tmp_path: Path, reason: str
) -> None:
    closed = {"n2": ("drained", "cooling"), "n3": ("down*", "")}
    watch = JobWatch(LABEL, log_directory=tmp_path, run=slurm, closed_nodes=lambda: closed, clock=clock)
    slurm.queue = [line(1, "PENDING", reason)]
    waiting = watch.check(1, 0)
    assert waiting is not None
    assert "drained (cooling)" in waiting.words
    slurm.queue = [line(1, "PENDING", "Priority")]
    clock.now += 5
    waiting = watch.check(1, 0)
    assert waiting is not None
    assert "n2" not in waiting.words


def test_waiting_in_the_queue_ends_at_the_queue_timeout(watch: JobWatch, slurm: Slurm, clock: Clock) -> None:
    slurm.queue = [line(1, "PENDING", "Priority")]
    watch.check(1, 0)
    clock.now += 599
    assert watch.check(1, 0) is not None
    clock.now += 2
    with pytest.raises(ClusterError) as found:
        watch.check(1, 0)
    assert not isinstance(found.value, JobsEnded)


def test_the_time_in_the_queue_is_summed_over_all_jobs_of_a_point(watch: JobWatch, slurm: Slurm, clock: Clock) -> None:
    slurm.queue = [line(1, "PENDING", "Priority")]
    watch.check(1, 0)
    clock.now += 400  # it came before the next look
    watch.begin()
    slurm.queue = [line(1, "RUNNING"), line(2, "PENDING", "Priority")]
    watch.expect(["2"])
    watch.check(1, 0)
    clock.now += 400
    watch.dismiss(["2"])  # given back
    slurm.queue = [line(1, "RUNNING"), line(2, "CANCELLED"), line(3, "PENDING", "BeginTime")]
    watch.expect(["3"])
    assert watch.check(1, 0) is not None
    clock.now += 300
    with pytest.raises(ClusterError) as found:
        watch.check(1, 0)
    assert found.value.category == "queue-timeout"


# ------------------------------------------------------------------ nodes that power up


def test_a_node_that_powers_up_is_named_together_with_the_job_that_was_lost_before(
    watch: JobWatch, slurm: Slurm, clock: Clock
) -> None:
    slurm.queue, slurm.node_states = [line(1, "CONFIGURING", nodes="c1")], "c1|allocated#|none"
    waiting = watch.check(1, 0)
    assert waiting is not None
    assert (waiting.in_queue, waiting.reason) == (True, "CONFIGURING")
    assert "c1 powers up" in waiting.words
    clock.now += 300
    slurm.queue = [line(1, "NODE_FAIL", "NodeDown", nodes="c1")]
    with pytest.raises(JobsEnded) as found:
        watch.check(1, 0)
    assert (found.value.category, found.value.may_return) == ("node-lost", True)
    watch.dismiss(["1"])
    watch.expect(["2"])
    slurm.queue.append(line(2, "CONFIGURING", nodes="c2"))
    waiting = watch.check(1, 0)
    assert waiting is not None
    assert "job 1 on c1" in waiting.words
    clock.now += 301  # with the seconds of the job before it
    with pytest.raises(ClusterError) as late:
        watch.check(1, 0)
    assert late.value.category == "queue-timeout"
    assert "scontrol show node" in late.value.next_step
    assert "job 1 on c1" in late.value.cause


def test_a_limit_on_running_jobs_gets_the_advice_to_put_more_workers_into_a_job(
    watch: JobWatch, slurm: Slurm, clock: Clock
) -> None:
    slurm.queue = [line(1, "RUNNING"), line(2, "PENDING", "QOSMaxJobsPerUserLimit")]
    watch.check(2, 1)
    clock.now += 601
    with pytest.raises(ClusterError) as found:
        watch.check(2, 1)
    assert "workers_per_job" in found.value.next_step


def test_suspended_jobs_do_not_count_as_running(watch: JobWatch, slurm: Slurm) -> None:
    slurm.queue = [line(1, "RUNNING"), line(2, "SUSPENDED")]
    waiting = watch.check(2, 0)
    assert waiting is not None
    assert "1 of them SUSPENDED" in waiting.words


# ------------------------------------------------------------------ what was asked for, and what was given


SCRIPT = """#!/bin/bash
#SBATCH -J scalescope-0123456789ab
#SBATCH -p main
#SBATCH -A Research
#SBATCH -n 1
#SBATCH --cpus-per-task=1
#SBATCH --mem=400M
#SBATCH -t 01:00:00
#SBATCH --qos=normal
"""


@pytest.mark.parametrize(
    ("terms", "partition", "changed"),
    [
        ("1:00:00|400M|research|normal|1", "main", set()),
        ("1:00:59|400M|(null)|(null)|", "main", set()),
        ("1:00|400M|research|normal|1", "main", {"time_s"}),
        ("2:00:00|400M|research|normal|1", "main", {"time_s"}),
        ("UNLIMITED|400M|research|normal|1", "main", {"time_s"}),
        ("1:00:00|100M|guests|normal|2", "main", {"memory_mb", "account", "nodes"}),
        ("1:00:00|1G|research|low|1", "small", {"memory_mb", "partition", "qos"}),
    ],
)
def test_terms_of_a_job_that_slurm_changed_are_reported(
    watch: JobWatch, slurm: Slurm, terms: str, partition: str, changed: set[str]
) -> None:
    slurm.queue = [line(1, "RUNNING", nodes="n1", terms=terms, partition=partition)]
    watch.expect(["1"], SCRIPT)
    waiting = watch.check(1, 0)
    assert watch.changes.keys() == changed
    assert waiting is not None
    assert ("in place of" in waiting.words) is bool(changed)


def test_terms_that_were_not_requested_do_not_count_as_changed(watch: JobWatch, slurm: Slurm) -> None:
    slurm.queue = [line(1, "PENDING", "Priority", terms="1:00|1M|x|y|7"), line(2, "RUNNING", terms="1:00|1M|x|y|7")]
    watch.expect(["1"], "#SBATCH -p main,short\n#SBATCH -N 7\n")
    watch.check(1, 0)  # the second job is not compared: its requested terms are unknown
    assert watch.changes == {}


@pytest.mark.parametrize(("terms", "own"), [("1:00|400M|x|y|1", False), ("1:00:00|400M|x|y|1", True)])
def test_raising_the_time_limit_is_not_advised_if_slurm_shortened_it(
    watch: JobWatch, slurm: Slurm, terms: str, own: bool
) -> None:
    slurm.queue = [line(1, "TIMEOUT", "TimeLimit", nodes="n1", terms=terms)]
    watch.expect(["1"], "#SBATCH -t 01:00:00\n")
    with pytest.raises(JobsEnded) as found:
        watch.check(1, 0)
    assert found.value.category == "time-limit-reached"
    assert ("cluster.walltime" in found.value.next_step) is own
    assert ("60 s" in found.value.cause) is not own


# ------------------------------------------------------------------ Slurm itself


def test_a_controller_that_restarts_is_waited_for_within_limits(watch: JobWatch, slurm: Slurm, clock: Clock) -> None:
    slurm.silent = True
    waiting = watch.check(1, 0)
    assert waiting is not None
    assert "Slurm does not answer" in waiting.words
    assert waiting.in_queue  # the time within which workers must register does not run
    clock.now += PATIENCE_S + 1
    with pytest.raises(ClusterError) as found:
        watch.check(1, 0)
    assert "Unable to contact controller" in found.value.cause


def test_a_command_is_repeated_until_slurm_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("AGAIN_S", 0.02), ("SAY_S", 0.01), ("PATIENCE_S", 60.0)):
        monkeypatch.setattr(waiting, name, seconds)
    away = [slurm_commands.silent(["scancel"], "Unable to contact slurm controller")] * 3
    said: list[str] = []

    def ask() -> str:
        if away:
            raise away.pop()
        return "7"

    def patiently() -> str:
        return slurm_commands.patiently(ask, says=said.append, stopped=threading.Event())

    assert patiently() == "7"
    assert all("1 min" in text for text in said)
    assert said
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)
    away += [slurm_commands.silent(["scancel"], "Socket timed out")] * 2
    with pytest.raises(slurm_commands.CommandSilent) as found:
        patiently()
    assert found.value.ends_run  # so that no trial is spoilt by it
    away += [slurm_commands.silent(["scontrol"], "Unable to process configuration file")]
    monkeypatch.setattr(waiting, "PATIENCE_S", 60.0)
    with pytest.raises(slurm_commands.CommandSilent):  # an error of the configuration is not waited for
        patiently()


def test_a_missing_slurm_is_an_error_at_once(tmp_path: Path) -> None:
    watch = JobWatch(LABEL, log_directory=tmp_path, run=slurm_commands.commands({"PATH": str(tmp_path)}))
    with pytest.raises(ClusterError) as found:
        watch.check(1, 0)
    assert found.value.category == "slurm-missing"


def test_environment_variables_of_squeue_and_scancel_are_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUEUE_PARTITION", "other")
    monkeypatch.setenv("SCANCEL_INTERACTIVE", "yes")
    monkeypatch.setenv("SBATCH_ACCOUNT", "mine")
    shown = slurm_commands.commands()(("env",), "").stdout
    assert "SQUEUE_PARTITION" not in shown
    assert "SCANCEL_INTERACTIVE" not in shown
    assert "SBATCH_ACCOUNT=mine" in shown


# ------------------------------------------------------------------ texts


def test_the_excerpt_of_a_log_keeps_the_first_error_of_a_chain() -> None:
    text = "started\nValueError: no such interface\n" + "  at x\n" * 40 + "RuntimeError: failed to start"
    assert excerpt(text).splitlines()[:2] == ["ValueError: no such interface", "..."]
    assert excerpt(text).splitlines()[-1] == "RuntimeError: failed to start"
    assert excerpt("one\ntwo\n") == "one\ntwo"
    assert excerpt("") == ""
    assert excerpt("12:00 - distributed.worker - INFO - Stopping worker\nKilled\n") == "Killed"
    assert len(excerpt("x" * 100_000)) <= 2000


def test_fields_of_scontrol_may_hold_blanks() -> None:
    fields = slurm_jobs.parse_scontrol(
        "JobId=4 JobState=PENDING Reason=Nodes required for job are DOWN, DRAINED Dependency=(null) NodeList= "
        "TRES=cpu=1,mem=100M StdErr=/logs/a b-4.err"
    )
    assert fields["Reason"] == "Nodes required for job are DOWN, DRAINED"
    assert (fields["Dependency"], fields["NodeList"], fields["StdErr"]) == ("", "", "/logs/a b-4.err")
    assert fields["TRES"] == "cpu=1,mem=100M"


def test_the_comment_of_a_job_is_compared_exactly() -> None:
    (job,) = slurm_jobs.parse_squeue(line(1, "RUNNING") + " ")
    assert job.comment == LABEL + " "
    (job,) = slurm_jobs.parse_squeue(line(1, "RUNNING").replace(f"|{LABEL}", "|x|y|z", 2)[:-1])
    assert job.comment != LABEL


# ------------------------------------------------------------------ facts


SACCT = """\
7|COMPLETED|0:0|2026-01-01T10:00:00|2026-01-01T10:01:30|2026-01-01T10:11:30|00:01:30|n[1-2]|cpu=8,gres/gpu=2,mem=4G||gpu|None
7.batch|COMPLETED|0:0|2026-01-01T10:01:30|2026-01-01T10:01:30|2026-01-01T10:11:30||n1|cpu=4|63880K||
7.0|COMPLETED|0:0|2026-01-01T10:01:30|2026-01-01T10:01:30|2026-01-01T10:11:30||n2|cpu=4|1.50G||
8|CANCELLED by 1000|0:0|2026-01-01T10:00:00|Unknown|2026-01-01T10:11:30|00:11:30|None assigned|||gpu|Resources|
"""


def test_facts_of_jobs_are_read_from_accounting() -> None:
    first, second = job_facts.parse_sacct(SACCT)
    assert (first["queue_wait_s"], first["run_s"], first["nodes"]) == (90.0, 600.0, "n[1-2]")
    assert first["tres"] == {"cpu": "8", "gres/gpu": "2", "mem": "4G"}
    assert first["max_rss_bytes"] == int(1.5 * 2**30)
    assert (second["state"], second["queue_wait_s"], second["nodes"]) == ("CANCELLED by 1000", None, "")
    assert second["max_rss_bytes"] is None


def test_facts_that_slurm_cannot_tell_are_listed_as_absent() -> None:
    def run(command: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        answers = {
            "sacct": (1, "", "Slurm accounting storage is disabled"),
            "sstat": (0, "", "sstat: error: No steps running for job 1"),
            "squeue": (0, line(1, "RUNNING", nodes="n1", start="2026-01-01T10:00:05") + "\n" + line(2, "FAILED"), ""),
        }
        if "-O" in command:
            return subprocess.CompletedProcess(command, 0, " 1 0 cpu=1,mem=1G\n 2 768 cpu=1\n", "")
        return subprocess.CompletedProcess(command, *answers[command[0]])

    silent = job_facts.job_facts(LABEL, run=Slurm(silent=True))
    assert (silent["jobs"], "Unable to contact controller" in silent["absent"][0]) == ([], True)
    found: dict[str, Any] = job_facts.job_facts(LABEL, run=run, job_ids=["1", "2", "9"])
    assert found["source"] == "squeue and sstat"
    assert [(job["id"], job["queue_wait_s"], job["exit_code"]) for job in found["jobs"]] == [
        ("1", 5.0, ""),
        ("2", None, "3:0"),
    ]
    assert found["queue_wait_s"] == {"max": 5.0, "median": 5.0}
    assert found["absent"] == [
        "accounting: Slurm accounting storage is disabled",
        "MaxRSS of jobs that have ended: only accounting keeps it",
        "MaxRSS: No steps running for job 1",
        "jobs 9: Slurm has forgotten them",
    ]
