"""A sweep in a notebook draws its progress bar in place and prints no other line."""

from __future__ import annotations

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


def run(folder: Path, missing: Callable[[str, str], NoReturn], *texts: str) -> list[Any]:
    """Run cells in a real kernel."""
    try:
        import ipykernel  # noqa: F401  # what nbclient starts
        import nbclient
        import nbformat
    except ModuleNotFoundError as error:
        missing("notebook", f"no notebooks: {error}")
    cells = [nbformat.v4.new_code_cell(text.strip()) for text in texts]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return cells


@pytest.mark.parametrize("way", WAYS)
def test_a_notebook_shows_one_progress_bar_and_the_result(
    way: str, missing: Callable[[str, str], NoReturn], tmp_path: Path
) -> None:
    cells = run(tmp_path, missing, JOB, way, "result", "result.plot()")
    nothing, [bar], *shown = [cell.outputs for cell in cells]
    assert nothing == []
    assert "4/4" in bar.data["text/html"]
    for [each] in shown:
        assert each.output_type == "execute_result"
        assert "text/html" in each.data


CLIENT = """
%load_ext scalescope
import time
from dask.distributed import Client

client = Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None)


def score(part):
    time.sleep(0.1)
    return part
"""
CELL = """
%%scalescope
total = 0
for part in range(20):
    total += client.submit(score, part).result()
total
"""


def test_a_recorded_cell_has_its_verdict_with_its_line_and_a_picture_below_it(
    missing: Callable[[str, str], NoReturn], tmp_path: Path
) -> None:
    _, cell, after = run(tmp_path, missing, CLIENT, CELL, "print(total)\nclient.close()")
    text = "".join(each.text for each in cell.outputs if each.output_type == "stream" and each.name == "stdout")
    assert "The client sent 20 graphs of 1 task" in text
    [value, shown] = [each.data for each in cell.outputs if each.output_type in ("execute_result", "display_data")]
    assert value["text/plain"] == "190"
    assert "cell.py:4" in shown["text/html"] + text
    assert after.outputs[0].text == "190\n"


@pytest.mark.thorough
def test_the_cluster_of_a_notebook_can_be_watched_and_its_awaits_recorded(
    missing: Callable[[str, str], NoReturn], tmp_path: Path
) -> None:
    made = CLIENT.replace("processes=False", "processes=True")
    awaits = """
import scalescope
other = await Client(client.scheduler.address, asynchronous=True)
async with scalescope.diagnose(other):
    for part in range(20):
        await other.submit(score, part, pure=False)
"""
    _, _, watched, recorded = run(
        tmp_path, missing, made, "many = client.map(score, range(200))", "%scalescope watch --for 3s", awaits
    )
    assert "of 2 threads have a task" in "".join(each.text for each in watched.outputs)
    assert "The client sent 20 graphs of 1 task" in "".join(each.get("text", "") for each in recorded.outputs)
