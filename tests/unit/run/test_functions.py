"""Functions as workloads, and the result of a sweep in Python."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scalescope.errors import StoreError, UsageError
from scalescope.run.functions import named
from scalescope.run.sweep import SweepResult, run_sweep
from scalescope.workloads import builtin, futures, load


def nothing(client: Any, *, items: int = 1) -> None:
    """At the top of a file."""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    """The result of a function that is sent by value with everything it refers to."""
    folder, seconds = tmp_path_factory.mktemp("sent"), 0.5

    def load_one(number: int) -> int:
        import time

        time.sleep(seconds)
        return number

    def run(client: Any, *, items: int = 8) -> None:
        """As in a notebook."""
        client.gather(client.map(load_one, range(items), pure=False))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder))
        given = {"workload": run, "axes": {"workers": [1, 2, 8, 16]}, "store": str(folder / "results.db")}
        return run_sweep(given)


def test_a_function_is_run_by_value_from_a_file_private_to_the_user(result: SweepResult) -> None:
    place, _, name = result.run.sweep.workload.rpartition(":")
    assert (result.valid, name) == (4, "run")
    assert stat.S_IMODE(Path(place).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(place).parent.stat().st_mode) == 0o700
    assert load(result.run.sweep.workload).summary == "As in a notebook."


def test_a_sweep_result_has_points_trials_and_findings_and_a_data_frame(result: SweepResult) -> None:
    assert [point.point.workers for point in result.points] == [1, 2, 8, 16]
    assert len(result.trials) == 4
    assert result.findings[0].line == result.verdict
    pytest.importorskip("pandas")
    table = result.to_dataframe()
    assert table["workers"].tolist() == [1, 2, 8, 16]
    assert table["items"].tolist() == [8] * 4
    assert table["elapsed_s"].iloc[0] == pytest.approx(4.0, rel=0.05)
    parts = [name for name in table if name.startswith("worker_time.")]
    assert table[parts].sum(axis=1).iloc[3] == pytest.approx(16 * table["elapsed_s"].iloc[3])
    assert result.to_json()["points"][0]["workers"] == 1


def test_a_notebook_shows_a_table_and_a_plot_of_a_sweep_result(result: SweepResult) -> None:
    shown = result._repr_html_()
    assert "<table>" in shown
    assert "<td>16</td>" in shown
    assert "at 16 workers" in shown
    pytest.importorskip("bokeh")
    plot = result.plot()
    assert len(plot.figures) == 1
    page = plot._repr_html_()
    assert "Strong scaling, 8 items" in page
    assert "<iframe" in page
    assert "cdn.bokeh.org" not in page.partition("Bokeh.set_log_level")[0]


def test_an_importable_function_is_given_by_name() -> None:
    workload = builtin()[0].name
    assert named({"workload": workload}) == {"workload": workload}
    assert named({"workload": futures.leaf}) == {"workload": "scalescope.workloads.futures:leaf"}
    reference = named({"workload": nothing})["workload"]
    assert load(reference).summary == "At the top of a file."
    assert "functions" not in Path(reference).parts


def test_a_function_of_the_running_script_is_given_by_value(tmp_path: Path) -> None:
    script = tmp_path / "theirs.py"
    script.write_text(
        "from scalescope.run.functions import named\ndef run(client): pass\nprint(named({'workload': run})['workload'])"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path)},
    )
    assert str(tmp_path / "scalescope" / "functions" / "run_") in done.stdout


def test_a_function_that_cannot_be_pickled_or_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    generator, data = (each for each in ()), b"x" * 10_000_001
    with pytest.raises(UsageError) as refused:
        named({"workload": lambda client: generator})
    assert "cannot pickle 'generator' object" in refused.value.cause
    with pytest.raises(UsageError) as refused:
        named({"workload": lambda client: data})
    assert refused.value.cause.endswith(" 9.54 MiB")


def test_a_functions_folder_that_others_can_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = tmp_path / "scalescope" / "functions"
    folder.mkdir(parents=True)
    folder.chmod(0o770)
    with pytest.raises(StoreError, match="Others can write functions"):
        named({"workload": lambda client: None})
    assert not [*folder.iterdir()]
