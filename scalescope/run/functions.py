"""A Python function as a workload: by name where another process can import it, else by value."""

from __future__ import annotations

import base64
import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from scalescope.errors import StoreError, UsageError
from scalescope.model.words import size
from scalescope.owner import make_folder
from scalescope.report.files import replacing
from scalescope.store.location import data_folder

MOST_BYTES = 10_000_000  # a function that takes more bytes with its globals is refused; it can load the data itself
_FILE = '''"""A function that was sent from a notebook, for Scalescope's own processes."""

import base64
import pickle
import sys

if sys.version_info[:2] != {version}:
    raise ImportError("it was sent from Python {python}; no other release can read it")
{name} = pickle.loads(base64.b64decode({data}))
'''


def named(given: Mapping[str, Any]) -> dict[str, Any]:
    """Replace a function among the parameters of a run by the name of a workload.

    A function at the top of a module is imported from there. A function of a notebook or of the running script is
    pickled into a file, whose folder only this user can write, since the code runs as this user.
    """
    workload = given.get("workload")
    if not callable(workload):
        return dict(given)
    return {**given, "workload": _by_name(workload) or _by_value(workload)}


def _by_name(function: Callable[..., Any]) -> str:
    function = inspect.unwrap(function)
    name, module = getattr(function, "__name__", ""), sys.modules.get(getattr(function, "__module__", "") or "")
    if module is None or module.__name__ == "__main__" or getattr(module, name, None) is not function:
        return ""  # no name: importing the running script would run it again
    file = Path(inspect.getsourcefile(function) or "").resolve()
    if file.suffix != ".py" or not file.is_file():
        return ""
    depth = module.__name__.count(".")
    if depth and str(file.parents[depth]) in sys.path[1:]:  # the first entry is the folder of the script or notebook
        return f"{module.__name__}:{name}"
    return f"{file}:{name}"


def _by_value(function: Callable[..., Any]) -> str:
    import cloudpickle

    name = getattr(function, "__name__", "")
    name = name if name.isidentifier() else "run"
    try:
        with _whole(sys.modules.get(getattr(function, "__module__", "") or "")):
            data = cloudpickle.dumps(function)
    except Exception as error:  # the objects that the function refers to can raise anything
        raise UsageError(
            f"The function {name} cannot be sent to another process",
            cause=f"it refers to something that cannot be pickled: {type(error).__name__}: {error}",
            next_step="open clients, files and locks inside the function, or name the function as path.py:function",
        ) from error
    if len(data) > MOST_BYTES:
        raise UsageError(
            f"The function {name} cannot be sent to another process",
            cause=f"the function and the data that it refers to take {size(len(data))}",
            next_step="load the data within the function",
        )
    path = _private_folder() / f"{name}_{hashlib.sha256(data).hexdigest()[:12]}.py"
    version = tuple(sys.version_info[:2])
    python = ".".join(map(str, version))
    text = _FILE.format(version=version, python=python, name=name, data=repr(base64.b64encode(data)))
    with replacing(path, "function") as temporary:
        temporary.touch(mode=0o600)
        temporary.write_text(text, encoding="utf-8")
    return f"{path}:{name}"


def _private_folder() -> Path:
    folder = data_folder() / "functions"
    try:
        make_folder(folder)
        found = folder.stat()
    except OSError as error:
        raise StoreError(
            "Could not create the folder that keeps functions for other processes",
            where=str(folder),
            cause=str(error),
            next_step="give this user the right to create that folder and to write in it",
        ) from error
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise StoreError(
            "Other users can change functions that run under your name",
            where=str(folder),
            next_step=f"check that all files in it are yours, then: chmod 700 {folder}",
        )
    return folder


@contextmanager
def _whole(module: ModuleType | None) -> Iterator[None]:
    """Pickle the function's module by value as well: the other process may not find it."""
    import cloudpickle

    if module is None or module.__name__ == "__main__":
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
