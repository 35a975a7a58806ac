"""Loads users' functions as workloads, by module or file; signature and docstring describe them."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.sweep import digest
from scalescope.model.workload import Workload
from scalescope.workloads import signatures
from scalescope.workloads._common import root_logger_kept

FORMS = "`package.module:function` or `path.py:function`"


def load_function(reference: str) -> Workload:
    """Load the workload that a reference such as `module:function` names.

    Parameters come from the signature, their help from annotations or the docstring's `Args:`, and the summary from the
    docstring's first line. The function may have attributes `version` and `modelled` (True if tasks only sleep).

    Raises:
        InvalidField: There is no such module, file or function, or it cannot be a workload.
    """
    place, _, name = reference.rpartition(":")
    if not place or not name.isidentifier():
        raise _bad(reference, FORMS)
    with root_logger_kept():
        module = _from_file(place, reference) if place.endswith(".py") else _from_module(place, reference)
    function = getattr(module, name, None)
    if function is None:
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise _bad(reference, f"a function of {place}; {fields.suggest(name, functions)}")
    folder = os.path.dirname(module.__file__ or "") if place.endswith(".py") else ""
    return replace(describe(reference, function), modules=_modules(module, name), folder=folder, code=_code(module))


def describe(reference: str, function: Any) -> Workload:
    if not callable(function):
        raise _bad(reference, f"a function, not an object of type {type(function).__name__}")
    if inspect.iscoroutinefunction(function):
        raise _bad(reference, "an ordinary function, not `async def`")
    documented = inspect.cleandoc(function.__doc__ or "")
    summary = documented.partition("\n")[0].strip()
    return Workload(
        name=reference,
        version=fields.integer("workload.version", getattr(function, "version", 1), minimum=1),
        summary=summary or f"Function {reference.rpartition(':')[2]} of the user's own.",
        run=function,
        parameters=signatures.parameters(reference, function, _documented_arguments(documented)),
        modelled=fields.boolean("workload.modelled", getattr(function, "modelled", False)),
    )


def _bad(reference: str, allowed: str, next_step: str = "") -> InvalidField:
    return InvalidField("workload", reference, allowed, next_step=next_step)


def _from_module(name: str, reference: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise _bad(
                reference,
                f"a module that can be imported; there is no {error.name!r}",
                next_step="install it, add its folder to PYTHONPATH, or give its file: path.py:function",
            ) from error
        raise _import_failed(reference, error) from error
    except (ValueError, TypeError) as error:  # the module's name is empty or relative
        raise _bad(reference, FORMS) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(reference, error) from error


class _SourceOnly(SourceFileLoader):
    """Compiles the file at each import: cached bytecode would miss a second edit within the same second."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _from_file(place: str, reference: str) -> ModuleType:
    path = Path(os.path.expanduser(place)).resolve()
    if not path.is_file():
        raise _bad(
            reference,
            f"a file that exists; there is no {path}",
            next_step="give an absolute path that this machine can read, or package.module:function of an importable "
            "module; in a deployment, let the pull step (git_clone) or the image put the file into the working folder",
        )
    # The functions must be pickled by value, because workers may not have the file. Registering the module with
    # cloudpickle is not enough: distributed tries pickle first, and uses cloudpickle only if the result has `__main__`.
    name = f"__main__{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}_{digest(str(path))}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_SourceOnly(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # as `python path.py` does, so that the file can import its neighbours
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _import_failed(reference, error) from error

    import cloudpickle

    from scalescope.sent_code import keep_file_names

    keep_file_names()
    cloudpickle.register_pickle_by_value(module)
    return module


_PARSING = threading.Lock()  # if threads parse at once, Python 3.11 adds up their recursion depths: SystemError


def _modules(module: ModuleType, function: str) -> tuple[str, ...]:
    """Names of modules that a function imports or uses; `from a import b` yields both `a` and `a.b`."""
    try:
        return tuple(name for name in _used(inspect.getsource(module), function) if not name.startswith("."))
    except (OSError, TypeError, SyntaxError):
        return ()


@lru_cache(maxsize=256)
def _used(text: str, function: str) -> tuple[str, ...]:
    bound: dict[str, list[ast.stmt]] = {}
    for statement in _outermost(_parsed(text).body):
        for name in _bound(statement):
            bound.setdefault(name, []).append(statement)
    if function not in bound:
        return _imports(text)
    names: dict[str, None] = {}
    waiting, seen = [function, "*"], set()
    while waiting:
        name = waiting.pop()
        for node in (node for statement in bound.get(name, ()) for node in ast.walk(statement)):
            names |= dict.fromkeys(_named(node))
            if isinstance(node, ast.Name) and node.id not in seen:
                seen.add(node.id)
                waiting.append(node.id)
    return tuple(names)


def _outermost(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _outermost(ast.iter_child_nodes(node))


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))


@lru_cache(maxsize=256)
def _imports(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for node in ast.walk(_parsed(text)) for name in _named(node)))


def _named(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = "." * node.level + (node.module or "")
        yield from filter(None, [base.rstrip(".") and base])
        yield from (f"{base}{'.' if node.module else ''}{alias.name}" for alias in node.names)


@lru_cache(maxsize=8)
def _parsed(text: str) -> ast.Module:
    with _PARSING:
        return ast.parse(text)


def _code(module: ModuleType) -> str:
    """Digest of a module's file and of the files it imports from the same folder; empty for installed packages."""
    path = Path(module.__file__ or "")
    if not path.is_file() or {"site-packages", "dist-packages"} & set(path.parts):
        return ""
    found = sources(module, path.parent)
    return digest(sorted((str(file.relative_to(path.parent)), text) for file, text in found.items()))


def sources(module: ModuleType, within: Path, known: Mapping[Path, str] | None = None) -> dict[Path, str]:
    """Texts of a module's file and of all files it imports from `within`; texts in `known` replace those of files."""
    path, known = Path(module.__file__ or ""), known or {}
    depth = 0 if path.name == "__init__.py" else 1
    package = [] if module.__name__.startswith("__main__") else module.__name__.split(".")
    roots = {path.parent, path.parents[max(len(package) - depth, 0)]}  # folders in which its imports are looked up
    found: dict[Path, str] = {}
    waiting = [path]
    while waiting:
        each = waiting.pop()
        if each in found:
            continue
        try:
            text = known[each] if each in known else each.read_text(encoding="utf-8", errors="surrogateescape")
            names = _imports(text)
        except (OSError, SyntaxError, ValueError):
            continue
        found[each] = text
        for name in names:
            dots = len(name) - len(name.lstrip("."))
            bases = {each.parents[dots - 1]} if 0 < dots <= len(each.parents) else roots
            words = name.lstrip(".").split(".")
            places = [base.joinpath(*words[:upto]) for base in bases for upto in range(1, len(words) + 1)]
            files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
            waiting += [file for file in files if file.is_relative_to(within) and file.is_file()]
    return found


def _import_failed(reference: str, error: BaseException) -> InvalidField:
    return _bad(
        reference,
        f"a module that imports without an error; importing it raised {type(error).__name__}: {error}",
        next_step=f"import it with `{sys.executable} -c 'import ...'`, and fix the error",
    )


def _documented_arguments(docstring: str) -> dict[str, str]:
    found = re.search(r"^(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t]+\S.*(?:\n|$)|[ \t]*\n)+)", docstring, re.M)
    if found is None:
        return {}
    helps: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", inspect.cleandoc("\n" + found[1])):
        name, colon, text = entry.partition(":")
        if colon:
            helps[name.split("(")[0].strip().lstrip("*")] = " ".join(text.split())
    return helps
