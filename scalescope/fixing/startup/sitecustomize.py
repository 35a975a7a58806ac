"""Python imports this before a script that `scalescope fix` runs, and in every Python process that the script starts.

It refuses what would reach beyond the script's copy: files that are written elsewhere, and connections to other
machines. Apart from `json`, it imports only modules that Python itself has already imported.
"""

import json
import os
import sys
from _frozen_importlib import module_from_spec
from _frozen_importlib_external import PathFinder

TYPE_CHECKING = False  # `typing.TYPE_CHECKING` without the import
if TYPE_CHECKING:
    from typing import Any

HERE, GUARD = os.path.dirname(os.path.abspath(__file__)), "SCALESCOPE_GUARD"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit events that change files, and which of their arguments are paths. In events of `os`, the last arguments are
# open folders to which the paths are relative, or -1.
OF_OS = {
    **dict.fromkeys(("os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.chown", "os.utime"), slice(0, 1)),
    **{"os.rename": slice(0, 2), "os.link": slice(1, 2), "os.symlink": slice(1, 2)},
}
CHANGES = {**OF_OS, **dict.fromkeys(("os.truncate", "shutil.rmtree", "sqlite3.connect"), slice(0, 1))}
DATAGRAM = 2  # `socket.SOCK_DGRAM`: connecting such a socket sends nothing


class Guard:
    """An audit hook; it writes what it refuses to a file, and raises `PermissionError` in the script."""

    def __init__(self, told: "dict[str, Any]") -> None:
        self.events, self.roots, self.hosts = told["events"], tuple(told["roots"]), frozenset(told["hosts"])
        self.is_busy = False

    def __call__(self, event: str, arguments: "tuple[Any, ...]") -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & WRITES:
                self.check(path)
        elif event == "os.mkdir" and os.path.isdir(arguments[0]):
            return  # nothing changes: the folder exists
        elif event in CHANGES:
            if event not in OF_OS or arguments[-1] == -1:
                for path in arguments[CHANGES[event]]:
                    self.check(path)
        elif event == "socket.connect":
            connection, address = arguments
            if isinstance(address, tuple) and connection.type != DATAGRAM:
                self.check_host(str(address[0]))
        elif event in ("socket.sendto", "socket.sendmsg"):
            address = arguments[1]
            if isinstance(address, tuple):
                self.check_host(str(address[0]))

    def check(self, path: "Any") -> None:
        if self.is_busy or isinstance(path, int):  # a number is an open file
            return
        path = os.fsdecode(path)
        if path in ("", ":memory:") or "__pycache__" in path:
            return
        whole = os.path.realpath(path)
        if not whole.startswith(self.roots):
            self.refuse(what="writes", where=whole)

    def check_host(self, host: str) -> None:
        if not (host.startswith("127.") or host in self.hosts):
            self.refuse(what="connects", where=host)

    def refuse(self, **event: str) -> None:
        self.is_busy = True
        try:
            file = os.open(self.events, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(file, json.dumps(event).encode("ascii") + b"\n")
            os.close(file)
        finally:
            self.is_busy = False
        raise PermissionError(f"scalescope fix refuses this: {event['where']} ({event['what']})")


def apart(told: "dict[str, Any]") -> None:
    """In other processes than the script's, redirect output from the script's file to one for tasks."""
    main = os.environ.setdefault(f"{GUARD}_MAIN", str(os.getpid()))
    try:
        ours, script = os.fstat(1), os.stat(told["stdout"])
    except OSError:
        return
    if main != str(os.getpid()) and (ours.st_dev, ours.st_ino) == (script.st_dev, script.st_ino):
        file = os.open(told["tasks"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(file, 1)
        os.close(file)


class Watcher:
    """Arranges that the values the client gets are noted, once the modules that get them are imported."""

    def __init__(self, told: "dict[str, Any]") -> None:
        self.file: str = told["values"]
        self.values: Any = None

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name not in ("dask.base", "distributed.client", "dask.dataframe.dask_expr._expr"):
            return None
        for finder in sys.meta_path:
            spec: Any = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader.exec_module = self.after(spec.loader.exec_module)
                return spec
        return None

    def after(self, run: "Any") -> "Any":
        def run_and_watch(module: "Any") -> None:
            run(module)
            self.watch(module)

        return run_and_watch

    def watch(self, module: "Any") -> None:
        if self.values is None:
            self.values = load(PathFinder.find_spec("scalescope_values", [HERE])).Values(self.file)
        self.values.watch(module)


def load(spec: "Any") -> "Any":
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def next_one() -> None:
    """Run the `sitecustomize` that Python would have imported; without one, raise the `ImportError` that it expects."""
    paths = [each for each in sys.path if os.path.abspath(each or ".") != HERE]
    spec = PathFinder.find_spec("sitecustomize", paths)
    if spec is None or spec.loader is None:
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    load(spec)


if text := os.environ.get(GUARD):
    told = json.loads(text)
    apart(told)
    if told["roots"]:
        sys.addaudithook(Guard(told))
    if os.environ[f"{GUARD}_MAIN"] == str(os.getpid()):
        sys.meta_path.insert(0, Watcher(told))
next_one()
