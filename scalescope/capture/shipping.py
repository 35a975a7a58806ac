"""Sends plugins and functions to schedulers and workers on which `scalescope` is not installed.

A `Shipment` pickles as a call of `eval`, which executes the module's compiled code if both sides run the same release
of Python, and else its source text (code objects, as cloudpickle sends them, crashed a scheduler of Python 3.12). A
process executes a module once, and keeps it under a name with the digest of its text. A module may import only the
standard library, `distributed`, and names of modules of `scalescope.capture`, which are sent before it.
"""

from __future__ import annotations

import hashlib
import inspect
import marshal
import pickle
import re
import sys
from functools import cache
from importlib import import_module
from importlib.util import MAGIC_NUMBER
from types import CodeType, ModuleType
from typing import Any

from distributed import Client
from distributed.diagnostics.plugin import NannyPlugin, SchedulerPlugin, WorkerPlugin

from scalescope.capture.user_code import SHIPPED

_IMPORT = re.compile(r"from (scalescope\.capture\.\w+) import ")
_ANNOTATIONS = "from __future__ import annotations\n"

# Expression with the variables that `Shipment.__reduce__` passes. Our own imported modules are executed first, in the
# namespace of the same module, so its `from scalescope.capture...` imports return that module.
_LOAD = """\
(lambda sys, types, util, marshal, builtins: (
    lambda found: found if arguments is None else found(**arguments)
)(getattr(sys.modules.get(name) or (lambda module: (
    module.__dict__.update(__builtins__={**vars(builtins), "__import__": lambda name, *rest:
        module if name.startswith("scalescope.capture.") else builtins.__import__(name, *rest)}),
    [exec(each, module.__dict__) for each in (
        map(marshal.loads, codes) if codes and magic == util.MAGIC_NUMBER else [compile(source, name, "exec")])],
    sys.modules.setdefault(name, module))[-1]
)(types.ModuleType(name)), attribute)))(*map(
    __import__("importlib").import_module, ("sys", "types", "importlib.util", "marshal", "builtins")))"""


class Shipment:
    """Unpickles as `module.attribute`, or as its result for `arguments` (plain values and shipments), if given."""

    def __init__(self, module: ModuleType, attribute: str, arguments: dict[str, Any] | None = None) -> None:
        self.module, self.attribute, self.arguments = module, attribute, arguments
        self.name = getattr(getattr(module, attribute), "name", attribute)

    def __reduce__(self) -> tuple[Any, tuple[str, dict[str, Any]]]:
        module = self.module
        text = {"name": _name(module), "magic": MAGIC_NUMBER, "codes": _codes(module), "source": _text(module)}
        return eval, (_LOAD, {**text, "attribute": self.attribute, "arguments": self.arguments})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Dask's clients require that a function to send is callable
        return pickle.loads(pickle.dumps(self))(*args, **kwargs)  # noqa: S301 - our own pickle


# Classes for `Client.register_plugin`, which requires these types.
class _SchedulerShipment(Shipment, SchedulerPlugin):  # type: ignore[misc]
    ...


class _WorkerShipment(Shipment, WorkerPlugin):  # type: ignore[misc]
    ...


class _NannyShipment(Shipment, NannyPlugin):  # type: ignore[misc]
    ...


@cache
def _name(module: ModuleType) -> str:
    digest = hashlib.sha256(_text(module).encode()).hexdigest()[:16]
    return f"{SHIPPED}{module.__name__.rpartition('.')[2]}_{digest}"


@cache
def _text(module: ModuleType) -> str:
    """The source text of a module, preceded by the texts of our modules that it imports."""
    own = [line for line in _source(module) if not _IMPORT.match(line) and line != _ANNOTATIONS]
    before = [_text(each).removeprefix(_ANNOTATIONS) for each in _imported(module)]
    return "".join([_ANNOTATIONS, *before, *own])


@cache
def _codes(module: ModuleType) -> list[bytes]:
    """The compiled code of a module, after that of our modules that it imports; empty if the loader has none."""
    get_code = getattr(module.__loader__, "get_code", None)
    if get_code is None:
        return []
    own = marshal.dumps(_renamed(get_code(module.__name__), _name(module)))
    return [*(code for each in _imported(module) for code in _codes(each)), own]


def _renamed(code: CodeType, file: str) -> CodeType:
    constants = (_renamed(each, file) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=file, co_consts=tuple(constants))


def _imported(module: ModuleType) -> list[ModuleType]:
    return [import_module(found[1]) for line in _source(module) if (found := _IMPORT.match(line))]


def _source(module: ModuleType) -> list[str]:
    return inspect.getsource(module).splitlines(keepends=True)


def register(client: Client, module: ModuleType, attribute: str, **arguments: Any) -> None:
    """Create a plugin on the scheduler, or on all present and future workers or nannies, depending on its class."""
    plugin_class = getattr(module, attribute)
    if issubclass(plugin_class, SchedulerPlugin):
        sys.modules.setdefault(_name(module), module)  # a scheduler in this process uses the module as it is
        plugin: Any = _SchedulerShipment(module, attribute, arguments)
        older = "register_scheduler_plugin"
    elif issubclass(plugin_class, WorkerPlugin):
        plugin, older = _WorkerShipment(module, attribute, arguments), "register_worker_plugin"
    else:
        plugin, older = _NannyShipment(module, attribute, arguments), "register_worker_plugin"
    if hasattr(client, "register_plugin"):
        client.register_plugin(plugin, name=plugin.name)
    elif isinstance(plugin, NannyPlugin):  # before distributed 2023.10
        client.register_worker_plugin(plugin, name=plugin.name, nanny=True)
    else:
        getattr(client, older)(plugin, name=plugin.name)
