"""Clusters of real jobs on a real Grid Engine, and reaping of their jobs when processes die."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import another_user
from support.requests import asked
from support.waiting import wait_for as until

from scalescope import leases, waiting
from scalescope.clusters import reaping
from scalescope.clusters.jobqueue import base_cluster, batch_cluster, grid_engine, sge_cluster
from scalescope.clusters.jobqueue.sge_cluster import SgeCluster
from scalescope.clusters.reaping import Fate
from scalescope.errors import ClusterError, ExitStatus, JobsEnded
from scalescope.model.trial import TrialState
from scalescope.store.schema import RunState
from scalescope.store.store import Store

pytestmark = pytest.mark.timeout(300)

Opened = Callable[..., SgeCluster]

WORKLOAD = """
import time
from pathlib import Path

def hold(client, *, items: int = 4, seconds: float = 1.0, folder: str = ""):
    futures = client.map(time.sleep, [seconds] * items, pure=False)
    Path(folder, f"running-{seconds:g}").touch()
    client.gather(futures)
"""
COMMAND = "from scalescope.cli.main import main; main()"
OWNER = """
import sys, time
from scalescope import leases
from scalescope.clusters.jobqueue.grid_engine import GridEngine
from scalescope.clusters.jobqueue.shared_folder import ClusterFolder

engine = GridEngine()
folder = ClusterFolder(leases.new_label())
folder.create(tls=True)
lease = leases.intend("sge", folder.path.name, {"folder": str(folder.path), **engine.variables})
for number in range(2):
    options = ("-N", lease.label, "-o", f"{folder.logs}/", "-j", "y", "-b", "y")
    print(engine.ask("qsub", "-terse", *options, "sleep", "600").strip(), flush=True)
print(lease.label, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "leases"))
    return tmp_path


def ids(cluster: SgeCluster) -> list[str]:
    return [job["id"] for job in cluster.facts()["jobs"]]


def test_a_job_has_a_slot_per_core_is_replaced_when_lost_and_is_removed_by_close(opened: Opened, in_sge: Any) -> None:
    cluster = opened(workers_per_job=2)
    cluster.scale(3, 2)
    jobs = ids(cluster)
    assert [job["workers"] for job in cluster.facts()["jobs"]] == [2, 1]
    assert in_sge.slots() == dict(zip(jobs, [4, 2], strict=True))
    with cluster.client() as client:
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
        assert sorted(client.nthreads().values()) == [2, 2, 2]
        hosts = client.run(lambda: os.uname().nodename)
    assert set(hosts.values()) == set(in_sge.hosts)
    cluster.scale(2, 2)
    assert ids(cluster) == jobs[:1]
    nothing: Any = None
    with cluster.running(nothing, nothing):
        in_sge.run("qdel", jobs[0])
        until(lambda: jobs[0] not in in_sge.jobs())
    assert f"jobs {jobs[0]}" in cluster.losses()
    cluster.scale(2, 2)
    assert cluster.facts()["jobs_replaced"] == 1
    cluster.close()
    until(lambda: not in_sge.jobs())
    assert leases.read_all() == ([], [])


def test_the_error_names_the_reason_why_jobs_do_not_start(opened: Opened, in_sge: Any) -> None:
    """All steps use the same cluster, one after the other."""
    cluster = opened(queue_timeout_s=2.0)

    def refused(category: str, threads: int = 1) -> ClusterError:
        with pytest.raises(ClusterError) as caught:
            cluster.scale(1, threads)
        assert caught.value.category == category, caught.value
        return caught.value

    others = [in_sge.submit("-pe", "smp", "4") for _ in in_sge.hosts]
    until(lambda: set(in_sge.jobs().values()) == {"r"})
    assert "all.q@sge1 is full" in refused("queue-timeout").cause
    in_sge.run("qdel", *others)
    in_sge.run("qmod", "-d", "*")
    assert "all.q@sge1 is disabled" in refused("queue-timeout").cause
    assert refused("never-starts", threads=5).ends_run
    in_sge.run("qmod", "-e", "*")
    cluster.scale(1, 1)


