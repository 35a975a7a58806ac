"""Packages from git repositories: the commit that a reference means, and the history between two commits."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from scalescope.environments.uv import redact, shorten
from scalescope.errors import EnvironmentFailed, EnvironmentUnavailable
from scalescope.model.environment import ENVIRONMENT, Environment, split_repository

TIMEOUT_S = 600.0  # seconds; a clone of a large repository takes minutes

COMMIT = re.compile(r"^[0-9a-f]{40}$")
_FILE = "file://"
_DIFF = ("diff", "--unified=0", "--no-color", "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/")
_HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")  # head of a hunk: first line and line count in the new file
# Variables that make git use another repository than the given one; git sets them for its hooks
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")
_LOG = ("--no-show-signature", "--format=%H%x09%P%x09%s")


@dataclass(frozen=True)
class Commit:
    """A commit of a repository."""

    id: str  # 40 hexadecimal digits
    parents: tuple[str, ...]  # ids of parents; for a merge, the first is the branch merged into
    subject: str  # first line of the commit message, without unprintable characters

    @property
    def label(self) -> str:
        return f"{self.id[:10]} ({self.subject})"


def with_commits(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a run or study, with references in its environments replaced by commits."""
    return {name: _with_commits(value, environment=name == ENVIRONMENT) for name, value in given.items()}


def _with_commits(value: Any, *, environment: bool) -> Any:
    if isinstance(value, Mapping):
        return with_commits(value)
    if isinstance(value, list | tuple):
        return [_with_commits(each, environment=environment) for each in value]
    if not environment or not isinstance(value, str) or "@" not in value:
        return value
    before = Environment.parse(value)
    after = pinned(before)
    return value if after is before else f"{after.name} = {after.text}" if after.name else after.text


def pinned(environment: Environment) -> Environment:
    """The environment with references to repositories replaced by commits; the same object if it has none."""
    requirements = tuple(map(_pinned, environment.requirements))
    if requirements == environment.requirements:
        return environment
    python = [f"python=={environment.python_version}"] if environment.python_version else []
    return replace(environment, text=" ".join([*python, *requirements]), requirements=requirements)


def _pinned(requirement: str) -> str:
    found = split_repository(requirement)
    return requirement if found is None else f"{found.package}@git+{found.address}@{commit(found.address, found.ref)}"


def commit(address: str, ref: str) -> str:
    """Id of the commit to which a reference of a repository points; without a reference, of the checked-out commit.

    Raises:
        EnvironmentFailed: There is no such repository or reference, or the checkout has uncommitted changes.
    """
    if COMMIT.match(ref):
        return ref
    if address.startswith(_FILE):
        folder = address.removeprefix(_FILE)
        if not ref and _git(folder, "status", "--porcelain", "--untracked-files=no"):
            raise EnvironmentFailed(
                "the checkout has changes that are not committed",
                where=folder,
                next_step="commit the changes; or append @HEAD to measure the last commit",
            )
        return _parse(folder, address, ref or "HEAD")
    names = [f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}", ref] if ref else ["HEAD"]
    return _listed(address, names) or _unknown(address, ref)


def of_release(address: str, version: str) -> str:
    """Id of the commit that is tagged as a release: `1.2`, `v1.2` or `name-1.2`."""
    ends = re.compile(rf"^refs/tags/(?:.*[^0-9.])?{re.escape(version)}$")
    lines = (line.split("\t") for line in _git("", "ls-remote", "--tags", "--", address).splitlines())
    tags = {name.removesuffix("^{}"): id for id, name in lines}  # the commit of an annotated tag (`^{}`) comes after it
    found = {id for name, id in tags.items() if ends.match(name)}
    if len(found) != 1:
        raise EnvironmentFailed(
            f"the repository has {'several tags' if found else 'no tag'} for release {version}",
            where=redact(address),
            next_step="give commits, tags or branches as the good and the bad end",
        )
    return found.pop()


