"""Studies as `show` and `report` print them, and as artifacts in Prefect."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from support import fake_driver
from support.requests import finished_run

from scalescope.cli import main as cli
from scalescope.errors import ExitStatus
from scalescope.model import spool
from scalescope.model.study import Study
from scalescope.model.sweep import digest
from scalescope.report.brief import MOST
from scalescope.report.table import markdown_text
from scalescope.run.output_paths import WrittenFile
from scalescope.run.sweep import publication
from scalescope.store.store import Store
from scalescope.studies import running
from scalescope_flows.runner import TaskRunner

SWEEP: dict[str, Any] = {"workload": "futures-map", "axes": {"workers": [1, 2, 4]}, "params": {"items": 4}}


def run_of(address: str, *, study: str = "", workers: tuple[int, ...] = (1, 2, 4)) -> str:
    """Make a finished run with fake drivers; returns its id."""
    sweep = {**SWEEP, "axes": {"workers": list(workers)}}
    return finished_run(sweep, address, study=study, fresh=True).id


@pytest.fixture
def kept(fake: Any, address: str, threshold_study: Any) -> Callable[..., Study]:
    """Puts a search for thresholds into the store, with one run."""
    made = threshold_study(lambda items, repeat: 4 * items if items < 200 else 404)

    def keep(*, alarm: bool = False, finished: bool = True, follows: str = "", fresh: bool = True) -> Study:
        with Store.open(address) as store:
            study = store.studies.begin("threshold", made.study.question, follows=follows, fresh=fresh)
        run_of(address, study=study.id)
        with Store.open(address) as store:
            if finished:
                store.studies.finish(study.id, made.study.line, made.study.result, alarm=alarm)
            return store.studies.get(study.id)

    return keep


# ------------------------------------------------------------------ show


def test_show_log_searches_the_log_records_of_all_trials(
    fake: Any, address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = fake_driver.write_records

    def write(path: Path, *given: Any) -> None:
        written(path, *given)
        lines = ["Worker started", "Event loop was unresponsive"]
        rows = {"worker": ["scheduler"] * 2, "time": array("d", [0.0] * 2), "level": ["INFO"] * 2, "text": lines}
        with path.open("ab") as stream:
            spool.write_chunk(stream, "logs", rows)

    monkeypatch.setattr(fake_driver, "write_records", write)
    run = run_of(address, workers=(1, 2))
    assert cli.run(["show", "log", "UNRESPONSIVE", run, "--json", "--store", address]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["text"] for each in found] == ["Event loop was unresponsive"] * 2
    assert len({each["trial"] for each in found}) == 2
    assert cli.run(["show", "log", "no such text", run, "--store", address]) == 0
    assert "No log record" in capsys.readouterr().err


@pytest.mark.parametrize("alarm", [False, True])
def test_show_of_a_study_exits_with_1_only_for_an_alarm(
    kept: Any, address: str, capsys: pytest.CaptureFixture[str], alarm: bool
) -> None:
    unanswered, study = kept(finished=False), kept(alarm=alarm)
    assert cli.run(["show", unanswered.id, "--store", address]) == 0
    assert "Not finished" in capsys.readouterr().out
    assert cli.run(["show", "threshold", "--store", address]) == int(alarm)
    output = capsys.readouterr()
    assert "796 to 404" in " ".join(output.out.split())
    assert f"Run {study.runs[0]} (scalescope show {study.runs[0]})" in output.out
    assert f"Study {study.id} in {address}" in output.err


def test_show_prints_a_study_as_json(kept: Any, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    study = kept(follows="20260101-000000-abcdef")
    assert cli.run(["show", study.id, "--json", "--store", address]) == 0
    output = capsys.readouterr()
    shown = json.loads(output.out)
    assert output.err == ""
    assert shown["question"] == study.question
    assert shown["result"] == study.result
    assert (shown["runs"], shown["follows"], shown["followed_by"]) == (list(study.runs), study.follows, [])


@pytest.mark.parametrize("flags", [["--brief"], ["--brief", "--json"]])
def test_show_brief_names_the_command_that_shows_its_finding_in_full(
    fake: Any, address: str, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    run = run_of(address)
    assert cli.run(["show", run, *flags, "--store", address]) == ExitStatus.FINDING
    shown = capsys.readouterr().out
    assert len(shown) <= MOST + 1
    command = (json.loads(shown)["next"] if "--json" in flags else shown.split("Next: ")[1:])[-1].split()
    assert cli.run([*command[1:], "--json", "--store", address]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["id"] in shown
    assert whole["evidence"]
    assert cli.run(["show", run, "--finding", "no-such", "--store", address]) == ExitStatus.USAGE
    assert whole["id"] in capsys.readouterr().err


def test_show_brief_of_a_study_has_its_line_and_table(
    kept: Any, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    study = kept()
    assert cli.run(["show", study.id, "--brief", "--json", "--store", address]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["line"], shown["id"]) == (study.line, study.id)
    assert shown["table"]["rows"]


def test_show_of_a_run_names_its_study_and_the_studies_that_follow_it(
    kept: Any, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = run_of(address)
    study = kept(follows=own)
    cli.run(["show", own, "--store", address])
    assert f"Led to {study.id} (scalescope show {study.id})" in capsys.readouterr().out
    cli.run(["show", study.runs[0], "--store", address])
    assert f"Part of study {study.id} (scalescope show {study.id})" in capsys.readouterr().out
    cli.run(["show", own, "--json", "--store", address])
    shown = json.loads(capsys.readouterr().out)
    assert (shown["study"], shown["followed_by"]) == ("", [study.id])


def test_runs_and_studies_are_listed_together_newest_first(
    kept: Any, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, study, last = run_of(address), kept(), run_of(address)
    listing = ["show", "list", "--store", address]
    assert cli.run([*listing, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each.get("run") or each["study"] for each in found] == [last, study.id, first]
    assert cli.run([*listing, "--all", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each.get("run") or each["study"] for each in found] == [last, study.runs[0], study.id, first]
    assert cli.run(listing) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert study.id in shown
    assert "answered" in shown
    assert study.runs[0] not in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "threshold-1999"], "There is no study 'threshold-1999'"),
        (["show", "threshold-"], "Several studies begin with 'threshold-'"),
        (["show", "compare", "latest", "threshold"], "threshold is a study"),
        (["report", "release"], "There is no study 'release'"),
        (["report", "threshold", "--trial", "x"], "--trial needs a run"),
    ],
)
def test_show_and_report_refuse_unknown_or_ambiguous_names(
    kept: Any, address: str, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    kept(), kept()
    assert cli.run([*arguments, "--store", address]) == ExitStatus.USAGE
    output = capsys.readouterr()
    assert output.out == ""
    assert says in " ".join(output.err.split())
    assert not Path("report.html").exists()


# ------------------------------------------------------------------ report


def test_report_writes_a_study_and_links_its_runs_to_it(kept: Any, address: str, tmp_path: Path) -> None:
    study = kept()
    target = tmp_path / "a.html"
    assert cli.run(["report", study.id, "--output", str(target), "--store", address]) == 0
    text = target.read_text(encoding="utf-8")
    assert study.id in text
    assert "What was asked" in text
    assert cli.run(["report", study.runs[0], "--output", str(target), "--store", address]) == 0
    assert f"Part of study {study.id}" in target.read_text(encoding="utf-8")


# ------------------------------------------------------------------ Prefect


@pytest.mark.usefixtures("prefect_server")
@pytest.mark.parametrize("kind", ["threshold", "release", "comparison"])
def test_a_study_is_published_as_artifacts_in_prefect(
    kind: str, threshold_study: Any, release_study: Any, comparison_study: Any
) -> None:
    made = {
        "threshold": lambda: threshold_study(lambda items, repeat: 4 * items if items < 200 else 404),
        "release": lambda: release_study(["1", "2", "3"], lambda place: 404 if place else 804),
        "comparison": lambda: comparison_study({"bag-map": [(1.0, 2.0)] * 7}),
    }[kind]()
    page = running.publication(made.study, made.runs)
    key = page.key
    assert key.startswith(f"{kind}-of-")
    assert key.endswith(f"-{digest(made.study.question)}")

    @flow
    def publish() -> None:
        TaskRunner().publish(lambda: running.publication(made.study, made.runs, WrittenFile("/somewhere/study.html")))

    publish()
    with get_client(sync_client=True) as client:
        every = client.request("POST", "/artifacts/filter", json={}).json()
    found = {each["key"]: each for each in every if (each["key"] or "").startswith(key)}
    assert set(found) == {key, f"{key}-table"}
    assert found[key]["description"] == markdown_text(f"{made.study.line} ({page.title})")
    assert f"`scalescope show {made.runs[0].id}`" in found[key]["data"]
    assert f"`scalescope report {made.study.id}`" in found[key]["data"]
    rows = json.loads(found[f"{key}-table"]["data"])
    assert rows


@pytest.mark.usefixtures("prefect_server")
def test_the_artifact_of_a_run_names_its_study(kept: Any, address: str) -> None:
    study = kept()
    with Store.open(address) as store:
        run = store.run(study.runs[0])
    assert run.verdict is not None
    verdict = run.verdict

    @flow
    def publish() -> None:
        TaskRunner().publish(lambda: publication(run, verdict))

    publish()
    with get_client(sync_client=True) as client:
        every = client.request("POST", "/artifacts/filter", json={"sort": "UPDATED_DESC"}).json()
    text = next(each["data"] for each in every if each["key"] == publication(run, verdict).key)
    assert f"Part of study {study.id}: `scalescope show {study.id}`" in text
