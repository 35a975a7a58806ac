"""Writes proven patches: to a `.patch` file, and to the user's files if asked to."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from scalescope.errors import UsageError
from scalescope.fixing.result import Fix
from scalescope.fixing.subject import Subject
from scalescope.own_code.script import records
from scalescope.owner import replace_file

CHANGED = "has changed since the patch was proven"


def write_patch(found: Fix) -> Path:
    """Write the patch next to the script as NAME.patch; if another file has that name, add a number."""
    content, number, path = found.patch.encode(errors="surrogateescape"), 1, found.script.with_suffix(".patch")
    while path.exists() and path.read_bytes() != content:
        number += 1
        path = found.script.with_name(f"{found.script.stem}-{number}.patch")
    path.write_bytes(content)
    return path


def keep(found: Fix, subject: Subject) -> None:
    """Keep the proven patches of a program and its arguments, so that `apply_kept` need not prove them again."""
    files = {
        str(found.root / name): {"before": _digest(found.before[name]), "after": content.decode("latin-1")}
        for name, content in found.after.items()
    }
    replace_file(_kept(subject), json.dumps(files))


def apply_kept(subject: Subject) -> list[Path] | None:
    """Apply the patch that was proven before; None if there is none, or a file has changed since."""
    try:
        files = json.loads(_kept(subject).read_text())
    except (OSError, ValueError):
        return None
    if any(
        not Path(name).is_file() or _digest(Path(name).read_bytes()) != each["before"] for name, each in files.items()
    ):
        return None
    return [_written(Path(name), each["before"], each["after"].encode("latin-1")) for name, each in files.items()]


def apply(found: Fix) -> list[Path]:
    """Write the patched files; if a file has changed since the proof, raises `UsageError` before it writes any."""
    for name, content in found.before.items():
        if (found.root / name).read_bytes() != content:
            raise UsageError(f"{name} {CHANGED}", where=str(found.root / name), next_step="run scalescope fix again")
    return [
        _written(found.root / name, _digest(found.before[name]), content)
        for name, content in sorted(found.after.items())
    ]


def _written(path: Path, before: str, content: bytes) -> Path:
    """Replace a file in one step; its old content is kept as NAME.orig unless git has it."""
    path = path.resolve()
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(content)
        shutil.copymode(path, part)
        if not _is_in_git(path):
            shutil.copy2(path, path.with_name(f"{path.name}.orig"))
        if _digest(path.read_bytes()) != before:
            raise UsageError(f"{path.name} {CHANGED}", where=str(path), next_step="run scalescope fix again")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _is_in_git(path: Path) -> bool:
    """Whether the last commit contains the file in its present version."""
    git = shutil.which("git")
    asked = (["ls-files", "--error-unmatch"], ["diff", "--quiet", "HEAD"])
    commands = [[str(git), "-C", str(path.parent), *each, "--", path.name] for each in asked]
    done = git and [subprocess.run(each, capture_output=True, check=False) for each in commands]
    return bool(done) and not any(each.returncode for each in done or ())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _kept(subject: Subject) -> Path:
    program = subject.program
    named = json.dumps([str(subject.file), *program.arguments, program.python, *subject.words])
    return records().parent / "fixes" / f"{_digest(named.encode())[:24]}.json"
