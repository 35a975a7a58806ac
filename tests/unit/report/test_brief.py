"""The short answer: what it says, and that it stays short."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.model.cluster import cluster_spec
from scalescope.model.finding import Evidence, Finding, Gain, Place, Severity, Verdict
from scalescope.report import brief
from scalescope.report.brief import EVIDENCE, FINDINGS, MOST, SCHEMA, BriefAnswer, BriefFinding

jsonschema = pytest.importorskip("jsonschema")
FOUND = Finding(
    "results-awaited-in-loop",
    Severity.HIGH,
    "The client sent 20 graphs of 1 task.",
    "use `client.map`",
    tuple(Evidence(f"quantity {n}", n / 3, "table tasks") for n in range(1, 9)),
    0.8,
    gain=Gain(10.0, 2.0, {"batch": 32}),
    place=Place("score.py", 14, "main"),
)


@pytest.fixture
def answer(trial: Any, finished: Any) -> Any:
    def make(*findings: Finding) -> BriefAnswer:
        measured = trial(2, 8, 8)
        verdict = Verdict.of([replace(each, points=(measured.point.id,)) for each in findings])
        return brief.of_run(replace(finished(measured), verdict=verdict), "r1")

    return make


def test_the_brief_answer_has_the_place_fix_and_gain_and_the_measurement_that_would_refute_it(answer: Any) -> None:
    found = answer(FOUND)
    [finding] = found.findings
    assert (finding.id, finding.place, finding.fix) == ("results-awaited-in-loop", "score.py:14", "use `client.map`")
    assert (finding.now_s, finding.predicted_s, finding.change) == (10.0, 2.0, {"batch": 32})
    assert finding.refuted_if == "the workload takes more than 6 s with the fix"
    assert [each.id for each in finding.evidence] == [f"results-awaited-in-loop.{n + 1}" for n in range(EVIDENCE)]
    assert found.next[-1] == "scalescope show r1 --finding results-awaited-in-loop"


def test_a_fix_that_is_a_parameter_can_be_measured_by_the_next_command(answer: Any) -> None:
    command = answer(FOUND).next[0]
    assert command.startswith("scalescope sweep -w ")
    assert command.endswith("-a workers=2 -a batch=32")


def test_a_larger_memory_limit_is_an_option_of_the_cluster(trial: Any, finished: Any) -> None:
    measured = trial(2, 8, 8)
    more = replace(FOUND, gain=Gain(10.0, 2.0, {"memory_limit_mb": 1400}), points=(measured.point.id,))
    run = finished(measured)
    local = replace(run.sweep, cluster=cluster_spec({"kind": "local", "memory_limit_mb": 600}))
    command = brief.of_run(replace(run, verdict=Verdict.of([more]), sweep=local), "r1").next[0]
    assert "-c local --cluster-option memory_limit_mb=1400 -a" in command
    assert command.count("memory_limit_mb") == 1


def test_a_patch_of_a_function_of_the_users_own_is_the_next_command(trial: Any, finished: Any) -> None:
    measured = trial(2, 8, 8)
    run = finished(measured)
    verdict = Verdict.of([replace(FOUND, gain=None, points=(measured.point.id,))])
    own = replace(run, verdict=verdict, sweep=replace(run.sweep, workload="job.py:run"))
    assert brief.of_run(own, "r1").next[0].startswith("scalescope fix -w job.py:run -c simulated -a workers=2")
    local = replace(own, sweep=replace(own.sweep, cluster=cluster_spec({"kind": "local"})))
    assert brief.of_run(local, "r1").next[0].startswith("scalescope fix -w job.py:run -a workers=2")
    for other in (run.sweep, replace(run.sweep, workload="bag-map")):  # no file to patch
        shown = brief.of_run(replace(own, sweep=other), "r1").next
        assert not any(each.startswith("scalescope fix") for each in shown)


def test_a_second_finding_of_one_cause_has_an_id_of_its_own() -> None:
    assert [name for name, _ in brief.named([FOUND, FOUND])] == ["results-awaited-in-loop", "results-awaited-in-loop~2"]


def test_more_findings_than_fit_are_counted(answer: Any) -> None:
    found = answer(*(replace(FOUND, code=f"code-{n}") for n in range(FINDINGS + 2)))
    assert (len(found.findings), found.left_out) == (FINDINGS, 2)
    assert "Findings left out: 2" in found.text()


def test_json_fits_the_schema_of_the_documentation(answer: Any) -> None:
    schema = Path(__file__).parents[3] / "docs" / "reference" / "brief.schema.json"
    shown = json.loads(json.dumps(answer(FOUND).to_json()))
    assert shown["schema_version"] == SCHEMA
    jsonschema.validate(shown, json.loads(schema.read_text(encoding="utf-8")))


@given(st.integers(1, 4), st.integers(0, 20_000), st.integers(0, 20), st.integers(0, 3_000), st.integers(0, 60))
def test_text_and_json_of_a_brief_answer_stay_below_the_limit_of_characters(
    findings: int, text: int, evidence: int, note: int, rows: int
) -> None:
    numbers = tuple(brief.BriefEvidence(f"code.{n}", "w" * (text // 20), n) for n in range(evidence))
    one = BriefFinding("code", Severity.HIGH, "a.py:1", "s" * text, "f" * text, 0.5, "r", evidence=numbers)
    table = brief.BriefTable(("head",) * 10, (("cell" * 5,) * 10,) * rows)
    full = BriefAnswer("about", "id", "l" * text, ("t" * note,) * 6, (one,) * findings, table, ("n" * note,) * 30)
    assert len(full.text()) <= MOST
    assert len(json.dumps(full.to_json())) <= MOST