QUOTA = "{\n name few\n enabled TRUE\n limit users {*} to slots=1\n}\n"
ONCE = {"replace_jobs": 0}
# What is asked for, with workers and threads; the category of the error, what its next step names; what is asked then.
Ask = tuple[dict[str, Any], int, int]
STEPS: dict[str, tuple[Ask, str, str, Ask]] = {
    "quota": (({"queue_timeout_s": 2.0}, 2, 1), "queue-timeout", "fewer workers", ({}, 1, 1)),
    "size": (({}, 1, 5), "never-starts", "ask for less per job", ({}, 1, 4)),
    "queue": (({"queue": "nowhere.q"}, 1, 1), "refused", "scalescope job-script", ({}, 1, 1)),
    "environment": (({"parallel_environment": "mpi"}, 1, 1), "bad-parallel-environment", "qconf -spl", ({}, 1, 1)),
    "resource": (({"resource_spec": "unheard=1"}, 1, 1), "refused", "scalescope job-script", ({}, 1, 1)),
    "project": (({"account": "nobody"}, 1, 1), "refused", "scalescope job-script", ({}, 1, 1)),
    "time limit": (({"walltime": "10:00:00"}, 1, 1), "never-starts", "ask for less per job", ({}, 1, 1)),
    "hold": (
        ({"directives_add": ("-h",), "queue_timeout_s": 2.0}, 1, 1),
        "job-held",
        "cluster.directives_add",
        ({}, 1, 1),
    ),
    "others' jobs": (({"queue_timeout_s": 2.0}, 1, 1), "queue-timeout", "when the queue is shorter", ({}, 1, 1)),
    "number of jobs": (({}, 2, 1), "queue-full", "cluster.workers_per_job", ({"workers_per_job": 2}, 2, 1)),
    "folder": (({"directives_add": ("-wd /nowhere",)}, 1, 1), "start-failed", "cluster.directives_add", ({}, 1, 1)),
    "interpreter": (({"python": "/nowhere/python", **ONCE}, 1, 1), "jobs-gone", "cluster.python", ({}, 1, 1)),
    "prologue": (({"prologue": ("exit 3",), **ONCE}, 1, 1), "jobs-gone", "cluster.prologue", ({}, 1, 1)),
}
# Why the next step of the others is not taken here.
NOT_TAKEN = {
    "node-lost": "a test below starts the host again",
    "sge-silent": "a test below starts the master again",
    "batch-system-missing": "needs another host",
    "suspended": "needs an administrator",
    "too-many-jobs-lost": "names the error that came first",
    "start-timeout": "only shows more",
    "wrong-threads": "only shows more",
}


def test_each_failure_category_has_a_test_that_follows_its_next_step_or_a_reason_for_none() -> None:
    text = "".join(inspect.getsource(module) for module in (base_cluster, batch_cluster, grid_engine, sge_cluster))
    named = re.findall(r'category="([\w-]+)"(?: if \w+ else "([\w-]+)")?', text)
    categories = {each for pair in named for each in pair if each} | set(sge_cluster._LOOK_AT)
    taken = {category for _, category, _, _ in STEPS.values()}
    assert categories == taken | set(NOT_TAKEN)
    assert not taken & set(NOT_TAKEN)


