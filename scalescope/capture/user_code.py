"""Tells the user's own code from that of libraries, and names its lines. Imports only the standard library."""

from __future__ import annotations

import functools
import sys
import sysconfig
from pathlib import Path
from types import FrameType

SHIPPED = "scalescope_shipped_"  # prefix of the names of shipped modules and of their files
_PACKAGES = ("dask", "distributed", "scalescope")  # packages that may be installed as editable copies
_INSTALLED = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_LINES = 1_000  # largest number of cached names of lines


def is_library(file: str) -> bool:
    """Whether a file is not the user's: it belongs to an installed package, or is shipped or generated."""
    return _is_installed(file) or file.startswith(_copies(len(sys.modules)))


@functools.cache
def _is_installed(file: str) -> bool:
    return file.startswith(("<", SHIPPED, *_INSTALLED)) or bool(
        {"site-packages", "dist-packages"} & set(Path(file).parts)
    )


@functools.lru_cache(maxsize=1)
def _copies(modules: int) -> tuple[str, ...]:
    found = (getattr(sys.modules.get(name), "__file__", None) for name in _PACKAGES)
    return tuple(f"{Path(file).parent}/" for file in found if file)


def line_of_user(frame: FrameType | None) -> str:
    """The innermost line outside libraries, such as `my_job.py:14 in run`; empty if there is none."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_library(file):
            return _line(file, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return ""


@functools.lru_cache(maxsize=_LINES)
def _line(file: str, number: int, function: str) -> str:
    return f"{Path(file).name}:{number} in {function}"
