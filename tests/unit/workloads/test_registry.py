from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from importlib import metadata

import pytest

from scalescope import workloads
from scalescope.errors import InvalidField, UsageError
from scalescope.model.sweep import Sweep
from scalescope.model.workload import Workload

NAMES = [workload.name for workload in workloads.builtin()]
BUILTIN = pytest.mark.parametrize("workload", workloads.builtin(), ids=lambda workload: workload.name)


def test_built_in_workloads_are_listed_once_and_in_order() -> None:
    assert sorted(set(NAMES)) == NAMES
    assert {"array-matmul", "beam-pardo", "futures-map", "worker-loss"} <= set(NAMES)


@BUILTIN
def test_a_built_in_workload_is_loaded_by_its_name(workload: Workload) -> None:
    assert workloads.load(workload.name) is workload


@BUILTIN
def test_declared_parameters_agree_with_the_signature_of_the_function(workload: Workload) -> None:
    client, *rest = inspect.signature(workload.run).parameters.values()
    assert client.name == "client"
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in rest)
    assert {parameter.name: parameter.default for parameter in rest} == {
        parameter.name: parameter.default for parameter in workload.parameters
    }


@BUILTIN
def test_a_built_in_workload_has_complete_metadata(workload: Workload) -> None:
    assert workload.version >= 1
    assert re.fullmatch(r"\S.*\.", workload.summary)
    assert re.fullmatch(r"[a-z0-9].*[^.]", workload.stresses)
    assert workload.packages
    assert workload.extra in {"", *metadata.metadata("scalescope").get_all("Provides-Extra", ())}
    assert workload.extra or set(workload.packages) == {"dask"}
    items = workload.parameter("items")
    assert items is not None
    assert items.kind == "int"
    assert items.minimum in (0, 1, 2)
    for parameter in workload.parameters:
        assert re.fullmatch(r"\S.*\.", parameter.help), parameter.name
        assert not parameter.required
        assert parameter.kind in ("int", "float", "str", "any")
        if parameter.kind in ("int", "float"):
            assert parameter.minimum is not None, parameter.name


@BUILTIN
def test_default_parameters_are_valid_and_survive_json(workload: Workload) -> None:
    bound = workload.bind({})
    assert json.loads(json.dumps(bound)) == bound
    assert workload.bind(bound) == bound


def test_a_built_in_workload_can_be_swept_over_its_parameters() -> None:
    sweep = Sweep(workload="beam-pardo", axes={"items": (1, 2), "npartitions": (None, "items", 7), "workers": (3,)})
    assert len(sweep.expand(workloads.load("beam-pardo"))) == 6


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "item", "10", ""])
@pytest.mark.parametrize("name", ["bag-map", "beam-pardo", "beam-files"])
def test_an_invalid_npartitions_is_refused_before_a_run(name: str, value: object) -> None:
    with pytest.raises(InvalidField, match=r"params\.npartitions: .*'items'"):
        workloads.load(name).bind({"npartitions": value})


@BUILTIN
def test_the_packages_of_a_built_in_workload_are_installed(workload: Workload) -> None:
    workloads.check_installed(workload)


@pytest.mark.parametrize(
    ("name", "module", "extra"), [("beam-pardo", "apache_beam", "beam"), ("dataframe-shuffle", "pandas", "arrays")]
)
def test_a_missing_package_is_named_with_its_extra_before_a_run(
    name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    message = rf"'{name}' needs {module.replace('_', '-')}(?s:.)*pip install .*\[{extra}\]"
    with pytest.raises(UsageError, match=message) as caught:
        workloads.check_installed(workloads.load(name))
    assert caught.value.where == sys.executable


def test_replay_can_be_loaded_but_is_not_listed() -> None:
    assert workloads.load("replay").parameter("graph") is not None
    assert "replay" not in NAMES


@BUILTIN
def test_a_negative_number_of_items_is_refused(workload: Workload) -> None:
    with pytest.raises(InvalidField, match=r"params\.items: .* got -1"):
        workload.bind({"items": -1})


def test_importing_the_workloads_imports_no_heavy_package() -> None:
    heavy = ["apache_beam", "numpy", "pandas", "dask", "torch", "pyarrow", "prefect"]
    code = f"""
import sys, scalescope.workloads as library
for workload in library.builtin():
    library.check_installed(workload)
print([m for m in {heavy!r} if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
