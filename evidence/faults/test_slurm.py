"""Nodes, jobs and controllers that die in the middle of a sweep on a real Slurm.

The sweep comes to its end, at once or when the same command is given again, and `scalescope reap` leaves nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from support import faults, waiting
from support.requests import asked

from evidence.faults.hits import note
from scalescope.errors import UsageError
from scalescope.model.trial import Trial, TrialState
from scalescope.store.schema import RunState
from scalescope.store.store import Store, SweepRun

pytestmark = pytest.mark.timeout(900)
PATIENCE_S = 240.0
WORKLOAD = """
import time
from pathlib import Path

def hold(client, *, items: int = 8, seconds: float = 1.0, folder: str = ""):
    futures = client.map(time.sleep, [seconds] * items, pure=False)
    Path(folder, f"running-{seconds:g}").touch()
    client.gather(futures)
"""
COMMAND = "from scalescope.cli.main import main; main()"
NODES_EACH = 3
AWAY_S = 8.0  # for which the controller is away
STANDS_S = (5.0, 60.0, 300.0)  # for which it stands still


class Site:
    """One sweep on nodes of its own, with a store, leases and logs of its own; one of its trials is to be hit."""

    def __init__(
        self, slurm: Any, folder: Path, nodes: list[str], seconds: float, *, place: int = 1, **fields: Any
    ) -> None:
        self.slurm, self.folder, self.nodes = slurm, folder, nodes
        folder.mkdir()
        self.store = str(folder / "results.db")
        self.environ = {
            **os.environ,
            **slurm.environment,
            "XDG_STATE_HOME": str(folder / "state"),
            "SCALESCOPE_LEASES": str(folder / "leases"),
            "SCALESCOPE_STORE": self.store,
        }
        others = ",".join(name for name in slurm.nodes if name not in nodes)
        cluster = {"kind": "slurm", "workers_per_job": 2, "processes": 1, "memory_mb": 600, "exclude": others, **fields}
        points = [{"workers": 4, "seconds": length} for length in (0.2, seconds, 0.3)]
        (folder / "own.py").write_text(WORKLOAD)
        own = {"workload": f"{folder / 'own.py'}:hold", "params": {"folder": str(folder)}}
        sweep = {**own, "points": points, "cluster": cluster}
        seed = next(seed for seed in range(100) if _lengths({**sweep, "seed": seed})[place] == seconds)
        (folder / "sweep.yaml").write_text(yaml.safe_dump({**sweep, "seed": seed}))

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", COMMAND, *arguments], env=self.environ, stdout=log, stderr=log
            )

    def sweep(self) -> subprocess.Popen[bytes]:
        return self.start("sweep", str(self.folder / "sweep.yaml"))

    def run(self) -> SweepRun:
        with Store.open(self.store) as store:
            return store.run("latest")

    def trials(self) -> tuple[Trial, ...]:
        try:
            return self.run().trials if Path(self.store).exists() else ()
        except UsageError:
            return ()

    def labels(self) -> set[str]:
        """Names of jobs on our nodes."""
        return set(self.slurm.run("squeue", "-h", "-o", "%j", "-w", ",".join(self.nodes)).split())

    def job(self) -> tuple[str, str]:
        """A job that runs, and its node."""
        rows = self.slurm.run("squeue", "-h", "-t", "R", "-o", "%i %N", "-w", ",".join(self.nodes)).splitlines()
        number, node = rows[0].split()
        return number, node

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        return waiting.wait_for(condition, lambda: f"{what}:\n{(self.folder / 'log').read_text()}", PATIENCE_S)


def _lengths(sweep: dict[str, Any]) -> list[Any]:
    return [planned.point.params["seconds"] for planned in asked(sweep).plan]


# ------------------------------------------------------------------ faults


def stop_node(site: Site, flow: psutil.Process) -> None:
    site.slurm.stop_node(site.job()[1])


def cancel_job(site: Site, flow: psutil.Process) -> None:
    site.slurm.run("scancel", site.job()[0])


def kill_driver(site: Site, flow: psutil.Process) -> None:
    next(child for child in flow.children(recursive=True) if "scalescope.driver" in " ".join(child.cmdline())).kill()


def kill_flow(site: Site, flow: psutil.Process) -> None:
    flow.kill()


def end_walltime(site: Site, flow: psutil.Process) -> None:
    soon = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 2))
    site.slurm.run("scontrol", "update", f"JobId={site.job()[0]}", f"EndTime={soon}")


@dataclass(frozen=True)
class Fault:
    """What is done in the long trial, how long that would be, and what its reason says unless it is repeated."""

    act: Callable[[Site, psutil.Process], None]
    seconds: float
    reason: str = ""


FAULTS = {
    "node stopped": Fault(stop_node, 20.0, "of 4 workers were lost"),
    "job cancelled": Fault(cancel_job, 20.0, "CANCELLED"),
    "job timed-out": Fault(end_walltime, 19.0),
    "driver killed": Fault(kill_driver, 20.0, "killed by SIGKILL"),
    "flow killed": Fault(kill_flow, 5.0),
}


@dataclass
class Seen:
    """What came of a sweep: `first` is how its first command ended, and the trials that were there then."""

    site: Site
    first: tuple[int, tuple[Trial, ...]]
    status: int
    run: SweepRun
    seconds: float
    left: list[str]

    def note(self, fault: str, process: str, stage: str = "measuring") -> None:
        """For the page, and what holds in every cell."""
        status, trials = self.first
        kept = {trial.key: trial.started_at for trial in self.run.trials}
        again = len(trials) < len(kept)
        seen = faults.Seen(
            ended="killed" if status == -signal.SIGKILL else f"status {status}",
            error="",
            trials=tuple(map(faults.became, trials)),
            left=0,
            leaks=tuple(self.left),
            lost=sum(kept.get(trial.key) != trial.started_at for trial in trials),
            finished=self.run.state is RunState.COMPLETE,
            again=again,
        )
        note(fault, f"{process} (Slurm)", stage, seen)

    @property
    def hit(self) -> Trial:
        return max(self.run.trials, key=lambda trial: float(str(trial.point.params["seconds"])))


def endure(site: Site, fault: Fault) -> Seen:
    """Run a sweep, have the fault happen in its second trial, and clear up."""
    began = time.monotonic()
    process = site.sweep()
    running = site.folder / f"running-{fault.seconds:g}"
    try:
        site.wait_for(lambda: running.exists() or process.poll() is not None, "the long trial does not begin")
        time.sleep(1.0)
        assert process.poll() is None, (site.folder / "log").read_text()
        fault.act(site, psutil.Process(process.pid))
        return ended(site, process, began, again=fault.act is kill_flow)
    finally:
        process.kill()
        process.wait()


def ended(site: Site, process: subprocess.Popen[bytes], began: float, *, again: bool = False) -> Seen:
    """Wait for the end of a sweep, give the same command again where that is wanted, and reap."""
    site.wait_for(lambda: process.poll() is not None, "the sweep does not end")
    first = process.returncode, site.trials()
    if again:
        process = site.sweep()
        site.wait_for(lambda: process.poll() is not None, "the sweep does not end the second time")
    reaper = site.start("reap")
    assert reaper.wait(PATIENCE_S) == 0, (site.folder / "log").read_text()
    leases = [path.name for path in (site.folder / "leases").iterdir()]
    jobs = sorted(site.labels())
    return Seen(site, first, process.returncode, site.run(), time.monotonic() - began, [*leases, *jobs])


@pytest.fixture(scope="module")
def seen(slurm: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """All faults at the same time, each on nodes of its own."""
    folder = tmp_path_factory.mktemp("faults")
    with ThreadPoolExecutor(len(FAULTS)) as pool:
        running = {}
        for number, (name, fault) in enumerate(FAULTS.items()):
            nodes = slurm.nodes[NODES_EACH * number : NODES_EACH * (number + 1)]
            running[name] = pool.submit(endure, Site(slurm, folder / str(number), nodes, fault.seconds), fault)
        found = {name: future.result() for name, future in running.items()}
    slurm.reset()
    for name, one in found.items():
        print(f"\n--- {name}, {one.seconds:.0f} s, exit status {one.status}, left: {one.left}\n{one.hit.reason}")
    return found


@pytest.mark.parametrize("name", FAULTS)
def test_only_the_trial_that_was_hit_is_invalid_and_nothing_is_left(seen: dict[str, Seen], name: str) -> None:
    fault, one = FAULTS[name], seen[name]
    log = (one.site.folder / "log").read_text()
    assert one.status in (0, 1), log
    assert one.run.state is RunState.COMPLETE, log
    states = {trial.key: trial.state for trial in one.run.trials}
    expected = TrialState.INVALID if fault.reason else TrialState.VALID
    assert states.pop(one.hit.key) is expected, one.hit.reason
    assert list(states.values()) == [TrialState.VALID] * 2, [trial.reason for trial in one.run.trials]
    assert fault.reason in one.hit.reason
    assert one.left == []
    if fault.act is end_walltime:
        assert one.hit.facts["cluster"]["repeated"]
        assert one.hit.facts["cluster"]["held_worker_s"] > 10
    process, _, how = name.partition(" ")
    one.note(how, process)


@pytest.mark.parametrize("stage", ["waiting", "measuring"])
def test_a_controller_that_is_killed_and_starts_anew(slurm: Any, tmp_path: Path, stage: str) -> None:
    """It may have forgotten a job that was submitted just before."""
    began = time.monotonic()
    site = Site(slurm, tmp_path / "site", slurm.nodes[:NODES_EACH], 5.0)
    process = site.sweep()
    try:
        running = site.folder / "running-5"
        site.wait_for(site.labels if stage == "waiting" else running.exists, f"{stage} is never reached")
        slurm.stop_node("slurmctld", jobs=False)
        time.sleep(AWAY_S)
        slurm.resume_controller()
        one = ended(site, process, began)
    finally:
        process.kill()
        process.wait()
    one.note(f"away for {AWAY_S:g} s", "slurmctld", stage)
    spoilt = [trial.reason for trial in one.run.trials if trial.state is not TrialState.VALID]
    assert len(spoilt) <= (stage == "waiting"), spoilt


@pytest.mark.parametrize("seconds", STANDS_S)
def test_a_controller_that_stands_still(slurm: Any, tmp_path: Path, seconds: float) -> None:
    """Four sweeps, each at another stage: before the first command, before workers, in a trial, and before the end."""
    nodes = [slurm.nodes[NODES_EACH * number : NODES_EACH * (number + 1)] for number in range(4)]
    began, processes = time.monotonic(), {}
    sites = {
        "provisioning": Site(slurm, tmp_path / "opening", nodes[0], 1.0),
        "waiting": Site(slurm, tmp_path / "waiting", nodes[1], 1.0, prologue=["sleep 40"]),
        "measuring": Site(slurm, tmp_path / "trial", nodes[2], 40.0),
        "teardown": Site(slurm, tmp_path / "closing", nodes[3], 3.0, place=2),
    }
    try:
        for stage, file in (("measuring", "running-40"), ("waiting", ""), ("teardown", "running-3")):
            processes[stage] = sites[stage].sweep()
            sites[stage].wait_for((sites[stage].folder / file).exists, "its trial does not begin")
        assert sites["waiting"].labels()
        assert not list(sites["waiting"].folder.glob("running-*"))
        slurm.freeze()
        processes["provisioning"] = sites["provisioning"].sweep()
        time.sleep(seconds)
        slurm.freeze(False)
        found = {stage: ended(sites[stage], process, began) for stage, process in processes.items()}
    finally:
        slurm.freeze(False)
        for process in processes.values():
            process.kill()
            process.wait()
    for stage, one in found.items():
        print(f"\n--- {stage}, {one.seconds:.0f} s, exit status {one.status}, left: {one.left}")
        print((one.site.folder / "log").read_text())
        one.note(f"stands still for {seconds:g} s", "slurmctld", stage)
        assert [trial.state for trial in one.run.trials] == [TrialState.VALID] * 3, [t.reason for t in one.run.trials]
