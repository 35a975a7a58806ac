"""`scalescope run` says the same as text and as JSON, whatever the answer is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scalescope.cli.commands import run as command
from scalescope.diagnosis.verdict import diagnose
from scalescope.errors import ExitStatus
from scalescope.model.finding import Severity
from scalescope.model.sweep import Sweep
from scalescope.own_code.script import Program, ScriptOutcome
from scalescope.report import export
from scalescope.studies.requirement import RequirementAnswer

HINT = "A task that the flow calls runs in the flow."
KINDS = {
    "nothing": {},
    "a hint": {"hints": [HINT]},
    "a problem": {"problems": ["Recording stopped: the disk is full"]},
    "a message while it ran": {"said": ["NOTHING MOVES"], "hints": [HINT]},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("judged", [False, True])
def test_everything_in_the_text_of_run_is_also_in_its_json(kind, judged, tmp_path, capsys, monkeypatch) -> None:
    program = Program(str(tmp_path / "flow.py"))
    Path(program.script).touch()
    answer = RequirementAnswer("tasks > 1", ExitStatus.FINDING, "not met: tasks > 1")
    monkeypatch.setattr("scalescope.studies.requirement.judge", lambda *_: (answer,))

    def told(*, as_json: bool, brief: bool = False) -> tuple[str, str]:
        outcome = ScriptOutcome(tmp_path, 0, **{name: list(texts) for name, texts in KINDS[kind].items()})
        asked = command._Asked([None] * judged, "", None, fix=False, brief=brief, as_json=as_json)
        command._answer(program, outcome, asked)
        return capsys.readouterr()

    _, text = told(as_json=False)
    found = json.loads(told(as_json=True)[0])
    lines = [" ".join(line.split()).removeprefix("error: ") for line in text.splitlines() if line.strip()]
    said = json.dumps([found[name] for name in ("problems", "hints", "requirements", "said")])
    assert lines
    assert [line for line in lines if line not in said] == []
    assert found["said"] == KINDS[kind].get("said", [])
    assert ("flow.py" in said) is (kind != "a problem")  # the text says that flow.py made no client
    short = json.loads(told(as_json=True, brief=True)[0])
    assert [line for line in lines if line not in json.dumps(short["notes"])] == []


def test_the_json_of_a_verdict_has_all_lines_of_its_text(bag_trial) -> None:
    trial = bag_trial(8, [8])
    limit = replace(diagnose(Sweep("mine"), [trial]).findings[0], code="host-overloaded", severity=Severity.HIGH)
    doubted = diagnose(
        Sweep("mine"), [replace(trial, findings=(replace(limit, points=(), summary="Others used it."),))]
    )
    assert doubted.doubt
    found = export.to_json(Sweep("mine"), [trial], doubted)["verdict"]
    assert doubted.text.splitlines() == [*found["trust"], f"{found['line']} {found['doubt']}"]
