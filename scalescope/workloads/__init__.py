"""What is run: importable functions `run(client, **params)` with metadata, each a `Workload` of a module here.

Importing this package needs the standard library and `distributed` alone; a workload imports its own packages when it
runs.
"""

from __future__ import annotations

import ast
import pkgutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.workload import Workload, module_of
from scalescope.workloads._common import not_installed
from scalescope.workloads.references import FORMS, load_function


def _found() -> dict[str, Workload]:
    """The workloads of this package's modules by name, in its order; those with an underscore are no workloads."""
    names = (module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    modules = [import_module(f"{__name__}.{name}") for name in names]
    found = [each for module in modules for each in vars(module).values() if isinstance(each, Workload)]
    return {workload.name: workload for workload in sorted(found, key=lambda workload: workload.name)}


_KNOWN = _found()


def builtin() -> tuple[Workload, ...]:
    """The workloads that come with Scalescope and run as they are: those that need no file of another command."""
    return tuple(workload for workload in _KNOWN.values() if not any(each.required for each in workload.parameters))


def load(reference: str) -> Workload:
    """Find a workload.

    Args:
        reference: The name of a built-in one, `package.module:function`, or `path.py:function` (the path absolute or
            relative to the working directory).

    Raises:
        InvalidField: There is no such workload, or the function cannot be one.
    """
    reference = fields.text("workload", reference)
    if ":" in reference:
        return load_function(reference)
    if reference in _KNOWN:
        return _KNOWN[reference]
    if reference.endswith(".py"):
        raise InvalidField("workload", reference, f"the file and a function of it: {_suggested(reference)}")
    raise InvalidField(
        "workload",
        reference,
        fields.suggest(reference, _KNOWN),
        next_step=f"`scalescope workloads` lists the built-in ones; a function of your own is {FORMS}",
    )


def _suggested(path: str) -> str:
    """How the functions of a file that take a client are named, without running it."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        tree = ast.Module([], [])
    defined = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.args.args]
    found = [each.name for each in defined if each.args.args[0].arg == "client"] or ["FUNCTION"]
    return " or ".join(f"{path}:{name}" for name in found)


def check_installed(workload: Workload) -> None:
    """Refuse a workload whose packages are not installed in the present environment; nothing is imported.

    Raises:
        UsageError: One is missing; the next step is what installs it.
    """
    for package in workload.packages:
        if find_spec(module_of(package)) is None:
            raise not_installed(workload.name, package, workload.extra, f"there is no package {package}")


__all__ = ["Workload", "builtin", "check_installed", "load"]
