"""Faults in recording and judging a script: the script still ends as it does under plain Python."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any, Self

import psutil
import pytest
from own_code.test_behaviours import SCALESCOPE, files_of, plain_environment, told

from scalescope.own_code import block, guest

LIMIT_S = 60.0
GRACE_S = 0.15  # from the script's word to the statement that waits
GONE_WITHIN_S = 10.0  # Processes of a script that was killed may end later than it does.
RECORDED_S = 5.0  # seconds of recorded tasks before a script is killed
MARK = "SCALESCOPE_TESTS_MARK"  # environment variable that all processes of a run have
PYTHON, RUN = (sys.executable,), (SCALESCOPE, "run")
VARIANT = pytest.mark.thorough

# A `sitecustomize` of the tests, in the script's Python and in that which judges: it does what $FAULTS says
INJECTOR = """
import json
import os
import sys
import time

WHERE = "script" if sys.orig_argv[1:2] == ["theirs.py"] else "judge" if "run" in sys.orig_argv else ""


def happens(name):
    with open(os.environ["FAULTS_SEEN"], "a") as stream:
        stream.write(name + "\\n")


def replaced(name, original, does, wait_s):
    def raises(*args, **kwargs):
        happens(name)
        raise RuntimeError("injected")

    def waits(*args, **kwargs):
        happens(name)
        time.sleep(wait_s)
        return original(*args, **kwargs)

    return {"raises": raises, "waits": waits}[does]


def change(made, name, does, wait_s):
    *path, last = name.split(".")
    owner = made
    for each in path:
        owner = getattr(owner, each)
    original = getattr(owner, last)
    if does == "has no source":
        happens(name)
        original.__code__ = original.__code__.replace(co_filename="/nowhere/client.py")
    else:
        setattr(owner, last, replaced(name, original, does, wait_s))


