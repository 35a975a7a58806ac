"""The catalogue is closed, complete, and what the documentation says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from scalescope.diagnosis.causes import CAUSES
from scalescope.diagnosis.causes.base import Severity, severity_of
from scalescope.diagnosis.causes.sweeps import ENTRIES
from scalescope.diagnosis.verdict import EXPLAIN_WITHOUT_TASKS, RULES

DOCS = Path(__file__).parents[4] / "docs"


def test_every_code_is_there_once():
    codes = [entry.code for entry in (*CAUSES, *ENTRIES)]
    assert len(codes) == len(set(codes))
    assert {entry.code for entry in ENTRIES} == {rule.__name__.replace("_", "-") for rule in RULES} | {"healthy"}
    assert set(codes) >= EXPLAIN_WITHOUT_TASKS


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.code)
def test_an_entry_says_what_it_must(cause):
    assert cause.title
    assert cause.needs
    assert cause.ruled_out_by
    assert cause.remedy
    assert cause.link.startswith("https://")
    assert cause.find.__doc__


@pytest.mark.parametrize(("share", "severity"), [(0.05, Severity.LOW), (0.1, Severity.MEDIUM), (0.3, Severity.HIGH)])
def test_severity_goes_by_the_share_lost(share, severity):
    assert severity_of(share) is severity


def test_the_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("generate_causes", DOCS / "generate_causes.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    written = (DOCS / "causes.md").read_text(encoding="utf-8")
    assert written == generator.page(), "run `python docs/generate_causes.py`"
