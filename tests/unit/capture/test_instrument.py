"""Instrumented functions call hooks and behave otherwise as before."""

from __future__ import annotations

import asyncio
import inspect
import linecache
import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from scalescope.capture import instrument
from scalescope.capture.instrument import Hook, Instrumented


def added(first: int, *more: int, scale: int = 1, **named: int) -> int:
    """Adds numbers."""
    if scale < 0:
        raise ValueError("scale")
    total = first + sum(more) + sum(named.values())
    return total * scale


def nothing(number: int) -> None:
    for _ in range(number):
        pass


def within(base: int) -> Callable[[int], int]:
    def counted(number: int) -> int:
        def other() -> int:
            return 7  # a return of another function

        if number:
            return base + number
        return other()

    return counted


class Base:
    def __init__(self) -> None:
        self.made = ["base"]


class Derived(Base):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.__name = name
        self.made.append(self.__name)


async def later(number: int) -> int:
    await asyncio.sleep(0)
    return number + 1


def warned() -> None:
    warnings.warn("look here", stacklevel=2)


@pytest.fixture
def put() -> Iterator[Instrumented]:
    instrumented = Instrumented()
    yield instrumented
    instrumented.restore()


def test_a_hook_gets_arguments_and_result_and_can_replace_the_result(put: Instrumented) -> None:
    told: list[Any] = []
    assert put.put(
        added, Hook(lambda *given: given, leave=lambda token, value: told.append((token, value)) or value + 1)
    )
    assert added(1, 2, 3, scale=2, extra=4) == 21
    assert told == [((1, (2, 3), 2, {"extra": 4}), 20)]


def test_a_hook_is_called_for_a_function_without_a_return_statement(put: Instrumented) -> None:
    told: list[Any] = []
    put.put(nothing, Hook(leave=lambda token, value: told.append((token, value))))
    assert nothing(3) is None
    assert told == [((3,), None)]


def test_closures_and_their_inner_functions_keep_their_return_values(put: Instrumented) -> None:
    counted, told = within(10), []
    assert put.put(counted, Hook(leave=lambda token, value: told.append(value) or value))
    assert (counted(1), counted(0)) == (11, 7)
    assert told == [11, 7]
    assert within(20)(1) == 21
    assert len(told) == 2


def test_super_and_private_names_still_work_in_an_instrumented_method(put: Instrumented) -> None:
    assert put.put(Derived.__init__, Hook())
    assert Derived("mine").made == ["base", "mine"]
    assert vars(Derived("mine"))["_Derived__name"] == "mine"


def test_coroutine_functions_await_what_their_hooks_return(put: Instrumented) -> None:
    told: list[str] = []

    async def wait(text: str) -> None:
        await asyncio.sleep(0)
        told.append(text)

    put.put(later, Hook(lambda number: wait("before"), leave=lambda token, value: wait(f"after {token} {value}")))
    assert asyncio.run(later(1)) == 2
    assert told == ["before", "after (1,) 2"]


def test_an_exception_passes_through_and_the_end_hook_is_called(put: Instrumented) -> None:
    told: list[Any] = []
    put.put(added, Hook(end=lambda token: told.append(sys.exc_info()[0])))
    with pytest.raises(ValueError, match="scale"):
        added(1, scale=-1)
    assert added(1) == 1
    assert told == [ValueError, None]


@pytest.mark.parametrize("where", ["enter", "leave", "end"])
def test_errors_of_hooks_go_to_their_failed_callback_and_change_no_result(put: Instrumented, where: str) -> None:
    told: list[Exception] = []

    def fail(*given: Any) -> None:
        raise KeyError(where)

    put.put(added, Hook(**{where: fail}, failed=told.append))
    assert added(1, 2) == 3
    assert [type(each) for each in told] == [KeyError]


def test_errors_of_hooks_without_a_failed_callback_are_raised(put: Instrumented) -> None:
    put.put(nothing, Hook(lambda number: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        nothing(1)


def test_tracebacks_of_an_instrumented_function_show_no_frames_of_hooks(put: Instrumented) -> None:
    def shown() -> str:
        try:
            added(1, scale=-1)
        except ValueError:
            return traceback.format_exc()
        raise AssertionError

    plain = shown()
    put.put(added, Hook(leave=lambda token, value: value))
    assert shown() == plain


def test_warnings_name_the_line_of_the_caller(put: Instrumented) -> None:
    put.put(warned, Hook())
    with pytest.warns(UserWarning, match="look here") as found:
        warned()
    assert found[0].filename == __file__


def test_an_instrumented_function_keeps_its_name_signature_and_first_line(put: Instrumented) -> None:
    def facts() -> list[Any]:
        code = added.__code__
        names = [added.__qualname__, code.co_name, code.co_qualname, code.co_filename, code.co_firstlineno]
        return [*names, inspect.signature(added), inspect.getsource(added), added.__doc__]

    plain = facts()
    put.put(added, Hook())
    assert facts() == plain


def test_several_hooks_are_called_and_restored_one_by_one() -> None:
    original, told = nothing.__code__, list[str]()
    first, second = Instrumented(), Instrumented()
    first.put(nothing, Hook(lambda number: told.append("first")))
    second.put(nothing, Hook(lambda number: told.append("second")))
    nothing(1)
    first.restore()
    nothing(1)
    assert told == ["first", "second", "second"]
    second.restore()
    assert nothing.__code__ is original


def test_a_function_whose_source_has_changed_is_not_instrumented(tmp_path: Path) -> None:
    path = tmp_path / "gone.py"
    path.write_text("def gone():\n    return 1\n")
    known: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), known)
    path.write_text("# another text\n\ndef other():\n    return 2\n")
    linecache.checkcache()
    assert not Instrumented().put(known["gone"], Hook())
    assert not Instrumented().put(len, Hook())
    assert known["gone"]() == 1


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_functions_can_be_instrumented_on_other_python_versions(version: str) -> None:
    text = """
import runpy, sys, types
instrument = types.ModuleType("instrument")
exec(open(sys.argv[1]).read(), vars(instrument))
import shlex, textwrap
def double(number):
    return number * 2
put = instrument.Instrumented()
assert put.put(textwrap.fill, instrument.Hook(leave=lambda token, value: value.upper()))
assert put.put(shlex.join, instrument.Hook(leave=lambda token, value: value + "!"))
assert put.put(textwrap.TextWrapper.__init__, instrument.Hook())
print(textwrap.fill("a b", width=1), shlex.join(["a"]))
put.restore()
print(textwrap.fill("a b"), shlex.join(["a"]))
"""
    python = [f"python{version}", "-c", text, str(instrument.__file__)]
    try:
        environ = {**os.environ, "PYENV_VERSION": version}
        done = subprocess.run(python, capture_output=True, text=True, check=False, env=environ)
    except FileNotFoundError:
        pytest.skip(f"there is no Python {version} here")
    if "pyenv" in done.stderr:
        pytest.skip(f"there is no Python {version} here")
    assert done.stdout.split() == ["A", "B", "a!", "a", "b", "a"], done.stderr


def test_nearly_all_functions_of_the_standard_library_can_be_instrumented(put: Instrumented) -> None:
    functions = [each for each in vars(inspect).values() if isinstance(each, FunctionType)]
    plain = [each for each in functions if not inspect.isgeneratorfunction(each) and each.__module__ == "inspect"]
    assert sum(put.put(each, Hook()) for each in plain) >= 0.95 * len(plain)
    assert inspect.signature(added).parameters.keys() == {"first", "more", "scale", "named"}