class Finder:
    def __init__(self, faults):
        self.faults = [each for each in faults if each["where"] == WHERE]

    def find_spec(self, module, path=None, target=None):
        faults = [each for each in self.faults if each["module"] == module]
        if any(each["does"] == "is missing" for each in faults):
            happens(module)
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        if not faults:
            return None
        others = (each for each in sys.meta_path if each is not self)
        spec = next(filter(None, (each.find_spec(module, path, target) for each in others)), None)
        run = spec.loader.exec_module

        def exec_module(made):
            run(made)
            for each in faults:
                change(made, each["name"], each["does"], each["wait_s"])

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder(json.loads(os.environ["FAULTS"])))
"""


@dataclass(frozen=True)
class Fault:
    module: str
    name: str = ""  # of a function in the module
    does: str = "raises"
    where: str = "script"  # or `judge`
    wait_s: float = 30.0  # duration of a fault that waits


@dataclass(frozen=True)
class Ended:
    """How a script ended: status, output and remaining processes."""

    status: int  # negative: the signal that ended it
    stdout: str
    stderr: str
    files: Mapping[str, str]
    left: Sequence[str] = ()  # command lines of processes that remained a while after the end


class Started:
    """A script that runs in a folder of its own."""

    def __init__(
        self,
        start: Sequence[str],
        source: str,
        folder: Path,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str | None] | None = None,  # None: such a variable is not set
        faults: Sequence[Fault] = (),
        launcher: Sequence[str] = (),
        merged: bool = False,  # Its stdout goes to stderr, as `run --json` has it.
        terminal: bool = False,  # Its streams are a terminal: all that appears there is its stderr.
    ) -> None:
        self.folder, self.work, self.mark = folder, folder / "here", uuid.uuid4().hex
        self.happened = folder / "happened"  # exists once a fault was met
        self._out, self._err = folder / "stdout", folder / "stderr"
        self.work.mkdir(parents=True)
        (self.work / "theirs.py").write_text(dedent(source).lstrip("\n"))
        variables: dict[str, str | None] = {**plain_environment(), "SCALESCOPE_STORE": str(folder / "kept.db")}
        variables |= {
            "XDG_STATE_HOME": str(folder / "state"),
            MARK: self.mark,
            **self._injected(faults),
            **(environment or {}),
        }
        self._terminal, theirs = os.openpty() if terminal else (-1, -1)
        with self._out.open("wb") as out, self._err.open("wb") as err:
            streams: dict[str, Any] = {"preexec_fn": lambda: os.login_tty(theirs)}
            if not terminal:
                streams = {"stdin": subprocess.DEVNULL, "stdout": err if merged else out, "stderr": err}
                streams["start_new_session"] = True
            self.process = subprocess.Popen(
                [*launcher, *start, "theirs.py", *arguments],
                cwd=self.work,
                env={name: value for name, value in variables.items() if value is not None},
                **streams,
            )
        if terminal:
            os.close(theirs)
            self._reader = threading.Thread(target=self._read)
            self._reader.start()

    def _injected(self, faults: Sequence[Fault]) -> dict[str, str]:
        if not faults:
            return {}
        injected = self.folder / "injected"
        injected.mkdir()
        (injected / "sitecustomize.py").write_text(INJECTOR)
        given = json.dumps([asdict(each) for each in faults])
        return {"PYTHONPATH": str(injected), "FAULTS": given, "FAULTS_SEEN": str(self.happened)}

    def _read(self) -> None:
        with self._err.open("ab", buffering=0) as stream, contextlib.suppress(OSError):  # when nobody has it open
            while data := os.read(self._terminal, 65536):
                stream.write(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for each in self.processes():
            with contextlib.suppress(psutil.Error):
                each.kill()
        self.process.wait()
        if self._terminal >= 0:
            self._reader.join()
            os.close(self._terminal)

    def processes(self) -> list[psutil.Process]:
        """Those of the run that have not ended."""
        found = []
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if each.status() != psutil.STATUS_ZOMBIE and each.environ().get(MARK) == self.mark:
                    found.append(each)
        return found

    def said(self) -> str:
        return (self._out.read_bytes() + self._err.read_bytes()).decode(errors="replace")

    def until(self, what: Callable[[], bool]) -> None:
        until = time.monotonic() + LIMIT_S
        while not what():
            assert time.monotonic() < until, self.said()
            time.sleep(0.01)

    def until_said(self, word: str) -> None:
        self.until(lambda: word in self.said() or self.process.poll() is not None)
        assert word in self.said(), f"It ended before that.\n{self.said()}"
        time.sleep(GRACE_S)

    def until_happened(self) -> None:
        self.until(self.happened.exists)
        time.sleep(GRACE_S)

    def send(self, number: int, to: str) -> None:
        """`to`: `starter`, `script`, `group`, or `terminal` for Ctrl-C there."""
        if to == "terminal":
            os.write(self._terminal, b"\x03")
        elif to == "group":
            os.killpg(self.process.pid, number)
        else:
            os.kill(self._script() if to == "script" else self.process.pid, number)

    def _script(self) -> int:
        children = psutil.Process(self.process.pid).children()
        found = [each.pid for each in children if each.cmdline()[1:2] == ["theirs.py"]]
        return found[0] if found else self.process.pid

    def ended(self) -> Ended:
        try:
            status = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"It did not end.\n{self.said()}")
        until = time.monotonic() + GONE_WITHIN_S
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.1)
        return self.seen(status, left)

    def seen(self, status: int, left: Sequence[psutil.Process] = ()) -> Ended:
        here = str(self.work)
        stdout, stderr = (told(each.read_bytes()).replace(here, "here") for each in (self._out, self._err))
        return Ended(status, stdout, stderr, files_of(self.work), [str(each) for each in left])


def by(start: Sequence[str], source: str, folder: Path, **options: Any) -> Ended:
    with Started(start, source, folder, **options) as started:
        return started.ended()


@functools.cache
def by_python(source: str, *arguments: str, merged: bool = False) -> Ended:
    with tempfile.TemporaryDirectory() as folder:
        return by(PYTHON, source, Path(folder), arguments=arguments, merged=merged)


def judged(source: str, folder: Path, *, saves: bool = True, **options: Any) -> tuple[Ended, dict[str, Any]]:
    """How a script ended, and the verdict on it as data."""
    seen = by((*RUN, "--json", *([] if saves else ["--no-save"])), source, folder, **options)
    assert seen.stdout, seen.stderr
    return seen, json.loads(seen.stdout)


def judged_later(started: Started) -> dict[str, Any]:
    """The verdict on a script whose judging process was killed."""
    variables = {**os.environ, "XDG_STATE_HOME": str(started.folder / "state")}
    command = [*RUN, "--no-save", "--json", "--last-record"]
    done = subprocess.run(command, env=variables, cwd=started.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def records(folder: Path) -> list[Path]:
    """Remaining folders of records."""
    return sorted((folder / "state" / "scalescope" / "scripts").iterdir())


def tasks(shown: Mapping[str, Any]) -> list[int]:
    """Tasks recorded of each cluster of which that can be told."""
    return [each["points"][0]["tasks"] for each in shown["clusters"] if each["points"]]


def assert_same(expected: Ended, seen: Ended, *, with_json: bool = False, exactly: bool = True) -> None:
    """`exactly`: plain Python says the same each time; else an exception is the same, or there is none.

    At a second Ctrl-C, it depends on the moment which process prints which last.
    """
    assert seen.status == expected.status, seen.stderr
    assert with_json or seen.stdout == expected.stdout, seen.stderr
    assert seen.files == expected.files
    assert len(seen.left) <= len(expected.left), seen.left
    if not exactly:
        shown = exceptions(seen), exceptions(expected)
        assert shown[0] & shown[1] or shown == (set(), set()), seen.stderr
        assert not re.search(r"/scalescope/(own_code|capture)/", seen.stderr), seen.stderr
        return
    theirs, ours = seen.stderr[: len(expected.stderr)], seen.stderr[len(expected.stderr) :]
    assert theirs == expected.stderr, seen.stderr
    assert "Traceback" not in ours, ours
    assert "Exception ignored" not in ours, ours


def exceptions(ended: Ended) -> set[str]:
    """The types of the exceptions that ended tracebacks, of the program and of its workers."""
    parts = ended.stderr.split("Traceback (most")[1:]
    return {found[1] for part in parts if (found := re.search(r"^([A-Za-z][\w.]*)(?::.*)?\r?$", part, re.MULTILINE))}


def last_exception(ended: Ended) -> str:
    """The type of the exception; empty if no traceback was printed."""
    found = re.findall(r"^([A-Za-z][\w.]*)(?::.*)?\r?$", ended.stderr.rpartition("Traceback (most")[2], re.MULTILINE)
    return str(found[0]) if "Traceback (most" in ended.stderr and found else ""


# ------------------------------------------------------------------ scripts

BEGIN = """
import logging

