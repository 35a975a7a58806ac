from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest
from support.waiting import wait_for

from scalescope.studies.scripts import run_alone

LOOKS = "import os, sys; print(os.listdir(), sys.stdin.read(), os.environ.get('ASKED')); sys.exit(3)"

WITH_A_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-Sc", "import time; time.sleep(600)"])
with open({told!r}, "w") as file:
    file.write(str(child.pid))
time.sleep(600)
"""


def test_running_a_script_returns_its_output_and_exit_status() -> None:
    done = run_alone(LOOKS, 60, environ={"ASKED": "yes"})
    assert (done.returncode, done.stdout, done.stderr) == (3, "['script.py']  yes\n", "")


def test_python_options_are_passed_to_the_interpreter_of_a_script() -> None:
    done = run_alone("", 60, options=("-I", "-c", "import sys; print(sys.flags.isolated, sys.argv[1][-9:])"))
    assert done.stdout == "1 script.py\n"


def test_no_child_process_of_a_script_runs_on_after_its_timeout(tmp_path: Path) -> None:
    told = tmp_path / "child"
    with pytest.raises(subprocess.TimeoutExpired):
        run_alone(WITH_A_CHILD.format(told=str(told)), 5)
    wait_for(lambda: not _runs(int(told.read_text())), "its child runs on")


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
