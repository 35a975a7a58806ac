"""What is fixed, and how a copy of it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scalescope.errors import InvalidField, UsageError
from scalescope.fixing.subject import POOLS, Subject
from scalescope.model.finding import Finding, Gain, Severity
from scalescope.own_code.script import Program

RUN = "def run(client, items=8, npartitions=2):\n    return items\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "package").mkdir()
    for name in ("job.py", "package/__init__.py", "package/__main__.py", "package/part.py"):
        (tmp_path / name).write_text(RUN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(code: str, **change: int) -> Finding:
    return Finding(code, Severity.HIGH, "", "", gain=Gain(2.0, 1.0, change))


@pytest.mark.parametrize(
    ("program", "file"),
    [
        (Program("package/part.py"), "package/part.py"),
        (Program("package", is_module=True), "package/__main__.py"),
        (Program("package.part", is_module=True), "package/part.py"),
    ],
)
def test_a_program_is_found_by_file_or_module_and_runs_in_the_copy_of_its_folder(
    project: Path, program: Program, file: str
) -> None:
    subject = Subject.of(program)
    assert (subject.file, subject.root) == (project / file, project)
    at = subject.at(Path("/copy"), {}, {"A": "1"})
    assert (at.script, at.folder, at.environ) == (program.script, "/copy", {"A": "1"})


def test_a_workload_gets_the_values_of_its_point(project: Path) -> None:
    subject = Subject.of_workload("job.py:run", {"workers": 2, "items": 9}, "python")
    assert subject.values == {"workers": 2, "threads_per_worker": 1, "items": 9, "npartitions": 2}
    reference, values = subject.at(Path("/copy"), {**subject.values, "npartitions": 4}, {}).arguments
    assert (reference, json.loads(values)) == ("job.py:run", {**subject.values, "npartitions": 4})


def test_a_workload_is_proven_by_a_sweep_on_a_cluster_of_this_machine(project: Path) -> None:
    subject = Subject.of_workload(
        "job.py:run", {"workers": 2}, "python", cluster={"kind": "local", "memory_limit_mb": 9}
    )
    _, _, cluster, store = subject.at(Path("/copy"), subject.values, {}, "sqlite:////a/b.db").arguments
    assert (json.loads(cluster), store) == ({"kind": "local", "memory_limit_mb": 9}, "sqlite:////a/b.db")
    options = ["-w", "job.py:run", "-c", "local", "--cluster-option", "memory_limit_mb=9"]
    assert subject.words[:6] == options
    assert subject.sweep(subject.values) == ()
    assert subject.sweep({**subject.values, "items": 9})[2:8] == tuple(options)
    with pytest.raises(InvalidField):
        Subject.of_workload("job.py:run", {"workers": 2}, "python", cluster={"kind": "ssh", "hosts": "a b"})


def test_settings_to_prove_are_those_that_the_finding_advises_and_that_are_not_yet_in_use(project: Path) -> None:
    workload = Subject.of_workload("job.py:run", {"workers": 2}, "python")
    advised = found("gil-bound", workers=8, threads_per_worker=1, other=3)
    assert workload.settings(advised, workload.values) == {"workers": 8}
    assert workload.difference({"workers": 2}, {"workers": 8}) == "- -a workers=2\n+ -a workers=8\n"
    program = Subject.of(Program("job.py"))
    assert program.settings(advised, {}) == {}
    assert program.settings(found("oversubscribed-threads"), {}) == POOLS
    assert program.settings(found("oversubscribed-threads"), POOLS) == {}
    assert program.at(Path("/copy"), POOLS, {"A": "1"}).environ == {"A": "1", **dict.fromkeys(POOLS, "1")}


def test_a_workload_outside_the_folder_or_with_invalid_values_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for reference in ("futures-map", "json:dumps", "missing.py:run"):
        with pytest.raises(UsageError):
            Subject.of_workload(reference, {"workers": 2}, "python")
    for values in ({"workers": 0}, {"workers": 2, "unknown": 3}):
        with pytest.raises(InvalidField):
            Subject.of_workload("job.py:run", values, "python")
    monkeypatch.chdir(project / "package")
    with pytest.raises(UsageError):
        Subject.of_workload("../job.py:run", {"workers": 2}, "python")