logging.disable()  # What is logged while a cluster closes depends on what has been released by then.

import sys
import time

"""
DASK = """
from distributed import Client, LocalCluster

FEW = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": ":0"}
FEW["scheduler_kwargs"] = {"dashboard": False}


def double(number):
    time.sleep(0.05)
    return 2 * number

"""
END = """
open("made.txt", "w").write("made")
print("said", file=sys.stderr)
sys.exit(47)  # a status that Scalescope never uses
"""
ONE = (
    BEGIN
    + DASK
    + """
with LocalCluster(**FEW) as cluster, Client(cluster) as client:
    print(sum(client.gather(client.map(double, range(8)))))
    time.sleep(2.3 if "long" in sys.argv else 0)  # Records are fetched every two seconds.
"""
    + END
)
CLUSTERS = 4  # created by the next script, which reaches all hooks
ALL = (
    BEGIN
    + """
import asyncio

import dask.bag

print(dask.bag.from_sequence(range(4), npartitions=2).sum().compute(scheduler="sync"))
"""
    + DASK
    + """
with LocalCluster(**FEW) as cluster, Client(cluster) as client:
    print(sum(client.gather(client.map(double, range(8)))), client.submit(len, bytes(2_000_000)).result())
    time.sleep(2.3)


async def main():
    async with LocalCluster(**FEW, asynchronous=True) as cluster, Client(cluster, asynchronous=True) as client:
        print(sum(await client.gather(client.map(double, range(8)))))


asyncio.run(main())
client = Client(**FEW)
print(client.submit(double, 4).result())
client.shutdown()
client = Client(**FEW)
print(client.submit(double, 5).result())
"""
    + END
)

# ------------------------------------------------------------------ no room for records


@pytest.fixture(scope="session")
def own_mounts() -> None:
    """Skip the test unless a command can have its own mounts."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no file system can be mounted here")


