"""The small machines of infra/machines: links and cores are limited, a sweep runs on them, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support import infra
from support.waiting import wait_for as until

from scalescope.model.trial import TrialState
from scalescope.run.sweep import run_sweep

ROOT = Path(__file__).parents[2]
CPU, MBIT = 0.25, 80
BYTES, CPU_S = 4_000_000, 0.1
JOB = f"""
import time

def run(client):
    def compute():
        began, end = time.perf_counter(), time.thread_time() + {CPU_S}
        while time.thread_time() < end:
            pass
        return time.perf_counter() - began

    workers = list(client.nthreads())
    data = client.submit(bytes, {BYTES}, workers=workers[0])
    client.gather(client.submit(len, data, workers=workers[0]))
    began = time.perf_counter()
    client.submit(lambda data: len(data), data, workers=workers[-1], pure=False).result()
    return {{"transfer_s": time.perf_counter() - began, "compute_s": client.submit(compute, pure=False).result()}}
"""


@pytest.fixture(scope="module")
def mini() -> ModuleType:
    return infra.module("minimachines", "infra/machines/mini.py")


@pytest.fixture(scope="module")
def network(mini: ModuleType, missing: Any) -> Iterator[int]:
    """Two machines, in a network that nobody uses."""
    if reason := mini.unmet():
        missing("machines", f"no small machines on this host: {reason}")
    free = next(each for each in range(mini.NETWORK + 1, 256) if not left(mini, each))
    mini.up(2, cpu=CPU, mbit=MBIT, network=free)
    yield free
    mini.down(free)
    assert left(mini, free) == []


def left(mini: ModuleType, network: int) -> list[str]:
    """Whatever has the label of a network."""
    label = mini._label(network)
    said = subprocess.run(["ip", "-o", "link", "show"], capture_output=True, text=True, check=True).stdout
    namespaces = [path.name for path in Path("/run/netns").glob(f"{label}-*")]
    return namespaces + [label for found in (f"{label}@" in said, mini._group(network).exists()) if found]


def processes(mini: ModuleType, network: int) -> list[int]:
    return [pid for machine in mini.machines(network) for pid in mini._processes(mini._group(network) / str(machine))]


def test_a_sweep_on_small_machines_shows_their_limited_links_and_cores(
    mini: ModuleType, network: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # so that the driver can import `infra`
    job = tmp_path / "job.py"
    job.write_text(JOB)
    cluster = {"kind": "custom", "cluster_class": "infra.machines.mini:Machines", "start_timeout_s": 60}
    cluster["arguments"] = {"network": network, "imports": []}
    asked = {"workload": f"{job}:run", "axes": {"workers": [1, 2]}, "cluster": cluster, "store": str(tmp_path / "s.db")}
    trials = {trial.point.workers: trial for trial in run_sweep(asked).run.trials}
    assert [(trial.state, trial.reason) for trial in trials.values()] == [(TrialState.VALID, "")] * 2
    found = {workers: trial.facts["result"] for workers, trial in trials.items()}
    assert all(each["compute_s"] >= 0.9 * CPU_S / CPU for each in found.values())
    over_the_link_s = (BYTES - 2 * mini.LEAST_BURST) / (MBIT * 125_000)
    assert found[1]["transfer_s"] < over_the_link_s <= found[2]["transfer_s"]
    assert processes(mini, network) == []


def test_workers_end_when_their_keeper_is_killed(mini: ModuleType, network: int) -> None:
    cluster = mini.Machines(network, imports=())
    cluster.scale(2)
    until(lambda: len(processes(mini, network)) == 2)
    with pytest.raises(mini.MiniClusterError, match="ended with status 1"):
        mini.Machines(network, imports=())
    cluster.scale(1)
    assert len(processes(mini, network)) == 1
    cluster.keeper.process.kill()
    until(lambda: not processes(mini, network))
    cluster.close()


def test_the_command_down_ends_running_processes(mini: ModuleType, network: int) -> None:
    pid = mini._fork(lambda: asyncio.sleep(600), lambda: mini._enter(1, network))
    until(lambda: processes(mini, network) == [pid])
    mini.down(network)
    assert os.waitpid(pid, 0)[0] == pid
    assert left(mini, network) == []
    mini.up(2, cpu=CPU, mbit=MBIT, network=network)


def test_machines_that_cannot_be_created_raise_with_the_reason(mini: ModuleType, network: int) -> None:
    with pytest.raises(mini.MiniClusterError, match="has machines already"):
        mini.up(1, network=network)
    with pytest.raises(mini.MiniClusterError, match="cores"):
        mini.up(250, cpu=1, network=network + 1)
    with pytest.raises(mini.MiniClusterError, match="no machines are up"):
        mini.Machines(network + 1)
    assert left(mini, network + 1) == []


def test_the_core_limit_is_written_for_both_versions_of_control_groups(mini: ModuleType, tmp_path: Path) -> None:
    first, second = tmp_path / "cpu/label/1", tmp_path / "unified/label/1"
    for group in (first, second):
        group.mkdir(parents=True)
    (first / "cpu.cfs_quota_us").touch()
    mini.limit(first, 0.1)
    mini.limit(second, 0.05)
    assert [(first / f"cpu.cfs_{name}_us").read_text() for name in ("period", "quota")] == ["10000", "1000"]
    assert (second / "cpu.max").read_text() == "1000 20000"
    assert all((above / "cgroup.subtree_control").read_text() == "+cpu" for above in (second.parents[1], second.parent))
