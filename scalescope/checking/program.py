"""Checks a script, or a function or collection of a module, in a process with the user's Python."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalescope.checking.checked import Checked
from scalescope.errors import ExitStatus, UsageError
from scalescope.model.recorded_graph import RecordedGraph
from scalescope.redaction import passed_on

RESULT, GRAPH = "checked.json", "graph.json"


def check_program(
    target: str,
    arguments: Sequence[str] = (),
    *,
    python: str = sys.executable,
    shape: tuple[int, int, float] = (0, 0, 0.0),  # workers, and threads and bytes of each worker; 0: as in the script
    stdout: int | None = None,
) -> Checked:
    """Check `script.py`, `file.py:name` or `module:name`; raises `UsageError` if nothing is sent to Dask."""
    from scalescope.checking.check import with_memory
    from scalescope.driver.process import importable

    if not target.endswith(".py") and ":" not in target:
        raise UsageError(
            "neither a script nor a name in a module", where=target, next_step="give SCRIPT.py, or FILE.py:NAME"
        )
    if target.endswith(".py") and not os.path.exists(target):
        raise UsageError("there is no such script", where=target)
    with tempfile.TemporaryDirectory(prefix="scalescope-check-") as folder:
        environ = passed_on()
        if os.path.realpath(python) != os.path.realpath(sys.executable):
            paths = [str(importable(Path(folder))), environ.get("PYTHONPATH", "")]
            environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        asked = json.dumps({"folder": folder, "target": target, "arguments": list(arguments), "shape": shape})
        command = [python, "-c", f"from {__name__} import main; main()", asked]
        status = subprocess.run(command, env=environ, stdout=stdout, check=False).returncode
        result = Path(folder, RESULT)
        if not result.exists():
            raise UsageError(
                "the check did not finish" if status else "the code sent nothing to Dask",
                where=target,
                cause=f"the process ended with status {status}; its output is above" if status else "",
                next_step="" if status else "name what builds the collection: MODULE:FUNCTION",
            )
        data = json.loads(result.read_text())
        if "refused" in data:
            raise UsageError(**data["refused"])
        checked = Checked.from_mapping(data["checked"])
        workers, threads, memory = data["shape"]
        graph = RecordedGraph.read(str(Path(folder, GRAPH))) if Path(folder, GRAPH).exists() else None
        return with_memory(checked, graph, workers, threads, memory)


# ------------------------------------------------------------------ in the user's Python


def main() -> None:
    """Run the program named in `sys.argv[1]` (JSON) until it needs a value, and write the result to files."""
    asked = json.loads(sys.argv[1])
    target, folder = asked["target"], Path(asked["folder"])
    sys.argv[:] = [target, *asked["arguments"]]
    is_script = target.endswith(".py")
    file = target.partition(":")[0]
    sys.path[0] = os.path.dirname(os.path.abspath(file)) if file.endswith(".py") else os.getcwd()
    from scalescope.checking import interception
    from scalescope.checking.check import collections_in, examined

    seen, given = interception.Seen(), []
    try:
        with interception.intercepted(seen, _modules(target)):
            try:
                if is_script:
                    runpy.run_path(target, run_name="__main__")
                else:
                    given = collections_in(_named(target))
            except interception.NeedsValue:
                pass
            except SystemExit as end:
                if end.code and not seen.graphs:
                    raise
            workers, threads, memory = asked["shape"]
            shape = (workers or seen.workers or _cores(), threads or seen.threads, memory or seen.memory)
            is_asked = bool(workers or seen.workers)
            if not (given or seen.graphs):
                return
            checked, graph = examined(given, seen, target, shape[0] * shape[1] if is_asked else None)
    except UsageError as error:
        refused = {"what": error.what, "where": error.where, "cause": error.cause, "next_step": error.next_step}
        (folder / RESULT).write_text(json.dumps({"refused": refused}))
        return
    if graph is not None:
        (folder / GRAPH).write_text(graph.to_json())
    (folder / RESULT).write_text(json.dumps({"checked": checked.to_mapping(), "shape": shape}))
    sys.stdout.flush()
    os._exit(ExitStatus.OK)  # skip exit handlers, which would close clients and clusters that were never started


def _named(target: str) -> Any:
    file, _, name = target.partition(":")
    module = Path(file).stem if file.endswith(".py") else file
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise UsageError("there is no such file or module here", where=file) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{file} has no {name}", where=target)
        found = getattr(found, part)
    from dask.base import is_dask_collection

    return found() if callable(found) and not is_dask_collection(found) else found


def _modules(target: str) -> list[str]:
    """Dask modules named in a program's source; they must be imported, and patched, before the program runs."""
    try:
        file = target.partition(":")[0]
        path = file if file.endswith(".py") else importlib.util.find_spec(file).origin  # type: ignore[union-attr]
        text = Path(str(path)).read_text(encoding="utf-8", errors="replace")
    except (AttributeError, ImportError, OSError, ValueError):
        return []
    words = {"dask.array": ("array",), "dask.bag": ("bag", "beam"), "dask.dataframe": ("dataframe",)}
    found = [name for name, known in words.items() if any(word in text for word in known)]
    return [*found, *(["apache_beam"] if "apache_beam" in text else [])]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