FILL = 'head -c 100000 /dev/zero > "$0/ballast" 2> /dev/null || true'
FILLS = (
    BEGIN
    + DASK
    + """
import contextlib
import os

ballast = os.path.join(sys.argv[1], "ballast")
with LocalCluster(**FEW) as cluster, Client(cluster) as client:
    print(sum(client.gather(client.map(double, range(8)))))
    time.sleep(2.3)  # Records are fetched every two seconds.
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as stream:
        while True:
            stream.write(bytes(512))
    time.sleep(2.3)
    print(sum(client.gather(client.map(double, range(8)))))
    if "again" in sys.argv:
        os.remove(ballast)
    print(sum(client.gather(client.map(double, range(8)))))
"""
    + END
)


@pytest.mark.usefixtures("own_mounts")
@pytest.mark.parametrize(
    ("source", "before", "more"),
    [
        pytest.param(ONE, FILL, (), id="from-the-beginning", marks=VARIANT),
        pytest.param(FILLS, "true", (), id="in-the-middle"),
        pytest.param(FILLS, "true", ("again",), id="for-a-while", marks=VARIANT),
    ],
)
def test_a_script_continues_if_the_disk_has_no_room_for_records(
    source: str, before: str, more: tuple[str, ...], folder: Path
) -> None:
    def on_a_small_disk(*start: str) -> Ended:
        scripts = folder / str(len(start)) / "state" / "scalescope" / "scripts"
        scripts.mkdir(parents=True)
        mount = f'mount -t tmpfs -o size=64k tmpfs "$0" && {{ {before}; }} && exec "$@"'
        launcher = ("unshare", "-m", "sh", "-c", mount, str(scripts))
        arguments = (str(scripts), *more)
        merged = start == PYTHON
        return by(start, source, folder / str(len(start)), launcher=launcher, arguments=arguments, merged=merged)

    seen = on_a_small_disk(*RUN, "--json")
    assert_same(on_a_small_disk(*PYTHON), seen, with_json=True)
    shown = json.loads(seen.stdout)
    assert shown["problems"] or "No space left" in json.dumps(shown["clusters"]), shown


# ------------------------------------------------------------------ no place for results

# The host knows no user: systemd would know root all the same.
NO_USERS = (
    *("unshare", "-m", "sh", "-c"),
    "for each in passwd nsswitch.conf; do ! [ -e /etc/$each ] || mount --bind /dev/null /etc/$each || exit; done;"
    ' exec "$@"',
    "sh",
)


