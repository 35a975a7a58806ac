"""Runs uv, with the user's settings of uv for indexes, proxies and offline use."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence

from scalescope.errors import EnvironmentFailed, EnvironmentUnavailable
from scalescope.model.extras import install_command
from scalescope.redaction import passed_on

TIMEOUT_S = 1800.0  # seconds; a source distribution may compile for minutes

_SHOWN_LINES = 15
_SECRET = re.compile(r"(?<=://)[^/\s]*@")
_HINTS = {  # for errors that are not due to the requirements: a text in uv's error -> advice
    "No space left on device": "make room, or set SCALESCOPE_ENVIRONMENTS and UV_CACHE_DIR to other folders",
    "authentication credentials": "give uv the credentials of the package index",
    "network was disabled": "unset UV_OFFLINE, or build the environment once with a network",
    "connectivity is disabled": "unset UV_OFFLINE, or build the environment once with a network",
    "Failed to fetch": "check the network, the proxy and uv's index settings, then repeat",
    "error sending request": "check the network, the proxy and uv's index settings, then repeat",
    "Failed to download": "check the network, the proxy and uv's index settings, then repeat",
    "Permission denied": "make that path writable, or set SCALESCOPE_ENVIRONMENTS and UV_CACHE_DIR to other folders",
}


def run(
    arguments: Sequence[str],
    *,
    what: str,
    next_step: str = "change the requirements as uv's message suggests",
    text: str = "",
    keep: Sequence[int] = (),
) -> str:
    """Run uv; return its standard output.

    Args:
        arguments: Arguments of uv.
        what: First words of errors, such as "environment dask==2024.8.0 cannot be resolved".
        next_step: Advice in the error if uv cannot meet the request.
        text: Standard input of uv.
        keep: File descriptors of locks; uv and its children inherit them, and keep the locks until all have ended.
    """
    command = [executable(), *arguments, "--no-progress", "--color", "never"]
    try:
        done = subprocess.run(
            command,
            input=text.encode(),
            capture_output=True,
            timeout=TIMEOUT_S,
            pass_fds=keep,
            # Pass few variables, as source distributions run their own code. Compile now, not in the first trial.
            env={"UV_COMPILE_BYTECODE": "1", **passed_on()},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentUnavailable(
            what, cause=f"uv did not end within {TIMEOUT_S:.0f} s", next_step="run uv by hand to see why"
        ) from error
    except OSError as error:
        raise EnvironmentUnavailable(what, cause=f"uv cannot be run: {error}") from error
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "replace")
    raise _error(done.returncode, done.stderr.decode("utf-8", "replace"), what, next_step)


def executable() -> str:
    """Path of uv: the one installed with this package, else the first on PATH."""
    try:
        import uv
    except ModuleNotFoundError:
        found = shutil.which("uv")
    else:
        try:
            found = uv.find_uv_bin()
        except FileNotFoundError:
            found = shutil.which("uv")
    if not found:
        raise EnvironmentUnavailable(
            "there is no uv to build environments with", next_step=install_command("environments")
        )
    return found


def _error(status: int, stderr: str, what: str, next_step: str) -> EnvironmentFailed | EnvironmentUnavailable:
    reason = shorten(redact(stderr))
    hint = next((hint for sign, hint in _HINTS.items() if sign in stderr), "")
    if status < 0:
        reason, hint = f"uv was killed by signal {-status}\n{reason}".strip(), "run the same command again"
    if hint:
        return EnvironmentUnavailable(what, cause=reason, next_step=hint)
    return EnvironmentFailed(what, cause=reason, next_step=next_step)


def redact(text: str) -> str:
    """The text, with users and passwords removed from addresses."""
    return _SECRET.sub("***@", text)


def shorten(text: str) -> str:
    """The last non-empty lines of uv's output, which tell the reason of an error."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    cut = ["..."] if len(lines) > _SHOWN_LINES else []
    return "\n    ".join(cut + lines[-_SHOWN_LINES:]) or "uv gives no reason"
