"""Provides an environment: the present one, one from the cache, or one that uv builds now."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from scalescope.environments import cache, extra_requirements, uv
from scalescope.environments.cache import Manifest
from scalescope.environments.cache_locks import BUILD, USE, CacheLock, hold
from scalescope.errors import EnvironmentUnavailable
from scalescope.interpreters import Interpreter, look, refuse_without_distributed
from scalescope.model.environment import Environment

_FORMAT = 1  # of the folders; another number makes all of them anew
_SHOWN_TEXT = 200


@dataclass(frozen=True)
class Built:
    """An environment that a driver can be started in."""

    environment: Environment  # what was asked for
    python: str  # path of its interpreter
    python_version: str  # of that, such as 3.11.7
    packages: dict[str, str]  # version of every distribution installed, by normalised name
    digest: str  # of `packages`, as trials record it
    fresh: bool  # whether it was built for this
    seconds: float  # real seconds that it took to have it


def ensure(environment: Environment, *, says: Callable[[str], None] = lambda text: None) -> Built:
    """Have an environment that a driver can run in; build it with uv unless it is in the cache.

    What is not pinned is resolved once, when it is built. This process keeps it from being pruned until it ends. Of
    several processes that want the same one at once, one builds and the others wait.

    Args:
        environment: Which.
        says: Told in a sentence what takes long.

    Raises:
        EnvironmentFailed: There can be none: the requirements contradict each other, a release does not exist or does
            not build here, or a path is no interpreter that can run a driver.
        EnvironmentUnavailable: It could not be built here and now: the package index is out of reach, the disk is full,
            there is no uv.
    """
    began = time.monotonic()
    if environment.present:
        return _of(environment, _present(), began)
    if environment.python:
        found = look(environment.python)
        refuse_without_distributed(found)
        return _of(environment, found, began)
    try:
        folder = cache.folder() / _key(environment)
        folder.parent.mkdir(parents=True, exist_ok=True)
        manifest, fresh = _from_cache(environment, folder, says)
    except OSError as error:
        raise EnvironmentUnavailable(
            f"environment {_shown(environment)} cannot be kept",
            where=str(cache.folder()),
            cause=str(error),
            next_step=f"set {cache.VARIABLE} to another folder",
        ) from error
    found = Interpreter(cache.interpreter(folder), manifest.python_version, manifest.packages, manifest.digest)
    return _of(environment, found, began, fresh=fresh)


def resolve(environment: Environment) -> dict[str, str]:
    """What requirements resolve to now: version of every package, by normalised name; nothing is built.

    Raises:
        EnvironmentFailed: The requirements contradict each other, or a release does not exist.
        EnvironmentUnavailable: The package index is out of reach, or there is no uv.
    """
    resolved, _ = _resolve(environment, _python(environment), ())
    return {extra_requirements.name(name): version.split()[0] for name, _, version in _pins(resolved)}


def _of(environment: Environment, found: Interpreter, began: float, *, fresh: bool = False) -> Built:
    seconds = time.monotonic() - began
    return Built(environment, found.python, found.version, found.packages, found.digest, fresh, seconds)


@functools.cache
def _present() -> Interpreter:
    return look(sys.executable)


def _shown(environment: Environment) -> str:
    text = environment.label
    return text if len(text) <= _SHOWN_TEXT else f"{text[: _SHOWN_TEXT - 3]}..."


def _key(environment: Environment) -> str:
    """Name of its folder."""
    python = environment.python_version or platform.python_version()
    identity = [_FORMAT, environment.text, python, sys.implementation.name, sysconfig.get_platform()]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


# ------------------------------------------------------------------ the cache


def _from_cache(environment: Environment, folder: Path, says: Callable[[str], None]) -> tuple[Manifest, bool]:
    """What is there, and whether it was built now; this process holds a lock from now on, so that it stays there."""

    def waiting() -> None:
        says(f"Waiting for another process that builds or removes environment {_shown(environment)}")

    with ExitStack() as stack:
        use = CacheLock(folder, USE)
        stack.callback(use.close)
        use.share(waiting)
        manifest, fresh = Manifest.read(folder), False
        if manifest is None:
            with closing(CacheLock(folder, BUILD)) as build:
                build.own(waiting)
                manifest = Manifest.read(folder)  # the other one has built it
                if manifest is None:
                    manifest, fresh = _build(environment, folder, [use.fd, build.fd], says), True
        os.utime(folder / cache.MANIFEST)
        stack.pop_all()
    hold(folder, use)
    return manifest, fresh


def _build(environment: Environment, folder: Path, locks: Sequence[int], says: Callable[[str], None]) -> Manifest:
    """Build it in its place. Nobody uses it before its manifest is there, which is written last.

    uv and its children inherit the locks: if this process is killed, the next one waits for them to end, too.
    """
    says(f"Building environment {_shown(environment)}")
    began = time.monotonic()
    cache.remove(folder)  # what a killed builder left
    with ExitStack() as stack:
        stack.callback(cache.remove, folder)
        manifest = _install(environment, folder, locks)
        manifest.write(folder)
        stack.pop_all()
    added = f", {' and '.join(manifest.added)} added" if manifest.added else ""
    says(f"Built in {time.monotonic() - began:.0f} s: {len(manifest.packages)} packages{added}")
    return manifest


def _install(environment: Environment, folder: Path, keep: Sequence[int]) -> Manifest:
    shown = _shown(environment)
    uv.run(
        ["venv", "--quiet", "--python", _python(environment), str(folder)],
        what=f"there is no Python for environment {shown}",
        next_step="install that Python, or ask for another version",
        keep=keep,
    )
    python = cache.interpreter(folder)
    resolved, added = _resolve(environment, python, keep)
    uv.run(
        ["pip", "install", "--quiet", "--python", python, "--no-deps", "--compile-bytecode", "-r", "-"],
        what=f"environment {shown} cannot be installed",
        text=resolved,
        keep=keep,
    )
    found = look(python)
    return Manifest(
        text=environment.text,
        python_version=found.version,
        packages=found.packages,
        digest=found.digest,
        resolved=resolved.splitlines(),
        added=added,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        size=cache.size(folder),
        uv=uv.run(["--version"], what="uv does not say its version").strip(),
    )


def _python(environment: Environment) -> str:
    """The present interpreter where it will do: not every 3.11 on a machine has the same patches and libraries."""
    version = environment.python_version
    own = not version or (platform.python_version() + ".").startswith(version + ".")
    return sys.executable if own else version


def _resolve(environment: Environment, python: str, keep: Sequence[int]) -> tuple[str, list[str]]:
    """Releases to install, as lines of requirements, and what was added to what was asked for."""
    asked = [*environment.requirements, extra_requirements.DRIVER]
    what = f"environment {_shown(environment)} cannot be resolved"
    resolved = _compile(asked, python, what, keep)
    versions = {extra_requirements.name(name): version.split()[0] for name, _, version in _pins(resolved)}
    more = extra_requirements.needed(versions, map(extra_requirements.name, environment.requirements))
    if not more:
        return resolved, []
    added = [need.requirement for need in more]
    what = f"{what} with {' and '.join(added)}, which its old releases of {more[0].package} need"
    return _compile([*asked, *added], python, what, keep), added


def _pins(resolved: str) -> list[tuple[str, str, str]]:
    lines = (line.partition("==") for line in resolved.splitlines())
    return [line for line in lines if line[2]]


def _compile(requirements: Sequence[str], python: str, what: str, keep: Sequence[int]) -> str:
    command = ["pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", python, "-"]
    return uv.run(command, what=what, text="\n".join(requirements), keep=keep)
