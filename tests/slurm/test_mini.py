"""The Slurm of the tests: it runs jobs, and leaves nothing behind however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.processes import command_lines
from support.waiting import wait_for as until

pytest_plugins = "pytester"

SCRIPT = Path(__file__).parents[2] / "infra/slurm/mini.py"


class TestRunning:
    def test_a_job_gets_its_gpus(self, slurm: Any, tmp_path: Path) -> None:
        output = tmp_path / "out"
        job = slurm.submit("--gres=gpu:2", f"-o{output}", "--wait", command="echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_ID")
        assert output.read_text().split() == ["0,1", job]

    def test_a_failing_slurm_command_raises_with_its_message(self, slurm: Any, mini: ModuleType) -> None:
        with pytest.raises(mini.MiniClusterError, match="invalid partition"):
            slurm.submit("-p", "nowhere")


class TestReset:
    def test_reset_ends_jobs_that_ignore_signals(self, slurm: Any, tmp_path: Path) -> None:
        slurm.submit(command=f"trap '' TERM; touch {tmp_path}/up; while true; do sleep 0.1; done")
        slurm.submit("-p", "closed")
        until((tmp_path / "up").exists)
        slurm.reset()
        assert slurm.run("squeue", "-h") == ""
        until(lambda: not slurm.strays())

    def test_reset_restores_nodes_partitions_and_reservations(self, slurm: Any) -> None:
        slurm.stop_node("n1")
        slurm.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=test")
        slurm.run("scontrol", "update", "PartitionName=main", "State=DOWN")
        user = slurm.run("id", "-un")
        reservation = ("Nodes=n3", "StartTime=now+60", "Duration=60", "Flags=MAINT", f"Users={user}")
        slurm.run("scontrol", "create", "reservation", "ReservationName=service", *reservation)
        slurm.reset()
        assert slurm.run("sinfo", "-h", "-p", "main", "-o", "%a %D %t") == f"up {len(slurm.nodes)} idle"
        assert "service" not in slurm.run("scontrol", "show", "reservation")


class TestEnding:
    @pytest.fixture
    def served(self, slurm: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.Popen[str], Path]:
        """A small cluster of the command line with a job that ignores SIGTERM and one in a session of its own."""
        folder = tmp_path_factory.mktemp("s")
        command = [sys.executable, str(SCRIPT), "--nodes", "2", "--gpus", "1", "--folder", str(folder)]
        served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert served.stdout is not None
        line = served.stdout.readline().strip()
        assert line == f"export SLURM_CONF={folder}/slurm.conf"
        stubborn = f"trap '' TERM; setsid sleep 601 & touch {folder}/up; while true; do sleep 0.1; done"
        subprocess.run(
            ["bash", "-c", f'{line}; sbatch -o /dev/null --gres=gpu:1 --wrap "$0"', stubborn],
            check=True, capture_output=True,
        )  # fmt: skip
        until((folder / "up").exists)
        assert len(command_lines(str(folder))) > 5
        return served, folder

    @pytest.mark.parametrize(
        "how",
        [signal.SIGKILL, *(pytest.param(how, marks=pytest.mark.thorough) for how in (signal.SIGINT, signal.SIGTERM))],
    )
    def test_no_process_of_the_small_slurm_is_left_after_a_signal(
        self, served: tuple[subprocess.Popen[str], Path], how: signal.Signals
    ) -> None:
        process, folder = served
        process.send_signal(how)
        process.wait(30)
        until(lambda: not command_lines(str(folder)))
        assert process.returncode == (-how if how is signal.SIGKILL else 0)

    def test_a_daemon_that_cannot_start_raises_with_the_reason(
        self, mini: ModuleType, slurm: Any, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("s")
        with pytest.raises(mini.MiniClusterError, match="Nonsense"):
            mini.MiniSlurm(folder, nodes=1, extra="Nonsense=1").start()
        until(lambda: not command_lines(str(folder)))


WITHOUT = """
import pytest

@pytest.fixture(autouse=True)
def nothing(mini, monkeypatch):
    monkeypatch.setattr(mini.MiniCluster, "search_path", "/nowhere")

def test_it(nothing, request):
    request.getfixturevalue("slurm")
"""


@pytest.mark.parametrize(("required", "outcome"), [("", "skipped"), ("postgresql,slurm", "failed")])
def test_tests_without_slurm_are_skipped_or_fail_if_slurm_is_required(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, required: str, outcome: str
) -> None:
    """They are skipped with one clear line, and fail if SCALESCOPE_REQUIRE names slurm."""
    monkeypatch.setenv("SCALESCOPE_REQUIRE", required)
    monkeypatch.setenv("PATH", "/nowhere")
    pytester.makeconftest(Path(__file__).parents[1].joinpath("conftest.py").read_text())
    folder = pytester.mkdir("slurm")
    source = Path(__file__).with_name("conftest.py").read_text()
    root = f"ROOT = __import__('pathlib').Path({str(SCRIPT.parents[2])!r})"
    (folder / "conftest.py").write_text(source.replace("ROOT = Path(__file__).parents[2]", root))
    (folder / "test_it.py").write_text(WITHOUT)
    result = pytester.runpytest("-rsE", "--import-mode=importlib")
    result.assert_outcomes(**{outcome: 1})
    result.stdout.fnmatch_lines(["*no Slurm on this machine: slurmctld*apt-get install slurm-wlm*"])
