"""Copies in which a script runs, what it may reach from them, and changes to the user's files."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from scalescope.errors import UsageError
from scalescope.fixing import applying, copies
from scalescope.fixing.comparison import close
from scalescope.fixing.outcome import Guarded, Outcome, SideEffect, run
from scalescope.fixing.result import Fix
from scalescope.fixing.subject import Subject
from scalescope.own_code.script import Program


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a script, an input, a large input and a package."""
    folder = tmp_path / "project"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "__init__.py").write_text("VALUE = 3\n")
    (folder / "in.txt").write_text("input")
    (folder / "large.bin").write_bytes(bytes(copies.FILE_BYTES + 1))
    return folder


def ran(project: Path, tmp_path: Path, text: str, *, allowed: bool = False) -> Outcome:
    (project / "job.py").write_text(textwrap.dedent(text))
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    made = copies.copy(project, work / "1", {})
    command = [sys.executable, "job.py"]
    return run(command, Guarded(work, made, allowed), cwd=made.folder, limit_s=60.0)


def test_a_script_writes_only_in_its_copy(project: Path, tmp_path: Path) -> None:
    text = """
        import os, pathlib, shutil, tempfile
        from package import VALUE
        print(VALUE, open("in.txt").read(), os.path.getsize("large.bin"))
        open("out.txt", "w").write("new")
        open("in.txt", "a").write("more")
        pathlib.Path("folder").mkdir()
        pathlib.Path("folder/a.txt").write_text("a")
        shutil.rmtree("folder")
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "b.txt").write_text("b")
    """
    outcome = ran(project, tmp_path, text)
    assert (outcome.status, outcome.lines) == (0, (f"3 input {copies.FILE_BYTES + 1}",))
    assert set(outcome.written) == {"out.txt", "in.txt"}
    assert not (project / "out.txt").exists()
    assert (project / "in.txt").read_text() == "input"
    assert outcome.seconds > 0


BEYOND = {
    "a file elsewhere": "open('{outside}/x', 'w')",
    "a file that is there": "open('{outside}/there', 'a')",
    "in a thread": "import threading; threading.Thread(target=open, args=('{outside}/x', 'w')).start()",
    "removed": "import os; os.remove('{outside}/there')",
    "renamed": "import os; open('a', 'w').close(); os.rename('a', '{outside}/x')",
    "a folder": "import pathlib; pathlib.Path('{outside}/x').mkdir()",
    "through a link": "open('large.bin', 'r+b').write(b'x')",
    "a database": "import sqlite3; sqlite3.connect('{outside}/x')",
    "in a child": "import subprocess, sys; subprocess.run([sys.executable, '-c', 'open(\"{outside}/x\", \"w\")'])",
    "swallowed": "try:\n    open('{outside}/x', 'w')\nexcept OSError:\n    pass",
    "a connection": "import socket; socket.socket().connect(('192.0.2.1', 9))",
    "a datagram": "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))",
}


@pytest.mark.parametrize("name", BEYOND)
def test_writes_and_connections_outside_the_copy_are_stopped_before_they_happen(
    project: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "there").write_text("there")
    with pytest.raises(SideEffect) as error:
        ran(project, tmp_path, BEYOND[name].format(outside=outside))
    assert error.value.category == ("connects" if name in ("a connection", "a datagram") else "writes")
    assert [each.name for each in outside.iterdir()] == ["there"]
    assert (outside / "there").read_text() == "there"
    assert (project / "large.bin").read_bytes()[:1] == b"\0"


def test_a_script_may_write_outside_its_copy_with_consent(project: Path, tmp_path: Path) -> None:
    outcome = ran(project, tmp_path, f"open('{tmp_path}/x', 'w').close()", allowed=True)
    assert outcome.status == 0
    assert (tmp_path / "x").exists()


def test_connections_within_this_machine_are_allowed(project: Path, tmp_path: Path) -> None:
    text = """
        import socket
        server = socket.create_server(("127.0.0.1", 0))
        socket.create_connection(server.getsockname()).close()
        probe = socket.socket(type=socket.SOCK_DGRAM)
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pass
        print("done")
    """
    assert ran(project, tmp_path, text).lines == ("done",)


def test_output_of_worker_processes_is_kept_apart_from_that_of_the_script(project: Path, tmp_path: Path) -> None:
    text = """
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "print('task')"])
        print(subprocess.run([sys.executable, "-c", "print('asked')"], capture_output=True, text=True).stdout.strip())
    """
    outcome = ran(project, tmp_path, text)
    assert (outcome.lines, outcome.of_tasks) == (("asked",), ("task",))


GOT = {
    "one by one": "[client.submit(half, each).result() for each in range(3)]",
    "together": "client.gather(client.map(half, range(3)))",
    "as they come": "list(as_completed(client.map(half, range(3)), with_results=True))",
    "of delayed calls": "dask.compute(*map(dask.delayed(half), range(3)))",
    "beside what is not lazy": "dask.compute([(each, dask.delayed(half)(each)) for each in range(3)])",
    "awaited": "client.sync(awaited, client)",
}


def test_results_that_reach_the_client_are_noted_in_whatever_way_it_fetches_them(project: Path, tmp_path: Path) -> None:
    text = """
        import dask
        from distributed import Client, as_completed
        def half(value):
            return value / 2
        async def awaited(client):
            return await client.gather(client.map(half, range(3)))
        with Client(processes=False, n_workers=1, dashboard_address=None) as client:
            {way}
    """
    ways = "; ".join(GOT.values())
    found = ran(project, tmp_path, textwrap.dedent(text).replace("{way}", ways)).values
    assert found == {f"float {each / 2}": len(GOT) for each in range(3)}


