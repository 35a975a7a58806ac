"""Profiles for other viewers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scalescope.errors import UsageError
from scalescope.model.records import from_rows
from scalescope.report import profile_files

jsonschema = pytest.importorskip("jsonschema")
ROWS = [
    {"prefix": "load", "stack": "my_job.py:61 load;json.decoder.decode", "samples": 300},
    {"prefix": "load", "stack": "", "samples": 5},
    {"prefix": "sum", "stack": "my_job.py:7 total", "samples": 20},
]


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(form: str, rows: list[dict[str, Any]] = ROWS) -> str:
        profile_files.write({"inside": from_rows("inside", rows)}, tmp_path / "profile", form, title="my_job.py")
        return (tmp_path / "profile").read_text()

    return write


def test_speedscope_files_fit_the_schema_of_speedscope(written: Any) -> None:
    found = json.loads(written("speedscope"))
    jsonschema.validate(found, json.loads(Path(__file__).with_name("speedscope.schema.json").read_text()))
    assert [(each["name"], each["endValue"]) for each in found["profiles"]] == [("load", 3.05), ("sum", 0.2)]
    assert found["shared"]["frames"][0] == {"name": "load", "file": "my_job.py", "line": 61}


def test_collapsed_stacks_have_a_line_and_a_number_each(written: Any) -> None:
    lines = written("collapsed").splitlines()
    assert lines[0] == "load;my_job.py:61 load;json.decoder.decode 300"
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == 325


def test_a_trial_without_samples_has_no_profile(written: Any) -> None:
    with pytest.raises(UsageError, match="no busy thread was sampled"):
        written("speedscope", [])
