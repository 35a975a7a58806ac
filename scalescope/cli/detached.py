"""Commands that go on in the background, for callers that wait for minutes at most."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Annotated, NoReturn

import typer

from scalescope.cli.output import print_json
from scalescope.errors import ExitStatus
from scalescope.owner import make_folder, user_folder

KEPT = 50  # newest answers that are kept; older ones are removed

# Runs a command and writes its output to a file, which appears only when the command has ended.
_PROGRAM = """\
import os, subprocess, sys
answer, *command = sys.argv[1:]
with open(answer + ".part", "w") as stream:
    status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=stream).returncode
print("exit status", status, file=sys.stderr)
os.replace(answer + ".part", answer)
"""

Detach = Annotated[
    bool, typer.Option("--detach", help="Run in the background; print where the answer and the progress are written.")
]


def detach(*, as_json: bool) -> NoReturn:
    """Start this very command again in the background, and end."""
    folder = user_folder("XDG_STATE_HOME", ".local", "state") / "answers"
    make_folder(folder)
    for old in sorted(folder.glob("*.log"))[: -KEPT + 1]:
        for each in (old, old.with_suffix(".out")):
            each.unlink(missing_ok=True)
    answer = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.out"
    command = list(sys.orig_argv)
    command.remove("--detach")  # the first is ours: a script's arguments come after it
    with os.fdopen(os.open(answer.with_suffix(".log"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as progress:
        started = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(answer), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=progress,
            start_new_session=True,
            umask=0o077,
        )
    told = {"answer": str(answer), "progress": str(answer.with_suffix(".log")), "pid": started.pid}
    if as_json:
        print_json(told)
    else:
        print(f"Runs as process {started.pid}. The answer will be in {answer}, progress is in {told['progress']}.")
    raise typer.Exit(ExitStatus.OK)
