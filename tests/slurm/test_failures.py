"""Every way in which workers fail to arrive on Slurm, on a real one: the error that a person reads, and how soon.

All jobs run at the same time, each under a label of its own, and each is watched as the cluster does it. With
`SCALESCOPE_FAILURES=docs/slurm-failures.md` in the environment that file is written from what was seen.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.failures import Table
from support.waiting import wait_for

from scalescope.clusters.jobqueue import job_script
from scalescope.clusters.jobqueue.base_cluster import PendingWorkers
from scalescope.clusters.jobqueue.base_spec import JobRequest
from scalescope.clusters.jobqueue.shared_folder import ClusterFolder
from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec
from scalescope.clusters.jobqueue.slurm_watch import JobWatch
from scalescope.errors import ClusterError, JobsEnded
from scalescope.leases import new_label
from scalescope.slurm import commands as slurm_commands
from scalescope.slurm import submission

LIMIT_S = 60.0
BARE = "BARE"  # stands for an interpreter without installed packages
FAILED_JOB = "FAILED-JOB"  # stands for the id of a job that has failed

BEGIN = "<!-- written by tests/slurm/test_failures.py -->"


@dataclass
class Setting:
    """Where the jobs run."""

    slurm: Any
    folder: Path
    address: str

    def script(self, label: str, *, change: Callable[[str], str] = str, address: str = "", **spec: Any) -> str:
        """The text of a job as the cluster submits it, changed to make it fail."""
        folder = ClusterFolder(label, str(self.folder))
        folder.create(tls=False)
        if spec.get("python") == BARE:
            spec["python"] = str(self.folder / "bare-python")
            Path(spec["python"]).write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
            os.chmod(spec["python"], 0o700)
        given = SlurmSpec(**{"tls": False, "memory_mb": 300, "walltime": "00:30:00", **spec})
        request = JobRequest("1", 1, 1, label=label, address=address or self.address, folder=str(folder.path))
        return change(str(job_script.job(given, request).job_script()))


@dataclass
class Row:
    """A way to fail, the category of its error, and a text of Slurm or of the log that the error quotes."""

    cause: str
    category: str
    text: str
    spec: dict[str, Any] = field(default_factory=dict)
    change: Callable[[str], str] = str
    address: str = ""
    act: Callable[[Any, str], object] | None = None  # with the job's number, once it runs; from then on time counts
    may_return: bool = False
    thorough: bool = False


def _only(*lines: str) -> Callable[[str], str]:
    """Keeps the directives of a script, and replaces what it does."""

    def change(text: str) -> str:
        return "\n".join(["#!/bin/bash", *(line for line in text.splitlines() if line[:7] == "#SBATCH"), *lines, ""])

    return change


def _end_soon(slurm: Any, job: str) -> None:
    """Bring the job's time limit forward."""
    soon = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 2))
    slurm.run("scontrol", "update", f"JobId={job}", f"EndTime={soon}")


EATS_MEMORY = f"{sys.executable} -S -c 'import time; kept = bytearray(400 << 20); time.sleep(60)'"
SLEEPS = _only("sleep 600")
ROWS = (
    Row("time limit above the partition's", "time-limit-too-long", "PartitionTimeLimit", {"partition": "short"}),
    Row("partition is down", "partition-closed", "PartitionDown", {"partition": "closed"}),
    Row("job is held", "job-held", "JobHeldUser", {"directives_add": ("--hold",)}),
    Row(
        "dependency that can never be satisfied",
        "dependency-failed",
        "DependencyNeverSatisfied",
        {"directives_add": (f"--dependency=afterok:{FAILED_JOB}",)},
    ),
    Row(
        "interpreter missing on the nodes",
        "program-missing",
        "No such file or directory",
        {"python": "/opt/nowhere/bin/python"},
    ),
    Row("Dask missing on the nodes", "dask-missing", "ModuleNotFoundError", {"python": BARE}),
    Row(
        "argument that the worker does not know",
        "unknown-argument",
        "unrecognized arguments",
        change=lambda text: text.replace("--nthreads 1", "--nthreads 1 --bogus"),
    ),
    Row("network interface missing", "interface-missing", "nope0", {"interface": "nope0"}),
    Row("scheduler cannot be reached", "scheduler-unreachable", "ExitCode=97:0", address="tcp://127.0.0.1:1"),
    Row(
        "log folder not writable",
        "output-not-writable",
        "ExitCode=0:53",
        change=lambda text: text.replace('--error="', '--error="/proc/nowhere').replace(
            '--output="', '--output="/proc'
        ),
    ),
    Row("out of memory", "out-of-memory", "memory", {"memory_mb": 100}, change=_only(EATS_MEMORY)),
    Row(
        "job cancelled by somebody",
        "cancelled",
        "CANCELLED",
        change=SLEEPS,
        act=lambda slurm, job: slurm.run("scancel", job),
        may_return=True,
    ),
    Row(
        "time limit reached",
        "time-limit-reached",
        "TimeLimit",
        change=SLEEPS,
        act=_end_soon,
        may_return=True,
        thorough=True,  # Slurm enforces it every 30 s
    ),
    Row(
        "node died",
        "node-lost",
        "n13 is",
        {"directives_add": ("--nodelist=n13",)},
        change=SLEEPS,
        act=lambda slurm, job: slurm.stop_node("n13"),
        may_return=True,
        thorough=True,  # Slurm notices it after some 20 s
    ),
)


