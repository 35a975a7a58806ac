"""Lists the releases of a package, and finds the address of its changelog."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass

from scalescope.environments import uv
from scalescope.environments.build import Built
from scalescope.environments.extra_requirements import package_name
from scalescope.errors import EnvironmentFailed, InvalidField

MAX_RELEASES = 500  # most releases that are listed: the newest ones

_TIMEOUT_S = 60.0
_NAME = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
_VERSION = re.compile(r"^[A-Za-z0-9_.!+-]+$")
_NO_MORE = "No solution found"
# Labels of changelogs in a package's project URLs (PyPA's well-known labels, and others in use), by preference.
_LABELS = ("changelog", "changes", "releasenotes", "whatsnew", "history", "news", "releases")

_READ = """
import importlib.metadata, json, sys
del sys.path[0]
print(json.dumps(importlib.metadata.metadata(sys.argv[1]).get_all("Project-URL") or []))
"""


@dataclass(frozen=True)
class PackageRelease:
    """A release of a package that uv would install here."""

    package: str  # normalised name
    version: str  # version in the spelling of the index

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"


def releases(package: str, *, first: str = "", last: str = "", python_version: str = "") -> tuple[PackageRelease, ...]:
    """The releases of a package that can be installed, oldest first, from version `first` to `last` (empty: all).

    uv cannot list releases, and pip might use another index: uv is asked for the newest release, then for the newest
    before that, and so on (0.1 s each), for at most `MAX_RELEASES`. Pre-releases and yanked releases are left out, and
    those without wheels if others have wheels.
    """
    if not _NAME.match(package):
        raise InvalidField("package", package, "the name of a package")
    for field, version in (("first", first), ("last", last)):
        if version and not _VERSION.match(version):
            raise InvalidField(field, version, "a version such as 2.50.0")
    options = ["--prerelease", "disallow"]
    options += ["--python", sys.executable]  # without this, uv may download another Python
    options += ["--python-version", python_version] if python_version else []
    try:
        found = _walk(package, first, last, [*options, "--no-build"])
    except EnvironmentFailed:
        found = _walk(package, first, last, options)  # no release has wheels
    return tuple(PackageRelease(package_name(package), version) for version in reversed(found))


def _walk(package: str, first: str, last: str, options: list[str]) -> list[str]:
    lowest = f",>={first}" if first else ""
    bound = f"<={last}" if last else ""
    found: list[str] = []
    while len(found) < MAX_RELEASES:
        clauses = (bound + lowest).strip(",")
        try:
            version = _newest(f"{package}{clauses}", options)
        except EnvironmentFailed as error:
            if found and _NO_MORE in error.cause:
                break
            raise
        found.append(version)
        bound = f"<={version},!={version}"  # "<" would also leave out the pre-releases of that version
    return found


def _newest(requirement: str, options: list[str]) -> str:
    said = uv.run(
        ["pip", "compile", "--quiet", "--no-deps", "--no-header", "--no-annotate", *options, "-"],
        what=f"the releases of {requirement} cannot be listed",
        next_step="check the name, and the versions asked for",
        text=requirement,
    )
    version = said.strip().partition("==")[2].split(";")[0].strip()
    if not version:
        raise EnvironmentFailed(
            f"the releases of {requirement} cannot be listed", cause=f"uv resolves it to {uv.redact(said.strip())!r}"
        )
    return version


def changelog(built: Built, package: str) -> str:
    """Address of a package's changelog, from its metadata in an environment; empty if the metadata has none."""
    command = [built.python, "-c", _READ, package]
    done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise EnvironmentFailed(f"environment {built.environment.label} has no package {package}")
    found: dict[str, str] = {}
    for line in json.loads(done.stdout):
        label, _, address = line.partition(",")
        found.setdefault(re.sub(r"[^a-z]", "", label.lower()), address.strip())
    return next((found[label] for label in _LABELS if label in found), "")
