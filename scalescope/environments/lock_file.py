"""Reads the releases and commits that a lock file pins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.markers import InvalidMarker, Marker

from scalescope.environments.git import COMMIT
from scalescope.environments.uv import redact
from scalescope.errors import UsageError
from scalescope.model.environment import normalise, split_repository

_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*==\s*([A-Za-z0-9_.!+-]+)$")
_HASH = re.compile(r"\s--hash[=\s]\S+")


def from_lock(path: Path | str) -> dict[str, str]:
    """The versions that a file from `pip freeze` or `uv pip compile` pins, by package name, sorted by name.

    The version of a package from a repository is `git+ADDRESS@COMMIT`.

    Lines with markers that do not match this Python and platform are left out.
    """
    pins: dict[str, str] = {}
    for number, line in _lines(Path(path)):
        where = f"{path}, line {number}"
        requirement, _, marker = _HASH.sub("", f" {line}").strip().partition(";")
        name, version = _pin(requirement.strip())
        if not version:
            raise UsageError(
                f"a line of the lock file pins no release: {redact(line)!r}",
                where=where,
                cause=_cause(requirement),
                next_step="write a lock file by `uv pip compile` or `pip freeze`, without options and addresses",
            )
        if marker.strip() and not _holds(marker.strip(), where):
            continue
        if pins.setdefault(name, version) != version:
            raise UsageError(f"the lock file pins {name} to {pins[name]} and to {version}", where=where)
    if not pins:
        raise UsageError("the lock file pins nothing", where=str(path), next_step="give a file of name==version lines")
    return dict(sorted(pins.items()))


def _pin(requirement: str) -> tuple[str, str]:
    """Name and version; empty texts if the requirement pins no version."""
    if match := _PIN.match(requirement):
        return normalise(match[1]), match[2]
    found = split_repository(re.sub(r"\s*@\s*", "@", requirement))
    if found is None or not COMMIT.match(found.ref):
        return "", ""
    return found.package.partition("[")[0], f"git+{found.address}@{found.ref}"


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without comments and blanks; continued lines are joined."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("the lock file cannot be read", where=str(path), cause=str(error)) from error
    first, joined = 1, ""
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        if not joined:
            first = number
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        joined = (joined + line).strip()
        if joined:
            yield first, joined
        joined = ""


def _cause(requirement: str) -> str:
    if requirement.startswith("-"):
        return "options in a lock file are not supported"
    if "@" in requirement or "://" in requirement:
        return "an address or a folder pins nothing, unless it ends with the commit of a repository"
    return "only name==version pins a release"


def _holds(marker: str, where: str) -> bool:
    try:
        return Marker(marker).evaluate()
    except InvalidMarker as error:
        raise UsageError("the line's marker cannot be read", where=where, cause=str(error)) from error
