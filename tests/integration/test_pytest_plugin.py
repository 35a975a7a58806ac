"""The pytest plugin in a test of another project."""

from __future__ import annotations

import subprocess
import sys
import threading
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from scalescope.errors import UsageError
from scalescope.pytest_plugin import assert_scales

TESTS = """
import time

import dask.bag


def nap(number):
    time.sleep(1)
    return number


def wide(client, *, items=64):
    dask.bag.from_sequence(range(items), npartitions=items).map(nap).sum().compute()


def narrow(client):
    dask.bag.from_sequence(range(64), npartitions=4).map(nap).sum().compute()


def broken(client):
    raise RuntimeError("no such table")


def test_wide(assert_scales):
    assert_scales(wide, workers=(4, 16), params={"items": 32})


def test_narrow(assert_scales):
    assert_scales(narrow, workers=(4, 16))


def test_broken(assert_scales):
    assert_scales(broken)
"""


def test_the_pytest_fixture_fails_with_the_verdict(tmp_path: Path) -> None:
    test = tmp_path / "test_theirs.py"
    test.write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", str(test)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=200)
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "efficiency 0.25, not 0.7" in done.stdout
    assert "test_theirs.py:17 in narrow" in done.stdout
    assert "no such table" in done.stdout


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    assert [each.value for each in entry_points(group="pytest11", name="scalescope")] == ["scalescope.pytest_plugin"]


def test_a_function_that_cannot_be_pickled_or_a_single_size_is_refused() -> None:
    lock = threading.Lock()
    with pytest.raises(UsageError) as refused:
        assert_scales(lambda client: lock.locked())
    assert "cannot pickle '_thread.lock' object" in refused.value.cause
    with pytest.raises(UsageError, match="two sizes"):
        assert_scales(test_pytest_finds_the_plugin_by_its_entry_point, workers=(4,))
