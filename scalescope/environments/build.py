"""Provides a Python environment: the present one, a cached one, or a new one built by uv."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from scalescope.environments import cache, extra_requirements, git, uv
from scalescope.environments.cache import Manifest
from scalescope.environments.cache_locks import BUILD, USE, CacheLock, hold
from scalescope.errors import EnvironmentUnavailable
from scalescope.interpreters import Interpreter, look, refuse_without_distributed
from scalescope.model.environment import Environment
from scalescope.owner import make_folder

_FORMAT = 1  # version of the folders' layout; if it is increased, all environments are built anew
_SHOWN_TEXT = 200


@dataclass(frozen=True)
class Built:
    """An environment that a driver can be started in."""

    environment: Environment  # the environment that was asked for
    python: str  # path of its interpreter
    python_version: str  # version of that interpreter, such as 3.11.7
    packages: dict[str, str]  # version of every distribution installed, by normalised name
    digest: str  # digest of `packages`, as trials record it
    fresh: bool  # True if this call built it
    seconds: float  # real seconds that `ensure` took


def ensure(environment: Environment, *, says: Callable[[str], None] = lambda text: None) -> Built:
    """Provide an environment that a driver can run in; uv builds it unless it is in the cache.

    Unpinned requirements are resolved once, when the environment is built; references to repositories at each call. The
    environment is not pruned while this process lives. If several processes want the same environment, one builds it
    and the others wait. `says` is called with a sentence before anything that takes long.

    Raises:
        EnvironmentFailed: The environment is impossible: requirements contradict each other, a release does not exist
            or does not build, or the interpreter cannot run a driver.
        EnvironmentUnavailable: The environment cannot be built here and now: no index, no disk space, or no uv.
    """
    began = time.monotonic()
    if environment.present:
        return _of(environment, _present(), began)
    if environment.python:
        found = look(environment.python)
        refuse_without_distributed(found)
        return _of(environment, found, began)
    environment = git.pinned(environment)
    try:
        folder = cache.folder() / _key(environment)
        make_folder(folder.parent, may_share=True)
        manifest, fresh = _from_cache(environment, folder, says)
    except OSError as error:
        raise EnvironmentUnavailable(
            f"environment {_shown(environment)} cannot be stored",
            where=str(cache.folder()),
            cause=str(error),
            next_step=f"set {cache.VARIABLE} to another folder",
        ) from error
    found = Interpreter(cache.interpreter(folder), manifest.python_version, manifest.packages, manifest.digest)
    return _of(environment, found, began, fresh=fresh)


def resolve(environment: Environment) -> dict[str, str]:
    """Versions to which uv resolves the requirements now, by normalised name; `git+ADDRESS@COMMIT` for repositories."""
    resolved, _ = _resolve(git.pinned(environment), _python(environment), ())
    return _versions(resolved)


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
    python = environment.python_version or platform.python_version()
    identity = [_FORMAT, environment.text, python, sys.implementation.name, sysconfig.get_platform()]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


# ------------------------------------------------------------------ the cache


def _from_cache(environment: Environment, folder: Path, says: Callable[[str], None]) -> tuple[Manifest, bool]:
    """The manifest of an environment, and whether this call built it; holds the lock `USE` until this process ends."""

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
                manifest = Manifest.read(folder)  # another process may have built it meanwhile
                if manifest is None:
                    manifest, fresh = _build(environment, folder, [use.fd, build.fd], says), True
        os.utime(folder / cache.MANIFEST)
        stack.pop_all()
    hold(folder, use)
    return manifest, fresh


def _build(environment: Environment, folder: Path, locks: Sequence[int], says: Callable[[str], None]) -> Manifest:
    """Build an environment in its folder. The manifest is written last; a folder without manifest is not used.

    uv and its children inherit the locks: if this process is killed, the next builder also waits for uv to end.
    """
    says(f"Building environment {_shown(environment)}")
    began = time.monotonic()
    cache.remove(folder)  # remains of a killed build
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
        ["pip", "install", "--quiet", "--python", python, "--no-deps", "-r", "-"],
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
        uv=uv.run(["--version"], what="uv does not print its version").strip(),
    )


def _python(environment: Environment) -> str:
    """This interpreter if its version fits, as other builds may differ; else the version that uv must find."""
    version = environment.python_version
    own = not version or (platform.python_version() + ".").startswith(version + ".")
    return sys.executable if own else version


def _resolve(environment: Environment, python: str, keep: Sequence[int]) -> tuple[str, list[str]]:
    """Releases to install, as requirement lines; and the `extra_requirements` that were added."""
    asked = [*environment.requirements, extra_requirements.DRIVER]
    what = f"environment {_shown(environment)} cannot be resolved"
    resolved = _compile(asked, python, what, keep)
    released = {name: version for name, version in _versions(resolved).items() if not version.startswith("git+")}
    more = extra_requirements.needed(released, map(extra_requirements.package_name, environment.requirements))
    if not more:
        return resolved, []
    added = [need.requirement for need in more]
    what = f"{what} with {' and '.join(added)}, which the old release of {more[0].package} needs"
    return _compile([*asked, *added], python, what, keep), added


def _versions(resolved: str) -> dict[str, str]:
    parts = (re.split(r"==| @ ", line, maxsplit=1) for line in resolved.splitlines())
    return {extra_requirements.package_name(each[0]): each[1].split()[0] for each in parts if each[1:]}


def _compile(requirements: Sequence[str], python: str, what: str, keep: Sequence[int]) -> str:
    command = ["pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", python, "-"]
    return uv.run(command, what=what, text="\n".join(requirements), keep=keep)
