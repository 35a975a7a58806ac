"""Copies of a script's folder: inputs are copied if small and linked if large; what a run writes stays in its copy."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FILE_BYTES = 16 << 20  # bytes from which a file is linked instead of copied
FOLDER_FILES, FOLDER_BYTES = 500, 64 << 20  # files and bytes from which a folder is linked as a whole
WHOLE_BYTES = 512 << 20  # most bytes that are copied for one copy; all further files are linked
LEFT_OUT = {"__pycache__", "dask-scratch-space", "dask-worker-space"}


@dataclass
class Copy:
    """A folder in which a script can run as in its own."""

    folder: Path
    before: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # bytes and mtime (ns) of files, by path

    def written(self) -> dict[str, Path]:
        """Files that are new or were changed, by relative path."""
        return {name: path for name, path in _files(self.folder).items() if self.before.get(name) != _state(path)}

    def gone(self) -> set[str]:
        return set(self.before) - set(_files(self.folder))

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def copy(source: Path, target: Path, changed: Mapping[Path, bytes]) -> Copy:
    """Make a copy of a folder. `changed`: new contents of some of its files, by relative path."""
    left = WHOLE_BYTES
    target.mkdir(parents=True)
    for entry in sorted(source.iterdir()):
        if entry.name not in LEFT_OUT:
            left = _copied(entry, target / entry.name, left)
    for name, content in changed.items():
        file = target / name
        _own_folder(target, file.parent)
        file.unlink(missing_ok=True)
        file.write_bytes(content)
        shutil.copymode(source / name, file)
    return Copy(target, {name: _state(path) for name, path in _files(target).items()})


def digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _copied(entry: Path, target: Path, left: int) -> int:
    """Copy or link an entry; returns the bytes that may still be copied."""
    if entry.is_symlink():
        target.symlink_to(entry.resolve())
        return left
    if entry.is_dir():
        size = _size(entry)
        if size is None or size > left:
            target.symlink_to(entry.resolve())
            return left
        shutil.copytree(entry, target, symlinks=False, ignore=shutil.ignore_patterns(*LEFT_OUT))
        return left - size
    if not entry.is_file():  # neither a file nor a folder: a socket or a pipe
        return left
    size = entry.stat().st_size
    if size > min(FILE_BYTES, left):
        target.symlink_to(entry.resolve())
        return left
    shutil.copy2(entry, target)
    return left - size


def _size(folder: Path) -> int | None:
    """Bytes of all files in a folder; None if they are too many or too large to copy, or cannot be read."""
    count, size = 0, 0
    for path, folders, files in os.walk(folder):
        count += len(files) + len(folders)
        if count > FOLDER_FILES:
            return None
        for name in files:
            each = Path(path, name)
            if not each.is_file() or not os.access(each, os.R_OK):
                return None
            size += each.stat().st_size
        if size > FOLDER_BYTES:
            return None
    return size


def _own_folder(root: Path, folder: Path) -> None:
    """Replace each link to a folder, on the path to a file, by a real folder with links to its entries."""
    for part in [*reversed(folder.relative_to(root).parents), folder.relative_to(root)]:
        each = root / part
        if each.is_symlink():
            real = each.resolve()
            each.unlink()
            each.mkdir()
            for entry in real.iterdir():
                (each / entry.name).symlink_to(entry)


def _files(folder: Path) -> dict[str, Path]:
    """Files in a copy, without those behind links, by relative path."""
    found = {}
    for path, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each not in LEFT_OUT]
        for each in map(Path(path).joinpath, files):
            if not each.is_symlink() and each.is_file():
                found[str(each.relative_to(folder))] = each
    return found


def _state(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns
