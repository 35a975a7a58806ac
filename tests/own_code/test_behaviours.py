"""Scripts behave under `scalescope run` as they do under `python`: output, status, files, and how they fail."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest
from own_code.behaviours import BEHAVIOURS, Behaviour, Content

LIMIT_S = 60.0
GRACE_S = 0.15  # from the script's word that it is ready to the statement that waits
ORPHAN_S = 1.2  # A script whose starter was killed would have written its file by then.
SCALESCOPE = str(Path(sys.executable).with_name("scalescope"))

# What two runs of plain Python print differently
UNEQUAL = {
    r"0x[0-9a-f]{6,}": "0x#",
    r"\b(inproc|tcp)://[\w.]+[:/][\d/]+": r"\1://#",
    r"\bin \d+\.\d+s\b": "in #s",
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - ": "# - ",
    r"(stimulus_id='[a-z-]+)[\d.]+": r"\1#",
}

# Shown in another environment by every run of the tests, the others by `make test-all`
ELSEWHERE = (
    "exception-of-a-task",
    "file-is-absolute",
    "interrupted-from-outside",
    "own-sitecustomize",
    "package-by-m",
    "python-started-by-the-script",
    "traceback-of-m",
    "variables-with-pythonpath",
)
VARIANT = pytest.mark.thorough


@dataclass(frozen=True)
class Outcome:
    status: int  # negative: the signal that ended it
    stdout: str
    stderr: str
    files: dict[str, str]  # mode and contents by name; of bytecode the mode alone


@pytest.fixture(scope="session")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python whose environment lacks what only Scalescope needs."""
    folder = tmp_path_factory.mktemp("there")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    scheme = {"base": str(folder), "platbase": str(folder)}
    lacks = ("alembic", "bokeh", "jinja2", "prefect", "rich", "sqlalchemy", "typer")
    lines = [sysconfig.get_path("purelib"), f"import sys; sys.modules.update(dict.fromkeys({lacks}))"]
    (Path(sysconfig.get_path("purelib", vars=scheme)) / "theirs.pth").write_text("\n".join(lines))
    return str(folder / "bin" / "python")


def parameters(shown: Sequence[str] | None = None) -> list[object]:
    """All behaviours; all but the `shown` ones are variants, or else those that say so."""

    def is_variant(each: Behaviour) -> bool:
        return each.thorough if shown is None else each.name not in shown

    return [pytest.param(each, id=each.name, marks=[VARIANT] if is_variant(each) else []) for each in BEHAVIOURS]


@pytest.mark.parametrize("behaviour", parameters())
def test_a_script_behaves_under_scalescope_run_as_under_python(behaviour: Behaviour, folder: Path) -> None:
    assert_same([sys.executable], [SCALESCOPE, "run"], behaviour, folder)


@pytest.mark.parametrize("behaviour", parameters(ELSEWHERE))
def test_a_script_in_another_environment_behaves_as_under_python(
    behaviour: Behaviour, folder: Path, other_python: str
) -> None:
    assert_same([other_python], [SCALESCOPE, "run", "-e", other_python], behaviour, folder)


def test_names_of_behaviours_are_unique() -> None:
    names = [each.name for each in BEHAVIOURS]
    assert len(set(names)) == len(names)
    assert set(ELSEWHERE) <= set(names)


def assert_same(python: Sequence[str], ours: Sequence[str], behaviour: Behaviour, folder: Path) -> None:
    """Compare two ways to start a script; only the second may add lines at the end of stderr."""
    expected = outcome(python, behaviour, folder)
    if "Future exception was never retrieved" in expected.stderr:  # printed by distributed, sometimes, on a full host
        expected = outcome(python, behaviour, folder)
    seen = outcome(ours, behaviour, folder)
    theirs, said = seen.stderr[: len(expected.stderr)], seen.stderr[len(expected.stderr) :]
    assert (theirs, seen.stdout) == (expected.stderr, expected.stdout), seen.stderr
    assert seen.status == expected.status, seen.stderr
    assert seen.files == expected.files
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    if behaviour.judged:
        assert "no Dask client" not in said


