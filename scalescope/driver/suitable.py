"""Whether an interpreter can run a driver, and if not, why: what is asked once one has not started."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any

from scalescope.errors import EnvironmentFailed
from scalescope.model.environment import OLDEST_PYTHON

OLDEST_DISTRIBUTED = (2023, 5)
"""The oldest release whose inner parts are those that capture and clusters rely on."""

_TIMEOUT_S = 60.0

# Old interpreters, too, must get as far as saying which version they are.
_LOOK = """
import json, sys
del sys.path[0]
found = {"python": "%d.%d.%d" % sys.version_info[:3]}
if sys.version_info[:2] >= tuple(json.loads(sys.argv[1])):
    from importlib import metadata
    try:
        found["distributed"] = metadata.version("distributed")
        import distributed
    except metadata.PackageNotFoundError:
        pass
    except BaseException as error:
        found["error"] = "%s: %s" % (type(error).__name__, error)
sys.stdout.write("\\n" + json.dumps(found))
"""


def refuse_old(python: str, release: str) -> None:
    """Refuse a release of distributed that is too old.

    Args:
        python: Interpreter that has it.
        release: Its version.

    Raises:
        EnvironmentFailed: It is.
    """
    numbers = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    if numbers < OLDEST_DISTRIBUTED:
        oldest = ".".join(map(str, OLDEST_DISTRIBUTED))
        raise _failed(python, f"it has distributed {release}", f"have distributed {oldest} or newer in it")


def explain(python: str) -> None:
    """Say why a driver did not start on an interpreter, if that is the interpreter's fault.

    Args:
        python: Its path.

    Raises:
        EnvironmentFailed: It is no Python, too old, or cannot import a release of distributed that is new enough.
    """
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
    command = [python, "-c", _LOOK, json.dumps(OLDEST_PYTHON)]
    try:
        done = subprocess.run(command, capture_output=True, env=environ, timeout=_TIMEOUT_S, check=False)
        found: dict[str, Any] = json.loads(done.stdout.strip().rpartition(b"\n")[2])
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise _failed(python, "it does not answer as Python does", "give the path of a Python interpreter") from error
    if "distributed" not in found:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        if tuple(map(int, found["python"].split(".")[:2])) < OLDEST_PYTHON:
            raise _failed(python, f"it is Python {found['python']}", f"have Python {oldest} or newer")
        raise _failed(python, "it has no distributed", "install distributed in its environment")
    refuse_old(python, found["distributed"])
    if "error" in found:
        next_step = f"mend that environment until `{python} -c 'import distributed'` works"
        raise _failed(python, f"importing distributed {found['distributed']} fails: {found['error']}", next_step)


def _failed(python: str, cause: str, next_step: str) -> EnvironmentFailed:
    return EnvironmentFailed("this environment cannot run trials", where=python, cause=cause, next_step=next_step)
