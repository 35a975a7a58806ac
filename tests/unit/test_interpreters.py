"""Interpreters that cannot run a driver: each is refused at once, by one sentence that says why."""

from __future__ import annotations

import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from scalescope import interpreters
from scalescope.clusters.simulated.spec import SimulatedSpec
from scalescope.driver.process import Driver
from scalescope.errors import EnvironmentFailed

Make = Callable[..., str]


@pytest.fixture
def interpreter(tmp_path: Path) -> Make:
    """Makes an interpreter with nothing installed but a distributed of that release and content, if any."""

    def make(release: str = "", source: str = "") -> str:
        venv.create(tmp_path / "env", with_pip=False)
        (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
        if release:
            (packages / "distributed.py").write_text(source)
            metadata = packages / f"distributed-{release}.dist-info" / "METADATA"
            metadata.parent.mkdir()
            metadata.write_text(f"Metadata-Version: 2.1\nName: distributed\nVersion: {release}\n")
        return str(tmp_path / "env" / "bin" / "python")

    return make


@pytest.fixture
def old_python(tmp_path: Path) -> str:
    """A script that fails at any module, and says of itself what an old Python would say."""
    path = tmp_path / "python3.9"
    path.write_text("""#!/bin/sh\n[ "$1" = -c ] && echo '{"version": "3.9.18"}' || exit 1\n""")
    path.chmod(0o755)
    return str(path)


def test_a_suitable_interpreter_is_accepted() -> None:
    interpreters.explain(sys.executable)
    for release in ("2023.5.0", "2023.5", "2023.10.1", "2026.8.0"):
        interpreters.refuse_old("python", release)


@pytest.mark.parametrize("release", ["2023.4.1", "2022.12.0", "1.28.1"])
def test_releases_of_distributed_that_are_too_old_are_refused(release: str) -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        interpreters.refuse_old("some/python", release)
    assert caught.value.where == "some/python"
    assert release in caught.value.cause
    assert "2023.5" in caught.value.next_step


@pytest.mark.parametrize(
    ("release", "source", "cause"),
    [
        ("", "", "it has no distributed"),
        ("2023.4.0", "", "it has distributed 2023.4.0"),
        ("2024.8.0", "import nothing_like_this", "importing distributed 2024.8.0 fails: ModuleNotFoundError"),
        ("2024.8.0", "print('hello'); raise SystemExit(3)", "importing distributed 2024.8.0 fails: SystemExit"),
    ],
)
def test_a_driver_refuses_an_interpreter_without_a_usable_distributed(
    release: str, source: str, cause: str, interpreter: Make, tmp_path: Path
) -> None:
    python = interpreter(release, source)
    with pytest.raises(EnvironmentFailed) as caught:
        Driver.start(SimulatedSpec(), folder=tmp_path / "run", python=python)
    assert caught.value.where == python
    assert caught.value.cause.startswith(cause)
    assert caught.value.next_step


@pytest.mark.parametrize("program", ["old Python", "no Python"])
def test_a_program_that_is_not_python_or_too_old_is_refused(program: str, old_python: str, tmp_path: Path) -> None:
    path = old_python if program == "old Python" else "/bin/true"
    with pytest.raises(EnvironmentFailed) as caught:
        Driver.start(SimulatedSpec(), folder=tmp_path / "run", python=path)
    assert caught.value.where == path
    assert "Python" in caught.value.cause
    assert "3.11" in caught.value.next_step or path == "/bin/true"
