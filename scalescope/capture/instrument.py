"""Adds calls of hooks to library functions, without wrapping the functions.

A wrapper would appear in every traceback, and `warnings` with a `stacklevel` and `inspect.stack()` would see it.
Instead the function keeps its file, lines, columns, names and signature: its own source is compiled again, with a call
of the hook before the first statement, and with the results passed through the hook.

This source text is sent to workers, before that of `scalescope.capture.waits`: it imports only the standard library.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Any

_MARK = "scalescope hooks"  # constant in the compiled source; the hooks replace it
_TOKEN = "_scalescope"  # noqa: S105 - local variable with the result of `entered`
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)  # a tuple, since `isinstance` takes no union before Python 3.10
_FUTURES = 0x0FFF0000  # bits of `co_flags` that come from `from __future__ import ...`


class NotInstrumented(Exception):
    """The source of a function is missing, or does not belong to its code."""


class Hook:
    """Functions called at the beginning of a function, at each of its returns, and at its end.

    - `enter` takes the arguments and returns a token for the other two; by default, the arguments are the token.
    - `leave` takes the token and the result, and returns the result.
    - `end` takes the token, also when the function raises.

    In coroutine functions, `enter` and `leave` may return an awaitable. `failed` is called with errors of
    these three, and the function goes on. Without `failed`, such an error is raised in the function.
    """

    def __init__(
        self,
        enter: Callable[..., Any] | None = None,
        *,
        leave: Callable[[Any, Any], Any] | None = None,
        end: Callable[[Any], object] | None = None,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        self.enter, self.leave, self.end, self.failed = enter, leave, end, failed

    def told(self, error: Exception) -> None:
        if self.failed is None:
            raise error
        with suppress(Exception):  # an error of `failed` itself cannot be reported
            self.failed(error)


class Hooks:
    """The hooks of a function; its code calls the methods of this class."""

    def __init__(self, original: CodeType) -> None:
        self.original = original
        self.hooks: list[Hook] = []

    def entered(self, *arguments: Any) -> list[tuple[Hook, Any]]:
        tokens = []
        for hook in self.hooks:
            try:
                tokens.append((hook, hook.enter(*arguments) if hook.enter else arguments))
            except Exception as error:  # noqa: BLE001 - the function goes on
                hook.told(error)
        return tokens

    def left(self, tokens: list[tuple[Hook, Any]], value: Any) -> Any:
        for hook, token in tokens:
            try:
                value = hook.leave(token, value) if hook.leave else value
            except Exception as error:  # noqa: BLE001 - the function goes on
                hook.told(error)
        return value

    async def entering(self, *arguments: Any) -> list[tuple[Hook, Any]]:
        tokens = self.entered(*arguments)
        for number, (hook, waits) in enumerate(tokens):
            if hasattr(waits, "__await__"):
                tokens[number] = hook, arguments
                try:
                    await waits
                except Exception as error:  # noqa: BLE001 - the function goes on
                    hook.told(error)
        return tokens

    async def leaving(self, tokens: list[tuple[Hook, Any]], value: Any) -> Any:
        for hook, token in tokens:
            try:
                waits: Any = hook.leave(token, value) if hook.leave else None
                if hasattr(waits, "__await__"):
                    await waits
            except Exception as error:  # noqa: BLE001 - the function goes on
                hook.told(error)
        return value

    def ended(self, tokens: list[tuple[Hook, Any]]) -> None:
        for hook, token in tokens:
            try:
                if hook.end:
                    hook.end(token)
            except Exception as error:  # noqa: BLE001 - the function goes on
                hook.told(error)


class Instrumented:
    """Functions that call hooks until they are restored; hooks of other instances stay."""

    def __init__(self) -> None:
        self._put: list[tuple[FunctionType, Hook]] = []

    def put(self, function: Any, hook: Hook) -> bool:
        """Put a hook into a function; returns False if that is impossible, as for a function without source."""
        if not isinstance(function, FunctionType):
            return False
        hooks = _hooks(function)
        if hooks is None:
            hooks = Hooks(function.__code__)
            lines = linecache.getlines(function.__code__.co_filename)
            try:
                function.__code__ = instrumented(function.__code__, function.__qualname__, lines, hooks)
            except (NotInstrumented, ValueError):
                return False
        hooks.hooks.append(hook)
        self._put.append((function, hook))
        return True

    def restore(self) -> None:
        while self._put:
            function, hook = self._put.pop()
            hooks = _hooks(function)
            if hooks is not None and hook in hooks.hooks:  # else something has replaced the function's code
                hooks.hooks.remove(hook)
                if not hooks.hooks:
                    function.__code__ = hooks.original


def _hooks(function: FunctionType) -> Hooks | None:
    """The hooks that a function calls, if any. A copy of this module that was sent to a worker may have made them."""
    return next((each for each in function.__code__.co_consts if type(each).__name__ == Hooks.__name__), None)


def instrumented(code: CodeType, qualname: str, source: Sequence[str], hooks: Hooks) -> CodeType:
    """The code of a function, with calls of the hooks added; `source`: all lines of the function's file."""
    first = code.co_firstlineno
    text = "".join(_block(code, source[first - 1 :]))
    is_indented = text[:1].isspace()
    before = "\n" * (first - 2) + "if 1:\n" if is_indented else "\n" * (first - 1)
    try:
        tree = ast.parse(before + text)
    except SyntaxError as error:
        raise NotInstrumented(f"{code.co_filename}:{first}: {error}") from error
    body = tree.body[0].body if is_indented else tree.body  # type: ignore[attr-defined]
    function = body[0] if body else None
    if not isinstance(function, _FUNCTIONS) or function.name != code.co_name:
        raise NotInstrumented(f"{code.co_filename}:{first} does not define {code.co_name}")
    function.returns = None  # decorators stay, as the code's first line is theirs, but are not called
    _Calls(function).put()
    made = _compiled(_around(code, qualname, function), code)
    same = ("co_name", "co_firstlineno", "co_argcount", "co_kwonlyargcount", "co_posonlyargcount", "co_freevars")
    if any(getattr(made, name) != getattr(code, name) for name in same):
        raise NotInstrumented(f"{code.co_filename}:{first}: the source does not match the running code")
    constants = tuple(hooks if each == _MARK and isinstance(each, str) else each for each in made.co_consts)
    known: Any = {"co_qualname": code.co_qualname} if hasattr(code, "co_qualname") else {}  # Python 3.11 and later
    return made.replace(co_consts=constants, **known)


