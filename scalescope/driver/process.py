"""The parent's side of a driver: starts it, lets it run trials, and ends it even after an error."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self, TypeVar

import scalescope
from scalescope import driver_folders, errors, interpreters, leases
from scalescope.driver.channel import utc_now
from scalescope.driver.protocol import (
    RUNNING,
    Close,
    Closed,
    Failed,
    Message,
    Open,
    Opened,
    PhaseBegan,
    Ready,
    Reply,
    RunTrial,
    TrialDone,
    TrialResult,
    decode_reply,
    encode,
)
from scalescope.errors import DriverError, InfrastructureError, ScalescopeError
from scalescope.model import spool
from scalescope.model.cluster import ClusterSpec
from scalescope.model.sweep import PlannedTrial
from scalescope.model.trial import TrialState
from scalescope.owner import make_folder, opener
from scalescope.redaction import passed_on

_logger = logging.getLogger(__name__)

LOG = "driver.log"
CLOSE_TIMEOUT_S = 20.0
TERMINATE_TIMEOUT_S = 5.0  # seconds between SIGTERM and SIGKILL
SILENCE_MARGIN_S = 30.0  # seconds after a phase's limit from which a silent driver counts as stuck
_FIRST_WORD_S = 120.0
_TAIL_LINES, _TAIL_CHARACTERS = 20, 4_000
_POLL_S = 0.1
_DEATH_WAIT_S = 15.0  # seconds; longer than a driver takes to close its cluster and end

_HINTS = {
    signal.SIGKILL: "a user killed the driver, or the kernel did because memory ran out: see `dmesg`",
    signal.SIGSEGV: "a compiled extension crashed; the stack is in the log",
    signal.SIGABRT: "a compiled extension aborted; the stack is in the log",
    signal.SIGTERM: "another process ended it",
}

T = TypeVar("T", Ready, Opened, TrialDone)


@dataclass(frozen=True, kw_only=True)
class TrialOutcome(TrialResult):
    """Result of a trial, and the folder of its records."""

    state: TrialState
    spool: Path  # folder of its raw records (`records.spool` in the format of `scalescope.model.spool`)


class Driver:
    """A driver process with an open cluster. Make it with `start`; end it with `close`, or use it as a context manager.

    The process leads a session of its own, so Ctrl-C reaches only the parent, which closes the driver in order. The
    driver ends by itself when its parent does.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        folder: Path,
        log_start: int,  # size of the log, in bytes, before this driver was started
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        self.pid = process.pid  # id of the process, and of its process group
        self.log = folder / LOG  # file for the standard error of the driver and its workers
        self.facts: dict[str, Any] = {}  # facts of the cluster when it was opened
        self.host: dict[str, Any] = {}
        self.versions: dict[str, str] = {}  # versions of Python and of the packages in `server.VERSIONS`
        self.packages: dict[str, str] = {}  # every installed distribution and its version
        self._process = process
        self._folder = folder
        self._on_progress = on_progress
        self._log_start = log_start
        driver_folders.claim(folder, self)
        self._replies: queue.Queue[Reply | DriverError] = queue.Queue()
        self._turn = threading.Lock()
        self._reaping = threading.Lock()
        self._ending = False
        self._closed = False
        self._phase = ""
        self._shared = False  # True if tasks run in the process of the driver
        self._reader = threading.Thread(target=self._read, name=f"driver-{self.pid}-replies", daemon=True)
        self._reader.start()

    @classmethod
    def start(
        cls,
        spec: ClusterSpec,
        *,
        seed: int = 0,
        folder: Path,  # folder for the log and the raw records of trials; made if it does not exist
        run: str = "",  # id of the run
        python: str = sys.executable,  # interpreter of the environment to run in
        on_progress: Callable[[str], None] | None = None,  # called with a sentence when a phase begins
        start_timeout_s: float = 120,  # seconds to start the process, without the time to open the cluster
    ) -> Driver:
        """Start a driver and open a cluster in it; `InfrastructureError` if either fails."""
        folder = folder.resolve()
        make_folder(folder)
        driver_folders.sweep()
        log = folder / LOG
        log_start = log.stat().st_size if log.exists() else 0  # size before the driver writes to it
        process = _spawn(spec, folder, python, run)
        driver = cls(process, folder=folder, log_start=log_start, on_progress=on_progress)
        try:
            driver._greet(python, start_timeout_s)
            driver._open(spec, seed)
        except BaseException:
            driver.close(timeout_s=5)
            raise
        return driver

    @property
    def alive(self) -> bool:
        return not (self._ending or self._closed or self._exited())

    def run(self, planned: PlannedTrial, workload: str, *, timeout_s: float) -> TrialOutcome:
        """Run one trial, for at most `timeout_s` real seconds; if the driver dies meanwhile, the outcome is invalid.

        The driver replies before it clears up, so that the caller can store the outcome meanwhile.

        Raises:
            DriverError: The driver ended before the trial began.
            InfrastructureError: No further trial can get workers or be recorded (`ends_run`).
        """
        with self._turn:
            if not self.alive:
                raise DriverError(
                    "the driver cannot run another trial",
                    where=f"driver process {self.pid}",
                    cause="it was closed" if self._closed else "it has ended",
                    next_step="start a new driver for the remaining trials",
                )
            folder = _fresh(self._folder / "spool" / planned.key)
            began, started_at = time.monotonic(), utc_now()
            self._phase = ""
            try:
                return self._run(planned, workload, timeout_s, folder)
            except InfrastructureError as error:
                self._ending = True
                if error.ends_run:  # the driver is alive, so it can close its cluster
                    self.close()
                    raise
                self._end(grace_s=0)
                if not self._phase:  # the driver ended while clearing up after an earlier trial
                    raise
                return TrialOutcome(
                    state=TrialState.INVALID,
                    reason=str(error),
                    started_at=started_at,
                    real_s=time.monotonic() - began,
                    elapsed_s=None,
                    warnings=(),
                    facts={},
                    spool=folder,
                    error={"type": type(error).__name__, "message": str(error), "traceback": ""},
                )

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Ask the driver to close its cluster and end; after `timeout_s`, send SIGTERM, then SIGKILL. Thread-safe."""
        self._ending = True
        if not self._closed:
            assert self._process.stdin is not None
            with contextlib.suppress(OSError, ValueError):  # the driver may be gone, or the stream closed
                self._process.stdin.write(encode(Close()))
                self._process.stdin.close()
        self._end(grace_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ---------------------------------------------------------------- messages

    def _greet(self, python: str, timeout_s: float) -> None:
        try:
            ready = self._expect(Ready, timeout_s, timeout_s)
        except DriverError:
            if self._exited():
                interpreters.explain(python)
            raise
        if "distributed" in ready.versions:  # a distribution without metadata has no version
            interpreters.refuse_old(python, ready.versions["distributed"])
        self.host, self.packages = dict(ready.host), dict(ready.packages)
        self.versions = {"python": ready.python, **ready.versions}

    def _open(self, spec: ClusterSpec, seed: int) -> None:
        self._shared = not spec.real_time
        self._send(Open(spec.to_mapping(), str(self._folder), seed))
        limit_s = spec.open_limit_s + 2 * SILENCE_MARGIN_S  # later than the limits of cluster and driver
        self.facts = dict(self._expect(Opened, limit_s, limit_s).facts)

    def _run(self, planned: PlannedTrial, workload: str, timeout_s: float, folder: Path) -> TrialOutcome:
        point = planned.point.to_mapping()
        self._send(RunTrial(planned.key, point, planned.repeat, planned.warmup, workload, timeout_s, str(folder)))
        done = self._expect(TrialDone, _FIRST_WORD_S)
        if done.key != planned.key:
            raise DriverError(
                f"the driver answered for trial {done.key} instead of {planned.key}",
                where=f"driver process {self.pid}",
                next_step="report this as a defect of Scalescope",
            )
        self._ending = self._ending or done.ending
        answered = {each.name: getattr(done, each.name) for each in fields(TrialResult)}
        return TrialOutcome(**(answered | {"state": TrialState(done.state)}), spool=folder)

    def _send(self, message: Message) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(encode(message))
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise self._died() from error

    def _expect(self, wanted: type[T], first_word_s: float, total_s: float | None = None) -> T:
        """Wait for a reply of type `wanted`.

        Without `total_s`, the driver must send a message within `first_word_s`, then within the limit of each phase.
        With `total_s`, only that limit counts: the reply must come within so many seconds.
        """
        now = time.monotonic()
        deadline = now + first_word_s
        end = None if total_s is None else now + total_s
        while True:
            if end is not None and time.monotonic() > end:
                raise self._silent(wanted.__name__)
            reply = self._next(deadline if end is None else end, wanted.__name__)
            if isinstance(reply, wanted):
                return reply
            if isinstance(reply, PhaseBegan):
                deadline = time.monotonic() + reply.limit_s + SILENCE_MARGIN_S
                if reply.phase != "clearing":
                    self._phase = reply.phase
                if self._on_progress is not None:
                    self._on_progress(reply.text)
            elif isinstance(reply, Failed):
                raise error_of(reply)
            elif isinstance(reply, Closed):
                raise self._died(reply.reason)
            else:
                raise DriverError(
                    f"the driver said {reply.kind!r} without being asked", where=f"driver process {self.pid}"
                )

    def _next(self, deadline: float, wanted: str) -> Reply:
        while True:
            late, exited = time.monotonic() > deadline, self._exited()
            try:  # look for replies even when late: one may have come in time while this process was stopped
                reply = self._replies.get(timeout=0.5 if exited else _POLL_S)
            except queue.Empty:
                if exited:
                    raise self._died() from None
                if late:
                    raise self._silent(wanted) from None
                continue
            if isinstance(reply, DriverError):
                raise reply
            return reply

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                reply = decode_reply(line)
            except DriverError as error:
                self._replies.put(error)
                continue
            if isinstance(reply, Closed) and reply.left:
                _logger.warning("%s", reply.left)
            self._replies.put(reply)

    # ---------------------------------------------------------------- the process

    def _exited(self) -> bool:
        """Whether the process has ended. It stays a zombie, so that the number of its process group is not reused."""
        if self._process.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self._exited():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _end(self, *, grace_s: float) -> None:
        with self._reaping:
            if self._closed:
                return
            if not self._wait(grace_s):
                os.kill(self.pid, signal.SIGTERM)
                if not self._wait(TERMINATE_TIMEOUT_S):
                    _logger.warning("killing driver process %d; `scalescope reap` removes its jobs and pods", self.pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):  # no process of the group is left
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            self._closed = True
            self._reader.join(5)
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                with contextlib.suppress(BrokenPipeError):  # requests that were never read
                    stream.close()

    def _died(self, reason: str = "") -> DriverError:
        self._wait(_DEATH_WAIT_S)
        what, hint = self._manner()
        if self._shared and self._phase == RUNNING and what.startswith("ended"):
            return DriverError(
                f"a task ended the driver's process, which all tasks of a simulated cluster share; it {what}",
                where=f"driver process {self.pid}, log {self.log}",
                next_step="run the workload on a cluster whose workers are processes: `-c local`",
            )
        return DriverError(
            f"the driver {what}" + (f": {reason}" if reason else ""),
            where=f"driver process {self.pid}, log {self.log}",
            cause="; ".join(part for part in (hint, f"last lines of its log:\n{self._tail()}") if part),
            next_step="read the log, then start a new driver for the remaining trials",
        )

    def _manner(self) -> tuple[str, str]:
        code = self._process.returncode
        if code is None:
            status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if status is None:
                return "closed its streams, but still runs", ""
            code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        if code >= 0:
            return f"ended with exit status {code}", ""
        number = signal.Signals(-code)
        return f"was killed by {number.name}", _HINTS.get(number, "")

    def _silent(self, wanted: str) -> DriverError:
        return DriverError(
            f"the driver went silent: no message {wanted!r} in time",
            where=f"driver process {self.pid}, log {self.log}",
            cause="something holds the driver's interpreter lock, or the machine is overloaded; "
            f"last lines of its log:\n{self._tail()}",
            next_step="read the log; give the trial a longer timeout if the driver was only slow",
        )

    def _tail(self) -> str:
        with open(self.log, "rb") as log:
            log.seek(max(self._log_start, os.fstat(log.fileno()).st_size - _TAIL_CHARACTERS))
            text = log.read().decode("utf-8", "replace")
        lines = text.splitlines()[-_TAIL_LINES:]
        return "\n".join(f"    {line}" for line in lines) or "    (empty)"


def _spawn(spec: ClusterSpec, folder: Path, python: str, run: str) -> subprocess.Popen[bytes]:
    environ = {**passed_on(), leases.RUN: run, driver_folders.FOLDER: str(folder), "SCALESCOPE_CLUSTER": spec.kind}
    environ.pop("SCALESCOPE_CLOCK", None)
    if not spec.real_time:
        environ["SCALESCOPE_CLOCK"] = "virtual"
        environ["PYTHONHASHSEED"] = "0"  # a set has the same order in every run
    if os.path.abspath(python) != os.path.abspath(sys.executable):
        environ.pop("PYTHONHOME", None)
        paths = [str(importable(folder)), environ.get("PYTHONPATH", "")]
        environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    try:
        with open(folder / LOG, "ab", opener=opener) as log:
            return subprocess.Popen(
                [python, "-P", "-m", "scalescope.driver"],  # -P: `scalescope.driver` itself appends the working folder
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environ,
                start_new_session=True,
            )
    except OSError as error:
        raise DriverError(
            "the driver could not be started",
            where=f"interpreter {python}",
            cause=str(error),
            next_step="give the path of a Python interpreter of the environment to measure",
        ) from error


def importable(folder: Path) -> Path:
    """A folder with only this package in it, for PYTHONPATH: the folder of installed packages also has dask."""
    path = folder / "importable"
    make_folder(path)
    link = path / "scalescope"
    target = Path(scalescope.__file__).resolve().parent
    if not (link.is_symlink() and link.resolve() == target):
        link.unlink(missing_ok=True)
        link.symlink_to(target, target_is_directory=True)
    return path


def _fresh(path: Path) -> Path:
    """Make a folder with this name, or, if it exists, with the first free number appended; return its path."""
    for attempt in range(1, 1000):
        candidate = path if attempt == 1 else path.with_name(f"{path.name}-{attempt}")
        try:
            candidate.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise spool.unwritable(candidate, error) from error
        return candidate
    raise DriverError("too many attempts at one trial", where=str(path), next_step="clear the folder")


def error_of(failed: Failed) -> ScalescopeError:
    kind = getattr(errors, failed.type, None)
    if not (isinstance(kind, type) and issubclass(kind, ScalescopeError)):  # a type that this process does not know
        kind = DriverError
    elif issubclass(kind, errors.InvalidField):  # the text already has the field's name and value
        kind = errors.UsageError
    error = kind(failed.what, where=failed.where, cause=failed.cause, next_step=failed.next_step)
    if isinstance(error, InfrastructureError):
        error.ends_run = failed.ends_run
    return error
