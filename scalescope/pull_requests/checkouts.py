"""Base and head of a pull request: a checkout of each, and a Python that imports from it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from scalescope import environments
from scalescope.environments import git
from scalescope.errors import EnvironmentFailed, InvalidField, UsageError
from scalescope.model.environment import Environment, requirement
from scalescope.redaction import passed_on

TIMEOUT_S = 120.0  # seconds for a Python process to make an environment or to look for a module
# CI variables with the target branch or base commit of a pull request, and a prefix for the value
_BASES = {"GITHUB_BASE_REF": "origin/", "CI_MERGE_REQUEST_DIFF_BASE_SHA": ""}
_SITE = "import site; print(*site.getsitepackages(), sep='\\n')"
_FIND = "import importlib.util as u, sys; s = u.find_spec(sys.argv[1]); print(s.origin or '' if s else '')"


@dataclass(frozen=True)
class Checkout:
    """The base or the head of a pull request, checked out."""

    commit: str  # id of the commit, 40 hexadecimal digits
    folder: Path  # folder with its files
    environment: str  # the axis value `environment`: `base = /path/to/bin/python`
    python: str
    importable: tuple[str, ...]  # folders of the checkout that come first in `sys.path`

    def finds(self, module: str) -> bool:
        """Whether this checkout has a module.

        Raises:
            UsageError: The module is found elsewhere, so that base and head would run the same code.
        """
        command = [self.python, "-P", "-c", _FIND, module]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=passed_on(), check=False)
        found = done.stdout.strip()
        if found and not Path(found).is_relative_to(self.folder):
            raise UsageError(
                f"{module} is not imported from the checkout of {self.commit[:10]}, but from {found}",
                cause="PYTHONPATH or an installed module of that name comes first",
                next_step="unset PYTHONPATH, or rename the workload's file",
            )
        return bool(found)


def module_of(workload: str) -> str:
    """The name by which both sides import a workload: `MODULE:FUNCTION`, also for a workload given as a file."""
    place, _, function = workload.rpartition(":")
    path = PurePosixPath(place)
    if place.endswith(".py") and (path.is_absolute() or ".." in path.parts):
        raise InvalidField("workload", workload, "a path within the repository, such as bench/job.py:run")
    return f"{path.stem}:{function}" if place.endswith(".py") else workload


def commits(folder: str, base: str, head: str) -> tuple[str, str]:
    """Ids of the commits to compare: the one at which the head branched off the base, and the head."""
    base = base or next((before + os.environ[name] for name, before in _BASES.items() if os.environ.get(name)), "")
    if not base:
        raise InvalidField("base", "", "a branch or commit", next_step="add --base, such as --base origin/main")
    try:
        return git.fork_point(folder, base, head), git.commit(f"file://{folder}", head)
    except EnvironmentFailed as error:
        raise UsageError(
            f"{base} and {head} have no commit in common here",
            where=folder,
            cause=error.cause,
            next_step="fetch the whole history: `fetch-depth: 0` of actions/checkout, `GIT_DEPTH: 0` on GitLab, "
            "`git fetch --unshallow`",
        ) from error


@contextmanager
def both(
    folder: str,
    base: str,
    head: str,
    *,
    workloads: Sequence[str] = (),  # as the user gave them; the folders of their files are importable, too
    requirements: str = "",  # file in each checkout that pins its packages; empty: this Python's packages
    says: Callable[[str], None] = lambda text: None,
) -> Iterator[tuple[Checkout, Checkout]]:
    """Check out both commits into a temporary folder, which is removed at the end of the block."""
    with ExitStack() as stack:
        kept = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scalescope-pull-"))).resolve()
        found = []
        for name, commit in (("base", base), ("head", head)):
            tree = kept / name
            stack.enter_context(git.worktree(folder, commit, str(tree)))
            python = _packages(tree / requirements, says) if requirements else sys.executable
            importable = _importable(tree, workloads)
            own = _python(kept / f"{name}-python", python, importable)
            found.append(Checkout(commit, tree, f"{name} = {own}", own, importable))
        yield found[0], found[1]


def _packages(lock: Path, says: Callable[[str], None]) -> str:
    pins = environments.from_lock(lock).items()
    asked = Environment.parse(" ".join(requirement(name, version) for name, version in pins))
    return environments.ensure(asked, says=says).python


def _importable(tree: Path, workloads: Sequence[str]) -> tuple[str, ...]:
    files = [PurePosixPath(each.rpartition(":")[0]) for each in workloads]
    folders = [tree / each.parent for each in files if each.suffix == ".py"]
    return tuple(dict.fromkeys(map(str, [*folders, *filter(Path.is_dir, [tree / "src"]), tree])))


def _python(place: Path, python: str, importable: Sequence[str]) -> str:
    """Make a Python with the packages of `python` that imports from these folders first."""
    packages = _run(python, "-c", _SITE).splitlines()
    _run(python, "-m", "venv", "--without-pip", str(place))
    own = str(place / "bin" / "python")
    lines = [*importable, *(f"import site; site.addsitedir({each!r})" for each in packages)]
    [site] = _run(own, "-c", _SITE).splitlines()
    Path(site, "scalescope_pull_request.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return own


def _run(python: str, *arguments: str) -> str:
    command = [python, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=passed_on(), check=False)
    if done.returncode:
        raise EnvironmentFailed(
            "no environment could be made from this Python", where=python, cause=done.stderr.strip()[-300:]
        )
    return done.stdout
