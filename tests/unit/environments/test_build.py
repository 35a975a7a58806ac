from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from scalescope.capture import host
from scalescope.environments import Built, ensure, list_cached
from scalescope.errors import EnvironmentFailed, EnvironmentUnavailable
from scalescope.model.environment import Environment

pytestmark = pytest.mark.usefixtures("cache")


def have(text: str, says: list[str] | None = None) -> Built:
    return ensure(Environment.parse(text), says=[].append if says is None else says.append)


def run(built: Built, *arguments: str) -> str:
    return subprocess.run([built.python, *arguments], capture_output=True, text=True, check=True).stdout.strip()


# ------------------------------------------------------------------ healthy


def test_an_empty_text_means_the_present_environment() -> None:
    built = have("")
    assert built.python == sys.executable
    assert not built.fresh
    assert built.packages == host.packages()
    assert built.digest == host.packages_digest(built.packages)


def test_an_interpreter_with_blanks_in_its_path_can_be_used(tmp_path: Path) -> None:
    python = interpreter(tmp_path)
    built = have(str(python))
    assert built.python == str(python)
    assert built.packages == host.packages()


def test_an_environment_is_built_once_and_then_reused(cache: Path) -> None:
    says: list[str] = []
    built = have("mine = tiny-thing==1.1 distributed", says)
    assert built.fresh
    assert Path(built.python).parent.parent.parent == cache
    assert built.packages == {"dask": "2024.8.0", "distributed": "2024.8.0", "numpy": "2.4.6", "tiny-thing": "1.1"}
    assert built.digest == host.packages_digest(built.packages)
    assert run(built, "-m", "tiny_thing") == "1.1"
    assert says[0] == "Building environment mine"
    assert "4 packages" in says[-1]

    says.clear()
    again = have("distributed tiny_thing==1.1", says)
    assert not again.fresh
    assert (again.python, again.packages, says) == (built.python, built.packages, [])
    assert again.environment.name == ""


def test_a_built_environment_keeps_its_text_and_its_resolved_packages(cache: Path) -> None:
    have("distributed==2023.5.0")
    kept = json.loads(next(cache.glob("*/environment.json")).read_text())
    assert kept["text"] == "distributed==2023.5.0"
    assert kept["resolved"] == ["dask==2023.5.0", "distributed==2023.5.0", "numpy==1.26.4"]
    assert kept["added"] == ["numpy<2"]
    assert kept["uv"].startswith("uv ")
    assert kept["size"] > 0


def test_packages_that_a_driver_needs_are_added_and_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_COMPILE_BYTECODE")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    built = have("dask==2024.8.0")
    assert built.packages["distributed"] == "2024.8.0"
    assert Path(run(built, "-c", "import distributed; print(distributed.__cached__)")).exists()


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("apache-beam==2.47.0", "setuptools", "79.0.1"),
        ("apache-beam==2.77.0", "setuptools", None),
        ("apache-beam==2.47.0 setuptools==82.0.1", "setuptools", "82.0.1"),
        ("distributed==2023.5.0", "numpy", "1.26.4"),
        ("distributed==2023.5.0 numpy>2", "numpy", "2.4.6"),
        ("distributed==2024.8.0", "numpy", "2.4.6"),
    ],
)
def test_old_releases_get_packages_that_they_need_and_do_not_declare(text: str, name: str, version: str | None) -> None:
    assert have(text).packages.get(name) == version


def test_the_present_version_of_python_uses_the_present_interpreter() -> None:
    built = have(f"python=={sys.version_info[0]}.{sys.version_info[1]}")
    assert run(built, "-c", "import sys; print(sys.base_prefix)") == sys.base_prefix


def test_an_environment_removed_by_hand_is_built_again(cache: Path) -> None:
    built = have("tiny-thing==1.0")
    shutil.rmtree(Path(built.python).parent.parent)
    assert have("tiny-thing==1.0").fresh
    (Path(built.python)).unlink()  # as when the Python that it was made from has been removed
    assert have("tiny-thing==1.0").fresh
    assert run(built, "-m", "tiny_thing") == "1.0"


# ------------------------------------------------------------------ what there cannot be


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tiny-thing==99", "no version of tiny-thing==99"),
        ("no-such-thing", "no-such-thing was not found"),
        ("dask==2023.5.0 distributed==2024.8.0", "dask==2024.8.0"),
        ("python==3.99 tiny-thing", "3.99"),
    ],
)
def test_requirements_that_cannot_be_resolved_are_refused_and_leave_nothing(
    text: str, reason: str, cache: Path
) -> None:
    with pytest.raises(EnvironmentFailed, match=reason) as caught:
        have(text)
    assert text in str(caught.value)
    assert caught.value.exit_status == 2
    assert list_cached() == ()
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_an_added_requirement_that_prevents_resolution_is_named(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = tmp_path / "fewer"
    shutil.copytree(wheels, fewer)
    page = fewer / "numpy" / "index.html"
    page.write_text("".join(line for line in page.read_text().splitlines(keepends=True) if "numpy-2" in line))
    monkeypatch.setenv("UV_DEFAULT_INDEX", fewer.as_uri())
    with pytest.raises(EnvironmentFailed, match=r"numpy<2, .* of dask"):
        have("distributed==2023.5.0")


def test_a_folder_given_as_interpreter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        have(f"{tmp_path}/")
    assert caught.value.next_step == f"give its interpreter: {tmp_path}/bin/python"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo hello", "Expecting value"),
        ("echo broken >&2; exit 3", "exit status 3\n    broken"),
        ('echo \'{"version": "3.8.1"}\'', "it is Python 3.8.1"),
        (f"exec '{sys.executable}' -S \"$@\"", "it has no distributed"),
    ],
)
def test_an_unsuitable_interpreter_is_refused_with_its_reason(script: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match=reason):
        have(str(interpreter(tmp_path, script)))


# ------------------------------------------------------------------ what fails here and now


def test_an_unreachable_package_index_raises_environment_unavailable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://me:secret@127.0.0.1:9/simple")  # the discard port
    with pytest.raises(EnvironmentUnavailable, match="Failed to fetch") as caught:
        have("tiny-thing==1.0")
    assert caught.value.exit_status == 3
    assert "secret" not in str(caught.value)
    assert "check the network" in caught.value.next_step
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700  # what is kept there is this user's


def test_a_cache_folder_that_cannot_be_made_raises_environment_unavailable(cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("a file")
    with pytest.raises(EnvironmentUnavailable, match="SCALESCOPE_ENVIRONMENTS"):
        have("tiny-thing==1.0")


def test_a_missing_uv_raises_environment_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentUnavailable, match=r"\[environments\]"):
        have("tiny-thing==1.0")


def interpreter(folder: Path, script: str = f"exec '{sys.executable}' \"$@\"") -> Path:
    """A program in a folder with blanks in its path."""
    path = folder / "a b" / "python"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
