"""The process that started a script judges the records that the script's process left."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import typer

from scalescope.cli import main as cli
from scalescope.cli.commands import run
from scalescope.driver.attempt import Attempt
from scalescope.errors import UsageError
from scalescope.own_code import record, script
from scalescope.own_code.script import Judge, Program, ScriptOutcome


@pytest.mark.parametrize(
    ("report", "second"),
    [
        ("report.html", "report-2.html"),
        ("report", "report-2"),
        ("out.d/report", "out.d/report-2"),
        ("./report", "./report-2"),
        ("../a.b/report.html", "../a.b/report-2.html"),
        ("s3://b.x/report", "s3://b.x/report-2"),
        ("s3://b.x/r.html", "s3://b.x/r-2.html"),
    ],
)
def test_the_report_on_a_second_cluster_gets_a_numbered_name(report: str, second: str) -> None:
    assert run._numbered(report, 1) == report
    assert run._numbered(report, 2) == second


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("run s.py --debug", 1),
        ("run --debug s.py --debug", 2),
        ("--debug run s.py --debug", 2),
        ("run -e python --json s.py --json", 4),
        ("run --report r.html --require x>1 s.py -e", 5),
        ("run -m etl 20", 2),
        ("run --report=r.html s.py", 2),
        ("run -- --odd-name", 1),
        ("run", 1),
        ("fix --budget 10m --apply s.py --apply", 4),
        ("fix latest", 1),
        ("sweep run s.py --debug", 4),
    ],
)
def test_options_after_the_script_belong_to_the_script(line: str, script: int) -> None:
    words = line.split()
    assert cli._script(words, typer.main.get_command(cli.app(cli._command(words)))) == script


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "recorded").mkdir()
    return tmp_path / "recorded"


def told(folder: Path, status: int = 0, *, python: str = sys.executable, **event: object) -> ScriptOutcome:
    record.say(folder, {"ended": True, "error": "", "missing": None, "schedulers": {}, "prefect": False, **event})
    outcome = ScriptOutcome(folder, status)
    Judge(Program("s.py", python=python))(outcome)
    return outcome


def test_the_last_script_is_stored_with_its_arguments_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        script.last_program()
    program = Program("s.py", ("--n", "3"), python="/their/python")
    script.note_last(program)
    assert script.last_program() == Program("s.py", ["--n", "3"], python="/their/python", folder=str(tmp_path))
    (path,) = (tmp_path / "state" / "scalescope").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_script_without_dask_gets_no_hint_and_leaves_no_folder(folder: Path) -> None:
    outcome = told(folder)
    assert (outcome.found, outcome.problems, outcome.hints) == ([], [], [])
    assert not folder.exists()


def test_a_module_missing_in_our_python_gives_a_hint_to_the_option_e(folder: Path) -> None:
    (hint,) = told(folder, 1, missing="pandas").hints
    assert {"pandas;", "`-e"} <= set(hint.split())


def test_a_module_missing_in_the_python_of_the_user_gives_no_hint(folder: Path) -> None:
    assert told(folder, 1, python="/their/python", missing="pandas").hints == []


def test_a_script_that_uses_dask_without_a_client_gets_a_hint_to_create_one(folder: Path) -> None:
    hints = told(folder, schedulers={"dask.threaded": [3, 1.5], "dask.multiprocessing": [1, 9.0]}).hints
    assert len(hints) == 2
    assert all("Client(processes=False)" in hint for hint in hints)


@pytest.mark.parametrize(("line", "hints"), [("s.py:3 in <module>", 1), ("s.py:3 in main", 0)])
def test_a_cluster_started_at_module_level_gives_a_hint_to_the_main_guard(folder: Path, line: str, hints: int) -> None:
    record.say(folder, {"client_at": line})
    outcome = told(folder, 1, error="Nanny failed to start.")
    assert [hint.count("__main__") for hint in outcome.hints] == [1] * hints


def test_the_reason_why_recording_stopped_is_a_problem_instead_of_a_hint(folder: Path) -> None:
    record.say(folder, {"stopped": "OSError: no room"})
    outcome = told(folder)
    assert len(outcome.problems) == 1
    assert "no room" in outcome.problems[0]
    assert outcome.hints == []


def test_a_cluster_without_any_written_record_is_a_problem(folder: Path) -> None:
    (folder / "1").mkdir()
    assert len(told(folder).problems) == 1


def test_an_unreadable_record_is_a_problem_and_stays_on_disk(folder: Path) -> None:
    (folder / "1").mkdir()
    (folder / "1" / record.CLUSTER).write_text("{")
    outcome = told(folder)
    assert str(folder / "1") in outcome.problems[0]
    assert (folder / "1" / record.CLUSTER).exists()


@pytest.mark.parametrize(
    ("lines", "closed", "sizes", "clusters"),
    [
        ("aaa", "123", "222", 3),
        ("aab", "123", "222", 2),  # the diagnosis counts from three on
        ("aaa", "13", "222", 0),  # two are open at the same time
        ("aaa", "123", "124", 0),  # they are compared
        ("abc", "123", "222", 0),
    ],
)
def test_clusters_made_in_turn_at_one_line_are_counted_on_the_one_with_the_longest_call(
    folder: Path, lines: str, closed: str, sizes: str, clusters: int
) -> None:
    kept = [folder / str(number) for number in (1, 2, 3)]
    for number, (line, size, each) in enumerate(zip(lines, sizes, kept, strict=True), 1):
        each.mkdir()
        threads = {f"w{i}": 1 for i in range(int(size))}
        attempt = Attempt(elapsed_s=1.0 + (number == 2))
        record.Recorded(attempt, "s.py", "tcp://h:1", threads, "", 1.0).write(each)
        record.say(folder, {"cluster": number, "made": line, "start_s": 2.0})
        if str(number) in closed:
            record.say(folder, {"closed_s": 1.0})
    facts = script._rounds(ScriptOutcome(folder, real_s=20.0), kept)
    saved_s = pytest.approx(3.0 * (clusters - 1))
    assert facts == ({kept[1]: {"clusters": clusters, "saved_s": saved_s, "script_s": 20.0}} if clusters else {})


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (-signal.SIGKILL, "SIGKILL"),
        (-signal.SIGTERM, "SIGTERM"),
        (-signal.SIGSEGV, "SIGSEGV"),
        (-signal.SIGINT, "you stopped"),
        (7, "status 7"),
        (None, "unknown exit status"),
    ],
)
def test_the_message_about_the_end_of_a_process_names_signal_or_status(status: int | None, words: str) -> None:
    assert words in script.ending(status, 12.5)


def test_events_are_read_from_the_last_complete_line(tmp_path: Path) -> None:
    record.say(tmp_path, {"number": 1})
    ((until, first),) = record.events(tmp_path)
    record.say(tmp_path, {"number": 2})
    with (tmp_path / record.EVENTS).open("a") as stream:
        stream.write('{"number"')
    assert first == {"number": 1}
    assert [event for _, event in record.events(tmp_path, until)] == [{"number": 2}]


def test_records_go_to_a_private_temporary_folder_if_the_state_folder_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file" / "state"))
    (tmp_path / "file").write_text("")
    folder = script.new_folder()
    assert os.stat(folder).st_mode & 0o77 == 0
    folder.rmdir()


def test_last_folder_finds_the_newest_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folders = [tmp_path / "scalescope" / "scripts" / name for name in ("20260101-000000-a", "20260102-000000-a")]
    for each in folders:
        each.mkdir(parents=True)
        (each / record.RUN).write_text(json.dumps({}))
    assert script.last_folder() == folders[1]


@pytest.mark.parametrize("writes", [True, False])
def test_bytecode_of_our_modules_is_written_for_later_runs_unless_python_forbids_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", not writes)
    script._write_bytecode()
    found = {path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc")}
    assert ({"guest", "recording", "spool"} <= found) is writes