@pytest.fixture
def silent() -> Iterator[str]:
    """Address of a PostgreSQL that accepts connections and does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"postgresql://somebody:secret@127.0.0.1:{server.getsockname()[1]}/kept"


@pytest.mark.parametrize(
    "why",
    [
        "its folder is a file",
        pytest.param("nobody answers", marks=VARIANT),
        pytest.param("there is no such store", marks=VARIANT),
    ],
)
def test_a_verdict_that_cannot_be_stored_is_still_shown(why: str, folder: Path, silent: str) -> None:
    addresses = {"its folder is a file": f"{__file__}/kept.db", "nobody answers": silent}
    environment = {"SCALESCOPE_STORE": addresses.get(why, "unknown://here")}
    seen, shown = judged(ONE, folder, environment=environment)
    assert_same(by_python(ONE, merged=True), seen, with_json=True)
    assert tasks(shown) == [8]
    assert (shown["runs"], len(shown["problems"])) == ([], 1)


@VARIANT
def test_the_verdict_is_shown_before_the_store_answers(folder: Path, silent: str) -> None:
    expected = by_python(ONE)
    with Started(RUN, ONE, folder, environment={"SCALESCOPE_STORE": silent}) as started:
        started.until(lambda: "efficiency" in started.said())
        assert started.process.poll() is None
        assert_same(expected, started.ended())


@pytest.mark.thorough
@pytest.mark.usefixtures("own_mounts")
@pytest.mark.parametrize("home", [None, pytest.param("/dev/null/home", marks=VARIANT)])
def test_the_verdict_is_shown_without_a_home_folder(home: str | None, folder: Path) -> None:
    names = ("SCALESCOPE_STORE", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
    environment = {**dict.fromkeys(names), "HOME": home, "TMPDIR": str(folder)}
    seen, shown = judged(ONE, folder / "ours", environment=environment, launcher=NO_USERS)
    expected = by(PYTHON, ONE, folder / "plain", environment=environment, launcher=NO_USERS, merged=True)
    assert_same(expected, seen, with_json=True)
    assert tasks(shown) == [8]
    assert (shown["runs"], len(shown["problems"])) == ([], 1)
    assert not list(folder.glob("scalescope-script-*"))


# ------------------------------------------------------------------ a recorder that fails


def functions(module: ModuleType) -> list[Fault]:
    """All functions that are written in a module."""
    owners = {"": module, **{f"{each.__name__}.": each for each in vars(module).values() if inspect.isclass(each)}}
    return [
        Fault(module.__name__, f"{prefix}{name}")
        for prefix, owner in owners.items()
        for name, each in vars(owner).items()
        if inspect.isfunction(each) and each.__code__.co_filename == module.__file__
    ]


def of(module: str, *names: str, does: str = "raises") -> list[Fault]:
    return [Fault(f"scalescope.{module}", name, does) for name in names]


AFTER_FAILURES = ("Guest._failed", "Guest._stopped", "Guest._say")  # called only after another failure
NOT_CALLED = ("Guest._hangs", "_interrupted_again")  # not called unless a task hangs or the judge is interrupted
RAISING = [
    *(each for each in functions(guest) if each.name not in (*AFTER_FAILURES, *NOT_CALLED)),
    *functions(block),
    *of("capture.recording", "Capture.__init__", "Capture.trial", "Capture.close", "_Run.begin", "_Run.end"),
    *of("capture.recording", "_Run._keep_draining", "_Run._drain", "_Run._remote"),
    *of("capture.client_thread", "ClientWatch.__init__", "ClientWatch.__enter__", "ClientWatch.__exit__"),
    *of("capture.client_thread", "ClientWatch._sample", "ClientWatch._place", "ClientWatch.taken"),
    *of("own_code.hang_watch", "HangWatch.__init__", "HangWatch.__enter__", "HangWatch.__exit__", "HangWatch._watch"),
    *of("capture.partition_calls", "Noting.__init__", "Noting.add", "Noting._made", "Notes.add", "Notes.facts"),
    *of("capture.large_parts", "large_part_hooks", "largest_part"),
    *of("capture.user_code", "line_of_user"),
    *of("own_code.record", "say", "Recorded.write"),
    *of("capture.instrument", "instrumented", "Instrumented.put"),
]
MISSING = [
    Fault(f"scalescope.{module}", does="is missing")
    for module in ("own_code.guest", "own_code.block", "capture.instrument", "capture.recording", "capture.large_parts")
]
WITHOUT_SOURCE = [
    Fault("distributed.client", f"Client.{name}", "has no source")
    for name in ("__init__", "_start", "close", "_close", "_send_to_scheduler", "_graph_to_futures")
]
# Shown by every run of the tests with the shorter script; all of them by `make test-all`
SHOWN = ("Guest._client_made", "ClientWatch._sample", "Client.close")


def fault_parameters() -> list[object]:
    """Faults, the script, and how many clusters it makes."""
    faults = [*RAISING, *MISSING, *WITHOUT_SOURCE]
    names = [f"{each.module.removeprefix('scalescope.')}-{each.name}".rstrip("-") for each in faults]
    short = [
        pytest.param(each, ONE, 1, id=f"shortly-{name}")
        for each, name in zip(faults, names, strict=True)
        if each.name in SHOWN
    ]
    each_of_all = zip(faults, names, strict=True)
    return [*short, *(pytest.param(each, ALL, CLUSTERS, id=name, marks=VARIANT) for each, name in each_of_all)]


@pytest.mark.parametrize(("fault", "source", "clusters"), fault_parameters())
def test_a_script_is_not_affected_by_a_failing_recorder(fault: Fault, source: str, clusters: int, folder: Path) -> None:
    shown = assert_unnoticed([fault], source, folder)
    assert shown["problems"] or len(shown["clusters"]) == clusters, shown


@VARIANT
@pytest.mark.parametrize("name", [name for name in AFTER_FAILURES if hasattr(guest.Guest, name.partition(".")[2])])
def test_a_script_is_not_affected_if_the_recorder_cannot_report_its_failure(name: str, folder: Path) -> None:
    assert_unnoticed(of("own_code.guest", "Guest._client_made", "Guest._cluster_closes", name), ALL, folder)


def assert_unnoticed(faults: Sequence[Fault], source: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """Run a script with faults, assert that it ends as without, and return the verdict as data."""
    seen, shown = judged(source, folder, faults=faults, arguments=arguments, saves=False)
    assert_same(by_python(source, *arguments, merged=True), seen, with_json=True)
    assert (folder / "happened").exists(), "Nothing called that."
    return shown


@pytest.mark.parametrize("last", ["client.shutdown()", pytest.param("client.submit(double, 1)", marks=VARIANT)])
def test_a_client_garbage_collected_on_the_event_loop_does_not_block(last: str, folder: Path) -> None:
    source = f"""{BEGIN}