def limit_jobs(sge: Any, folder: Path, most: int) -> None:
    """Limit the jobs of each user; 0 is no limit."""
    file = folder / "global"
    file.write_text(re.sub(r"max_u_jobs\s+\d+", f"max_u_jobs {most}", sge.run("qconf", "-sconf")) + "\n")
    sge.run("qconf", "-Mconf", str(file))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] if name != "quota" else []) for name in STEPS]
)
def test_workers_arrive_once_the_next_step_named_by_the_error_is_taken(
    opened: Opened, in_sge: Any, tmp_path: Path, name: str
) -> None:
    (asked, *size), category, words, (changed, *new_size) = STEPS[name]
    if name == "others' jobs":
        for _ in in_sge.hosts:
            in_sge.submit("-pe", "smp", "4")
        until(lambda: set(in_sge.jobs().values()) == {"r"})
    if name == "quota":
        (tmp_path / "quota").write_text(QUOTA)
        in_sge.run("qconf", "-Arqs", str(tmp_path / "quota"))
    if name == "number of jobs":
        limit_jobs(in_sge, tmp_path, 1)
    try:
        with pytest.raises(ClusterError) as caught:
            opened(**asked).scale(*size)
        assert caught.value.category == category
        assert words in caught.value.next_step
        in_sge.cancel_all()
        opened(**changed).scale(*new_size)
    finally:
        in_sge.run("qconf", "-drqs", "few", check=False)
        if name == "number of jobs":
            limit_jobs(in_sge, tmp_path, 0)


@pytest.mark.thorough
def test_a_queue_in_error_an_absent_host_and_a_changed_limit_are_named(opened: Opened, in_sge: Any) -> None:
    cluster = opened(queue_timeout_s=30.0, walltime="01:00:00")
    first, second = in_sge.hosts
    said: list[str] = []

    def go(text: str) -> None:
        said.append(text)
        (job,) = [job["id"] for job in cluster.facts()["jobs"]]
        if len(said) == 1:
            in_sge.run("qalter", "-l", "h_rt=600", job)
        if "in error state" in text and "does not answer" in text and "600 s in place of" in text:
            in_sge.run("qmod", "-cq", f"all.q@{second}")

    cluster.report = go
    in_sge.run("qconf", "-mattr", "queue", "prolog", "/bin/false", "all.q")
    try:
        in_sge.run("qmod", "-d", f"all.q@{first}")
        failed = in_sge.submit()
        until(lambda: "E" in in_sge.run("qstat", "-f"))
        in_sge.run("qdel", failed)
        in_sge.stop_host(first)
        until(lambda: first in in_sge.run("qselect", "-qs", "u", check=False))
    finally:
        in_sge.run("qconf", "-mattr", "queue", "prolog", "NONE", "all.q")
    cluster.scale(1, 1)  # a host that is down is no reason to refuse it
    both = ("in error state", f"all.q@{second}", "does not answer", f"all.q@{first}")
    assert any(all(words in text for words in both) for text in said), said
    assert len(cluster.facts()["changed"]) == 1


def test_options_that_grid_engine_refuses_have_a_category(opened: Opened) -> None:
    for category, given in (
        ("bad-parallel-environment", {"parallel_environment": "none"}),
        ("bad-parallel-environment", {"parallel_environment": "mpi"}),  # this environment scatters the slots of a job
        ("refused", {"queue": "nowhere.q"}),
        ("refused", {"resource_spec": "unheard=1"}),
    ):
        with pytest.raises(ClusterError) as caught:
            opened(**given).scale(1, 1)
        assert caught.value.category == category
        assert "\n" not in caught.value.cause.replace("\nExiting.", "")


def test_reap_removes_only_our_own_jobs(in_sge: Any, state: Path) -> None:
    in_sge.run("qmod", "-d", "*")
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    first, second, label = (owner.stdout.readline().strip() for _ in range(3))
    others = [in_sge.submit("-N", label), in_sge.submit("-N", f"{label}0"), in_sge.submit("-N", label, user="games")]
    assert [each.fate for each in reaping.reap()] == [Fate.OWNED]
    owner.kill()
    owner.wait()
    owner.stdout.close()
    (told,) = reaping.reap(dry_run=True)
    assert (told.fate, set(told.removed)) == (Fate.FAILED, {first, second})  # another job only looks like ours
    in_sge.run("qdel", others[0])
    (told,) = reaping.reap()
    assert (told.fate, set(told.removed)) == (Fate.REMOVED, {first, second})
    assert set(in_sge.jobs()) == set(others[1:])
    assert leases.read_all()[0] == []
    assert not (state / "state/scalescope/jobs" / label).exists()


