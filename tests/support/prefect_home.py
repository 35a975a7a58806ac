"""Homes of Prefect with a migrated database: a server that finds none migrates one, which takes 11 s of CPU."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import prefect

KEPT = Path(__file__).parents[2] / ".pytest_cache" / f"prefect-{prefect.__version__}.db"


def fill(folder: Path, name: str = "prefect.db") -> Path:
    """Make a folder what PREFECT_HOME is after a first start, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(_migrated(), folder / name)
    return folder


def _migrated() -> Path:
    """A database, made once for this release of Prefect, also where several processes want it at once."""
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not KEPT.exists():
            with tempfile.TemporaryDirectory() as home:
                clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
                command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"]
                subprocess.run(command, env=clean | {"PREFECT_HOME": home}, check=True, capture_output=True)
                shutil.move(Path(home) / "prefect.db", KEPT)
    return KEPT
