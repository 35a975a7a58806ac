"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scalescope.errors import StoreError


@contextmanager
def replacing(path: Path, what: str) -> Iterator[Path]:
    """Give a place beside `path` to write to, and put what was written there in its place.

    Args:
        path: The file that comes to be, or is replaced; untouched when the body raises.
        what: It in words, as the subject of the error.

    Raises:
        StoreError: It cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise StoreError(
            f"The {what} could not be written: {error.strerror or error}",
            where=str(path),
            next_step="Give another place: --output FILE.",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
