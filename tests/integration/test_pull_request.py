"""The steps of `action.yml`, one after another as GitHub runs them, in a repository made here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from support import discussions
from support.discussions import TOKEN, Discussions
from support.repository import Repository

ROOT = Path(__file__).resolve().parents[2]
JOB = """\
import time


def clean(number):
    time.sleep({seconds})
    return number


def run(client, *, items: int = 8):
    return sum(client.gather(client.map(clean, range(items))))


run.modelled = True
"""


@dataclass
class Job:
    """A job of GitHub on one pull request."""

    repository: Repository
    folder: Path
    server: Discussions
    token: str = TOKEN
    secrets: list[str] = field(default_factory=list)  # names of steps that saw the token

    def run(self, **given: str) -> tuple[int, str]:
        """Run the steps with these inputs; return the worst status, and the output."""
        action = yaml.safe_load((ROOT / "action.yml").read_text())
        inputs = {name: each.get("default", "") for name, each in action["inputs"].items()} | given
        inputs["token"] = self.token
        worst, output = 0, ""
        for step in action["runs"]["steps"]:
            if "pip install" in step["run"]:
                continue  # this Python has it
            own = {name: self._filled(value, inputs) for name, value in step.get("env", {}).items()}
            if TOKEN in own.values():
                self.secrets.append(step["name"])
            if worst and "cancelled()" not in step.get("if", ""):
                continue
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(
                command, cwd=self.repository.path, env=self._environ(own), capture_output=True, text=True, timeout=300
            )
            worst, output = max(worst, done.returncode), f"{output}{done.stdout}{done.stderr}"
        return worst, output

    @property
    def summary(self) -> str:
        return (self.folder / "summary.md").read_text()

    def _filled(self, value: str, inputs: Mapping[str, str]) -> str:
        return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], value)

    def _environ(self, own: Mapping[str, str]) -> dict[str, str]:
        (self.folder / "event.json").write_text('{"pull_request": {"number": 7}}')
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder),
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": self.server.address,
            "GITHUB_REPOSITORY": "team/slow.things",
            "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "RUNNER_TEMP": str(self.folder),
            **own,
        }


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    repository = Repository.make(tmp_path / "repository", "a-package")
    write(repository, 1)
    repository.git("checkout", "--quiet", "-b", "work")
    (tmp_path / "runner").mkdir()
    with discussions.serving() as server:
        yield Job(repository, tmp_path / "runner", server)


def write(repository: Repository, seconds: float) -> None:
    (repository.path / "bench").mkdir(exist_ok=True)
    (repository.path / "bench" / "job.py").write_text(JOB.format(seconds=seconds))
    repository.commit(f"sleeps {seconds} s", "")


def percent(text: str) -> float:
    """The first number of percent in a text."""
    found = re.search(r"([\d.]+) %", text)
    assert found
    return float(found[1])


def test_a_pull_request_is_commented_once_and_the_comment_edited(job: Job) -> None:
    asked = {"workload": "bench/job.py:run", "sizes": "workers=2", "base": "main"}
    write(job.repository, 1.5)
    status, output = job.run(**asked)
    assert status == 1, output
    assert "::warning file=bench/job.py,line=5," in output
    [comment] = job.server.comments.values()
    assert percent(comment) == percent(job.summary) == pytest.approx(50, abs=3)
    assert job.secrets == ["Comment"]

    write(job.repository, 1)
    (job.folder / "summary.md").unlink()
    status, output = job.run(**asked)
    assert status == 0, output
    assert "::warning" not in output
    [edited] = job.server.comments.values()
    assert edited != comment
    assert re.search("Nothing changed|No difference was found", edited)


@pytest.mark.thorough
def test_a_fork_gets_the_summary_alone(job: Job) -> None:
    job.token = ""
    write(job.repository, 1.1)
    required = "makespan_s <= 60\nmakespan_s >= 1"
    status, output = job.run(workload="bench/job.py:run", sizes="workers=2 items=4", base="main", require=required)
    assert status == 0, output  # requirements alone decide
    assert percent(job.summary) == pytest.approx(10, abs=1)
    assert not job.server.comments


@pytest.mark.thorough
def test_an_unchanged_workload_is_not_commented(job: Job) -> None:
    (job.repository.path / "other.txt").write_text("text")
    job.repository.commit("another file", "")
    status, output = job.run(workload="bench/job.py:run", sizes="workers=2,4", base="main")
    assert status == 0, output
    assert not job.server.comments
    assert "::warning" not in output
