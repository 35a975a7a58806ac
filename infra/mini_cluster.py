"""What small clusters share, above all a keeper process, which starts their programs and ends them with its owner.

The owner's side is `MiniCluster` with its `Keeper`; the keeper's own process calls `obey`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)
# CPU shares for cgroup versions 1 and 2; by default, all programs of a cluster together get one process's share.
SHARES = {"cpu.shares": "16384", "cpu.weight": "1600"}


class MiniClusterError(RuntimeError):
    """A small cluster cannot be made, or does not answer."""


def sh(*command: object) -> str:
    """Run a command; returns its standard output."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise MiniClusterError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def come_first(group: Path) -> None:
    """Give the processes of a control group a much larger share of CPU than others."""
    for name, most in SHARES.items():
        if (group / name).exists():
            (group / name).write_text(most)


def end_with_parent() -> None:
    """Make the kernel kill this process when its parent ends; call in a child before it becomes a program."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def poll(done: Callable[[], bool], limit_s: float) -> bool:
    """Wait until `done()` is true, at most `limit_s` seconds; return whether it is."""
    deadline = time.monotonic() + limit_s
    while not (found := done()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def spawn(command: Sequence[str], log: Path, **options: Any) -> subprocess.Popen[Any]:
    """Start a program that writes to the end of `log`, and ends with this process."""
    with open(log, "ab") as file:
        output = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
        return subprocess.Popen(command, preexec_fn=end_with_parent, **{**output, **options})


def obey(act: Callable[[str], object], deaf: Sequence[int] = (signal.SIGTERM, signal.SIGHUP)) -> None:
    """In a keeper: answer each line of standard input with the result of `act`, until the owner closes it or dies."""
    for number in deaf:
        signal.signal(number, signal.SIG_IGN)  # only the closing of the pipe ends the keeper
    with contextlib.suppress(BrokenPipeError):
        for line in sys.stdin:
            print(act(line.strip()), flush=True)


class Keeper:
    """A process that answers each line of standard input with a line, and ends everything when the input closes."""

    def __init__(self, script: str, *arguments: object, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(script), *map(str, arguments)],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C must reach only the owner
        )

    def answer(self) -> str:
        """The next line of the keeper; empty if it has died."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, order: str) -> str:
        """Send an order, and return the answer; empty if the keeper has died."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{order}\n")
            self.process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        """Make the keeper end everything; return when nothing is left."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # the keeper died before it read all
                    pipe.close()
        self.process.wait()


class MiniCluster(ABC):
    """A cluster that belongs to this process, and a context manager: it ends with the block, or with this process."""

    folder: Path  # folder of logs and, while the cluster runs, of its data
    environment: dict[str, str]  # variables by which commands find the cluster
    search_path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", "/usr/local/sbin"])
    keeper: Keeper | None = None  # None unless the cluster runs

    @abstractmethod
    def unmet(self) -> str:
        """Why the cluster cannot be started here; empty if it can."""

    @abstractmethod
    def _start(self) -> None: ...

    def start(self) -> Self:
        """Start all parts, and wait until the cluster takes work."""
        if reason := self.unmet():
            raise MiniClusterError(reason)
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def run(self, *command: str, check: bool = True, stdin: str = "", limit_s: float = 60, **variables: str) -> str:
        """Run a command with this cluster's environment; return its standard output."""
        done = subprocess.run(
            self._prepared(command),
            env={**os.environ, "PATH": self.search_path, **self.environment, **variables},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
        if check and done.returncode:
            told = done.stderr.strip() or done.stdout.strip()
            raise MiniClusterError(f"{' '.join(command)} exited with {done.returncode}: {told}")
        return done.stdout.strip()

    def _prepared(self, command: Sequence[str]) -> Sequence[str]:
        return command

    def close(self) -> None:
        """End the cluster with all processes of jobs and pods; logs stay."""
        keeper, self.keeper = self.keeper, None
        if keeper is not None:
            keeper.close()

    def ask(self, order: str) -> str:
        """Send an order to the keeper; return its answer."""
        if self.keeper is None:
            raise MiniClusterError("the cluster is not running")
        if not (answer := self.keeper.ask(order)):
            raise MiniClusterError(f"the keeper process, which runs the cluster, died; see {self.folder}/log")
        return answer

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()


def serve(cluster: MiniCluster, environment: dict[str, str], programs: str) -> None:
    """Run a cluster until Ctrl-C or SIGTERM, and say how another terminal finds it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with cluster:
            for name, value in environment.items():
                print(f"export {name}={value}", flush=True)
            print(f"Enter this in another terminal, and use {programs} there. Ctrl-C ends all.", flush=True)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        return
    except MiniClusterError as error:
        sys.exit(str(error))
