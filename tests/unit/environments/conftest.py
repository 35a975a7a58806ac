"""A package index in a folder of small wheels and a cache for every test, so no network is needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.wheels import write_wheel

from scalescope.environments import cache_locks


def let_go() -> None:
    """Release all environments in use, as the end of this process would."""
    while cache_locks._held:
        cache_locks._held.popitem()[1].close()


@pytest.fixture(name="let_go")
def _let_go() -> Callable[[], None]:
    return let_go


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for version in ("2023.5.0", "2024.8.0"):
        write_wheel(folder, "dask", version, needs=["numpy>=1"])
        write_wheel(folder, "distributed", version, needs=[f"dask=={version}"])
    for version in ("1.26.4", "2.4.6"):
        write_wheel(folder, "numpy", version)
    for version in ("79.0.1", "82.0.1"):
        write_wheel(folder, "setuptools", version)
    write_wheel(folder, "apache-beam", "2.47.0")
    write_wheel(folder, "apache-beam", "2.77.0")
    for version in ("1.0", "1.1", "1.9", "1.10", "2.0rc1", "2.0"):
        urls = ["Home, https://tiny.example", "Release notes, https://tiny.example/news"]
        write_wheel(folder, "tiny-thing", version, urls=urls)
    return folder


@pytest.fixture(scope="session")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uv")


@pytest.fixture
def cache(tmp_path: Path, wheels: Path, uv_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where environments are kept in this test. There are blanks in its path."""
    folder = tmp_path / "kept here" / "environments"
    monkeypatch.setenv("SCALESCOPE_ENVIRONMENTS", str(folder))
    monkeypatch.setenv("UV_DEFAULT_INDEX", wheels.as_uri())
    monkeypatch.setenv("UV_CACHE_DIR", str(uv_cache))
    yield folder
    let_go()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts other processes of Scalescope; what is left of them is killed."""
    started = []

    def start(code: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, *arguments]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate()