ARRAYS = {
    "np.array([0.5, 1.5, 2.5])": True,
    "np.array([0.5, 1.5, 2.5 + 1e-14])": True,
    "np.array([0.5, 2.5, 1.5])": False,
    "np.array([0.5, -1.5, 2.5])": False,
    "np.array([0.5, 1.5, np.nan])": False,
    "np.array([[0.5, 1.5, 2.5]])": False,
}


def test_arrays_that_differ_only_in_their_last_digits_count_as_equal(project: Path, tmp_path: Path) -> None:
    text = "import dask, numpy as np\nfor each in [" + ", ".join(ARRAYS) + "]: dask.compute(dask.delayed(each))"
    first, *others = (text for text in ran(project, tmp_path, text).values)
    assert [close(first, each) for each in others] == list(ARRAYS.values())[1:]


def test_a_run_that_does_not_end_is_stopped(project: Path, tmp_path: Path) -> None:
    (project / "job.py").write_text("import time; time.sleep(600)")
    (tmp_path / "work").mkdir()
    made = copies.copy(project, tmp_path / "work" / "1", {})
    guarded = Guarded(tmp_path / "work", made, allowed=False)
    assert run([sys.executable, "job.py"], guarded, cwd=made.folder, limit_s=0.2).status < 0


def test_a_file_in_a_linked_folder_can_be_changed(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "FOLDER_FILES", 0)
    made = copies.copy(project, tmp_path / "copy", {Path("package/__init__.py"): b"VALUE = 4\n"})
    assert (made.folder / "package" / "__init__.py").read_text() == "VALUE = 4\n"
    assert (project / "package" / "__init__.py").read_text() == "VALUE = 3\n"


# ------------------------------------------------------------------ the user's files


@pytest.fixture
def found(project: Path, monkeypatch: pytest.MonkeyPatch) -> Fix:
    monkeypatch.setenv("XDG_STATE_HOME", str(project.parent / "state"))
    script = project / "job.py"
    script.write_bytes(b"x = 1\r\n# \xe4\r\n")
    script.chmod(0o750)
    before = {Path("job.py"): script.read_bytes()}
    return Fix(script, project, before, {Path("job.py"): script.read_bytes().replace(b"1", b"2")})


def test_a_patch_is_applied_in_one_step_and_the_original_kept(found: Fix) -> None:
    assert applying.apply(found) == [found.script]
    assert found.script.read_bytes() == b"x = 2\r\n# \xe4\r\n"
    assert found.script.stat().st_mode & 0o777 == 0o750
    assert found.script.with_name("job.py.orig").read_bytes() == b"x = 1\r\n# \xe4\r\n"
    assert {each.name for each in found.root.iterdir()} == {"job.py", "job.py.orig", "in.txt", "large.bin", "package"}


def test_a_file_that_has_changed_since_is_not_touched(found: Fix) -> None:
    found.script.write_bytes(b"x = 3\n")
    with pytest.raises(UsageError):
        applying.apply(found)
    assert found.script.read_bytes() == b"x = 3\n"
    assert not found.script.with_name("job.py.orig").exists()


@pytest.mark.parametrize("clean", [True, False])
def test_no_backup_is_written_for_a_file_that_git_has_committed(found: Fix, clean: bool) -> None:
    git = ["git", "-C", str(found.root), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "job.py"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    if not clean:
        found.script.write_bytes(b"x = 1  # not committed\n")
        found = Fix(found.script, found.root, {Path("job.py"): b"x = 1  # not committed\n"}, found.after)
    applying.apply(found)
    assert found.script.with_name("job.py.orig").exists() is not clean


def test_a_proven_patch_can_be_applied_later_without_another_proof(found: Fix) -> None:
    subject, other = (Subject.of(Program(str(found.script), ["--n", n])) for n in "34")
    assert applying.apply_kept(subject) is None
    applying.keep(found, subject)
    assert applying.apply_kept(other) is None
    assert applying.apply_kept(subject) == [found.script]
    assert found.script.read_bytes() == found.after[Path("job.py")]
    assert applying.apply_kept(subject) is None  # it has changed since


def test_git_can_apply_the_written_patch(found: Fix) -> None:
    found = Fix(found.script, found.root, {Path("job.py"): b"a\nb"}, {Path("job.py"): b"a\nc"})
    found.script.write_bytes(b"a\nb")
    path = applying.write_patch(found)
    environ = {**os.environ, "GIT_CEILING_DIRECTORIES": str(found.root.parent)}
    subprocess.run(["git", "apply", path.name], cwd=found.root, check=True, env=environ)
    assert found.script.read_bytes() == b"a\nc"


def test_a_patch_of_any_bytes_is_written_without_replacing_another_file(found: Fix) -> None:
    (found.root / "job.patch").write_text("theirs")
    path = applying.write_patch(found)
    assert path.name == "job-2.patch"
    assert b"+x = 2\r\n # \xe4\r\n" in path.read_bytes()
    assert applying.write_patch(found) == path
    assert (found.root / "job.patch").read_text() == "theirs"
    found.to_json()["patch"].encode()
