"""The registry of causes is complete and closed, and the documentation says what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scalescope.diagnosis import registry
from scalescope.diagnosis.causes import OF_SWEEPS, OF_TRIALS, submission
from scalescope.diagnosis.causes.structure import NEXT_EXPERIMENT
from scalescope.diagnosis.observation import TrialCause
from scalescope.diagnosis.registry import Cause, all_causes, declared, severity_of
from scalescope.model.finding import RENAMED, Severity
from scalescope.model.metrics import WORKER_TIME, WORKING

DOCS = Path(__file__).parents[3] / "docs"


def test_every_cause_is_of_trials_or_of_sweeps():
    assert len(OF_TRIALS) >= 24
    assert len(OF_SWEEPS) >= 9
    assert set(all_causes()) == {*OF_TRIALS, *OF_SWEEPS}


@pytest.mark.parametrize("cause", all_causes(), ids=lambda cause: cause.code)
def test_a_declaration_says_what_it_must(cause: Cause):
    assert declared(cause.code) is cause
    assert cause.code == cause.code.lower().replace("_", "-")
    assert cause.find.__name__ == cause.code.replace("-", "_")
    assert cause.find.__doc__
    assert cause.title
    assert cause.needs
    assert cause.ruled_out_by
    assert cause.remedy or cause.code == "healthy"
    assert cause.link.startswith("https://") or not isinstance(cause, TrialCause)
    assert set(cause.parts) <= set(WORKER_TIME)


def test_the_cause_that_is_added_on_the_page_is_found(cluster, task, graph, monkeypatch):
    monkeypatch.setattr(registry, "_DECLARED", dict(registry._DECLARED))
    [example] = re.findall(r"^```python\n(.*?)^```$", (DOCS / "adding-a-cause.md").read_text(), re.M | re.S)
    exec(example, names := dict(vars(submission)))
    cause, many = names["SCHEDULER_BUSY"], [task(1.0, graph=number) for number in range(8)]
    test_a_declaration_says_what_it_must(cause)
    assert cause.find(cluster(4).run(many, [graph() for _ in many])) is None
    found = cause.find(cluster(4).run(many, [graph(seconds=0.2) for _ in many]))
    assert found.lost_s == pytest.approx(8 * 0.2 * 4)
    assert "8 graphs" in found.summary


def test_every_part_of_lost_time_has_a_next_experiment():
    assert set(NEXT_EXPERIMENT) == set(WORKER_TIME) - set(WORKING)


@pytest.mark.parametrize("cause", all_causes(), ids=lambda cause: cause.code)
def test_what_a_cause_rules_out_exists(cause: Cause):
    assert all(declared(code) for code in cause.rules_out)
    assert cause.code not in cause.rules_out


def test_a_code_cannot_be_declared_twice():
    again = TrialCause(code="straggler", title="", needs="", ruled_out_by="", remedy="")
    with pytest.raises(ValueError, match="two causes are called straggler"):
        again.finds(lambda observation: None)


def test_renamed_codes_lead_to_present_ones():
    assert all(declared(new) and not declared(old) for old, new in RENAMED.items())


@pytest.mark.parametrize(("share", "severity"), [(0.05, Severity.LOW), (0.1, Severity.MEDIUM), (0.3, Severity.HIGH)])
def test_severity_goes_by_the_share_lost(share, severity):
    assert severity_of(share) is severity
