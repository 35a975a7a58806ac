"""A file with a site's configuration of Dask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dask
import pytest


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes the file, and makes it the only one that Dask reads."""

    def write(text: str) -> Path:
        path = tmp_path / "site.yaml"
        path.write_text(text)
        monkeypatch.setattr(dask.config, "paths", [str(path)])
        return path

    return write