import gc
{DASK}
gc.disable()
client = Client(**FEW)
client.itself = client
{last}
del client
cluster = LocalCluster(**FEW)


def collect():
    if len(cluster.scheduler.clients) > 2:  # Another client than that of the script is there, in the midst of its work.
        gc.collect()
        again.stop()


async def begin():
    global again
    from tornado.ioloop import PeriodicCallback

    again = PeriodicCallback(collect, 5)
    again.start()


cluster.sync(begin)
with Client(cluster) as client:
    print(sum(client.gather(client.map(double, range(8)))))
{END}"""
    assert_same(by_python(source), by((*RUN, "--no-save"), source, folder))


# ------------------------------------------------------------------ what judges

JUDGE = Fault("scalescope.own_code.diagnosis", "Diagnosis.judge", "waits", "judge")
LASTS = (
    BEGIN
    + DASK
    + """
with LocalCluster(**FEW) as cluster, Client(cluster) as client:
    print(sum(client.gather(client.map(double, range(8)))))
    time.sleep(2.5)  # Records are fetched every two seconds.
    print("ready", flush=True)
    time.sleep(1)
"""
    + END
)


def test_a_script_ends_when_its_starter_is_killed_and_is_judged_later(folder: Path) -> None:
    def killed(*start: str) -> Started:
        with Started(start, LASTS, folder / str(len(start))) as started:
            started.until_said("ready")
            started.send(signal.SIGKILL, "starter")
            started.until(lambda: not started.processes())
        return started

    started = killed(*RUN)
    assert_same(killed(*PYTHON).ended(), started.ended())
    assert tasks(judged_later(started)) == [8]
    assert not records(started.folder)


@VARIANT
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_script_whose_judging_process_was_killed_is_judged_later(number: signal.Signals, folder: Path) -> None:
    expected = by_python(ONE)
    with Started(RUN, ONE, folder, faults=[JUDGE]) as started:
        started.until_happened()
        started.send(number, "starter")
        started.process.wait(LIMIT_S)
        assert_same(expected, started.seen(expected.status))
        assert tasks(judged_later(started)) == [8]
    assert not records(folder)


@pytest.mark.thorough
@pytest.mark.parametrize("times", [1, pytest.param(2, marks=VARIANT)])
def test_interrupting_the_judging_process_keeps_the_exit_status_of_the_script(times: int, folder: Path) -> None:
    with Started(RUN, ONE, folder, faults=[JUDGE]) as started:
        started.until_happened()
        for _ in range(times):
            started.send(signal.SIGINT, "starter")
            time.sleep(0.1)
        assert_same(by_python(ONE), started.ended())
        assert tasks(judged_later(started)) == [8]


JUDGING = [
    *of("own_code.script", "Judge.prepare", "Judge._prepare", "Judge._load", "Judge.__call__", "Judge._judge"),
    *of("own_code.script", "_largest", "ending", "_listen", "_tell"),
    *of("own_code.record", "clusters", "events", "Recorded.read"),
    *of("own_code.diagnosis", "Diagnosis.__init__", "Diagnosis.judge", "Diagnosis.save", "Diagnosis.to_json"),
    *of("own_code.diagnosis", "", does="is missing"),
    *of("cli.commands.run", "_answer", "_saved"),
]


@VARIANT
@pytest.mark.parametrize("fault", [pytest.param(each, id=f"{each.module}-{each.name}") for each in JUDGING])
def test_a_script_is_not_affected_by_a_failing_judge(fault: Fault, folder: Path) -> None:
    with Started((*RUN, "--json"), ONE, folder, faults=[replace(fault, where="judge")], arguments=("long",)) as started:
        seen = started.ended()
    assert started.happened.exists(), "Nothing called that."
    assert_same(by_python(ONE, "long", merged=True), seen, with_json=True)
    assert "error" in seen.stderr.lower() or json.loads(seen.stdout)["problems"] or tasks(json.loads(seen.stdout))


@VARIANT
def test_a_signal_while_the_script_ends_keeps_its_exit_status(folder: Path) -> None:
    fault = Fault("scalescope.own_code.process", "_Witness.end", "waits", "judge", 1.0)
    with Started(RUN, ONE, folder, faults=[fault]) as started:
        started.until_happened()
        for number in (signal.SIGINT, signal.SIGUSR1):
            started.send(number, "starter")
        assert_same(by_python(ONE), started.ended())


BREAKS = (
    BEGIN
    + DASK
    + """
