"""The table of causes is complete, and each declaration has all its texts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.small_cluster import Cluster, Graph, Task

from scalescope.diagnosis import causes
from scalescope.diagnosis.cause import Cause, severity_of
from scalescope.diagnosis.causes import SEEN_IN_A_SWEEP, SEEN_IN_A_TRIAL, by_code, of_sweeps, of_trials
from scalescope.diagnosis.causes.no_known_cause import NEXT_EXPERIMENT
from scalescope.diagnosis.observation import TrialCause
from scalescope.diagnosis.sweep_case import SweepCause
from scalescope.model.finding import Severity
from scalescope.model.metrics import OTHER_CLUSTER, WORKER_TIME, WORKING

DOCS = Path(__file__).parents[3] / "docs"


def test_the_table_of_causes_lists_all_causes_of_trials_and_of_sweeps_under_their_codes():
    assert list(by_code()) == [*SEEN_IN_A_TRIAL, *SEEN_IN_A_SWEEP]
    assert all(isinstance(cause, TrialCause) for cause in of_trials())
    assert all(isinstance(cause, SweepCause) for cause in of_sweeps())


def test_no_cause_is_missing_in_the_table():
    declared = re.findall(
        r'^\w+ = (?:Trial|Sweep)Cause\(\n    code="([^"]+)"',
        "\n".join(path.read_text(encoding="utf-8") for path in Path(causes.__file__).parent.glob("*.py")),
        re.M,
    )
    assert sorted(declared) == sorted(by_code())


@pytest.mark.parametrize("cause", by_code().values(), ids=lambda cause: cause.code)
def test_every_declared_cause_has_all_its_texts(cause: Cause):
    assert cause.code == cause.code.lower().replace("_", "-")
    assert cause.find.__name__ == cause.code.replace("-", "_")
    assert cause.find.__doc__
    assert cause.title
    assert cause.needs
    assert cause.ruled_out_by
    assert cause.remedy or cause.code == "healthy"
    assert cause.premise if isinstance(cause.premise, str) else cause.premise.text and callable(cause.premise.holds)
    assert cause.link.startswith("https://") or not isinstance(cause, TrialCause)
    assert set(cause.parts) <= set(WORKER_TIME) - {OTHER_CLUSTER}
    assert {*cause.rules_out} <= {*by_code()} - {cause.code}


def test_the_example_cause_of_the_documentation_works(golden):
    [example] = re.findall(r"^```python\n(.*?)^```$", (DOCS / "adding-a-cause.md").read_text(), re.M | re.S)
    exec(example, names := {})
    cause, many = names["SCHEDULER_BUSY"], [Task(1.0, graph=number) for number in range(8)]
    test_every_declared_cause_has_all_its_texts(cause)
    assert cause.find(Cluster(4).run(many, [Graph() for _ in many])) is None
    found = golden(cause.find(Cluster(4).run(many, [Graph(seconds=0.2) for _ in many])))
    assert found.lost_s == pytest.approx(8 * 0.2 * 4)


def test_every_part_of_worker_time_that_can_be_lost_has_a_next_experiment():
    assert set(NEXT_EXPERIMENT) == set(WORKER_TIME) - {*WORKING, OTHER_CLUSTER}


@pytest.mark.parametrize(("share", "severity"), [(0.05, Severity.LOW), (0.1, Severity.MEDIUM), (0.3, Severity.HIGH)])
def test_severity_follows_from_the_share_of_time_lost(share, severity):
    assert severity_of(share) is severity
