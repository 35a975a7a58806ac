"""Runs Slurm's commands, and waits for a controller that does not answer; `jobs` reads the answers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from scalescope import waiting
from scalescope.driver_folders import FOLDER
from scalescope.errors import ClusterError, ScalescopeError

# Runs a command with a text on its standard input; the caller judges the exit status.
Run = Callable[[Sequence[str], str], "subprocess.CompletedProcess[str]"]

LOOK_S = 0.5  # seconds between two looks at what a command has said so far
COMMAND_TIMEOUT_S = 20.0  # seconds; Slurm's own tools give up on their controller after 10

# Variables of the user that begin like this change what the commands show.
_FILTERS = ("SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SCONTROL_")

_SILENT = re.compile(
    r"unable to contact|timed out|connect failure|communication connection|temporarily|no answer|standby mode|"
    r"munge encode failed",
    re.IGNORECASE,
)

_SLEEPS = "sleeping and retrying"  # words of sbatch while the queue is full; it retries for two minutes

T = TypeVar("T")


class CommandSilent(ClusterError):
    """A command of Slurm, or its controller, gave no answer in time; it may answer in a minute."""

    ends_run = True
    said = ""  # what the command has written to standard error until it was ended


def commands(
    more: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    timeout_s: float = COMMAND_TIMEOUT_S,
) -> Run:
    def run(command: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        variables = dict(environ) if environ is not None else _environment(more or {})
        if shutil.which(command[0], path=variables.get("PATH", os.defpath)) is None:
            raise ClusterError(
                f"{command[0]} is not installed here",
                where="PATH of this process",
                cause="Slurm's commands exist on the login and compute nodes of a Slurm cluster only",
                next_step="run this on such a node, or load the module that provides them (`module load slurm`)",
                category="slurm-missing",
            )
        with subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            text=True,
            errors="replace",
        ) as process:
            try:
                return _finished(process, command, stdin, timeout_s)
            finally:
                process.kill()

    return run


def _finished(
    process: subprocess.Popen[str], command: Sequence[str], stdin: str, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Wait for a command; raises `CommandSilent` after `timeout_s`, or once it says that it sleeps and retries."""
    deadline, given = time.monotonic() + timeout_s, stdin or None
    while True:
        try:
            out, err = process.communicate(given, timeout=max(min(LOOK_S, deadline - time.monotonic()), 0))
            return subprocess.CompletedProcess(command, process.returncode, out, err)
        except subprocess.TimeoutExpired as error:
            given = None  # the input has been sent
            written = error.stderr or b""  # bytes on Linux, even if the output is text
            said = plain(written.decode(errors="replace") if isinstance(written, bytes) else written)
            if time.monotonic() > deadline or _SLEEPS in said:
                away = silent(command, f"no answer within {timeout_s:g} s")
                away.said = said
                raise away from error


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = os.environ.keys() - {FOLDER}  # sbatch passes the environment to jobs, which are not this driver's processes
    variables = {name: os.environ[name] for name in kept if not name.startswith(_FILTERS)}
    return {**variables, **more, "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C.UTF-8"}


def silent(command: Sequence[str], cause: str) -> CommandSilent:
    step = "`scontrol ping` shows whether the Slurm controller is up; running jobs go on without it"
    if "munge" in cause.lower():
        step = "munged does not run on this host: an administrator starts it (`systemctl status munge`)"
    return CommandSilent(
        f"Slurm does not answer: `{command[0]}` failed",
        cause=cause,
        next_step=step,
        category="slurm-silent",
    )


def is_silent(error_text: str) -> bool:
    return _SILENT.search(error_text) is not None


def answer(run: Run, *command: str) -> str:
    """The standard output of a command; raises `CommandSilent` if it fails."""
    done = run(command, "")
    if done.returncode:
        raise silent(command, plain(done.stderr) or f"exit status {done.returncode}")
    return done.stdout


def plain(text: str) -> str:
    """Standard error without the command's name in front of every line."""
    lines = (re.sub(r"^\w+: (error: |fatal: )?", "", line.strip()) for line in text.splitlines())
    return "; ".join(line for line in lines if line)


def patiently(ask: Callable[[], T], *, says: Callable[[str], object], stopped: threading.Event) -> T:
    """Call `ask` until Slurm answers (`scalescope.waiting.patiently`)."""

    def away(error: ScalescopeError) -> bool:
        """Whether Slurm is silent; otherwise it has said what is wrong, such as a line of slurm.conf."""
        return isinstance(error, CommandSilent) and is_silent(error.cause)

    return waiting.patiently(ask, who="Slurm's controller", is_silent=away, says=says, stopped=stopped)
