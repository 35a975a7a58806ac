"""Checkouts of both sides, and the line of the cause."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.repository import Repository

from scalescope.environments import git
from scalescope.errors import InvalidField, UsageError
from scalescope.pull_requests import checkouts
from scalescope.pull_requests.checkouts import Checkout
from scalescope.pull_requests.places import place

BASE = "import time\n\n\ndef clean(x):\n    time.sleep(1)\n\n\ndef run(client):\n    client.map(clean, [1])\n"
HEAD = BASE.replace("sleep(1)", "sleep(2)")
VARIABLES = ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_DIFF_BASE_SHA", "PYTHONPATH")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """`main` has gone on since the branch `work` left it."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    found = Repository.make(tmp_path / "repository", "a-package")
    (found.path / "bench").mkdir()
    (found.path / "bench" / "job.py").write_text(BASE)
    found.commit("base", "base")
    found.git("checkout", "--quiet", "-b", "work")
    (found.path / "bench" / "job.py").write_text(HEAD)
    (found.path / "bench" / "new.py").write_text(BASE)
    found.commit("head", "head")
    found.git("checkout", "--quiet", "main")
    found.commit("later", "later")
    found.git("checkout", "--quiet", "work")
    return found


@pytest.fixture
def sides(repository: Repository) -> Iterator[tuple[Checkout, Checkout]]:
    commits = checkouts.commits(str(repository.path), "main", "HEAD")
    with checkouts.both(str(repository.path), *commits, workloads=["bench/job.py:run"]) as found:
        yield found


def imported(side: Checkout, code: str) -> str:
    return subprocess.run([side.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_base_is_the_commit_where_the_head_branched_off(repository: Repository) -> None:
    base, head = checkouts.commits(str(repository.path), "main", "HEAD")
    assert base == repository.git("rev-parse", "main~1")
    assert head == repository.git("rev-parse", "work")


def test_each_side_imports_its_own_files_and_the_packages_of_this_python(sides: tuple[Checkout, Checkout]) -> None:
    code = "import distributed, inspect, job; print(inspect.getsource(job.clean).count('sleep(1)'))"
    assert [imported(each, code) for each in sides] == ["1", "0"]


def test_a_module_that_only_the_head_has_counts_as_new(sides: tuple[Checkout, Checkout]) -> None:
    assert [each.finds("job") for each in sides] == [True, True]
    assert [each.finds("new") for each in sides] == [False, True]


def test_checkouts_are_removed_from_the_folder_and_from_git_afterwards(repository: Repository) -> None:
    commits = checkouts.commits(str(repository.path), "main", "HEAD")
    with checkouts.both(str(repository.path), *commits) as (base, _):
        assert base.folder.is_dir()
    assert not base.folder.exists()
    assert len(repository.git("worktree", "list").splitlines()) == 1
    assert repository.git("status", "--porcelain") == ""


def test_a_module_that_comes_from_elsewhere_is_refused(
    sides: tuple[Checkout, Checkout], repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(repository.path / "bench"))
    with pytest.raises(UsageError):
        sides[0].finds("job")


def test_a_missing_base_is_refused_unless_the_ci_names_one(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidField):
        checkouts.commits(str(repository.path), "", "HEAD")
    monkeypatch.setenv("CI_MERGE_REQUEST_DIFF_BASE_SHA", repository.git("rev-parse", "main"))
    assert checkouts.commits(str(repository.path), "", "HEAD")[0] == repository.git("rev-parse", "main~1")


def test_a_shallow_clone_is_refused_as_a_usage_error(repository: Repository, tmp_path: Path) -> None:
    repository.git("clone", "--quiet", "--depth=1", repository.address, str(tmp_path / "shallow"))
    with pytest.raises(UsageError) as caught:
        checkouts.commits(str(tmp_path / "shallow"), "origin/main", "HEAD")
    assert type(caught.value) is UsageError  # no EnvironmentFailed of git, which knows nothing of pull requests


@pytest.mark.parametrize("workload", ["/etc/job.py:run", "../job.py:run"])
def test_a_workload_outside_of_the_repository_is_refused(workload: str) -> None:
    with pytest.raises(InvalidField):
        checkouts.module_of(workload)


@pytest.mark.parametrize(
    ("name", "where", "line"),
    [
        ("clean", "job.py:9 run", 5),  # the changed line of the function itself
        ("lambda", "job.py:9 run", 9),  # else the line that sent it
        ("client.gather at job.py:9 run", "", 9),
        ("lambda", "/usr/lib/python3/abc.py:9 run", 8),  # else the workload
    ],
)
def test_the_cause_of_a_slowdown_is_placed_at_its_changed_line(
    sides: tuple[Checkout, Checkout], repository: Repository, name: str, where: str, line: int
) -> None:
    changed = git.changed_lines(str(repository.path), sides[0].commit, sides[1].commit)
    why = {"parts": [{"named": True, "name": name, "where": where}]}
    assert place(why, sides[1].folder, changed, "bench/job.py:run") == ("bench/job.py", line)


def test_changed_lines_are_numbered_as_in_the_head(repository: Repository) -> None:
    found = git.changed_lines(str(repository.path), "main~1", "work")
    assert found["bench/job.py"] == [5]
    assert len(found["bench/new.py"]) == len(BASE.splitlines())
