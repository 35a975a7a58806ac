"""`scalescope environments`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from scalescope.cli import main as cli

pytestmark = pytest.mark.usefixtures("cache")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.run(["environments", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_environments_can_be_built_listed_and_pruned(
    capsys: pytest.CaptureFixture[str], let_go: Callable[[], None]
) -> None:
    status, out, err = run(capsys)
    assert (status, "0 environments" in err) == (0, True)

    status, out, err = run(capsys, "build", "mine = tiny-thing==1.0", "tiny-thing==1.1")
    assert status == 0
    assert [Path(line).exists() for line in out.splitlines()] == [True, True]
    assert "Building environment mine" in err

    status, out, _ = run(capsys, "--json")
    assert {row["text"] for row in json.loads(out)} == {"tiny-thing==1.0", "tiny-thing==1.1"}
    assert all(row["in_use"] for row in json.loads(out))
    status, out, _ = run(capsys)
    assert "tiny-thing==1.0" in out
    assert "in use" in out

    status, out, _ = run(capsys, "prune", "--all")
    assert (status, out.count("in use")) == (0, 2)
    let_go()
    assert run(capsys, "prune")[1] == ""
    status, out, _ = run(capsys, "prune", "--older-than", "0", "--json")
    assert sorted(json.loads(out)["removed"]) == ["tiny-thing==1.0", "tiny-thing==1.1"]
    assert json.loads(run(capsys, "--json")[1]) == []


def test_environments_build_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "build", "mine = tiny-thing==1.0", "--json")
    (built,) = json.loads(out)
    assert (status, built["name"], built["text"], built["fresh"]) == (0, "mine", "tiny-thing==1.0", True)
    assert built["packages"]["tiny-thing"] == "1.0"


@pytest.mark.parametrize("text", ["foo=1", "tiny-thing==99", "/no/such/python"])
def test_environments_that_cannot_be_built_are_a_usage_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "build", text)
    assert (status, out) == (2, "")
    assert err.count("error:") >= 1


def test_no_environment_is_built_if_one_of_several_texts_is_invalid(
    capsys: pytest.CaptureFixture[str], cache: Path
) -> None:
    assert run(capsys, "build", "tiny-thing==1.0", "foo=1")[0] == 2
    assert not cache.exists()
