"""The README's one-liner, with no Prefect server configured."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support import prefect_home

from scalescope.errors import InfrastructureError
from scalescope_flows import server as temporary

PROGRAM = """
import dataclasses, json
from scalescope_flows import scale_sweep
result = scale_sweep(workload="futures-map", axes={"workers": [1, 2, 4]}, params={"items": 8})
from scalescope_flows import server as temporary
print(json.dumps(dataclasses.asdict(result) | {"server": temporary._server.pid}))
"""


def without_prefect(folder: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "SCALESCOPE_"))}
    home = prefect_home.fill(folder / "prefect")
    return {**clean, "PREFECT_HOME": str(home), "SCALESCOPE_STORE": str(folder / "results.db")}


def test_a_sweep_needs_no_server(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=without_prefect(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["valid"] == 3
    assert result["store"] == str(tmp_path / "results.db")
    assert not psutil.pid_exists(result["server"])
    assert "rror" not in done.stderr


def test_a_temporary_server_that_does_not_start_raises_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    program = shutil.which("false")
    monkeypatch.setattr(temporary.sys, "executable", program)
    server = temporary.Server()
    with pytest.raises(InfrastructureError, match="temporary Prefect server ended") as error:
        server.wait()
    assert "prefect server start" in error.value.next_step


def test_no_temporary_server_is_started_if_prefect_is_configured(prefect_server: None) -> None:
    assert not temporary.is_needed()
    temporary.ready()
    assert not temporary.is_used()