@dataclass
class Seen:
    """The outcome of a row."""

    error: ClusterError
    seconds: float  # since the job was submitted, or since what was done to it
    known_s: float  # since Slurm knew, which writes whole seconds
    waited: list[PendingWorkers]


def _anonymous(text: str) -> str:
    """The text without the ends of logs, which differ in each run."""
    return re.sub(r"; (the end of|its error file) .*", "", text)


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    table = Table(BEGIN, "of these after Slurm knew", _anonymous)
    yield table
    if path := os.environ.get("SCALESCOPE_FAILURES"):
        table.write(Path(path))


@pytest.fixture(scope="module")
def seen(
    slurm: Any, tmp_path_factory: pytest.TempPathFactory, table: Table, request: pytest.FixtureRequest
) -> dict[str, Seen]:
    """All rows whose tests are run, at the same time."""
    items = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    rows = [item.callspec.params["row"] for item in items if "seen" in item.fixturenames]
    run = slurm_commands.commands(slurm.environment)
    with socket.socket() as listener:  # a job needs only an open port before its workers start
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        setting = Setting(slurm, tmp_path_factory.mktemp("jobs"), f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        found = dict(_watch_all(rows, setting, run, failed=slurm.submit(command="false")))
    for row in rows:
        told = found[row.cause]
        table.add(row.cause, told.error, told.seconds, told.known_s)
    return found


def _watch_all(
    rows: list[Row], setting: Setting, run: slurm_commands.Run, *, failed: str
) -> Iterator[tuple[str, Seen]]:
    open_rows: dict[str, tuple[Row, JobWatch, str, float, list[PendingWorkers]]] = {}
    for row in rows:
        label = new_label()
        text = setting.script(label, change=row.change, address=row.address, **row.spec)
        done = run(("sbatch", "--parsable"), text.replace(FAILED_JOB, str(failed)))
        assert done.returncode == 0, (row.cause, done.stderr)
        job = done.stdout.strip()
        watch = JobWatch(label, log_directory=setting.folder / label / "logs", run=run)
        watch.expect([job])
        open_rows[row.cause] = (row, watch, job, time.monotonic(), [])
    end = time.monotonic() + LIMIT_S
    acted: set[str] = set()
    while open_rows and time.monotonic() < end:
        for cause, (row, watch, job, began, waited) in list(open_rows.items()):
            try:
                waiting = watch.check(1, 0)
            except ClusterError as error:
                del open_rows[cause]
                known = watch.jobs()[0].ended or watch.jobs()[0].submitted or time.time()
                yield cause, Seen(error, time.monotonic() - began, time.time() - known, waited)
                continue
            if waiting is not None and waiting.reason:
                waited.append(waiting)
            if row.act and cause not in acted and any(known.state == "RUNNING" for known in watch.jobs()):
                acted.add(cause)
                row.act(setting.slurm, job)
                open_rows[cause] = (row, watch, job, time.monotonic(), waited)
        time.sleep(0.2)
    assert not open_rows, f"no error for {list(open_rows)}"


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.cause, marks=[pytest.mark.thorough] if row.thorough else []) for row in ROWS]
)
def test_each_failure_has_its_category_text_and_next_step(seen: dict[str, Seen], row: Row) -> None:
    error = seen[row.cause].error
    assert isinstance(error, JobsEnded)
    assert error.category == row.category
    assert row.text in str(error)
    assert error.job_ids
    assert error.next_step
    assert error.may_return is row.may_return
    assert "scalescope-" in error.what


REFUSED = {
    "partition that does not exist": ({"partition": "nope"}, "unknown-partition"),
    "account missing where the site wants one": ({"partition": "paid"}, "account-refused"),
    "more cores than a node has": ({"cores": 99}, "no-such-node"),
    "GPU that does not exist": ({"gres": "fpga:1"}, "unknown-gres"),
    "more memory than a node has": ({"memory_mb": 900_000}, "too-much-memory"),
    "licence that does not exist": ({"directives_add": ("--licenses=matlab",)}, "unknown-licence"),
    "feature that no node has": ({"constraint": "quantum"}, "unknown-feature"),
    "option that sbatch does not know": ({"directives_add": ("--bogus",)}, "unknown-option"),
}


