"""The form of a flow in Prefect's UI: its schema, and values checked as Prefect's server checks them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.validation import is_valid_schema, validate

from scalescope.isolation.parameters import IsolationParameters
from scalescope.model.cluster import cluster_spec
from scalescope.model.parameters import Declared, declared
from scalescope.run.parameters import Reported, RunParameters, Storage
from scalescope.studies.comparison.parameters import ComparisonParameters
from scalescope.studies.release.parameters import ReleaseParameters
from scalescope.studies.threshold.parameters import ThresholdParameters
from scalescope_flows import orchestrator

DEPLOYMENTS = Path(__file__).parents[2] / "deployments"
DECLARED: dict[str, tuple[type, ...]] = {
    "scale-sweep": (RunParameters,),
    "find-threshold": (ThresholdParameters, Reported),
    "find-release": (ReleaseParameters, Reported),
    "compare": (ComparisonParameters, Reported),
    "isolate": (IsolationParameters, Storage),
}
FORMS = {name: parameter_schema(orchestrator.load(name)).model_dump_for_openapi() for name in DECLARED}
"""As `prefect deploy` makes them."""
FIELDS = {name: [each for kind in kinds for each in declared(kind)] for name, kinds in DECLARED.items()}
EVERY = [(name, each) for name, fields in FIELDS.items() for each in fields]


@pytest.mark.parametrize("name", FORMS)
def test_a_form_has_the_declared_parameters_in_order(name: str) -> None:
    found = FORMS[name]["properties"]
    assert list(found) == [each.name for each in FIELDS[name]]
    assert [field["position"] for field in found.values()] == list(range(len(found)))
    assert FORMS[name].get("required", []) == [each.name for each in FIELDS[name] if each.required]
    is_valid_schema(FORMS[name])


@pytest.mark.parametrize(("name", "each"), EVERY, ids=[f"{name}-{each.name}" for name, each in EVERY])
def test_a_field_of_a_form_has_the_declared_title_help_limits_and_default(name: str, each: Declared) -> None:
    field = FORMS[name]["properties"][each.name]
    assert field["title"] == each.title
    assert field["title"][0].isupper()
    assert "_" not in field["title"]
    assert field["description"] == each.explained
    assert len(each.about.help) > 10
    assert field.get("minimum") == each.about.minimum
    assert field.get("maximum") == each.about.maximum
    assert field.get("examples", []) == list(each.about.examples)
    assert field.get("default") == each.default
    assert ("default" in field) is not each.required
    for example in each.about.examples:
        assert not _errors(name, **{each.name: example})


@pytest.mark.parametrize("path", sorted(DEPLOYMENTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_parameters_of_deployment_files_are_valid_for_the_form(path: Path) -> None:
    for deployment in yaml.safe_load(path.read_text(encoding="utf-8"))["deployments"]:
        module, _, function = deployment["entrypoint"].rpartition(".")
        flow = getattr(import_module(module), function)
        assert not validate(deployment.get("parameters", {}), parameter_schema(flow).model_dump_for_openapi())


@pytest.mark.parametrize(
    ("name", "field", "offered", "typed"),
    [
        ("scale-sweep", "workload", "futures-map", "my_job.py:run"),
        ("scale-sweep", "cluster", "light", "simulated-cluster/prod"),
        ("find-threshold", "workload", "bag-map", "package.module:function"),
        ("find-threshold", "metric", "makespan_s", "workers_used / workers"),
        ("find-release", "metric", "tasks", "workers_used < 0.5 * workers"),
        ("compare", "metric", "efficiency", "work_s / span_s"),
        ("isolate", "finding", "too-few-partitions", "poisonous-task"),
    ],
)
def test_a_form_offers_known_values_and_accepts_any_text(name: str, field: str, offered: str, typed: str) -> None:
    members = FORMS[name]["properties"][field]["anyOf"]
    titles = [member["title"] for member in members]
    assert len(set(titles)) == len(titles)
    assert offered in members[0]["enum"]
    assert typed not in members[0]["enum"]
    assert [member.get("type") for member in members][:2] == [None, "string"]
    assert not _errors(name, **{field: offered})
    assert not _errors(name, **{field: typed})


def test_a_form_offers_only_cluster_kinds_without_required_fields() -> None:
    kinds, _, mapping = FORMS["scale-sweep"]["properties"]["cluster"]["anyOf"]
    assert {"simulated", "light", "local"} <= set(kinds["enum"])
    assert "ssh" not in kinds["enum"]
    assert all(cluster_spec(kind) for kind in kinds["enum"])
    assert mapping["title"] == "Kind with fields"
    assert "allOf" in mapping  # otherwise Prefect's new UI shows no input field


@pytest.mark.parametrize("workers", ["1..4", "1,2,8..16:4", [1, 2], ["1..4", 8], 3])
def test_the_form_accepts_ranges_of_an_axis(workers: Any) -> None:
    assert not _errors("scale-sweep", axes={"workers": workers, "seconds": 0.5, "mode": ["a", "b"]})


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("scale-sweep", {"axes": {"workers": 0}}),
        ("scale-sweep", {"axes": {"workers": [0, 1]}}),
        ("scale-sweep", {"axes": {"workers": "0..4"}}),
        ("scale-sweep", {"axes": {"workers": "many"}}),
        ("scale-sweep", {"axes": {"threads_per_worker": [-1]}}),
        ("scale-sweep", {"axes": {"items": []}}),
        ("scale-sweep", {"axes": {"items": {"from": 1}}}),
        ("scale-sweep", {"axes": [1]}),
        ("scale-sweep", {"points": [{"workers": 0}]}),
        ("scale-sweep", {"params": {"items": [1]}}),
        ("scale-sweep", {"repeats": -1}),
        ("scale-sweep", {"repeats": "two"}),
        ("scale-sweep", {"trial_timeout_s": 0}),
        ("scale-sweep", {"budget": {"hours": -1}}),
        ("scale-sweep", {"cluster": {"memory_limit_mb": 100}}),
        ("scale-sweep", {"cluster": 5}),
        ("scale-sweep", {"workload": 5}),
        ("find-threshold", {"axes": {"items": "1..9", "workers": 0}}),
        ("find-threshold", {"min_jump": 2}),
        ("compare", {"values": {"workers": 0}}),
        ("compare", {"workloads": [3]}),
        ("isolate", {"max_trials": 0}),
    ],
)
def test_the_form_refuses_invalid_values(name: str, given: dict[str, Any]) -> None:
    [error] = _errors(name, **given)
    assert error.absolute_path[0] == next(iter(given))


def _errors(name: str, **given: Any) -> list[Any]:
    return validate({"workload": "futures-map", **given}, FORMS[name])
