"""Runs a process that gets the same signals as this process, and ends when this process is killed.

The process shares our terminal and process group. A signal to the group, such as Ctrl-C, reaches it directly; a signal
to this process alone is passed on. A witness tells the two apart: another process of the group, which only notes the
signals that it gets.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from scalescope.errors import UsageError

LOOK_S = 0.5  # seconds between two calls of `look`
WITNESS_S = 0.2  # seconds within which a signal to the group reaches the witness
# Signals that a program may get from people and batch systems
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    stdout: int | None,
    look: Callable[[], object] = lambda: None,
    cwd: str | None = None,
) -> int:
    """Run a command to its end; returns its status in the form of `subprocess`. `look` is called every `LOOK_S`."""
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    if sys.stdout:
        sys.stdout.flush()
    die_with_us = dying()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [*heard, signal.SIGCHLD])

    def prepare() -> None:
        die_with_us()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    witness = None
    try:
        witness = _Witness(heard, die_with_us)
        try:
            process = subprocess.Popen(command, env=environ, cwd=cwd, stdout=stdout, preexec_fn=prepare)
        except OSError as error:
            raise UsageError("the script's Python cannot be started", where=command[0], cause=str(error)) from error
        while process.poll() is None:
            number = _signal([*heard, signal.SIGCHLD])
            if number and number != signal.SIGCHLD and not witness.has_got(number):
                process.send_signal(number)
            look()
        look()
    finally:
        if witness is not None:
            witness.end()
        _forget(heard)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process.returncode


def end_by(number: int) -> None:
    """End this process by a signal; returns only if the signal ends no process."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _signal(waited: Collection[int]) -> int:
    """Wait up to `LOOK_S` for one of these blocked signals; 0 if none comes."""
    if hasattr(signal, "sigtimedwait"):
        received = signal.sigtimedwait(waited, LOOK_S)
        return received.si_signo if received else 0
    until = time.monotonic() + LOOK_S  # macOS has no `sigtimedwait`
    while time.monotonic() < until:
        if pending := signal.sigpending() & set(waited):
            return signal.sigwait(pending)
        time.sleep(0.02)
    return 0


def _forget(numbers: Collection[int]) -> None:
    """Discard those of these signals that are pending: they were meant for the process that has ended."""
    while pending := signal.sigpending() & set(numbers):
        signal.sigwait(pending)


class _Witness:
    """A process of the same group that notes which signals it gets; create it while these signals are blocked."""

    def __init__(self, heard: Sequence[int], prepare: Callable[[], None]) -> None:
        self._noted, notes = os.pipe()
        self._last: dict[int, float] = {}  # when the witness last got a signal, by its number
        self.pid = os.fork()
        if self.pid == 0:
            try:
                prepare()
                while True:
                    os.write(notes, bytes([signal.sigwait(heard)]))
            finally:
                os._exit(0)
        os.close(notes)

    def has_got(self, number: int) -> bool:
        """Whether the witness also got the signal that this process has just got."""
        until = time.monotonic() + WITNESS_S
        while True:
            left = until - time.monotonic()
            if time.monotonic() - self._last.get(number, -WITNESS_S) < WITNESS_S:
                return True
            if left <= 0 or not select.select([self._noted], [], [], left)[0]:
                return False
            told = os.read(self._noted, 64)
            if not told:
                return False
            self._last.update(dict.fromkeys(told, time.monotonic()))

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._noted)


def dying() -> Callable[[], None]:
    """Make a function that asks the kernel to kill the calling process when this process ends."""
    if sys.platform != "linux":
        return lambda: None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
