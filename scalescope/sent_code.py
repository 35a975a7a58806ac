"""Keeps the file names of functions that are sent to workers by value."""

from __future__ import annotations

from types import CodeType
from typing import Any

SENT = "<dynamic-code>"  # file name that cloudpickle writes, from its release 3.1.3 on


def keep_file_names() -> None:
    """Make functions that this process pickles keep their file names, for tracebacks and standstills."""
    from cloudpickle import cloudpickle

    if not hasattr(cloudpickle, "Pickler"):
        return  # cloudpickle before release 3 keeps the names

    def reduce(code: CodeType) -> tuple[Any, ...]:
        make, arguments = cloudpickle._code_reduce(code)
        return make, tuple(code.co_filename if each == SENT else each for each in arguments)

    cloudpickle.Pickler.dispatch_table[CodeType] = reduce
