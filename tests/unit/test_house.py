"""The structure of the code: the direction of imports, and names by which things are found."""

from __future__ import annotations

import ast
import importlib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest
import yaml

import scalescope_flows
from scalescope import workloads
from scalescope_flows import orchestrator

ROOT = Path(__file__).parents[2]
PACKAGES = ("scalescope", "scalescope_flows", "scalescope_blocks")
DEPLOYMENTS = sorted((ROOT / "deployments").glob("*.yaml"))


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """What every module of the three packages imports directly, also inside of functions and for types alone."""
    graph = grimp.build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def reached(start: str, imports: dict[str, set[str]]) -> set[str]:
    """All modules to which imports lead from one; itself only where they lead back."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = imports.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def holds_code(module: str) -> bool:
    """Whether there is more in it than its docstring."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return len(ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body) > 1


def test_modules_do_not_import_each_other_in_a_circle(imports: dict[str, set[str]]) -> None:
    TopologicalSorter(imports).prepare()  # raises `CycleError`


def test_every_module_of_the_flows_imports_prefect(imports: dict[str, set[str]]) -> None:
    flows = {module: found for module, found in imports.items() if module.startswith("scalescope_flows")}
    assert len(flows) > 10
    strangers = {module for module in flows if holds_code(module) and "prefect" not in reached(module, flows)}
    assert strangers == set()


@pytest.mark.parametrize("workload", workloads.builtin(), ids=lambda workload: workload.name)
def test_every_workload_and_its_parameters_are_described(workload: workloads.Workload) -> None:
    assert workload.summary.endswith(".")
    assert (workload.run.__doc__ or "").strip()
    assert all(parameter.help.endswith(".") for parameter in workload.parameters)


@pytest.mark.parametrize("name", orchestrator.FLOWS)
def test_every_flow_has_the_name_by_which_it_is_looked_up(name: str) -> None:
    flow = orchestrator.load(name)
    assert flow.name == name
    assert (flow.description or "").strip()


@pytest.mark.parametrize("name", orchestrator.FLOWS)
def test_every_flow_can_be_imported_from_the_package(name: str) -> None:
    function = orchestrator.FLOWS[name].partition(":")[2]
    assert getattr(scalescope_flows, function) is orchestrator.load(name)
    assert function in scalescope_flows.__all__


@pytest.mark.parametrize("file", DEPLOYMENTS, ids=lambda file: file.stem)
def test_every_deployment_belongs_to_a_known_flow(file: Path) -> None:
    known = {target.replace(":", ".") for target in orchestrator.FLOWS.values()}
    declared = yaml.safe_load(file.read_text(encoding="utf-8"))["deployments"]
    assert declared
    assert {each["entrypoint"] for each in declared} <= known


def test_there_are_deployments_for_kubernetes_local_and_slurm() -> None:
    assert [file.stem for file in DEPLOYMENTS] == ["kubernetes", "local", "slurm"]