@functools.lru_cache(maxsize=64)
def history(address: str, good: str, bad: str) -> tuple[Commit, ...]:
    """The commits from `good` to `bad` (both ids), oldest first, following first parents only.

    If `good` is on another branch, the list begins with the last commit that both branches share.
    """
    with _repository(address) as folder:
        base = _git(folder, "merge-base", good, bad)
        said = _git(folder, "log", "--no-walk", *_LOG, base)
        said += "\n" + _git(folder, "log", "--first-parent", "--reverse", *_LOG, f"{base}..{bad}")
    return tuple(_commit(line) for line in said.splitlines() if line)


def root(folder: str) -> str:
    """The top folder of the repository that contains `folder`."""
    return _git(folder, "rev-parse", "--show-toplevel")


def fork_point(folder: str, base: str, head: str) -> str:
    """Id of the newest commit that `base` and `head` have in common."""
    return _git(folder, "merge-base", "--end-of-options", base, head)


@contextmanager
def worktree(folder: str, commit: str, place: str) -> Iterator[None]:
    """The files of a commit in the folder `place`, until the block ends."""
    _git(folder, "worktree", "add", "--quiet", "--detach", place, commit)
    try:
        yield
    finally:
        _git(folder, "worktree", "remove", "--force", place)


def changed_lines(folder: str, base: str, head: str) -> dict[str, list[int]]:
    """For each file of `head` that differs from `base`: the numbers of new lines, and of lines next to removed ones."""
    found: dict[str, list[int]] = {}
    lines: list[int] = []
    for line in _git(folder, *_DIFF, base, head).splitlines():
        if line.startswith("+++ "):
            lines = found.setdefault(line.removeprefix("+++ b/"), [])
        elif hunk := _HUNK.match(line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines += range(max(first, 1), first + max(count, 1))
    found.pop("+++ /dev/null", None)
    return found


def _commit(line: str) -> Commit:
    id, parents, subject = line.split("\t", 2)
    return Commit(id, tuple(parents.split()), "".join(each for each in subject if each.isprintable()))


@contextmanager
def _repository(address: str) -> Iterator[str]:
    """A folder with all commits: the repository itself if it is on this machine, else a temporary bare clone."""
    if address.startswith(_FILE):
        yield address.removeprefix(_FILE)
        return
    with tempfile.TemporaryDirectory(prefix="scalescope-git-") as folder:
        _git("", "clone", "--quiet", "--bare", "--filter=blob:none", "--", address, folder)
        yield folder


def _parse(folder: str, address: str, ref: str) -> str:
    try:
        return _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except EnvironmentFailed as error:
        if error.cause:
            raise
        _unknown(address, ref)


def _listed(address: str, names: list[str]) -> str:
    lines = (line.split("\t") for line in _git("", "ls-remote", "--", address, *names).splitlines())
    found = {name: id for id, name in lines}
    return next((found[name] for name in names if name in found), "")


def _unknown(address: str, ref: str) -> NoReturn:
    raise EnvironmentFailed(
        f"the repository has no {ref or 'commit'}",
        where=redact(address),
        next_step="give a branch, a tag, or all 40 digits of a commit",
    )


def _git(folder: str, *arguments: str) -> str:
    """Run git, without prompts for passwords; return its output, stripped."""
    git = shutil.which("git")
    if git is None:
        raise EnvironmentUnavailable("there is no git to read repositories with", next_step="install git")
    environ = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    command = [git, *(["-C", folder] if folder else []), *arguments]
    what = f"the repository cannot be read (git {arguments[0]})"
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**environ, "GIT_TERMINAL_PROMPT": "0"},
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentUnavailable(what, cause=f"git did not end within {TIMEOUT_S:.0f} s") from error
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "replace").strip()
    said = done.stderr.decode("utf-8", "replace").strip()
    raise EnvironmentFailed(
        what, where=folder, cause=shorten(redact(said)) if said else "", next_step="check its address"
    )