import pathlib
import shutil

for number in (1, 2):
    with LocalCluster(**FEW) as cluster, Client(cluster) as client:
        print(sum(client.gather(client.map(double, range(8)))))
for folder in pathlib.Path(sys.argv[1]).glob("state/scalescope/scripts/*"):
    for number in range(3, int(sys.argv[4]) + 1):
        shutil.copytree(folder / "2", folder / str(number))
    with open(folder / sys.argv[2], sys.argv[3]) as stream:
        stream.write('{"bro\\nken')
time.sleep(1)  # the judge reads the script's events meanwhile
"""
    + END
)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "mode", "clusters", "found"),
    [
        pytest.param("1/cluster.json", "w", 2, 1, id="what-is-known-of-a-cluster"),
        pytest.param("1/tasks.spool", "w", 2, 1, id="tasks", marks=VARIANT),
        pytest.param("1/client.spool", "w", 2, 1, id="thread-of-the-client", marks=VARIANT),
        pytest.param("1/cluster.json", "w", 12, 9, id="what-is-known-of-one-of-many-clusters", marks=VARIANT),
        pytest.param("events.jsonl", "a", 2, 2, id="what-the-script-said", marks=VARIANT),
        pytest.param("run.json", "w", 2, 2, id="what-was-run", marks=VARIANT),
    ],
)
def test_other_clusters_are_judged_although_one_record_is_broken(
    file: str, mode: str, clusters: int, found: int, folder: Path
) -> None:
    arguments = (file, mode, str(clusters))
    with Started((*RUN, "--json"), BREAKS, folder, arguments=(str(folder), *arguments)) as started:
        seen = started.ended()
        assert_same(by_python(BREAKS, "nowhere", *arguments, merged=True), seen, with_json=True)
        shown = json.loads(seen.stdout)
        assert tasks(shown) == [8] * found
        if file == "1/cluster.json":
            assert shown["problems"], shown
            (left,) = records(folder)
            assert str(left) in "".join(judged_later(started)["problems"])
        else:
            assert [each["trials"]["invalid"] for each in shown["clusters"]] == [file.endswith(".spool"), 0]


# ------------------------------------------------------------------ signals

STAGES = ("before-imports", "imported", "making", "tasks", "closed")
SIGNALLED = (
    BEGIN
    + """
def double(number):
    time.sleep(0.1)
    return 2 * number


def reached(stage):
    if stage == sys.argv[1]:
        print("ready", flush=True)
        time.sleep(30)


def main():
    reached("before-imports")
    from distributed import Client, LocalCluster

    reached("imported")
    preload = ["waits.py"] if sys.argv[1] == "making" else []
    cluster = LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0", preload=preload)
    client = Client(cluster)
    futures = client.map(double, range(1000 if sys.argv[1] == "tasks" else 8))
    if sys.argv[1] == "tasks":
        futures[0].result()
        print("ready", flush=True)
    client.gather(futures)
    client.close()
    reached("closed")


