"""A Slurm of another site: it wants an account, rewrites comments, and refuses what its partitions do not allow."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scalescope import clusters, leases
from scalescope.analysis.cost import Prices
from scalescope.cli import main as cli
from scalescope.cli.doctor import _slurm
from scalescope.clusters import reaping
from scalescope.clusters.reaping import Fate
from scalescope.clusters.slurm.cluster import SlurmCluster
from scalescope.clusters.slurm.spec import SlurmSpec, _default_partition
from scalescope.driver.process import Driver
from scalescope.errors import ExitStatus, JobsEnded
from scalescope.model.sweep import PlannedTrial, Point
from scalescope.model.trial import TrialState
from scalescope.slurm import jobs as slurm_jobs
from scalescope.store.schema import RunState
from scalescope.store.store import Store

JOB = """
import beside

def work(client, *, items: int = 4):
    client.gather(client.map(beside.wait, range(items), pure=False))
"""
BESIDE = "import time\n\ndef wait(number):\n    time.sleep(0.1)\n"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders whose names have a blank."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "my state"))
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "leases"))
    return tmp_path


@pytest.fixture
def opened(in_strict: Any) -> Iterator[Callable[..., SlurmCluster]]:
    made: list[SlurmCluster] = []

    def open_(**given: Any) -> SlurmCluster:
        cluster = clusters.build(SlurmSpec(**{"account": "research", "start_timeout_s": 60.0, **given}))
        assert isinstance(cluster, SlurmCluster)
        made.append(cluster)
        cluster.open()
        return cluster

    yield open_
    for cluster in made:
        cluster.close()


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it never came to pass"
        time.sleep(0.1)
    return found


def jobs(slurm: Any, label: str) -> dict[str, str]:
    """States of all jobs of a label, by their numbers."""
    return dict(
        line.split() for line in slurm.run("squeue", "-h", "-t", "all", "-n", label, "-o", "%i %T").splitlines()
    )


def test_a_trial_is_valid_and_a_controller_that_is_away_is_waited_for(in_strict: Any, state: Path) -> None:
    """With a folder that has a blank, a module beside the workload's, and memory that a node has to the last MB."""
    (state / "my_job.py").write_text(JOB)
    (state / "beside.py").write_text(BESIDE)
    said_at: list[float] = []

    def hear(text: str) -> None:
        if "controller does not answer: waiting for it" in text:
            said_at.append(time.monotonic())
            in_strict.freeze(False)

    spec = SlurmSpec(account="research", memory_mb=3333, start_timeout_s=60)
    in_strict.freeze()
    began = time.monotonic()
    with Driver.start(spec, folder=state / "driver", on_progress=hear) as driver:
        point = Point(2, params={"items": 4})
        trial = driver.run(PlannedTrial(0, point, 0), f"{state}/my_job.py:work", timeout_s=60)
    assert said_at[0] - began < 10
    assert trial.state is TrialState.VALID, trial.reason
    assert [job["workers"] for job in trial.facts["cluster"]["jobs"]] == [1, 1]
    assert leases.read_all()[0] == []


def test_a_job_whose_number_never_came_is_not_submitted_again(
    opened: Callable[..., SlurmCluster], in_strict: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_jobs, "AGAIN_S", 1.0)
    cluster = opened()
    monkeypatch.setattr(cluster, "_check_room", lambda sizes: in_strict.freeze())

    thawing = threading.Timer(5.0, in_strict.freeze, [False])  # sbatch gives up after MessageTimeout, 3 s
    thawing.start()
    cluster.scale(1, 1)
    assert list(jobs(in_strict, cluster.label)) == [job["id"] for job in cluster.facts()["jobs"]]


def test_jobs_whose_comment_was_rewritten_are_reaped_by_their_numbers(in_strict: Any) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    lease = leases.intend("slurm", leases.new_label(), slurm_jobs.lease_details(run=slurm_jobs.commands()))
    options = ("-A", "x", "-J", lease.label, f"--comment={lease.label}", "--hold")
    known, unknown = in_strict.submit(*options), in_strict.submit(*options)
    leases.renew(lease, jobs=[known])
    path = leases.folder() / f"{lease.label}.json"
    data = json.loads(path.read_text())
    data["owner"]["pid"] = gone.pid
    path.write_text(json.dumps(data))
    (result,) = reaping.reap()
    assert (result.fate, result.removed) == (Fate.FAILED, (known,))
    assert f"scancel {unknown}" in result.next_step
    assert [lease.label for lease in leases.read_all()[0]] == [lease.label]
    in_strict.run("scancel", unknown)
    (result,) = reaping.reap()
    assert result.fate is Fate.REMOVED
    assert leases.read_all()[0] == []


def test_what_is_refused_for_good_ends_the_run_at_once(
    in_strict: Any, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(state / "results.db")
    command = ["sweep", "-w", "futures-map", "-a", "workers=1,2,3", "-c", "slurm", "--store", store]
    assert cli.run(command) == ExitStatus.INFRASTRUCTURE
    said = capsys.readouterr().err
    assert "Please give an account: --account=research" in said
    assert "cluster.account" in said
    assert "busy" not in said
    with Store.open(store) as opened_:
        run = opened_.run("latest")
    assert (run.state, run.trials) == (RunState.FAILED, ())
    in_strict.run("scontrol", "update", "NodeName=n[1-4]", "State=DRAIN", "Reason=cooling")
    assert cli.run([*command, "--cluster-option", "account=research"]) == ExitStatus.INFRASTRUCTURE
    said = capsys.readouterr().err
    assert "down, drained" in said
    assert "configuration" not in said
    assert in_strict.run("squeue", "-h") == ""
    assert leases.read_all()[0] == []


def test_workers_that_wait_too_long_for_others_are_given_back(
    opened: Callable[..., SlurmCluster], in_strict: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlurmSpec, "hold_s", 20.0)
    others = in_strict.submit("-A", "x", "-w", "n4", "--exclusive", "-t", "30")
    cluster = opened(cores=6)  # two of the nodes have so many
    said: list[str] = []
    cluster.report = said.append
    scaling = threading.Thread(target=cluster.scale, args=(2, 1))
    scaling.start()
    until(lambda: any("given back" in text for text in said))
    assert any("of this cluster run already" in text for text in said)

    def waiting() -> list[str]:
        states = jobs(in_strict, cluster.label)
        assert scaling.is_alive(), states
        return [number for number, state in states.items() if state == "PENDING"] if "RUNNING" not in states else []

    queued = until(lambda: len(found := waiting()) == 2 and found)
    in_strict.run("scancel", others)
    for number in queued:
        in_strict.run("scontrol", "update", f"JobId={number}", "StartTime=now")
    scaling.join(60)
    facts = cluster.facts()
    assert {job["id"] for job in facts["jobs"]} == set(queued)
    assert 0 < facts["held_worker_s"] < 60
    with pytest.raises(JobsEnded, match="3 jobs of 6 cores never run at the same time: there is room for 2") as found:
        cluster.scale(3, 1)
    assert "at most 2 workers" in found.value.next_step


def test_the_default_partition_has_a_name_and_a_price(in_strict: Any) -> None:
    _default_partition.cache_clear()
    assert Prices({"main": 2.0, "slurm": 1.0}).of(SlurmSpec()) == 2.0
    assert _slurm() == "cluster mini; default partition main"
