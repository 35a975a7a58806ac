"""The keeper of the small clusters of infra/: its processes end with their owner, however the owner ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import wait_for as until

from infra.mini_cluster import Keeper, MiniCluster, MiniClusterError, alive

ROOT = Path(__file__).parents[2]
SCRIPT = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from infra.mini_cluster import obey, spawn
folder = Path(sys.argv[1])
obey(lambda line: spawn(line.split(), folder / "log").pid)
"""


class Sleepers(MiniCluster):
    """Its parts are programs that sleep."""

    def __init__(self, folder: Path, reason: str = "") -> None:
        self.folder, self.environment, self.reason = folder, {"BED": "soft"}, reason

    def unmet(self) -> str:
        return self.reason

    def _start(self) -> None:
        (self.folder / "keeper.py").write_text(SCRIPT)
        self.keeper = Keeper(str(self.folder / "keeper.py"), self.folder)
        self.pids = [int(self.ask("sleep 600")) for _ in range(2)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Sleepers]:
    with Sleepers(tmp_path) as cluster:
        yield cluster


def test_a_command_gets_the_environment_variables_of_the_cluster(cluster: Sleepers) -> None:
    assert cluster.run("sh", "-c", "echo $BED $MORE; cat", stdin="in", MORE="warm") == "soft warm\nin"
    assert cluster.run("sh", "-c", "echo out; exit 3", check=False) == "out"
    with pytest.raises(MiniClusterError):
        cluster.run("false")


def test_processes_of_a_cluster_end_when_its_keeper_is_killed(cluster: Sleepers) -> None:
    assert all(map(alive, cluster.pids))
    assert cluster.keeper is not None
    cluster.keeper.process.send_signal(signal.SIGTERM)  # it ignores signals: only its pipe says when to end
    cluster.pids.append(int(cluster.ask("sleep 600")))
    cluster.keeper.process.kill()
    until(lambda: not any(map(alive, cluster.pids)))
    with pytest.raises(MiniClusterError):
        cluster.ask("sleep 600")


def test_processes_of_a_cluster_end_when_its_owner_is_killed(tmp_path: Path) -> None:
    owner = f"""
import sys, time
from pathlib import Path
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}, {str(ROOT / "tests/unit")!r}]
from test_mini_cluster import Sleepers
print(*Sleepers(Path({str(tmp_path)!r})).start().pids, flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    process.kill()
    process.wait()
    process.stdout.close()
    until(lambda: not any(map(alive, pids)))


def test_a_cluster_that_cannot_be_started_names_the_reason(tmp_path: Path) -> None:
    with pytest.raises(MiniClusterError) as caught:
        Sleepers(tmp_path, "no beds").start()
    assert caught.value.args == ("no beds",)