@pytest.mark.parametrize("cause", REFUSED)
def test_a_job_that_no_queue_accepts_is_refused_at_submission(
    in_slurm: Any, tmp_path: Path, cause: str, table: Table
) -> None:
    spec, category = REFUSED[cause]
    text = Setting(in_slurm, tmp_path, "tcp://127.0.0.1:1").script(new_label(), **spec)
    began = time.monotonic()
    with pytest.raises(JobsEnded) as found:
        submission.submit(text, run=slurm_commands.commands())
    table.add(cause, found.value, time.monotonic() - began)
    assert found.value.category == category
    assert found.value.next_step
    assert found.value.job_ids == ()
    assert in_slurm.run("squeue", "-h") == ""


# ------------------------------------------------------------------ jobs that wait are no failures


def test_a_waiting_job_is_reported_with_its_reason_until_queue_timeout_s_ends(
    in_slurm: Any, tmp_path: Path, table: Table
) -> None:
    run = slurm_commands.commands()
    setting = Setting(in_slurm, tmp_path, "tcp://127.0.0.1:1")
    in_slurm.submit("-N16", "--exclusive", "-t10", "--job-name=others")
    labels = {"Resources": new_label(), "Priority": new_label(), "BeginTime": new_label()}
    for reason, label in labels.items():
        spec = {"directives_add": ("--begin=now+1hour",)} if reason == "BeginTime" else {}
        assert run(("sbatch", "--parsable"), setting.script(label, change=SLEEPS, **spec)).returncode == 0
    for reason, label in labels.items():
        waiting = _until(JobWatch(label, log_directory=tmp_path, run=run, queue_timeout_s=30), reason)
        print(f"\n--- {reason}\n{waiting.words}")
        assert "1 Slurm job waiting" in waiting.words
        assert waiting.reason in waiting.words
        assert waiting.estimated_start is not None
        assert "`cluster.queue_timeout_s` ends at" in waiting.words
    began = time.monotonic()
    watch = JobWatch(labels["Resources"], log_directory=tmp_path, run=run, queue_timeout_s=2)
    with pytest.raises(ClusterError) as found:
        _until(watch, "something else")
    assert not isinstance(found.value, JobsEnded)
    assert found.value.category == "queue-timeout"
    table.add("waited for longer than `queue_timeout_s` (here 2 s)", found.value, time.monotonic() - began)


def test_waiting_for_drained_nodes_is_reported_with_their_names(in_slurm: Any, tmp_path: Path) -> None:
    run = slurm_commands.commands()
    in_slurm.run("scontrol", "create", "PartitionName=drained", "Nodes=n14,n15")
    in_slurm.run("scontrol", "update", "NodeName=n14,n15", "State=DRAIN", "Reason=cooling")
    label, spec = new_label(), SlurmSpec(partition="drained")
    text = Setting(in_slurm, tmp_path, "tcp://127.0.0.1:1").script(label, change=SLEEPS, partition="drained")
    assert run(("sbatch", "--parsable"), text).returncode == 0
    watch = JobWatch(label, log_directory=tmp_path, run=run, closed_nodes=partial(spec.closed_nodes, run=run))
    waiting = wait_for(lambda: (found := watch.check(1, 0)) and "DOWN, DRAINED" in found.reason and found)
    assert "n14 is drained (cooling), n15 is drained (cooling)" in waiting.words


def test_a_job_that_waits_for_maintenance_has_an_estimated_start(in_slurm: Any, tmp_path: Path) -> None:
    run = slurm_commands.commands()
    user = in_slurm.run("id", "-un")
    in_slurm.run(
        "scontrol", "create", "reservation", "StartTime=now", "Duration=30", f"User={user}", "Nodes=ALL", "Flags=MAINT"
    )
    label = new_label()
    text = Setting(in_slurm, tmp_path, "tcp://127.0.0.1:1").script(label, change=SLEEPS)
    assert run(("sbatch", "--parsable"), text).returncode == 0
    waiting = _until(JobWatch(label, log_directory=tmp_path, run=run), "maintenance")
    print(waiting.words)
    assert waiting.estimated_start is not None
    assert 1000 < waiting.estimated_start - time.time() < 1900


def _until(watch: JobWatch, reason: str) -> PendingWorkers:
    """The pending workers, once Slurm gives this reason and an estimated start."""

    def found() -> PendingWorkers | None:
        waiting = watch.check(1, 0)
        return waiting if waiting and reason in waiting.reason and waiting.estimated_start is not None else None

    waiting: PendingWorkers = wait_for(found, f"Slurm never said {reason}", 30.0)
    return waiting
