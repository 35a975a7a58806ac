"""Functions that are sent to workers by value keep the names of their files."""

from __future__ import annotations

from types import CodeType
from typing import Any

SENT = "<dynamic-code>"  # what cloudpickle writes as the name of the file, from its release 3.1.3 on


def keep_file_names() -> None:
    """From now on, functions that this process pickles have these names, for tracebacks and standstills."""
    from cloudpickle import cloudpickle

    if not hasattr(cloudpickle, "Pickler"):
        return  # releases before 3, which write the names

    def reduce(code: CodeType) -> tuple[Any, ...]:
        make, arguments = cloudpickle._code_reduce(code)
        return make, tuple(code.co_filename if each == SENT else each for each in arguments)

    cloudpickle.Pickler.dispatch_table[CodeType] = reduce
