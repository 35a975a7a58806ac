"""Sends plugins and functions to schedulers and workers that have no `scalescope`.

A pickle is a call of `eval` with the source text of the module, which works between Python versions (code objects, as
cloudpickle sends them, crashed a scheduler of Python 3.12). A process executes a module once, and keeps it under a name
with the digest of its text. A module may import only the standard library, `distributed`, and names of modules of
`scalescope.capture`, whose text is sent before it.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from distributed import Client
from distributed.diagnostics.plugin import NannyPlugin, SchedulerPlugin, WorkerPlugin

from scalescope.capture.user_code import SHIPPED

_IMPORT = re.compile(r"from (scalescope\.capture\.\w+) import ")
_ANNOTATIONS = "from __future__ import annotations\n"

_LOAD = """\
(lambda sys, types, name, source: sys.modules.get(name) or (
    lambda module: exec(compile(source, name, "exec"), module.__dict__) or sys.modules.setdefault(name, module)
)(types.ModuleType(name)))(__import__("sys"), __import__("types"), {name!r}, {source!r})"""


class Shipment:
    """Unpickles into `module.attribute`, or into its result for `arguments` (plain values and shipments)."""

    def __init__(self, module: ModuleType, attribute: str, arguments: dict[str, Any] | None = None) -> None:
        self.expression = expression(module, attribute, arguments)
        self.name = getattr(getattr(module, attribute), "name", attribute)

    def __repr__(self) -> str:
        return self.expression

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return eval, (self.expression,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # clients check that a function to send is callable
        return eval(self.expression)(*args, **kwargs)  # noqa: S307  # our own source text


# `Client.register_plugin` requires these types.
class _SchedulerShipment(Shipment, SchedulerPlugin):  # type: ignore[misc]
    ...


class _WorkerShipment(Shipment, WorkerPlugin):  # type: ignore[misc]
    ...


class _NannyShipment(Shipment, NannyPlugin):  # type: ignore[misc]
    ...


def expression(module: ModuleType, attribute: str, arguments: dict[str, Any] | None = None) -> str:
    """Source of an expression that gives `module.attribute` anywhere, or the result of calling it."""
    loaded = _LOAD.format(name=_name(module), source=_text(module))
    call = "" if arguments is None else f"(**{arguments!r})"
    return f"{loaded}.{attribute}{call}"


@cache
def _name(module: ModuleType) -> str:
    digest = hashlib.sha256(_text(module).encode()).hexdigest()[:16]
    return f"{SHIPPED}{module.__name__.rpartition('.')[2]}_{digest}"


@cache
def _text(module: ModuleType) -> str:
    """The source text of a module, preceded by that of our modules from which it imports."""
    before, own = [], []
    for line in inspect.getsource(module).splitlines(keepends=True):
        if found := _IMPORT.match(line):
            before.append(_text(import_module(found[1])))
        elif line != _ANNOTATIONS:
            own.append(line)
    return "".join([_ANNOTATIONS, *(text.removeprefix(_ANNOTATIONS) for text in before), *own])


def register(client: Client, module: ModuleType, attribute: str, **arguments: Any) -> None:
    """Create a plugin on the scheduler, or on all present and future workers or nannies, depending on its class."""
    plugin_class = getattr(module, attribute)
    if issubclass(plugin_class, SchedulerPlugin):
        sys.modules.setdefault(_name(module), module)  # a scheduler in this process need not compile it again
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
