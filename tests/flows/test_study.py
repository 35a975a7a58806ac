"""The flows of studies and their commands, with a fake driver."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from support.prefect_api import by_type

from scalescope.cli import main as cli
from scalescope.errors import InvalidField
from scalescope.model.sweep import PlannedTrial, digest
from scalescope.store.store import Store
from scalescope_flows import compare, find_release, find_threshold

pytestmark = pytest.mark.usefixtures("prefect_server")

ASKED: dict[str, Any] = {"workload": "bag-map", "axes": {"items": "50..400", "workers": 300}}
ARMS: dict[str, Any] = {"workloads": ["futures-map"], "a": {"seconds": 1}, "b": {"seconds": 2}, "values": {"items": 8}}


def partitions(planned: PlannedTrial) -> tuple[int, float]:
    items = planned.point.items or 0
    return (items if items < 200 else 100), 1.0


def test_the_answer_of_a_study_is_stored_and_published(fake: Any, address: str) -> None:
    fake.measures = partitions
    result = find_threshold(**ASKED, store=address)
    assert "199 and 200" in result.line
    assert not result.alarm
    with Store.open(address) as store:
        study = store.studies.get("threshold")
        run = store.run(study.runs[0])
    assert (study.id, study.line) == (result.study_id, result.line)
    assert study.result["jumps"] == result.result["jumps"]
    assert (run.study, run.planned) == (study.id, len(run.trials))
    mine = by_type(digest(study.question))
    assert mine["markdown"]["description"] == f"{result.line} (threshold of bag-map)"
    assert mine["markdown"]["key"] == f"threshold-of-bag-map-{digest(study.question)}"
    assert run.id in mine["markdown"]["data"]
    assert len(mine["table"]["data"]) > 2


@pytest.mark.thorough
def test_an_interrupted_study_is_continued_by_the_same_flow(fake: Any, address: str) -> None:
    fake.measures = partitions
    fake.script = {4: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        find_threshold(**ASKED, store=address)
    result = find_threshold(**ASKED, store=address)
    with Store.open(address) as store:
        [study] = store.studies.newest()
        assert study.id == result.study_id
        assert len(store.run(study.runs[0]).trials) == len(fake.begun) - 1  # one was interrupted
    again = find_threshold(**ASKED, store=address)
    assert again.study_id != result.study_id


@pytest.mark.thorough
def test_a_study_of_a_run_is_linked_to_it(fake: Any, address: str) -> None:
    fake.measures = partitions
    first = find_threshold(**ASKED, store=address)
    second = compare(run=first.study.runs[0], a={"seconds": 1}, b={"seconds": 2}, store=address)
    with Store.open(address) as store:
        assert store.studies.get("comparison").follows == first.study.runs[0]
        assert store.studies.following(first.study.runs[0]) == (second.study_id,)


def test_invalid_parameters_of_a_study_flow_start_no_driver(fake: Any, address: str) -> None:
    for flow, given in ((find_threshold, {"workload": "bag-map"}), (compare, {}), (find_release, {})):
        with pytest.raises(InvalidField):
            flow(**given, store=address)
    assert fake.started == []


# ------------------------------------------------------------------ commands


def test_the_command_find_threshold_shows_the_jump(fake: Any, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    fake.measures = partitions
    command = ["find-threshold", "-w", "bag-map", "-a", "items=50..400", "-a", "workers=300", "--store", address]
    assert cli.run(command) == 0
    out = capsys.readouterr().out
    assert "199 and 200" in out
    assert cli.run([*command, "--json", "--fresh"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["jumps"][0]["left"] == 199


def test_the_command_compare_shows_the_slower_side_and_writes_a_report(
    fake: Any, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measures(planned: PlannedTrial) -> tuple[int, float]:
        return 4, float(str(planned.point.params["seconds"]))

    fake.measures = measures
    report = tmp_path / "report.html"
    command = ["compare", "-w", "futures-map", "-a", "workers=4", "--a", "seconds=1", "--b", "seconds=2"]
    assert cli.run([*command, "--store", address, "--report", str(report)]) == 1
    assert "slower" in capsys.readouterr().out
    assert "B (seconds=2.0)" in report.read_text(encoding="utf-8")
    assert cli.run(["show", "comparison", "--store", address]) == 1


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("find-threshold nothing -a items=1..9", "The store holds no runs"),
        ("compare -w futures-map --a seconds", "NAME=VALUE"),
        ("isolate --metric 'busy <'", "a comparison"),
        ("isolate --metric 'busy < 1' --finding x", "only one of metric and finding"),
        ("isolate --max-trials 0", "max_trials: expected a whole number"),
        ("isolate --axis workers=1", "no workload"),
        ("isolate abc --workload futures-map", "either RUN or --workload"),
        ("isolate none.yaml", "none.yaml"),
        ("isolate --workload futures-mapp --axis workers=1", "did you mean 'futures-map'"),
    ],
)
def test_invalid_options_of_study_commands_are_refused(
    command: str, says: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*shlex.split(command), "--store", address]) == 2
    assert says in " ".join(capsys.readouterr().err.split())
