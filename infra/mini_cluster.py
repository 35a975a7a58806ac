"""What the small clusters share: above all a keeper, which starts their parts and ends them when its owner dies."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)
# For versions 1 and 2 of control groups; without it, all parts of a busy host together get the share of one process.
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
    """Give the processes of a control group many times the share of others."""
    for name, most in SHARES.items():
        if (group / name).exists():
            (group / name).write_text(most)


def end_with_parent() -> None:
    """Have the kernel kill this process, a child that is about to become a program, when its parent ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


class Keeper:
    """A process that answers each line on its standard input with a line, and ends everything when that closes."""

    def __init__(self, script: str, *arguments: object, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(script), *map(str, arguments)],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the owner alone
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
        """Have the keeper end everything; returns when nothing is left."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait()


class MiniCluster(ABC):
    """A cluster of this process, and a context manager: it ends with the block, or when this process dies."""

    folder: Path  # for its logs, and until the end its data
    keeper: Keeper | None = None  # while it runs

    @abstractmethod
    def start(self) -> Self: ...

    def close(self) -> None:
        """End all of it, with all processes of jobs and pods; logs stay."""
        keeper, self.keeper = self.keeper, None
        if keeper is not None:
            keeper.close()

    def ask(self, order: str) -> str:
        """Have the keeper do something; returns its answer."""
        if self.keeper is None:
            raise MiniClusterError("the cluster is not running")
        if not (answer := self.keeper.ask(order)):
            raise MiniClusterError(f"the keeper died; see {self.folder}/log")
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
