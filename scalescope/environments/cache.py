"""The cache of environments: its folder, a manifest of each, and the removal of unused ones."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from scalescope.environments.cache_locks import USE, CacheLock
from scalescope.errors import EnvironmentUnavailable
from scalescope.owner import user_folder

VARIABLE = "SCALESCOPE_ENVIRONMENTS"
# This file is written last, so a folder without it is incomplete. Its modification time is that of the last use.
MANIFEST = "environment.json"

_DAY_S = 86_400.0


@dataclass(frozen=True)
class Manifest:
    """Contents of the file that describes an environment; it lies in the environment's folder."""

    text: str  # canonical text of the environment
    python_version: str  # version of the interpreter
    packages: dict[str, str]  # version of every distribution installed, by normalised name
    digest: str  # digest of `packages`
    resolved: list[str]  # releases that uv chose, as requirement lines with which to install the same again
    added: list[str]  # requirements that were added because old releases do not declare them
    created: str  # time of the build in UTC, ISO 8601
    size: int  # bytes of all files, including those shared with uv's own cache
    uv: str  # version of uv

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """The manifest in a folder; None if the folder is incomplete or its interpreter is gone."""
        try:
            found = cls(**json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
            return None
        return found if os.access(interpreter(folder), os.X_OK) else None

    def write(self, folder: Path) -> None:
        draft = folder / f"{MANIFEST}.new"
        draft.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        os.replace(draft, folder / MANIFEST)


@dataclass(frozen=True)
class Cached:
    """An environment in the cache."""

    text: str  # canonical text of the environment
    path: Path  # folder of the environment
    size: int  # bytes of all files, including those shared with uv's own cache
    python_version: str  # version of the interpreter
    packages: int  # number of installed packages
    created: str  # time of the build in UTC, ISO 8601
    last_used: float  # time of the last use, in seconds since the epoch
    in_use: bool  # True while a living process uses it


@dataclass(frozen=True)
class Pruned:
    """Environments removed from the cache."""

    removed: tuple[str, ...]  # canonical texts of removed environments; an empty text is an incomplete one
    in_use: tuple[str, ...]  # canonical texts of environments kept only because they are in use
    freed: int  # bytes freed on the file system, without files that uv's own cache keeps


def folder() -> Path:
    """`$SCALESCOPE_ENVIRONMENTS`, or a folder in the user's cache folder (XDG)."""
    given = os.environ.get(VARIABLE, "")
    if given:
        return Path(os.path.abspath(os.path.expanduser(given)))
    return user_folder("XDG_CACHE_HOME", ".cache") / "environments"


def interpreter(path: Path) -> str:
    return str(path / "bin" / "python")


def list_cached() -> tuple[Cached, ...]:
    """All complete environments, the most recently used first."""
    found = []
    for path in _folders():
        manifest = Manifest.read(path)
        if manifest is not None:
            found.append(_cached(path, manifest))
    return tuple(sorted(found, key=lambda cached: -cached.last_used))


def prune(*, older_than_days: float = 30.0, everything: bool = False, dry_run: bool = False) -> Pruned:
    """Remove environments unused for `older_than_days`, and remains of killed builds, unless they are in use.

    `everything`: also remove recently used environments. `dry_run`: return the same result, but remove nothing.
    """
    removed, in_use, freed = [], [], 0
    for path in _folders():
        lock = CacheLock(path, USE)
        try:
            manifest = Manifest.read(path)
            age_s = time.time() - _last_used(path)
            if manifest is not None and not everything and age_s < older_than_days * _DAY_S:
                continue
            text = manifest.text if manifest else ""
            if lock.try_own():
                freed += size(path, shared=False) if dry_run else remove(path)
                removed.append(text)
            elif manifest is not None:  # if there is no manifest, it is being built
                in_use.append(text)
        finally:
            lock.close()
    return Pruned(tuple(removed), tuple(in_use), freed)


def remove(path: Path) -> int:
    """Remove an environment's folder, which the caller has locked; return the bytes freed."""
    try:
        (path / MANIFEST).unlink(missing_ok=True)  # first, so that a half-removed environment is never used
        freed = size(path, shared=False)
        shutil.rmtree(path)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise EnvironmentUnavailable("an environment cannot be removed", where=str(path), cause=str(error)) from error
    return freed


def size(path: Path, *, shared: bool = True) -> int:
    """Bytes of all files in a folder; without `shared`, only of files that have no further hard links."""
    total = 0
    for base, _, names in os.walk(path):
        for name in names:
            found = os.lstat(os.path.join(base, name))
            total += found.st_size if shared or found.st_nlink == 1 else 0
    return total


def _folders() -> Iterator[Path]:
    root = folder()
    if root.is_dir():
        yield from sorted(path.with_suffix("") for path in root.glob(f"*{USE}") if path.with_suffix("").is_dir())


def _last_used(path: Path) -> float:
    try:
        return (path / MANIFEST).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _cached(path: Path, manifest: Manifest) -> Cached:
    lock = CacheLock(path, USE)
    try:
        in_use = not lock.try_own()
    finally:
        lock.close()
    return Cached(
        text=manifest.text,
        path=path,
        size=manifest.size,
        python_version=manifest.python_version,
        packages=len(manifest.packages),
        created=manifest.created,
        last_used=_last_used(path),
        in_use=in_use,
    )
