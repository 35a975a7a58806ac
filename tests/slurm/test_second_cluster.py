"""A Slurm of another site: it wants an account, rewrites comments, and refuses what its partitions do not allow."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_for as until

from scalescope import leases, waiting
from scalescope.analysis.cost import Prices
from scalescope.cli import main as cli
from scalescope.cli.host_checks import _slurm
from scalescope.clusters import reaping
from scalescope.clusters.jobqueue import base_cluster, slurm_cluster, slurm_watch
from scalescope.clusters.jobqueue.base_cluster import PendingWorkers
from scalescope.clusters.jobqueue.slurm_cluster import SlurmCluster
from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec, _default_partition
from scalescope.clusters.reaping import Fate
from scalescope.driver.process import Driver
from scalescope.errors import ClusterError, ExitStatus, JobsEnded
from scalescope.model.sweep import PlannedTrial, Point
from scalescope.model.trial import TrialState
from scalescope.slurm import commands as slurm_commands
from scalescope.slurm import jobs as slurm_jobs
from scalescope.slurm.commands import CommandSilent
from scalescope.store.schema import RunState
from scalescope.store.store import Store

JOB = """
import beside

def work(client, *, items: int = 4):
    client.gather(client.map(beside.wait, range(items), pure=False))
"""
BESIDE = "import time\n\ndef wait(number):\n    time.sleep(0.1)\n"


LEAVES_A_JOB = """
from scalescope import leases
from scalescope.clusters.jobqueue.shared_folder import ClusterFolder
from scalescope.slurm import commands, jobs, submission

run = commands.commands()
folder = ClusterFolder(leases.new_label())
folder.create(tls=True)
lease = leases.intend("slurm", folder.path.name, {"folder": str(folder.path), **jobs.lease_details(run=run)})
options = f"-A research -J {lease.label} --comment={lease.label} -o /dev/null -e {folder.logs}/1-%j.err"
print(submission.submit(f"#!/bin/bash\\n#SBATCH {options}\\nsleep 600\\n", run=run), folder.path)
"""
MAIN = ("-c", "from scalescope.cli.main import main; main()")
REAP = (*MAIN, "reap", "--json")


@dataclass(frozen=True)
class User:
    """An ordinary user of this machine, who reaches a Slurm."""

    name: str
    home: Path
    slurm: Any

    def run(self, *command: str, check: bool = True, caps: str = "") -> subprocess.CompletedProcess[str]:
        found = pwd.getpwnam(self.name)
        own = {"HOME": str(self.home), "USER": self.name, "LOGNAME": self.name, "XDG_STATE_HOME": f"{self.home}/state"}
        left = {leases.VARIABLE, "XDG_STATE_HOME"}
        environment = {name: value for name, value in os.environ.items() if name not in left}
        ids = (f"--reuid={found.pw_uid}", f"--regid={found.pw_gid}", "--clear-groups")
        done = subprocess.run(
            ["setpriv", *ids, *([f"--inh-caps={caps}", f"--ambient-caps={caps}"] if caps else []), *command],
            env={**environment, **self.slurm.environment, **own},
            cwd="/",
            capture_output=True,
            text=True,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def python(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run our interpreter, which may lie in a home folder that the user cannot read."""
        return self.run(sys.executable, *arguments, check=check, caps="+dac_read_search")


@pytest.fixture
def users(in_strict: Any, missing: Any) -> Iterator[tuple[User, User]]:
    """Two ordinary users; a third user runs Slurm."""
    if os.getuid() != 0:
        missing("users", "only root can act for other users")
    with tempfile.TemporaryDirectory(prefix="users-", dir="/tmp") as folder:  # other users cannot enter ours
        os.chmod(folder, 0o777)
        both = User("games", Path(folder, "a"), in_strict), User("news", Path(folder, "b"), in_strict)
        for user in both:
            user.run("mkdir", "-m", "755", str(user.home))
        yield both


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders whose names have a blank."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "my state"))
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "leases"))
    return tmp_path


def jobs(slurm: Any, label: str) -> dict[str, str]:
    """States of all jobs of a label, by their numbers."""
    return dict(
        line.split() for line in slurm.run("squeue", "-h", "-t", "all", "-n", label, "-o", "%i %T").splitlines()
    )