@pytest.mark.thorough
def test_a_killed_sweep_with_a_deleted_job_is_resumed(in_sge: Any, state: Path) -> None:
    (state / "own.py").write_text(WORKLOAD)
    points = [{"workers": 4, "seconds": seconds} for seconds in (9, 4)]
    sweep: dict[str, Any] = {
        "workload": f"{state / 'own.py'}:hold",
        "params": {"folder": str(state)},
        "points": points,
        "cluster": {"kind": "sge", "workers_per_job": 2, "processes": 1, "parallel_environment": "smp"},
    }

    def order(seed: int) -> list[Any]:
        return [planned.point.params["seconds"] for planned in asked({**sweep, "seed": seed}).plan]

    sweep["seed"] = next(seed for seed in range(100) if order(seed)[0] == 9)
    (state / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    store = str(state / "results.db")
    command = [sys.executable, "-c", COMMAND, "sweep", str(state / "sweep.yaml"), "--store", store]
    others = in_sge.submit(user="games")
    with (state / "log").open("ab") as log:
        flow = subprocess.Popen(command, stdout=log, stderr=log)
        until((state / "running-9").exists, lambda: (state / "log").read_text())
        hit = next(job for job in in_sge.jobs() if job != others)
        in_sge.run("qdel", hit)
        until((state / "running-4").exists, lambda: (state / "log").read_text())
        flow.send_signal(signal.SIGKILL)
        flow.wait()
        again = subprocess.run(command, stdout=log, stderr=log)
    assert again.returncode in (ExitStatus.OK, ExitStatus.FINDING), (state / "log").read_text()
    with Store.open(store) as opened_:
        run = opened_.run("latest")
    assert run.state is RunState.COMPLETE
    by_seconds = {trial.point.params["seconds"]: trial for trial in run.trials}
    assert by_seconds[4].state is TrialState.VALID
    assert by_seconds[9].state is TrialState.INVALID
    assert hit in by_seconds[9].reason
    reaping.reap()
    assert leases.read_all()[0] == []
    assert set(in_sge.jobs()) == {others}


@pytest.mark.thorough
def test_a_dead_host_is_named_and_its_job_is_replaced(opened: Opened, in_sge: Any) -> None:
    cluster = opened()
    cluster.scale(2, 4)  # a job on each host
    lost = in_sge.hosts[0]
    in_sge.stop_host(lost)

    def named() -> JobsEnded | None:
        try:
            cluster._explain(1)
        except JobsEnded as error:
            return error
        return None

    error = until(named)
    assert (error.category, error.may_return) == ("node-lost", True)
    assert lost in error.where
    in_sge.start_host(lost)
    cluster.scale(2, 4)
    assert cluster.facts()["jobs_replaced"] == 1


@pytest.mark.thorough
def test_scaling_waits_for_an_absent_master(opened: Opened, in_sge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "AGAIN_S", 0.5)
    cluster = opened()
    cluster.scale(1, 1)
    said: list[str] = []
    cluster.report = said.append
    in_sge.stop_host("qmaster")
    threading.Timer(3.0, in_sge.start_host, ["qmaster"]).start()
    cluster.scale(2, 1)
    assert "does not answer" in said[0]
    assert len(in_sge.jobs()) == 2


@pytest.mark.thorough
@another_user.only_root
def test_another_user_gets_nothing_of_a_sweep_on_grid_engine(in_sge: Any) -> None:
    got, tried = another_user.gets_of_a_sweep("-c", "sge", "--cluster-option", "parallel_environment=smp")
    assert got == []
    assert len(tried["ports"]) >= 3
