"""JSON and text in a form that every database accepts.

PostgreSQL refuses NaN and infinity in JSON, and NUL in text. No database accepts lone surrogates in text; Python uses
them for file names that are not UTF-8.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from scalescope.errors import StoreError

_MARK = "$float"


def dumps(value: object) -> str:
    """JSON in ASCII; numbers that JSON lacks become `{"$float": "nan"}`."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_mark(value), allow_nan=False)
    except TypeError as error:
        raise StoreError(
            f"A value to be stored is not JSON: {error}",
            cause="A fact, parameter or metric is not a number, text, list or mapping.",
        ) from error


@dataclass(frozen=True)
class Unreadable:
    """Takes the place of damaged JSON in a row, so that the other rows can be read."""

    problem: str


def loads(text: str | bytes) -> Any:
    """The inverse of `dumps`; `Unreadable` for damaged JSON."""
    try:
        return json.loads(text, object_hook=_unmark)
    except ValueError as error:
        return Unreadable(str(error))


def clean(text: str) -> str:
    """Escape characters that databases refuse."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def _mark(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return {_MARK: str(value)}
    if isinstance(value, dict):
        return {key: _mark(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mark(item) for item in value]
    return value


def _unmark(data: dict[str, Any]) -> Any:
    if len(data) == 1 and data.get(_MARK) in ("nan", "inf", "-inf"):
        return float(data[_MARK])
    return data