def outcome(start: Sequence[str], behaviour: Behaviour, folder: Path) -> Outcome:
    """Run a script by `start` in a fresh folder, which has the same path each time."""
    work, temporary = folder / "here", folder / "tmp"
    for each in (work, temporary):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir()
    script = behaviour.script.format(folder=work)
    write(work, behaviour)
    asked = ["-m", behaviour.module] if behaviour.module else [script]
    command = [*behaviour.launcher, *start, *asked, *behaviour.arguments]
    environment = plain_environment() | {"SCALESCOPE_STORE": str(folder / "kept.db"), "TMPDIR": str(temporary)}
    environment |= {name: value.format(folder=work) for name, value in behaviour.environment.items()}
    if behaviour.terminal:
        status, stdout, stderr = on_a_terminal(command, behaviour, work, environment)
    else:
        status, stdout, stderr = with_files(command, behaviour, work, environment)
    return Outcome(status, told(stdout), told(stderr), files_of(work))


def plain_environment() -> dict[str, str]:
    """Variables of this process that do not change what a script does."""
    ours = ("COVERAGE", "DASK", "PYTEST", "PYTHON")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def write(work: Path, behaviour: Behaviour) -> None:
    """Write the files with fixed times, since bytecode contains the times of sources."""
    files = dict(behaviour.files)
    if behaviour.source:
        files[behaviour.script.format(folder=work)] = behaviour.source
    for name, content in files.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(as_bytes(content))
        os.utime(path, (1e9, 1e9))
    for name, target in behaviour.links.items():
        (work / name).symlink_to(target)


def as_bytes(content: Content) -> bytes:
    return content if isinstance(content, bytes) else dedent(content).lstrip("\n").encode()


def with_files(
    command: Sequence[str], behaviour: Behaviour, work: Path, environment: dict[str, str]
) -> tuple[int, bytes, bytes]:
    """The streams are files, since a process that outlives the script may keep them open."""
    names = [work.parent / name for name in ("stdin", "stdout", "stderr")]
    names[0].write_text(behaviour.stdin)
    with names[0].open("rb") as stdin, names[1].open("wb") as stdout, names[2].open("wb") as stderr:
        process = subprocess.Popen(
            command, cwd=work, env=environment, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
        with group_of(process):
            if behaviour.signal:
                wait_until_ready(process, names[1])
                (os.killpg if behaviour.to_group else os.kill)(process.pid, behaviour.signal)
            status = process.wait(LIMIT_S)
            if behaviour.signal == signal.SIGKILL:
                time.sleep(ORPHAN_S)
    return status, names[1].read_bytes(), names[2].read_bytes()


def wait_until_ready(process: subprocess.Popen[bytes], stdout: Path) -> None:
    until = time.monotonic() + LIMIT_S
    while b"ready" not in stdout.read_bytes():
        assert process.poll() is None, "It ended before it was ready."
        assert time.monotonic() < until, "It was never ready."
        time.sleep(0.01)
    time.sleep(GRACE_S)


def on_a_terminal(
    command: Sequence[str], behaviour: Behaviour, work: Path, environment: dict[str, str]
) -> tuple[int, bytes, bytes]:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    process = subprocess.Popen(command, cwd=work, env=environment, preexec_fn=lambda: os.login_tty(theirs))
    os.close(theirs)
    seen, typed = b"", False
    with group_of(process), os.fdopen(ours, "r+b", buffering=0) as terminal:
        while select.select([terminal], [], [], LIMIT_S)[0]:
            try:
                seen += terminal.read(65536)
            except OSError:  # No process has it open any more.
                break
            if b"ready" in seen and not typed:
                time.sleep(GRACE_S)
                terminal.write(behaviour.stdin.encode())
                typed = True
        return process.wait(LIMIT_S), b"", seen


@contextlib.contextmanager
def group_of(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ends the remaining processes of the group on exit."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def told(stream: bytes) -> str:
    text = stream.decode(errors="backslashreplace")
    for pattern, same in UNEQUAL.items():
        text = re.sub(pattern, same, text)
    return text


def files_of(work: Path) -> dict[str, str]:
    files = (path for path in sorted(work.rglob("*")) if path.is_file())
    return {
        str(
            path.relative_to(work)
        ): f"{path.stat().st_mode:o} {'' if path.suffix == '.pyc' else told(path.read_bytes())}"
        for path in files
    }