if __name__ == "__main__":
    with open("waits.py", "w") as stream:
        stream.write("import time\\ndef dask_setup(worker):\\n    print('ready', flush=True)\\n    time.sleep(30)\\n")
    try:
        main()
    except KeyboardInterrupt:
        print("cleans up", flush=True)
        time.sleep(1.5)
        print("cleaned up", flush=True)
        sys.exit(6)
"""
)
SENT = (
    ("SIGKILL", "script", 1),
    ("SIGTERM", "starter", 1),
    ("SIGTERM", "script", 1),
    ("SIGTERM", "group", 1),
    ("SIGINT", "starter", 1),
    ("SIGINT", "starter", 2),
    ("SIGINT", "script", 1),
    ("SIGINT", "group", 1),
    ("SIGINT", "group", 2),
    ("SIGINT", "terminal", 1),
    ("SIGINT", "terminal", 2),
)
# Shown by every run of the tests, the others by `make test-all`
SHOWN_SIGNALS = (
    ("SIGTERM", "starter", 1, "before-imports"),
    ("SIGINT", "terminal", 2, "tasks"),
    ("SIGKILL", "script", 1, "making"),
)


def signal_parameters() -> list[object]:
    return [
        pytest.param(*each, id="-".join(map(str, each)), marks=[] if each in SHOWN_SIGNALS else VARIANT)
        for each in ((*sent, stage) for sent in SENT for stage in STAGES)
    ]


@pytest.mark.parametrize(("name", "to", "times", "stage"), signal_parameters())
def test_a_signal_ends_a_script_as_under_python(name: str, to: str, times: int, stage: str, folder: Path) -> None:
    number, on_terminal = signal.Signals[name], to == "terminal"
    expected = signalled_python(number, "script" if to == "starter" else to, times, stage)
    seen = signalled((*RUN, "--no-save"), number, to, times, stage, folder)
    assert_same(expected, seen, exactly=not on_terminal and stage not in ("making", "tasks"))


@functools.cache
def signalled_python(number: signal.Signals, to: str, times: int, stage: str) -> Ended:
    with tempfile.TemporaryDirectory() as folder:
        return signalled(PYTHON, number, to, times, stage, Path(folder))


def signalled(
    start: Sequence[str], number: signal.Signals, to: str, times: int, stage: str, folder: Path, after_s: float = 0.0
) -> Ended:
    with Started(start, SIGNALLED, folder, arguments=[stage], terminal=to == "terminal") as started:
        started.until_said("ready")
        time.sleep(after_s)
        started.send(number, to)
        for _ in range(times - 1):
            started.until_said("cleans up")
            started.send(number, to)
        return started.ended()


@pytest.mark.parametrize(("name", "to"), [("SIGKILL", "script"), pytest.param("SIGTERM", "starter", marks=VARIANT)])
def test_a_killed_script_is_judged_by_its_recorded_tasks(name: str, to: str, folder: Path) -> None:
    number = signal.Signals[name]
    seen = signalled((*RUN, "--json", "--no-save"), number, to, 1, "tasks", folder, RECORDED_S)
    assert seen.status == -number
    assert not seen.left
    shown = json.loads(seen.stdout)
    assert (shown["status"], shown["problems"]) == (128 + number, [])
    (cluster,) = shown["clusters"]
    assert cluster["trials"]["failed"] == 1
    assert tasks(shown)[0] > 20
    assert name in json.dumps(cluster["verdict"])


@VARIANT
@pytest.mark.parametrize("place", ["Capture.__init__", "_Run.end"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_a_script_while_recording_begins_or_ends(name: str, place: str, folder: Path) -> None:
    number = signal.Signals[name]
    fault = Fault("scalescope.capture.recording", place, "waits")
    with Started((*RUN, "--no-save"), ONE, folder, faults=[fault]) as started:
        started.until_happened()
        started.send(number, "starter")
        seen = started.ended()
    assert seen.status == -number
    assert last_exception(seen) == ("KeyboardInterrupt" if number is signal.SIGINT else "")
    assert not seen.left
