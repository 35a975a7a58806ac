"""The software that a trial runs with, and its text form."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache

from scalescope.errors import InvalidField

ENVIRONMENT = "environment"  # the axis, and the parameter of runs and studies
PRESENT = "present"  # text of the environment that Scalescope itself runs in; empty text means the same
OLDEST_PYTHON = (3, 11)  # the oldest Python that a driver runs on

ALLOWED = (
    "`present` (the environment of Scalescope), the path of a Python interpreter, or requirements separated by spaces "
    "such as python==3.11 apache-beam==2.50.0 dask[distributed]==2023.9.1; optionally with NAME= in front"
)

_NAMED = re.compile(r"^([\w.-]+)\s*=(?![=])\s*(.+)$", re.DOTALL)  # foo==1 and foo>=1 are requirements
_PATH_START = re.compile(r"^(~|\.{0,2}/)")
_PYTHON = re.compile(r"^python==(\d+)\.(\d+)(\.\d+)?$")
_CLAUSE = r"(?:===|[=!<>~]=|[<>])[A-Za-z0-9_.!+*-]+"
_NAME = r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[([A-Za-z0-9._,-]*)\])?"
_REQUIREMENT = re.compile(rf"^{_NAME}({_CLAUSE}(?:,{_CLAUSE})*)?$")
# A folder, or an address without user and password; then a reference: a commit, a tag or a branch
_HOST = r"[\w.-]+(?::\d+)?/"
_PLACE = rf"((?:~|\.{{0,2}})/[^\s@#?]*|git\+(?:https://{_HOST}|ssh://(?:[\w.-]+@)?{_HOST}|file:///)[^\s@#?]+)"
_FROM_REPOSITORY = re.compile(rf"^{_NAME}@{_PLACE}(?:@(\w[^\s@#?]*))?$")


@dataclass(frozen=True)
class RepositoryRequirement:
    """A package that is built from a git repository. Make one with `split_repository`."""

    package: str  # normalised name, with extras
    address: str  # without `git+`: https://, ssh:// or file://
    ref: str  # commit, tag or branch; empty: the checked-out commit


@dataclass(frozen=True)
class Environment:
    """The software that a trial runs with. Make one with `parse`."""

    # The canonical text form without the name: the same environment has the same text, however it was written. Empty:
    # the present environment.
    text: str = ""
    name: str = ""  # the user's name for it; may be empty, and is no part of its identity
    python: str = ""  # path of the interpreter, if the text names one; else empty
    python_version: str = ""  # requested version of Python, such as 3.11; empty: the present one
    requirements: tuple[str, ...] = ()  # requirements to install, normalised and sorted

    @property
    def present(self) -> bool:
        """Whether it is the environment that Scalescope itself runs in."""
        return not self.text

    @property
    def label(self) -> str:
        return self.name or self.text or PRESENT

    @classmethod
    def parse(cls, text: str, where: str = "environment") -> Environment:
        """Read the text form, without access to files.

        Args:
            text: Empty or `present`; the path of an interpreter (a path with blanks must begin with `/`, `~` or `.`);
                or requirements separated by blanks, where `python==3.11` chooses the version of Python. `NAME =`
                may precede each form.
            where: Name of the field in errors.
        """
        return _parse(text, where)


@lru_cache(maxsize=1024)
def _parse(text: str, where: str) -> Environment:
    named = _NAMED.match(text.strip())
    name, body = (named[1], named[2].strip()) if named else ("", text.strip())
    if body in ("", PRESENT):
        return Environment(name=name)
    plain = "/" in body and "://" not in body and not re.search(r"\s", body)
    if _PATH_START.match(body) or (plain and split_repository(body) is None):
        path = os.path.abspath(os.path.expanduser(body))
        return Environment(path, name, python=path)
    return _requirements(text, name, body, where)


def _requirements(text: str, name: str, body: str, where: str) -> Environment:
    version, found = "", set()
    # "dask >= 2024.1, < 2025" is one requirement, written with blanks
    body = re.sub(r"\s*(===|[=!<>~]=|[<>])\s*", r"\1", body)
    body = re.sub(r"\s*,\s*(?=[=!<>~])", ",", body)
    body = re.sub(r"\s*@\s*", "@", body)
    for token in body.split():
        if token.lower() == "python" or re.match(r"python[=!<>~]", token, re.IGNORECASE):
            if version and token.lower() != f"python=={version}":
                raise InvalidField(where, text, "one version of Python")
            version = _python_version(text, token.lower(), where)
        else:
            found.add(_requirement(text, token, where))
    requirements = tuple(sorted(found))
    canonical = " ".join(((f"python=={version}",) if version else ()) + requirements)
    return Environment(canonical, name, python_version=version, requirements=requirements)


def _python_version(text: str, token: str, where: str) -> str:
    match = _PYTHON.match(token)
    if not match or (int(match[1]), int(match[2])) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise InvalidField(where, text, f"an exact version of Python, {oldest} or newer, such as python=={oldest}")
    return token.removeprefix("python==")


def _requirement(text: str, token: str, where: str) -> str:
    if found := split_repository(token):
        return f"{found.package}@git+{found.address}" + (f"@{found.ref}" if found.ref else "")
    match = _REQUIREMENT.match(token)
    if match and re.search(r"[A-Za-z]", match[1]):  # else `foo=1` would require a package `1`
        clauses = ",".join(sorted((match[3] or "").split(","))) if match[3] else ""
        return _with_extras(match) + clauses
    raise InvalidField(where, _redact(text), ALLOWED, next_step=f"{_redact(token)!r}: {_refusal(token)}")


def split_repository(requirement: str) -> RepositoryRequirement | None:
    """The parts of `NAME@git+ADDRESS@REF` or `NAME@FOLDER@REF`; None for other requirements."""
    match = _FROM_REPOSITORY.match(requirement)
    if match is None:
        return None
    place = match[3]
    address = place[4:] if place.startswith("git+") else f"file://{os.path.abspath(os.path.expanduser(place))}"
    return RepositoryRequirement(_with_extras(match), address, match[4] or "")


def requirement(name: str, version: str) -> str:
    """Requirement that installs a version again; a version from a repository ends with `git+ADDRESS@COMMIT`."""
    _, git, place = version.rpartition("git+")
    return f"{name}@{git}{place}" if git else f"{name}=={version}"


def _with_extras(match: re.Match[str]) -> str:
    extras = sorted({normalise(extra) for extra in (match[2] or "").split(",") if extra})
    return normalise(match[1]) + (f"[{','.join(extras)}]" if extras else "")


def _refusal(token: str) -> str:
    if token.startswith("-"):
        why = "options are refused: they could run foreign code or read files"
        return f"{why}. Set options in uv's own settings, which apply here"
    if ";" in token:
        return "markers are not allowed: an environment is built for this machine, so leave out what it does not need"
    if "://" in token or "@" in token:
        return "addresses are refused: their content may change. For a repository, write NAME @ git+https://..."
    if "/" in token or token.startswith("."):
        return "a path among requirements is refused. The path of an interpreter must stand alone"
    return "write the requirement as NAME, NAME==VERSION or NAME[EXTRA]>=VERSION,<VERSION"


def _redact(text: str) -> str:
    return re.sub(r"://[^/\s]*@", "://***@", text)


def normalise(name: str) -> str:
    """Name of a distribution or extra as the index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
