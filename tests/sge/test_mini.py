"""The Grid Engine of the tests leaves nothing behind however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support import infra
from support.processes import command_lines
from support.waiting import wait_for as until

NETWORK = "61"  # differs from the network of the other tests


@pytest.mark.thorough
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_process_or_network_of_the_small_grid_engine_is_left(
    mini: ModuleType, missing: Any, how: signal.Signals
) -> None:
    if reason := mini.unmet():
        missing("sge", reason)
    command = [sys.executable, str(infra.ROOT / "infra/sge/mini.py"), "--hosts", "1", "--network", NETWORK]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    told = [served.stdout.readline().removeprefix("export ").strip() for _ in mini.VARIABLES]
    variables = dict(line.split("=", 1) for line in told)
    environment = {"PATH": "/usr/bin:/bin", **variables}
    job = ["qsub", "-b", "y", "-S", "/bin/sh", "-o", "/dev/null", "-j", "y", "sleep", "601"]
    subprocess.run(job, env=environment, check=True, capture_output=True)

    until(lambda: any("sleep 601" in line for line in command_lines(variables["SGE_ROOT"])))
    served.send_signal(how)
    served.wait(30)
    served.stdout.close()
    until(lambda: not command_lines(variables["SGE_ROOT"]))
    assert not list(Path("/run/netns").glob(f"machines{NETWORK}-*"))
    assert served.returncode == (-how if how is signal.SIGKILL else 0)
