"""A sweep in a notebook, and in a script on a terminal: a bar that is drawn in place, and no line that nobody wants."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

pytestmark = pytest.mark.timeout(240)

JOB = """
import time


def load(number):
    time.sleep(1)


def job(client, *, items=64):
    client.gather(client.map(load, range(items), pure=False))
"""
DIRECTLY = """
from scalescope.run.sweep import run_sweep

result = run_sweep({"workload": job, "axes": {"workers": [1, 4, 16, 128]}})
"""
AS_FLOW = """
from scalescope_flows import scale_sweep

result = scale_sweep(workload=job, axes={"workers": [1, 4, 16, 128]})
"""
WAYS = [DIRECTLY, pytest.param(AS_FLOW, marks=pytest.mark.thorough)]


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALESCOPE_STORE", str(tmp_path / "results.db"))
    for name in ("XDG_DATA_HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "PREFECT_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.mark.parametrize("way", WAYS)
def test_a_notebook_shows_one_bar_and_what_was_asked_for(
    way: str, missing: Callable[[str, str], NoReturn], tmp_path: Path
) -> None:
    try:
        import ipykernel  # noqa: F401  # what nbclient starts
        import nbclient
        import nbformat
    except ModuleNotFoundError as error:
        missing("notebook", f"no notebooks: {error}")
    cells = [nbformat.v4.new_code_cell(cell.strip()) for cell in (JOB, way, "result", "result.plot()")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    nothing, [bar], *shown = [cell.outputs for cell in cells]
    assert nothing == []
    assert "4/4" in bar.data["text/html"]
    for [each] in shown:
        assert each.output_type == "execute_result"
        assert "text/html" in each.data


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_a_script_on_a_terminal_shows_one_that_goes_at_the_end(way: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"{JOB}\n\nif __name__ == '__main__':{way.replace(chr(10), f'{chr(10)}    ')}\n")
    ours, theirs = pty.openpty()
    written: list[bytes] = []
    reader = threading.Thread(target=read_all, args=(ours, written.append))
    reader.start()
    try:
        environ = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
        subprocess.run([sys.executable, str(script)], check=True, stdout=theirs, stderr=theirs, env=environ)
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(written).decode())
    lines = [line for line in re.split(r"[\r\n]+", shown) if line.strip()]
    assert any("4/4" in line for line in lines)
    assert [line for line in lines if "━" not in line] == []


def read_all(terminal: int, keep: Callable[[bytes], Any]) -> None:
    while True:
        try:
            keep(os.read(terminal, 4096))
        except OSError:  # the other end is closed
            return
