"""A sweep in a notebook draws its progress bar in place and prints no other line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

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
def test_a_notebook_shows_one_progress_bar_and_the_result(
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
