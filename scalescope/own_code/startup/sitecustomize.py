"""Python imports this module before the script, since `scalescope run` puts its folder first in PYTHONPATH.

This module restores PYTHONPATH, and calls `scalescope.own_code.guest` when the script has imported `distributed` or
another module with hooks. It imports only modules that Python itself has already imported.
"""

import atexit
import os
import sys
from _frozen_importlib import module_from_spec
from _frozen_importlib_external import PathFinder

TYPE_CHECKING = False  # as in `typing`, which is not imported here
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

FOLDER, PATHS = "SCALESCOPE_SCRIPT", "SCALESCOPE_PYTHONPATH"  # environment variables, removed before the script runs
MODULES = ("distributed", "dask.threaded", "dask.bag", "dask.array", "dask.dataframe", "apache_beam")
HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(HERE))


def taken_back() -> "str | None":
    folder = os.environ.pop(FOLDER, None)
    os.environ.pop("PYTHONPATH", None)
    if (paths := os.environ.pop(PATHS, None)) is not None:
        os.environ["PYTHONPATH"] = paths
    sys.path[:] = [each for each in sys.path if each != HERE]
    sys.path_importer_cache.pop(HERE, None)
    return folder


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class Watcher:
    """Appends a call of the guest to watched modules, as one of their statements: tracebacks get no new frame."""

    def __init__(self, folder: str) -> None:
        self.folder, self.pid = folder, os.getpid()
        self.guest: Any = None
        self.waiting: list[str] = []  # imported modules that the guest does not know yet
        self.is_busy = False
        atexit.register(self.ended)

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name not in MODULES:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if hasattr(spec.loader, "get_code") and hasattr(spec.loader, "get_source"):
                    self.change(spec.loader)
                return spec
        return None

    def change(self, loader: "Any") -> None:
        get_code = loader.get_code
        loader.get_code = lambda name: self.calling(loader, name) or get_code(name)

    def calling(self, loader: "Any", name: str) -> "CodeType | None":
        """The code of a module, with a call of the guest at its end; None if that is impossible."""
        try:
            import ast

            tree = ast.parse(loader.get_source(name))
            call = ast.parse("'scalescope'.imported(__name__)").body[0]
            last = tree.body[-1]
            each: Any
            for each in ast.walk(call):
                if "lineno" in each._attributes:
                    each.lineno = each.end_lineno = last.end_lineno
                    each.col_offset = each.end_col_offset = 0
            tree.body.append(call)
            code: CodeType = compile(tree, loader.get_filename(name), "exec", dont_inherit=True)
            return code.replace(co_consts=tuple(self if each == "scalescope" else each for each in code.co_consts))
        except Exception as error:  # noqa: BLE001 - the script's own import goes on
            self.failed(error)
            return None

    def imported(self, name: str) -> None:
        self.waiting.append(name)
        if self.is_busy:  # the import of the guest has imported this module
            return
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        self.is_busy = True
        try:
            self.guest = self.guest or self.loaded()
            while self.waiting:
                self.guest.imported(sys.modules[self.waiting.pop(0)])
        except Exception as error:  # noqa: BLE001 - the script's own import goes on
            self.failed(error)
        finally:
            self.is_busy, sys.dont_write_bytecode = False, before

    def loaded(self) -> "Any":
        if "scalescope" not in sys.modules:
            load(PathFinder.find_spec("scalescope", [os.path.dirname(PACKAGE)]))
        from scalescope.own_code.guest import Guest

        return Guest(self.folder)

    def failed(self, error: Exception) -> None:
        self.say(stopped=f"{type(error).__name__}: {error}")

    def ended(self) -> None:
        """Report the end of Python, with the `RuntimeError` or the missing module that ended the script."""
        if os.getpid() == self.pid:
            error: Any = getattr(sys, "last_value", None)
            missing = error.name if isinstance(error, ModuleNotFoundError) else None
            schedulers = self.guest.schedulers if self.guest else {}
            plain = type(error) is RuntimeError and [type(each) for each in error.args] == [
                str
            ]  # its text runs no code of the script
            said = error.args[0] if plain else ""
            prefect = "prefect_dask" in sys.modules
            self.say(ended=True, error=said, missing=missing, schedulers=schedulers, prefect=prefect)

    def say(self, **event: object) -> None:
        """Write like `scalescope.own_code.record.say`, without an import: see `_interrupted_again` in the guest."""
        try:
            with open(os.path.join(self.folder, "events.jsonl"), "a", encoding="ascii", opener=_private) as stream:
                stream.write(as_json(event) + "\n")
        except Exception:  # noqa: BLE001 - it cannot be reported
            return


def as_json(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_json(name)}: {as_json(each)}" for name, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(as_json, value)) + "]"
    if isinstance(value, str):
        plain = (
            each if " " <= each <= "~" and each not in '\\"' else f"\\u{min(ord(each), 0xFFFD):04x}" for each in value
        )
        return '"' + "".join(plain) + '"'
    return "null" if value is None else repr(value).lower() if isinstance(value, bool) else repr(value)


def load(spec: "Any") -> None:
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)


def next_one() -> None:
    """Run the `sitecustomize` that Python would have imported; without one, raise the `ImportError` that it expects."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    load(spec)


if folder := taken_back():
    sys.meta_path.insert(0, Watcher(folder))
    next_one()
