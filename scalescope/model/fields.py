"""Checks of single values from people; a failure raises `InvalidField` with field, value and what is allowed."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

from scalescope.errors import InvalidField, UnknownName

Scalar = bool | int | float | str | None  # a value that a point of a sweep can hold; JSON can carry it

T = TypeVar("T")


def suggest(name: str, known: Iterable[str]) -> str:
    """The known names as text, followed by the one that the user probably meant."""
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"one of {', '.join(options)}{hint}" if options else "nothing"


def reject_unknown(section: str, data: Mapping[str, object], known: Iterable[str]) -> None:
    """Raise `UnknownName` on the first key of `data` that is not known."""
    known = list(known)
    for key in data:
        if key not in known:
            raise UnknownName(f"{section}.{key}" if section else str(key), data[key], suggest(str(key), known))


def mapping(field: str, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidField(field, value, "a mapping of names to values")
    return dict(value)


def text(field: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidField(field, value, "text that is not empty")
    return value


def boolean(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidField(field, value, "true or false")
    return value


def integer(field: str, value: object, *, minimum: float | None = None, maximum: float | None = None) -> int:
    """Check a whole number; booleans are not numbers."""
    if isinstance(value, int) and not isinstance(value, bool) and _is_within(value, minimum, maximum):
        return value
    raise InvalidField(field, value, f"a whole number{bounds(minimum, maximum)}")


def number(field: str, value: object, *, minimum: float | None = None, maximum: float | None = None) -> float:
    """Check a finite number; booleans are not numbers."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        result = float(value)
        if math.isfinite(result) and _is_within(result, minimum, maximum):
            return result
    raise InvalidField(field, value, f"a finite number{bounds(minimum, maximum)}")


def choice(field: str, value: object, options: Iterable[T]) -> T:
    options = list(options)
    for option in options:
        if value == option and type(value) is type(option):
            return option
    raise InvalidField(field, value, "one of " + ", ".join(repr(option) for option in options))


def scalar(field: str, value: object) -> Scalar:
    """Check a value that JSON can carry and a table cell can show."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return number(field, value)
    raise InvalidField(field, value, "a number, text, true, false or null")


def bounds(minimum: float | None, maximum: float | None) -> str:
    """Bounds in words that follow "a number"."""
    if minimum is not None and maximum is not None:
        return f" from {minimum} to {maximum}"
    if minimum is not None:
        return f", at least {minimum}"
    return "" if maximum is None else f", at most {maximum}"


def _is_within(value: float, minimum: float | None, maximum: float | None) -> bool:
    return (minimum is None or value >= minimum) and (maximum is None or value <= maximum)
