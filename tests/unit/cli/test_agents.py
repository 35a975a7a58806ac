"""What coding agents are given: a page whose commands exist, and tools."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import click
import pytest
import typer.main

from scalescope.cli import main as cli
from scalescope.cli.commands import agents
from scalescope.errors import ExitStatus

PAGE = resources.files("scalescope.cli").joinpath("SKILL.md").read_text(encoding="utf-8")
COMMANDS = [shlex.split(each)[1:] for each in re.findall(r"`(scalescope [^`]+)`", PAGE)]


def test_the_skill_is_printed_or_installed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["skill"]) == 0
    assert capsys.readouterr().out == PAGE
    assert PAGE.startswith("---\nname: scalescope\ndescription: ")
    assert cli.run(["skill", "--install", str(tmp_path)]) == 0
    assert (tmp_path / "scalescope" / "SKILL.md").read_text(encoding="utf-8") == PAGE


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_shown_in_the_skill_is_a_valid_command_line(command: list[str]) -> None:
    group = typer.main.get_command(cli.app())
    found = group.get_command(click.Context(group), command[0])  # type: ignore[attr-defined]
    assert found is not None
    if hasattr(found, "commands"):
        found = found.commands["result"]  # of `show`
    found.make_context(command[0], [*command[1:]], allow_interspersed_args=command[0] not in cli.OF_SCRIPTS)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert cli.run(["skill", "--install", str(tmp_path / "file")]) == ExitStatus.USAGE
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_mcp_without_its_package_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(agents, "find_spec", lambda name: None)
    assert cli.run(["mcp"]) == ExitStatus.USAGE
    assert "[mcp]" in capsys.readouterr().err


def test_a_detached_command_writes_its_answer_file_only_once_it_has_ended(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("import time; time.sleep(1); print('--detach is mine', flush=True)")
    environ = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": "", "SCALESCOPE_STORE": str(tmp_path / "r.db")}
    command = [sys.executable, "-c", "from scalescope.cli.main import main; main()"]
    command += ["run", "--detach", "--brief", "--json", str(script), "--detach"]
    begun = json.loads(subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout)
    answer, until = Path(begun["answer"]), time.monotonic() + 60
    assert not answer.exists()
    while not answer.exists():
        assert time.monotonic() < until
        time.sleep(0.1)
    assert json.loads(answer.read_text())["about"] == "plain.py"
    assert answer.stat().st_mode & 0o077 == 0
    assert "--detach is mine" in Path(begun["progress"]).read_text()
