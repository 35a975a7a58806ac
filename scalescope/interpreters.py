"""Asks a Python interpreter for its packages, and says why it cannot run trials."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import scalescope
from scalescope.errors import EnvironmentFailed
from scalescope.model import OLDEST_DISTRIBUTED
from scalescope.model.environment import OLDEST_PYTHON

_TIMEOUT_S = 120.0
_HOST = Path(scalescope.__file__).parent / "capture" / "host.py"

# Uses the same code as drivers for packages and digest. An old interpreter must at least be able to print its version.
_LOOK = """
import sys
del sys.path[0]
import json
found = {"version": "%d.%d.%d" % sys.version_info[:3]}
if sys.version_info[:2] >= tuple(json.loads(sys.argv[2])):
    import runpy
    host = runpy.run_path(sys.argv[1])
    found["packages"] = host["packages"]()
    found["digest"] = host["packages_digest"](found["packages"])
    if sys.argv[3:]:
        try:
            import distributed
        except BaseException as error:
            found["error"] = "%s: %s" % (type(error).__name__, error)
sys.stdout.write("\\n" + json.dumps(found))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that a driver can run on."""

    python: str  # path of the interpreter
    version: str  # version of Python, such as 3.11.7
    packages: dict[str, str]  # version of every distribution installed, by normalised name
    digest: str  # digest of `packages`, as trials record it
    error: str = ""  # error of `import distributed`; empty if it worked or was not tried


def look(python: str, *, importing: bool = False) -> Interpreter:
    """Run the interpreter at this path; `EnvironmentFailed` if it is too old or no Python.

    `importing` also tries to import distributed, which takes a second.
    """
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
    command = [python, "-c", _LOOK, str(_HOST), json.dumps(OLDEST_PYTHON), *(["import"] if importing else [])]
    folder = os.path.isdir(python)
    path = f"its interpreter: {os.path.join(python, 'bin', 'python')}" if folder else "the path of a Python interpreter"
    try:
        done = subprocess.run(command, capture_output=True, env=environ, timeout=_TIMEOUT_S, check=False)
        found = json.loads(done.stdout.strip().rpartition(b"\n")[2]) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise _failed(python, f"it does not answer like Python: {error}", f"give {path}") from error
    if not isinstance(found, dict):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-3:]
        cause = "\n    ".join([f"it ended with exit status {done.returncode}", *said])
        raise _failed(python, cause, f"give {path}, such as {sys.executable}")
    if "packages" not in found:
        raise _failed(python, f"it is Python {found['version']}", f"use Python {_text(OLDEST_PYTHON)} or newer")
    return Interpreter(python, found["version"], found["packages"], found["digest"], found.get("error", ""))


def refuse_old(python: str, release: str) -> None:
    """Raise `EnvironmentFailed` if this release of distributed is too old."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    if numbers < OLDEST_DISTRIBUTED:
        oldest = _text(OLDEST_DISTRIBUTED)
        raise _failed(python, f"it has distributed {release}", f"install distributed {oldest} or newer in it")


def refuse_without_distributed(found: Interpreter) -> None:
    if "distributed" not in found.packages:
        raise _failed(found.python, "distributed is not installed in it", f"{found.python} -m pip install distributed")


def explain(python: str) -> None:
    """Raise `EnvironmentFailed` if the interpreter is the reason why a driver did not start."""
    found = look(python, importing=True)
    refuse_without_distributed(found)
    release = found.packages["distributed"]
    refuse_old(python, release)
    if found.error:
        next_step = f"fix that environment until `{python} -c 'import distributed'` works"
        raise _failed(python, f"importing distributed {release} fails: {found.error}", next_step)


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _failed(python: str, cause: str, next_step: str) -> EnvironmentFailed:
    return EnvironmentFailed("this environment cannot run trials", where=python, cause=cause, next_step=next_step)
