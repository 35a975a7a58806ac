"""Packages from a git repository that the test makes: with a merge, a commit that does not build, and a slow one."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.repository import Repository

from scalescope.environments import ensure, from_lock, git, resolve
from scalescope.errors import EnvironmentFailed, InvalidField
from scalescope.model.environment import Environment, requirement
from scalescope.model.sweep import PlannedTrial
from scalescope.studies.release.report import sheet
from scalescope.studies.running import run_study

FAST, SLOW = "SECONDS = 1.0", "SECONDS = 2.0"
# The wheels of the index have no SECONDS.
ASK = "import tiny_thing as it; print(getattr(it, 'SECONDS', 1.0 if it.version in ('1.0', '1.1') else 2.0))"


@pytest.fixture
def repository(tmp_path: Path, cache: Path) -> Repository:
    made = Repository.make(tmp_path / "repository", "tiny-thing")
    made.commit("begin", FAST)
    made.git("tag", "v1.1")
    return made


@pytest.fixture
def slow(repository: Repository) -> str:
    """The id of a slow commit on a branch that is merged between two releases."""
    repository.commit("break", None)
    repository.commit("mend", FAST)
    repository.git("checkout", "--quiet", "-b", "feature")
    repository.commit("prepare", FAST)
    slow = repository.commit("sleep", SLOW)
    repository.commit("more", SLOW)
    repository.git("checkout", "--quiet", "main")
    repository.git("merge", "--quiet", "--no-ff", "--message", "merge feature", "feature")
    repository.commit("release", SLOW)
    repository.git("tag", "--annotate", "--message", "1.9", "tiny-thing-1.9")
    return slow


# ------------------------------------------------------------------ environments and locks


def test_an_environment_from_git_is_cached_by_its_commit(repository: Repository, tmp_path: Path) -> None:
    asked = Environment.parse(f"mine = {repository.requirement}@main distributed==2024.8.0")
    built = ensure(asked)
    commit = repository.git("rev-parse", "HEAD")
    recorded = built.packages["tiny-thing"]
    assert recorded == f"1.5 @ git+{repository.address}@{commit}"
    assert built.environment.name == "mine"
    locked = resolve(asked)
    assert locked == {**built.packages, "tiny-thing": f"git+{repository.address}@{commit}"}

    repository.commit("later", SLOW)
    later = ensure(asked)
    assert later.fresh
    assert later.digest != built.digest
    lock = tmp_path / "lock.txt"
    lock.write_text("".join(f"{requirement(name, version)}\n" for name, version in built.packages.items()))
    assert from_lock(lock) == locked
    again = Environment.parse(f"{requirement('tiny-thing', recorded)} distributed==2024.8.0")
    assert (ensure(again).fresh, ensure(again).python) == (False, built.python)


def test_references_become_commits_everywhere_in_a_request(repository: Repository) -> None:
    commit = repository.git("rev-parse", "HEAD")
    text, pinned = f"{repository.requirement}@v1.1", f"tiny-thing@git+{repository.address}@{commit}"
    given = {"workload": "x@y", "environment": f"a = {text}", "axes": {"environment": ["present", text], "workers": 1}}
    assert git.with_commits({**given, "points": [{"environment": text}]}) == {
        "workload": "x@y",
        "environment": f"a = {pinned}",
        "axes": {"environment": ["present", pinned], "workers": 1},
        "points": [{"environment": pinned}],
    }


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("ref", ["main", "tiny-thing-1.9", "feature", ""])
def test_a_remote_repository_gives_the_same_commits_as_a_local_one(repository: Repository, ref: str) -> None:
    elsewhere = str(repository.path)  # an address without file:// is treated as remote
    assert git.commit(elsewhere, ref) == git.commit(repository.address, ref)
    assert git.of_release(elsewhere, "1.9") == repository.git("rev-parse", "main")
    ends = [git.commit(elsewhere, end) for end in ("v1.1", "main")]
    assert git.history(elsewhere, *ends) == git.history(repository.address, *ends)


def test_an_unknown_reference_or_uncommitted_changes_are_refused(repository: Repository) -> None:
    for address in (repository.address, str(repository.path)):
        with pytest.raises(EnvironmentFailed, match="no nothing"):
            git.commit(address, "nothing")
        with pytest.raises(EnvironmentFailed, match="no tag"):
            git.of_release(address, "1")
    (repository.path / "code.py").write_text("changed")
    with pytest.raises(EnvironmentFailed, match="not committed"):
        ensure(Environment.parse(repository.requirement))
    assert git.commit(repository.address, "HEAD")


# ------------------------------------------------------------------ the search


@pytest.fixture
def asked(fake: Any, address: str) -> dict[str, Any]:
    """A search with fake trials, whose durations come from the code that is really installed."""

    @functools.cache
    def seconds(environment: str) -> float:
        python = ensure(Environment.parse(environment)).python
        return float(subprocess.run([python, "-c", ASK], capture_output=True, text=True, check=True).stdout)

    def measures(planned: PlannedTrial) -> tuple[int, float]:
        return 1, seconds(planned.point.environment)

    fake.measures = measures
    return {"workload": "bag-map", "values": {"items": 4}, "metric": "makespan_s", "store": address}


@pytest.mark.thorough
def test_a_search_leads_from_the_bad_release_to_the_merged_commit(
    repository: Repository, slow: str, fake: Any, asked: dict[str, Any]
) -> None:
    given = {**asked, "package": repository.requirement, "good": "1.1", "bad": "1.9"}
    fake.script = {6: KeyboardInterrupt()}  # among the commits between the releases
    with pytest.raises(KeyboardInterrupt):
        run_study("release", given)
    result = run_study("release", given)
    assert not result.alarm
    assert sum(len(run.trials) for run in result.runs) == len(fake.begun) - 1
    ends = repository.git("rev-parse", f"{slow}^"), slow
    assert result.result["versions"] == [f"git+{repository.address}@{end}" for end in ends]
    release, merge = result.result["earlier"]
    assert release.startswith("tiny-thing 1.9 ")
    assert "(merge feature)" in merge
    assert f"{slow[:10]} (sleep) is the first" in result.line
    assert len(result.study.runs) == 3
    table = sheet(result.study, result.runs).table
    assert table is not None
    assert [row.cells[:3] for row in table.rows if row.cells[0].startswith(slow[:10])] == [
        (f"{slow[:10]} (sleep)", "bad, the first", "2")
    ]


def test_commits_that_cannot_be_built_are_skipped_and_named(repository: Repository, asked: dict[str, Any]) -> None:
    repository.commit("break", None)
    bad = repository.commit("sleep", SLOW)
    result = run_study("release", {**asked, "package": repository.requirement, "good": "v1.1", "max_pairs": 3})
    ends = repository.git("rev-parse", "v1.1"), bad
    assert result.result["versions"] == [f"git+{repository.address}@{end}" for end in ends]
    [skipped] = result.result["skipped"]
    assert (skipped["label"].partition(" ")[2], skipped["state"]) == ("(break)", "unavailable")


def test_a_reference_in_the_package_of_a_search_is_refused(repository: Repository, asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidField) as caught:
        run_study("release", {**asked, "package": f"{repository.requirement}@main", "good": "v1.1"})
    assert caught.value.field == "package"


def test_a_search_whose_good_commit_is_later_than_its_bad_one_is_refused(
    repository: Repository, asked: dict[str, Any]
) -> None:
    repository.commit("later", FAST)
    with pytest.raises(InvalidField, match="a commit later than"):
        run_study("release", {**asked, "package": repository.requirement, "good": "main", "bad": "v1.1"})