def reap_of_dead(label: str) -> list[reaping.Reaped]:
    """What `reap` does, once the owner of this lease is dead."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    path = leases.folder() / f"{label}.json"
    data = json.loads(path.read_text())
    data["owner"]["pid"] = gone.pid
    path.write_text(json.dumps(data))
    return reaping.reap()


def test_a_trial_is_valid_after_waiting_for_an_absent_controller(in_strict: Any, state: Path) -> None:
    """The folder name has a blank, the workload imports a module next to it, and the job takes all memory of a node."""
    (state / "my_job.py").write_text(JOB)
    (state / "beside.py").write_text(BESIDE)
    said: list[str] = []

    def hear(text: str) -> None:
        if "controller does not answer" in text:
            if not said:
                in_strict.start_node("slurmctld")
            said.append(text)

    spec = SlurmSpec(account="research", memory_mb=3333, start_timeout_s=60)
    in_strict.stop_node("slurmctld", jobs=False)
    with Driver.start(spec, folder=state / "driver", on_progress=hear) as driver:
        point = Point(2, params={"items": 4})
        trial = driver.run(PlannedTrial(0, point, 0), f"{state}/my_job.py:work", timeout_s=60)
    assert said
    assert trial.state is TrialState.VALID, trial.reason
    assert [job["workers"] for job in trial.facts["cluster"]["jobs"]] == [1, 1]
    assert leases.read_all()[0] == []


@pytest.mark.thorough
def test_a_job_whose_id_was_not_returned_is_not_submitted_twice(
    opened: Callable[..., SlurmCluster], in_strict: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "AGAIN_S", 1.0)
    cluster = opened()
    monkeypatch.setattr(cluster, "_check_room", in_strict.freeze)

    thawing = threading.Timer(5.0, in_strict.freeze, [False])  # sbatch gives up after MessageTimeout, 3 s
    thawing.start()
    cluster.scale(1, 1)
    assert list(jobs(in_strict, cluster.label)) == [job["id"] for job in cluster.facts()["jobs"]]


@pytest.mark.parametrize("given_up", ["submission", pytest.param("cancellation", marks=pytest.mark.thorough)])
@pytest.mark.thorough
def test_jobs_left_by_an_outage_are_reaped(
    opened: Callable[..., SlurmCluster], in_strict: Any, monkeypatch: pytest.MonkeyPatch, given_up: str
) -> None:
    """sbatch returned no job id, the site rewrote the comment, and the controller acts when it wakes up."""
    monkeypatch.setattr(waiting, "PATIENCE_S", 2.0)
    cluster = opened(directives_add=("--hold",) if given_up == "submission" else ())
    if given_up == "cancellation":
        cluster.scale(1, 1)
        in_strict.freeze()
    else:
        monkeypatch.setattr(cluster, "_check_room", in_strict.freeze)
    with pytest.raises(CommandSilent) as found:
        cluster.scale(1, 2)
    assert found.value.ends_run
    cluster.close()
    in_strict.freeze(False)
    until(lambda: jobs(in_strict, cluster.label))
    (result,) = reap_of_dead(cluster.label)
    assert result.fate is Fate.REMOVED, result
    assert not {"PENDING", "RUNNING", "COMPLETING"} & set(jobs(in_strict, cluster.label).values())
    assert leases.read_all()[0] == []


@pytest.mark.thorough
def test_a_lease_is_kept_while_its_jobs_complete(
    opened: Callable[..., SlurmCluster], in_strict: Any, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_cluster, "CLOSE_TIMEOUT_S", 1.0)
    stubborn = state / "stubborn"  # Slurm reports RUNNING before the job's first command has run
    cluster = opened(prologue=("trap 'sleep 60' TERM", f"touch {stubborn}", "sleep 60"))
    with ThreadPoolExecutor() as pool:
        scaling = pool.submit(cluster.scale, 1, 1)
        until(stubborn.exists)
        cluster.close()
        assert list(jobs(in_strict, cluster.label).values()) == ["COMPLETING"]
        assert isinstance(scaling.exception(), ClusterError)
    assert [lease.label for lease in leases.read_all()[0]] == [cluster.label]
    (result,) = reap_of_dead(cluster.label)
    assert result.fate is Fate.REMOVED
    assert jobs(in_strict, cluster.label).popitem()[1] == "CANCELLED"
    assert leases.read_all()[0] == []


def test_a_crash_on_a_draining_node_has_the_category_failed(
    opened: Callable[..., SlurmCluster], in_strict: Any, state: Path
) -> None:
    until_drained = f"until [ -e '{state}/drained' ]; do sleep 0.1; done"
    cluster = opened(prologue=(until_drained, "echo it broke >&2", "exit 3"), directives_add=("--nodelist=n4",))
    with ThreadPoolExecutor() as pool:
        scaling = pool.submit(cluster.scale, 1, 1)
        until(lambda: "RUNNING" in jobs(in_strict, cluster.label).values())
        in_strict.run("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=cooling")
        (state / "drained").touch()
        error = scaling.exception()
    assert isinstance(error, JobsEnded)
    assert "it broke" in error.cause
    assert error.category == "failed"
    assert not error.may_return


def test_jobs_with_a_rewritten_comment_are_reaped_by_their_ids(in_strict: Any) -> None:
    lease = leases.intend("slurm", leases.new_label(), slurm_jobs.lease_details(run=slurm_commands.commands()))
    options = ("-A", "x", "-J", lease.label, f"--comment={lease.label}", "--hold")
    known, unknown = in_strict.submit(*options), in_strict.submit(*options)
    leases.renew(lease, jobs=[known])
    (result,) = reap_of_dead(lease.label)
    assert (result.fate, result.removed) == (Fate.FAILED, (known,))
    assert f"scancel {unknown}" in result.next_step
    assert [lease.label for lease in leases.read_all()[0]] == [lease.label]
    in_strict.run("scancel", unknown)
    (result,) = reaping.reap()
    assert result.fate is Fate.REMOVED
    assert leases.read_all()[0] == []


@pytest.mark.thorough
def test_a_permanent_refusal_ends_the_run_at_once(
    in_strict: Any, state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller is away at first, then refuses the job."""
    store = str(state / "results.db")
    monkeypatch.setattr(waiting, "AGAIN_S", 1.0)
    monkeypatch.setattr(waiting, "SAY_S", 0.5)
    check_room = SlurmSpec.check_room

    def check_while_it_is_away(spec: SlurmSpec, sizes: Any, says: Any) -> None:
        in_strict.stop_node("slurmctld", jobs=False)
        threading.Timer(2.0, in_strict.start_node, ["slurmctld"]).start()
        check_room(spec, sizes, says)

    command = ["sweep", "-w", "futures-map", "-a", "workers=1,2,3", "-c", "slurm", "--store", store]
    with monkeypatch.context() as once:
        once.setattr(SlurmSpec, "check_room", check_while_it_is_away)
        assert cli.run(command) == ExitStatus.INFRASTRUCTURE
    said = capsys.readouterr().err
    assert "controller does not answer" in said
    assert "--account=research" in said
    assert "cluster.account" in said
    assert "busy" not in said
    with Store.open(store) as opened_:
        run = opened_.run("latest")
    assert (run.state, run.trials) == (RunState.FAILED, ())
    in_strict.run("scontrol", "update", "NodeName=n[1-4]", "State=DRAIN", "Reason=cooling")
    patient = ["--cluster-option", "account=research", "--cluster-option", "queue_timeout_s=1"]
    assert cli.run([*command, *patient]) == ExitStatus.INFRASTRUCTURE  # refused once, since no size would fit
    said = capsys.readouterr().err
    assert "within 1 s" in said
    assert "n1 is drained (cooling), n2 is drained (cooling)" in said
    assert "configuration" not in said
    large = [*command, "--cluster-option", "account=research", "--cluster-option", "cores=6"]
    assert cli.run(large) == ExitStatus.INFRASTRUCTURE
    said = capsys.readouterr().err
    assert "room for 2" in said  # drained nodes may come back
    assert "2 jobs of 6 cores" in said
    with Store.open(store) as opened_:
        assert len(opened_.runs()) == 2  # the third sweep did not begin a run
    assert in_strict.run("squeue", "-h") == ""
    assert leases.read_all()[0] == []


