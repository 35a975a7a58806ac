from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, since it becomes part of the addresses of sockets."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        yield Path(made)
