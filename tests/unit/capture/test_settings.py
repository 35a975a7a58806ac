"""Settings that bear on speed are kept, and nothing that may be a secret."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import dask
import distributed  # noqa: F401 - its defaults are Dask's
import pytest

from scalescope.capture.settings import VARIABLES, program, settings


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_settings_equal_to_the_defaults_are_not_recorded() -> None:
    kept = settings()
    with dask.config.set({"array.chunk-size": dask.config.get("array.chunk-size")}):
        assert settings() == kept
    assert kept["variables"] == {}
    assert "array.chunk-size" not in kept["dask_config"]


def test_settings_that_affect_speed_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    given = {"array.slicing.split-large-chunks": True, "distributed.worker.memory.spill": False}
    workers = {"distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 0}
    with dask.config.set({**given, **workers}):
        kept = settings()
    assert kept["variables"] == {"OMP_NUM_THREADS": "4"}
    assert {**given, **workers}.items() <= kept["dask_config"].items()


def test_secret_settings_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
    monkeypatch.setenv("DASK_GATEWAY__AUTH__PASSWORD", "mine")
    secret = {
        "gateway.auth.password": "mine",
        "distributed.nanny.environ.TOKEN": "mine",
        "distributed.comm.tls.client.key": "mine",
        "distributed.worker.preload": ["https://mine@example.org"],
    }
    with dask.config.set(secret):
        assert "mine" not in str(settings())


def test_the_identity_of_a_script_changes_with_its_text_and_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.py"
    path.write_text("a = 1")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(path), raising=False)
    monkeypatch.setattr(sys, "argv", ["job.py", "1"])
    first = program()
    assert first == program() != ""
    monkeypatch.setattr(sys, "argv", ["job.py", "2"])
    second = program()
    path.write_text("a = 2")
    assert len({first, second, program()}) == 3
    os.remove(path)
    assert program() == ""
