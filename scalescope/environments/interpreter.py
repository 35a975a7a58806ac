"""What an interpreter is and has, as it says itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import scalescope
from scalescope.errors import EnvironmentFailed
from scalescope.model.environment import OLDEST_PYTHON

_TIMEOUT_S = 120.0
_HOST = Path(scalescope.__file__).parent / "capture" / "host.py"

# The list and its digest come from the very code that a driver there records them with. Old interpreters get as far as
# saying which version they are.
_LOOK = """
import json, sys
del sys.path[0]
found = {"version": "%d.%d.%d" % sys.version_info[:3]}
if sys.version_info[:2] >= tuple(json.loads(sys.argv[2])):
    import runpy
    host = runpy.run_path(sys.argv[1])
    found["packages"] = host["packages"]()
    found["digest"] = host["packages_digest"](found["packages"])
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that a driver can run on."""

    python: str  # its path
    version: str  # of Python, such as 3.11.7
    packages: dict[str, str]  # version of every distribution installed, by normalised name
    digest: str  # of `packages`, as trials record it


def look(python: str) -> Interpreter:
    """Run an interpreter once and have it say what it has.

    Raises:
        EnvironmentFailed: It is none that a driver can run on.
    """
    what = f"{python} is no interpreter to run trials with"
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
    command = [python, "-c", _LOOK, str(_HOST), json.dumps(OLDEST_PYTHON)]
    try:
        done = subprocess.run(command, capture_output=True, env=environ, timeout=_TIMEOUT_S, check=False)
        found = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailed(what, cause=str(error), next_step=_next_step(python)) from error
    if not isinstance(found, dict):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-3:]
        cause = "\n    ".join([f"it ended with exit status {done.returncode}", *said])
        raise EnvironmentFailed(what, cause=cause, next_step=_next_step(python))
    if "packages" not in found:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise EnvironmentFailed(what, cause=f"it is Python {found['version']}", next_step=f"have Python {oldest}")
    return Interpreter(python, found["version"], found["packages"], found["digest"])


def _next_step(path: str) -> str:
    if os.path.isdir(path):
        return f"give its interpreter: {os.path.join(path, 'bin', 'python')}"
    return f"give the path of an interpreter, such as {sys.executable}"
