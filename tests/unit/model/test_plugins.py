"""A third-party package adds rows to our tables; it is not installed, its folder is on PYTHONPATH."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scalescope.errors import UsageError
from scalescope.model.plugins import NoRow
from scalescope.studies import STUDIES

CODE = '''
from dataclasses import dataclass
from typing import ClassVar

from scalescope.clusters.light.spec import LightSpec
from scalescope.diagnosis.observation import TrialCause
from scalescope.model.finding import Evidence, Severity
from scalescope.studies import StudyType


@dataclass(frozen=True)
class Roof(LightSpec):
    """Light workers under the roof."""

    kind: ClassVar[str] = "roof"
    title: ClassVar[str] = "Roof Cluster"


def squares(client, *, items: int = 4):
    """Squares numbers."""
    return sum(client.gather(client.map(pow, range(items), [2] * items, pure=False)))


COLD = TrialCause(
    code="cold-roof", title="The roof is cold", needs="Any trial.", ruled_out_by="Nothing.", remedy="Heat the roof"
)


@COLD.finds
def cold_roof(observation):
    return COLD.finding(
        observation, 0.0, "The roof is cold.", "heat it", Evidence("kelvin", 263, "roof"),
        confidence=1.0, severity=Severity.INFO,
    )


RAISES = TrialCause(code="raises", title="A cause that raises", needs="-", ruled_out_by="-", remedy="-")


@RAISES.finds
def raises(observation):
    raise KeyError("thermometer")


ROOF_STUDY = StudyType(
    command="look-up", parameters_class="scalescope.studies.comparison.parameters:ComparisonParameters",
    plan="scalescope.studies.comparison.plan", report="scalescope.studies.comparison.report",
    title="Up", fine=("good", "Fine"), alarm=("high", "Not fine"),
)
'''
ROWS = {
    "scalescope.clusters": "roof = roofs:Roof",
    "scalescope.workloads": "squares = roofs:squares",
    "scalescope.causes": "cold-roof = roofs:COLD\nraises = roofs:RAISES",
    "scalescope.studies": "up = roofs:ROOF_STUDY",
}
BROKEN = {
    "scalescope.clusters": "light = roofs:Roof\nattic = roofs:Roof",
    "scalescope.workloads": "gone = no_such_module:run",
}


def install(folder: Path, name: str, rows: dict[str, str], code: str = "") -> None:
    """Lay the package out as an installer does."""
    info = folder / f"{name}-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text("".join(f"[{group}]\n{text}\n" for group, text in rows.items()))
    if code:
        (folder / f"{name}.py").write_text(code)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    install(tmp_path / "site", "roofs", ROWS, CODE)
    return tmp_path / "site"


def run(site: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(site), "SCALESCOPE_STORE": f"sqlite:///{site / 'runs.db'}"}
    return subprocess.run([sys.executable, "-c", code, *arguments], env=variables, capture_output=True, text=True)


def scalescope(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = run(site, "from scalescope.cli.main import main; main()", *arguments)
    assert done.returncode == 0, done.stderr
    return done


def test_a_sweep_uses_the_cluster_workload_and_cause_of_a_plugin(site: Path) -> None:
    script = """
from scalescope.run.sweep import run_sweep
cluster = {"kind": "roof", "check_limit": False}
[trial] = run_sweep({"workload": "squares", "axes": {"workers": [2]}, "cluster": cluster}).run.trials
print([trial.state.value, trial.facts["cluster"]["kind"], trial.facts["result"],
       "cold-roof" in {each.code for each in trial.findings}])
"""
    done = run(site, script)
    assert done.returncode == 0, done.stderr
    assert ast.literal_eval(done.stdout.splitlines()[-1]) == ["valid", "roof", 14, True]
    assert "thermometer" in done.stderr  # a cause that raises loses only its own finding


@pytest.mark.thorough
def test_commands_and_lists_contain_the_rows_of_a_plugin(site: Path) -> None:
    assert "squares" in [each["name"] for each in json.loads(scalescope(site, "workloads", "--json").stdout)]
    assert "--b" in scalescope(site, "look-up", "--help").stdout
    listed = """
from scalescope.diagnosis.causes import by_code
from scalescope.model.cluster import kinds
from scalescope.studies import STUDIES
print({"roof", "cold-roof", "up"} & {*kinds(), *by_code(), *STUDIES})
"""
    assert set(ast.literal_eval(run(site, listed).stdout)) == {"roof", "cold-roof", "up"}


def test_a_broken_plugin_fails_only_when_its_own_row_is_loaded(site: Path) -> None:
    install(site, "ruins", BROKEN)
    script = """
from scalescope import workloads
from scalescope.errors import UsageError
from scalescope.model.cluster import KINDS, cluster_spec
cluster_spec("light"), workloads.load("futures-map"), workloads.builtin()
print({f"{name} of {package}": error and error.category for name, package, error in KINDS.plugins()})
for name in ("gone", "attic"):
    try:
        workloads.load(name) if name == "gone" else cluster_spec(name)
    except UsageError as error:
        print([error.category, "ruins" in error.next_step, "ModuleNotFoundError" in error.cause])
"""
    kinds, gone, attic = map(ast.literal_eval, run(site, script).stdout.splitlines())
    assert kinds == {"roof of roofs": None, "light of ruins": "broken-plugin", "attic of ruins": "broken-plugin"}
    assert gone == ["broken-plugin", True, True]
    assert attic == ["broken-plugin", True, False]


def test_two_plugins_with_the_same_row_name_are_both_named_in_the_error(site: Path) -> None:
    install(site, "tiles", {"scalescope.clusters": "roof = roofs:Roof"})
    script = "from scalescope.model.cluster import KINDS; [(_, _, error)] = KINDS.plugins(); print(error)"
    told = run(site, script).stdout
    assert "roofs" in told
    assert "tiles" in told


def test_built_in_rows_are_found_without_listing_installed_packages() -> None:
    script = """
import sys
import scalescope.cli.main
from scalescope.model.cluster import cluster_spec
from scalescope.studies import STUDIES
cluster_spec("light"), STUDIES["comparison"]
from scalescope.model import plugins
assert plugins._installed.cache_info().misses == 0
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_looking_up_an_unknown_row_raises_a_usage_error() -> None:
    with pytest.raises(NoRow) as raised:
        STUDIES["weather"]
    assert isinstance(raised.value, UsageError)
    assert STUDIES.get("weather") is None