@pytest.mark.thorough
def test_jobs_are_given_back_while_too_few_nodes_work(
    opened: Callable[..., SlurmCluster], in_strict: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node is drained while one job runs and waits for the other; once the node is back, both start."""
    monkeypatch.setattr(slurm_cluster, "NODES_S", 0.5)
    others = in_strict.submit("-A", "x", "-w", "n4", "--exclusive", "-t", "4")  # minutes, short enough to be waited for
    cluster = opened(cores=6)  # only n1 and n4 have 6 cores
    said: list[str] = []
    cluster.report = said.append
    scaling = threading.Thread(target=cluster.scale, args=(2, 1))
    scaling.start()
    until(lambda: any("already run" in text for text in said))
    in_strict.run("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=cooling")
    in_strict.run("scancel", others)
    until(
        lambda: any("the working nodes have room for 1 of 2 workers" in text for text in said), lambda: "\n".join(said)
    )
    assert "n4 is drain" in said[-1]  # it drains until the other user's job has ended
    assert not {"PENDING", "RUNNING"} & set(jobs(in_strict, cluster.label).values())
    in_strict.run("scontrol", "update", "NodeName=n4", "State=RESUME")
    scaling.join(200)
    assert not scaling.is_alive(), said
    assert [job["workers"] for job in cluster.facts()["jobs"]] == [1, 1]
    assert len(jobs(in_strict, cluster.label)) == 4


@pytest.mark.thorough
def test_workers_that_wait_too_long_for_other_workers_are_given_back(
    opened: Callable[..., SlurmCluster], in_strict: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are given back once; afterwards both jobs start."""
    monkeypatch.setattr(SlurmSpec, "hold_s", 20.0)
    monkeypatch.setattr(slurm_watch, "SHORTEST_S", 4.0)
    others = in_strict.submit("-A", "x", "-w", "n4", "--exclusive", "-t", "30")
    cluster = opened(cores=6)  # only two nodes have 6 cores
    said: list[str] = []
    cluster.report = said.append
    scaling = threading.Thread(target=cluster.scale, args=(2, 1))
    scaling.start()
    until(lambda: any("submits them again" in text for text in said))
    assert any("already run" in text for text in said)

    def waiting() -> list[str]:
        states = jobs(in_strict, cluster.label)
        assert scaling.is_alive(), states
        return [number for number, state in states.items() if state == "PENDING"] if "RUNNING" not in states else []

    queued = until(lambda: len(found := waiting()) == 2 and found)
    in_strict.run("scancel", others)
    for number in queued:
        in_strict.run("scontrol", "update", f"JobId={number}", "StartTime=now")
    scaling.join(60)
    assert sum("submits them again" in text for text in said) == 1, said
    facts = cluster.facts()
    assert {job["id"] for job in facts["jobs"]} == set(queued)
    assert 0 < facts["held_worker_s"] < 60
    with pytest.raises(JobsEnded, match="there is room for 2"):
        cluster.scale(3, 1)


@pytest.mark.parametrize(
    ("given", "threads", "most"),
    [
        ({}, 1, 19),  # 7 + 2 + 3 + 7 cores; those of n2 have two threads each, which no two jobs share
        ({"cores": 3}, 1, 6),  # 2 + 1 + 1 + 2
        ({"workers_per_job": 2}, 2, 7),  # jobs of 4 cores on n1, n2 and n4, and half a job beside one of them
        ({"workers_per_job": 2, "memory_mb": 3000}, 1, 5),  # 3333, 2101, 1799 and 3333 MB
        ({"exclude": "n[1-2]"}, 1, 10),
        ({"directives_add": ("--exclusive",)}, 1, 4),
        ({"partition": "short"}, 1, 7),  # each node offers 2 CPUs in this partition
        ({"partition": "main,short"}, 1, 19),
        ({"cores": 8}, 1, 0),  # no check: sbatch itself tells the reason
    ],
)
def test_the_room_for_workers_is_computed_node_by_node(
    in_strict: Any, given: dict[str, Any], threads: int, most: int
) -> None:
    in_strict.run("scontrol", "update", "PartitionName=short", "MaxCPUsPerNode=2")
    spec, run = SlurmSpec(**given), slurm_commands.commands()
    spec.require_room(most, threads, run=run)
    with pytest.raises(JobsEnded, match=f"room for {most}\n") if most else nullcontext():
        spec.require_room(most + 1, threads, run=run)


@pytest.mark.parametrize(
    ("held_s", "start_s", "then", "given_back"),  # `then`: as one more look says
    [(0, 290, 290, False), (0, 310, 310, True), (400, 90, 90, False), (400, 110, 110, True), (0, 310, None, False)],
)
def test_workers_are_given_back_if_the_others_start_too_late(
    monkeypatch: pytest.MonkeyPatch, held_s: float, start_s: float, then: float | None, given_back: bool
) -> None:
    cluster = SlurmCluster(SlurmSpec())
    began: list[str] = []
    monkeypatch.setattr(cluster, "_held_s", held_s)
    monkeypatch.setattr(cluster, "_submit", lambda sizes: began.append(cluster._begin))
    now = PendingWorkers("1 job waiting", last_start=None if then is None else time.time() + then)
    looks: list[PendingWorkers] = []
    monkeypatch.setattr(cluster._watch, "refresh", lambda: looks.append(now))
    monkeypatch.setattr(cluster, "_explain", lambda arrived: looks[-1])
    cluster._hold(PendingWorkers("2 jobs waiting", last_start=time.time() + start_s), 1)
    assert [bool(begin) for begin in began] == [True] * given_back


def test_another_user_can_neither_read_secrets_nor_end_jobs(users: tuple[User, User], in_strict: Any) -> None:
    """A copy of the lease of a job whose owner is dead does not help either."""
    alice, bob = users
    job, folder = alice.python("-c", LEAVES_A_JOB).stdout.split()
    label = Path(folder).name
    until(lambda: jobs(in_strict, label) == {job: "RUNNING"})
    assert "PRIVATE KEY" in alice.run("cat", f"{folder}/tls/key.pem").stdout
    for secret in (f"{folder}/tls/key.pem", f"{alice.home}/state/scalescope/leases/{label}.json"):
        assert "Permission denied" in bob.run("cat", secret, check=False).stderr
    assert bob.run("squeue", "-h").stdout == ""
    bob.run("mkdir", "-p", f"{bob.home}/state/scalescope/leases")
    lease = Path(f"state/scalescope/leases/{label}.json")
    shutil.copy(alice.home / lease, bob.home / lease)
    os.chown(bob.home / lease, pwd.getpwnam(bob.name).pw_uid, -1)
    assert [each["removed"] for each in json.loads(bob.python(*REAP).stdout)] == [[]]
    assert jobs(in_strict, label) == {job: "RUNNING"}
    assert Path(folder, "tls/key.pem").exists()


@pytest.mark.thorough
def test_a_takeover_that_slurm_refuses_leaves_the_run_unchanged(users: tuple[User, User], in_strict: Any) -> None:
    alice, bob = users
    store = alice.home.parent / "results.db"
    sweep = (*MAIN, "sweep", "-w", "futures-map", "-a", "workers=1", "-c", "slurm", "--store", str(store))
    sweep += ("--cluster-option", "account=research")
    begun = alice.python(*sweep, "--budget", "core_hours=0.0001", check=False)
    assert begun.returncode == ExitStatus.BUDGET_SPENT, begun.stderr

    def rows() -> list[Any]:
        with closing(sqlite3.connect(store)) as database:
            return [database.execute(f"SELECT * FROM {table}").fetchall() for table in ("sweep_runs", "findings")]

    os.chmod(store, 0o666)  # both users share the store
    before = rows()
    in_strict.run("scontrol", "update", "PartitionName=main", "AllowGroups=games")
    refused = bob.python(*sweep, check=False)
    assert refused.returncode == ExitStatus.INFRASTRUCTURE, refused.stderr
    with Store.open(str(store)) as opened_:
        assert f"Run {opened_.run('latest').id}: 1 trial" in refused.stderr  # the run was taken over
    assert "Slurm refuses the job" in refused.stderr
    assert rows() == before


def test_the_default_partition_has_a_name_and_a_price(in_strict: Any) -> None:
    _default_partition.cache_clear()
    assert Prices({"main": 2.0, "slurm": 1.0}).of(SlurmSpec()) == 2.0
    assert _slurm() == "cluster mini; default partition main"
