"""Dask's own report and profile, beside the spool; what cannot be had is said."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from scalescope.capture import reports
from scalescope.capture.recording import Capture


@pytest.fixture
def capture(client: Client) -> Iterator[Capture]:
    installed = Capture(client, drain_interval_s=None)
    yield installed
    installed.close()


def spin(seconds: float) -> int:
    end, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        count += 1
    return count


def plugins(client: Client) -> set[str]:
    return set(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.plugins)))


def test_report_and_profile_are_written_beside_the_spool(client: Client, capture: Capture, tmp_path: Path) -> None:
    pytest.importorskip("bokeh")
    with capture.trial(tmp_path / "trial.spool", performance_report=True, profile=True) as recording:
        assert "task-stream" in plugins(client)
        client.gather(client.map(spin, [1.5] * 2, pure=False))  # profiles are taken once a second
    assert (recording.complete, recording.warnings) == (True, [])
    assert recording.files == {
        "performance_report": str(tmp_path / "trial.performance-report.html"),
        "profile": str(tmp_path / "trial.profile.json"),
    }
    assert "<html" in (tmp_path / "trial.performance-report.html").read_text()[:200]
    profile = json.loads((tmp_path / "trial.profile.json").read_text())
    assert profile["count"] > 0
    assert "spin" in json.dumps(profile)
    assert "task-stream" not in plugins(client)


def test_without_being_asked_nothing_is_attached(client: Client, capture: Capture, tmp_path: Path) -> None:
    with capture.trial(tmp_path / "trial.spool") as recording:
        assert "task-stream" not in plugins(client)
    assert recording.files == {}
    assert [path.name for path in tmp_path.iterdir()] == ["trial.spool"]


def test_a_report_of_too_many_tasks_is_refused_with_the_reason(
    client: Client, capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "REPORT_TASKS", 2)
    with capture.trial(tmp_path / "trial.spool", performance_report=True) as recording:
        client.gather(client.map(spin, [0.0] * 3, pure=False))
    (warning,) = recording.warnings
    assert warning.startswith("no performance report of 3 tasks: beyond 2 Dask shows only the newest")
    assert recording.complete
    assert recording.files == {}
    assert "task-stream" not in plugins(client)


def test_an_empty_profile_is_not_written(client: Client, capture: Capture, tmp_path: Path) -> None:
    with capture.trial(tmp_path / "trial.spool", profile=True) as recording:
        pass
    assert recording.warnings == ["the profile is empty: the trial was too short, or workers take none on this cluster"]
    assert recording.files == {}


def test_what_takes_too_long_is_given_up(client: Client) -> None:
    async def never() -> Any:
        await asyncio.sleep(60)

    with pytest.raises(reports.CaptureError, match=r"the profile was not ready within 0\.05 s"):
        reports._limited(client, never, 0.05, "profile")


def test_what_the_scheduler_cannot_do_is_given_up(client: Client) -> None:
    async def fails() -> Any:
        raise ModuleNotFoundError("No module named 'bokeh'")

    with pytest.raises(reports.CaptureError, match="could not be made: ModuleNotFoundError: No module named 'bokeh'"):
        reports._limited(client, fails, 5.0, "performance report")
