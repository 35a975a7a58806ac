"""Runs a script in a copy of its folder, and notes the results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from scalescope.errors import UsageError
from scalescope.fixing.copies import Copy, digest
from scalescope.own_code.process import dying
from scalescope.own_code.script import records

GUARD = "SCALESCOPE_GUARD"  # environment variable that the startup of the guarded script reads
MAIN = f"{GUARD}_MAIN"  # the startup sets it to the id of the process whose client is watched
STARTUP = Path(__file__).parent / "startup"
LOOK_S, MEMORY_S = 0.02, 0.2  # seconds between two looks at the process, and at the memory of its tree
MOST_TEXT = 20_000_000  # most bytes of each output that are compared; the rest is left out


class SideEffect(UsageError):
    """A script reached beyond its copy: it wrote files elsewhere, or connected to another machine."""


@dataclass(frozen=True)
class Outcome:
    """The results of one run of a script."""

    status: int  # exit status in the form of `subprocess`
    seconds: float
    peak_bytes: int  # largest resident memory of all its processes together
    lines: tuple[str, ...]  # lines of standard output, with `.` for the path of the copy
    of_tasks: tuple[str, ...]  # lines that worker processes printed, sorted
    error: str  # last line of standard error; empty if the status is 0
    copy: Copy
    written: Mapping[str, Path] = field(default_factory=dict)  # files that it wrote, by relative path
    digests: Mapping[str, str] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()  # files that it removed
    values: Mapping[str, int] = field(default_factory=dict)  # how often the client got a value, by its text
    metas: Mapping[str, Sequence[str]] = field(default_factory=dict)  # `meta=` of each call, by the function's name


@dataclass(frozen=True)
class Guarded:
    """How a script runs in a copy: what it may reach, and where its output goes."""

    folder: Path  # temporary folder of all runs, with their copies
    copy: Copy
    allowed: bool  # True if the script may write elsewhere and connect to other machines

    def environ(self) -> dict[str, str]:
        """Environment variables of the script's process."""
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        told = {
            "events": str(self.file("events")),
            "stdout": str(self.file("out")),
            "tasks": str(self.file("tasks")),
            "values": str(self.file("values")),
            "roots": [] if self.allowed else _roots(self.folder),
            "hosts": [] if self.allowed else _hosts(),
        }
        path = os.pathsep.join([str(STARTUP), *filter(None, [os.environ.get("PYTHONPATH")])])
        ours = {GUARD: json.dumps(told), "PYTHONPATH": path, "TMPDIR": str(temporary)}
        if "PREFECT_API_URL" not in os.environ:  # the flows of all runs share one Prefect home
            ours["PREFECT_HOME"] = str(temporary / "prefect")
            ours["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"] = "120"  # the first run makes the database
        return {**os.environ, **ours}

    def file(self, what: str) -> Path:
        return self.copy.folder.with_name(f"{self.copy.folder.name}.{what}")

    def check(self) -> None:
        """Raise `SideEffect` if something was refused."""
        with suppress(FileNotFoundError):
            lines = self.file("events").read_text(encoding="ascii").splitlines()
            for event in map(json.loads, lines[:1]):
                beyond = "another machine" if event["what"] == "connects" else "a file outside of its folder"
                raise SideEffect(
                    f"The script was stopped before it reached beyond its folder ({beyond})",
                    where=event["where"],
                    next_step="if the script may safely run several times, add --allow-side-effects",
                    category=event["what"],
                )

    def outcome(self, status: int, seconds: float, peak_bytes: int) -> Outcome:
        written, error = self.copy.written(), ""
        noted = json.loads(self._text("values") or "{}")
        if status:
            last = self._text("err").strip().splitlines()[-1:]
            error = last[0] if last else ""
        return Outcome(
            status,
            seconds,
            peak_bytes,
            tuple(self._text("out").splitlines()),
            tuple(sorted(self._text("tasks").splitlines())),
            error,
            self.copy,
            written,
            {name: digest(path) for name, path in written.items()},
            frozenset(self.copy.gone()),
            noted.get("values", {}),
            noted.get("metas", {}),
        )

    def _text(self, what: str) -> str:
        file = self.file(what)
        text = file.read_bytes()[:MOST_TEXT].decode(errors="replace") if file.exists() else ""
        return text.replace(str(self.copy.folder), ".")

    def remove(self) -> None:
        self.copy.remove()
        for what in ("events", "out", "tasks", "values", "err"):
            self.file(what).unlink(missing_ok=True)


def run(command: Sequence[str], guarded: Guarded, *, cwd: Path, limit_s: float) -> Outcome:
    """Run a command to its end, or for `limit_s` seconds; raises `SideEffect`."""
    with guarded.file("out").open("wb") as out, guarded.file("err").open("wb") as err:
        began = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=guarded.environ(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=dying(),
        )
        try:
            peak = _watched(process, guarded, began + limit_s)
            seconds = time.monotonic() - began
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    guarded.check()
    return guarded.outcome(process.returncode, seconds, peak)


def _watched(process: subprocess.Popen[bytes], guarded: Guarded, until: float) -> int:
    """Wait for the end of the process; returns the peak memory of its tree in bytes."""
    peak, looked = 0, 0.0
    events = guarded.file("events")
    while process.poll() is None:
        time.sleep(LOOK_S)
        now = time.monotonic()
        if now > until or (events.exists() and events.stat().st_size):  # an event is written in one step
            process.kill()
        if now - looked >= MEMORY_S:
            looked, peak = now, max(peak, _memory(process.pid))
    return peak


def _memory(pid: int) -> int:
    total = 0
    with suppress(psutil.Error):
        parent = psutil.Process(pid)
        for each in (parent, *parent.children(recursive=True)):
            with suppress(psutil.Error):
                total += each.memory_info().rss
    return total


def _roots(folder: Path) -> list[str]:
    """Where a script may write: its copies, devices, caches, Dask's configuration, and records of scripts."""
    home = os.path.expanduser("~")
    kept = [os.path.join(home, ".cache"), os.path.join(home, ".config", "dask"), str(records())]
    return [f"{os.path.realpath(each)}/" for each in (str(folder), *kept)] + ["/dev/", "/proc/"]


def _hosts() -> list[str]:
    """Addresses of this machine."""
    found = [each.address.partition("%")[0] for every in psutil.net_if_addrs().values() for each in every]
    return [*found, "localhost", "::1", "0.0.0.0", "::", ""]  # noqa: S104 - what a script may connect to