class _Calls(ast.NodeTransformer):
    """Puts the calls into one function, but not into functions that it defines."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.function = function

    def put(self) -> None:
        function, given = self.function, self.function.args
        names = [*given.posonlyargs, *given.args, *filter(None, [given.vararg]), *given.kwonlyargs]
        names += [given.kwarg] if given.kwarg else []
        start = 1 if ast.get_docstring(function, clean=False) is not None else 0
        at = function.body[min(start, len(function.body) - 1)]
        arguments: list[ast.expr] = [ast.Name(each.arg, ast.Load()) for each in names]
        name = "entering" if isinstance(function, ast.AsyncFunctionDef) else "entered"
        entered = ast.Assign([ast.Name(_TOKEN, ast.Store())], self._called(name, arguments))
        body = [self.visit(each) for each in function.body[start:]]
        ended = ast.Expr(self._left(ast.Constant(None)))
        body.append(_at(ended, at))
        call = ast.Call(ast.Attribute(ast.Constant(_MARK), "ended", ast.Load()), [ast.Name(_TOKEN, ast.Load())], [])
        guarded = ast.Try(body, [], [], [ast.Expr(call)])
        function.body = [*function.body[:start], _at(entered, at), _at(guarded, at)]

    def _left(self, value: ast.expr) -> ast.expr:
        name = "leaving" if isinstance(self.function, ast.AsyncFunctionDef) else "left"
        return self._called(name, [ast.Name(_TOKEN, ast.Load()), value])

    def _called(self, name: str, arguments: list[ast.expr]) -> ast.expr:
        call = ast.Call(ast.Attribute(ast.Constant(_MARK), name, ast.Load()), arguments, [])
        return ast.Await(call) if isinstance(self.function, ast.AsyncFunctionDef) else call

    def visit_Return(self, node: ast.Return) -> ast.Return:
        changed: ast.Return = _at(ast.Return(self._left(node.value or ast.Constant(None))), node)
        return changed

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return node if isinstance(node, ast.expr) else super().generic_visit(node)  # no `return` in an expression

    def _leave_alone(self, node: ast.AST) -> ast.AST:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = _leave_alone


def _at(node: Any, place: ast.AST) -> Any:
    """Give `node` and its parts the position of `place`; parts that have a position (and their parts) keep it."""
    if "lineno" in node._attributes:
        if hasattr(node, "lineno"):
            return node
        ast.copy_location(node, place)
    for each in ast.iter_child_nodes(node):
        _at(each, place)
    return node


def _around(code: CodeType, qualname: str, function: ast.stmt) -> ast.Module:
    """A module with the function, inside a function that defines its free variables and, if needed, inside a class."""
    classes = [part for part in qualname.split(".")[:-1] if part != "<locals>"]
    inner: ast.stmt = function
    if "__class__" in code.co_freevars or (classes and "<locals>" not in qualname):
        inner = ast.ClassDef(classes[-1], [], [], [function], [])  # for `super()` and private names (`__name`)
        if hasattr(inner, "type_params"):
            inner.type_params = []
    free = [name for name in code.co_freevars if name != "__class__"]
    if free:
        around = ast.parse(f"def around({', '.join(free)}): pass").body[0]
        around.body = [_at(inner, function)]  # type: ignore[attr-defined]
        inner = around
    return ast.Module([_at(inner, function)], [])


def _compiled(tree: ast.Module, code: CodeType) -> CodeType:
    made = compile(tree, code.co_filename, "exec", flags=code.co_flags & _FUTURES, dont_inherit=True)
    found = _find(made, code.co_name)
    if found is None:
        raise NotInstrumented(code.co_name)
    return found


def _find(code: CodeType, name: str) -> CodeType | None:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_name == name:
                return each
            if (found := _find(each, name)) is not None:
                return found
    return None


def _block(code: CodeType, lines: Sequence[str]) -> Sequence[str]:
    """The lines of the function that starts at the first of these lines."""
    if not hasattr(code, "co_positions"):  # before Python 3.11
        return inspect.getblock(lines)
    return lines[: _last_line(code) - code.co_firstlineno + 1]


def _last_line(code: CodeType) -> int:
    last = max((end or 0 for _, end, _, _ in code.co_positions()), default=0)
    return max([last, *(_last_line(each) for each in code.co_consts if isinstance(each, CodeType))])
