"""Sends plugins and functions to schedulers and workers that have no `scalescope`.

What is sent is pickled by value, as the source text of its module: the pickle is a call of `eval` with one string, so
it needs nothing at the other end, and it works between Python versions. (Pickling code objects by value, as cloudpickle
does, crashed a Python 3.12 scheduler when it came from Python 3.11.) A module is executed once in a process and kept
there under a name that contains the digest of its text; it may import the standard library and `distributed` alone.
"""

from __future__ import annotations

import hashlib
import inspect
from types import ModuleType
from typing import Any

from distributed import Client
from distributed.diagnostics.plugin import NannyPlugin, SchedulerPlugin, WorkerPlugin

PREFIX = "scalescope_shipped_"
"""So begin the names of modules that were sent, which are those of their files, too."""

_LOAD = """\
(lambda sys, types, name, source: sys.modules.get(name) or (
    lambda module: exec(compile(source, name, "exec"), module.__dict__) or sys.modules.setdefault(name, module)
)(types.ModuleType(name)))(__import__("sys"), __import__("types"), {name!r}, {source!r})"""


class Shipment:
    """Stands for `module.attribute`, or for what calling it with `arguments` gives; unpickles into that.

    Args:
        module: Imported here; its source text is sent.
        attribute: A function or class of it.
        arguments: Keyword arguments of plain values; None sends the attribute itself, not called.
    """

    def __init__(self, module: ModuleType, attribute: str, arguments: dict[str, Any] | None = None) -> None:
        self.expression = expression(module, attribute, arguments)
        self.name = getattr(getattr(module, attribute), "name", attribute)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return eval, (self.expression,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it here; clients look whether what they send is callable."""
        return eval(self.expression)(*args, **kwargs)  # noqa: S307  # our own source text


class _SchedulerShipment(Shipment, SchedulerPlugin):  # type: ignore[misc]
    """A scheduler plugin, as `Client.register_plugin` wants to see one."""


class _WorkerShipment(Shipment, WorkerPlugin):  # type: ignore[misc]
    """A worker plugin, likewise."""


class _NannyShipment(Shipment, NannyPlugin):  # type: ignore[misc]
    """A nanny plugin, likewise."""


def expression(module: ModuleType, attribute: str, arguments: dict[str, Any] | None = None) -> str:
    """Python source of an expression that gives `module.attribute`, or the result of calling it, anywhere."""
    source = inspect.getsource(module)
    name = PREFIX + module.__name__.rpartition(".")[2] + "_" + hashlib.sha256(source.encode()).hexdigest()[:16]
    loaded = _LOAD.format(name=name, source=source)
    call = "" if arguments is None else f"(**{arguments!r})"
    return f"{loaded}.{attribute}{call}"


def register(client: Client, module: ModuleType, attribute: str, **arguments: Any) -> None:
    """Create a plugin on the scheduler, or on every worker or nanny now and to come, whichever its class says."""
    plugin_class = getattr(module, attribute)
    if issubclass(plugin_class, SchedulerPlugin):
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
