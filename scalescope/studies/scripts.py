"""Runs a generated stand-alone script as a test before it is given to the user."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from scalescope.redaction import passed_on


def run_alone(
    text: str, timeout_s: float, *, options: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python source in a separate process, in an empty folder and without standard input.

    After `timeout_s`, its process group is killed and `subprocess.TimeoutExpired` raised. `options` are Python's own.
    """
    with tempfile.TemporaryDirectory(prefix="scalescope-script-") as folder:
        path = Path(folder) / "script.py"
        path.write_text(text, encoding="utf-8")
        with subprocess.Popen(
            [sys.executable, *options, str(path)],
            cwd=folder,
            env=environ or passed_on(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, errors = process.communicate(timeout=timeout_s)
            except BaseException:  # the process has its own session, which Ctrl-C does not reach
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)
