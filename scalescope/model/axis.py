"""The values of an axis, as people write them: a list, a single value, or text such as `1..8,16`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.fields import Scalar

RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?::(\d+))?")
MAX_RANGE = 100_000
WORDS: dict[str, Scalar] = {"true": True, "false": False, "null": None}


def value(text: str) -> Scalar:
    """Read a number, true, false or null; any other text stays text."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read(where: str, text: str) -> list[Scalar]:
    """Read `1,2,4`, `1..8` and `50..300:50`, alone or joined by commas; a range includes its end."""
    return [each for part in text.split(",") for each in _part(where, text, part.strip())]


def values(where: str, given: object) -> list[Scalar]:
    """Values of an axis: a list, one value, or text for `read`."""
    if isinstance(given, str):
        return read(where, given)
    if not isinstance(given, list | tuple):
        return [fields.scalar(where, given)]
    return list(chain.from_iterable(_item(f"{where}[{i}]", each) for i, each in enumerate(given)))


def _item(where: str, given: object) -> Iterable[Scalar]:
    if isinstance(given, str) and RANGE.fullmatch(given):
        return read(where, given)
    return [fields.scalar(where, given)]


def _part(where: str, text: str, part: str) -> Iterable[Scalar]:
    if not part:
        raise InvalidField(where, text, "VALUE,VALUE,... or FIRST..LAST or FIRST..LAST:STEP")
    if ".." not in part:
        return [value(part)]
    match = RANGE.fullmatch(part)
    if not match:
        raise InvalidField(where, text, "a range FIRST..LAST or FIRST..LAST:STEP of whole numbers")
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if last < first or step < 1:
        raise InvalidField(where, text, "a range that goes up, with a step of at least 1")
    if (last - first) // step >= MAX_RANGE:
        raise InvalidField(where, text, f"at most {MAX_RANGE} values")
    return range(first, last + 1, step)
