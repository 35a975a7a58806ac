"""Workloads: functions `run(client, **params)` with metadata, and the table of the built-in ones.

Each workload checks its result, and raises `WrongAnswer` if the result is wrong. Workloads import their packages when
they run, so this package can be imported with only the standard library and `distributed`.
"""

from __future__ import annotations

import ast
import copyreg
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.plugins import Table
from scalescope.model.workload import Workload, module_of
from scalescope.workloads._common import not_installed
from scalescope.workloads.references import FORMS, load_function


def _row(name: str, reference: str, found: object) -> Workload:
    """Makes a row of the table from a plugin's entry point, which is a `Workload` or a plain function."""
    if not isinstance(found, Workload):
        return replace(load_function(reference), name=name)
    if found.name != name:
        raise ValueError(f"the workload's own name is {found.name}")
    return found


_OWN = {
    "array-matmul": "scalescope.workloads.arrays:array_matmul",
    "array-mirror": "scalescope.workloads.arrays:array_mirror",
    "array-overlap": "scalescope.workloads.arrays:array_overlap",
    "array-oversplit": "scalescope.workloads.arrays:array_oversplit",
    "array-qr": "scalescope.workloads.arrays:array_qr",
    "array-rechunk": "scalescope.workloads.arrays:array_rechunk",
    "array-reduction": "scalescope.workloads.arrays:array_reduction",
    "array-stencil": "scalescope.workloads.arrays:array_stencil",
    "bag-map": "scalescope.workloads.futures:bag_map",
    "beam-co-group-by-key": "scalescope.workloads.beam_grouping:beam_co_group_by_key",
    "beam-combine": "scalescope.workloads.beam_grouping:beam_combine",
    "beam-files": "scalescope.workloads.beam_files:beam_files",
    "beam-group-by-key": "scalescope.workloads.beam_grouping:beam_group_by_key",
    "beam-hot-key": "scalescope.workloads.beam_grouping:beam_hot_key",
    "beam-pardo": "scalescope.workloads.beam_pardo:beam_pardo",
    "beam-side-input": "scalescope.workloads.beam_grouping:beam_side_input",
    "control-cpu": "scalescope.workloads.controls:control_cpu",
    "control-memory": "scalescope.workloads.controls:control_memory",
    "csv-to-parquet": "scalescope.workloads.dataframes:csv_to_parquet",
    "dataframe-broadcast-join": "scalescope.workloads.dataframes:dataframe_broadcast_join",
    "dataframe-groupby": "scalescope.workloads.dataframes:dataframe_groupby",
    "dataframe-groupby-many": "scalescope.workloads.dataframes:dataframe_groupby_many",
    "dataframe-join": "scalescope.workloads.dataframes:dataframe_join",
    "dataframe-set-index": "scalescope.workloads.dataframes:dataframe_set_index",
    "dataframe-shuffle": "scalescope.workloads.dataframes:dataframe_shuffle",
    "delayed-many": "scalescope.workloads.futures:delayed_many",
    "futures-fan-in": "scalescope.workloads.futures:futures_fan_in",
    "futures-lognormal": "scalescope.workloads.futures:futures_lognormal",
    "futures-map": "scalescope.workloads.futures:futures_map",
    "futures-nested": "scalescope.workloads.futures:futures_nested",
    "futures-scatter": "scalescope.workloads.futures:futures_scatter",
    "futures-sequence": "scalescope.workloads.futures:futures_sequence",
    "futures-straggler": "scalescope.workloads.futures:futures_straggler",
    "futures-window": "scalescope.workloads.futures:futures_window",
    "gpu-array": "scalescope.workloads.gpu:gpu_array",
    "gpu-train": "scalescope.workloads.gpu:gpu_train",
    "replay": "scalescope.workloads.replay:replay",
    "scale-up": "scalescope.workloads.stability:scale_up",
    "sklearn-search": "scalescope.workloads.learning:sklearn_search",
    "spill": "scalescope.workloads.stability:spill",
    "tpch-q1": "scalescope.workloads.tpch:tpch_q1",
    "tpch-q3": "scalescope.workloads.tpch:tpch_q3",
    "tree-reduce": "scalescope.workloads.futures:tree_reduce",
    "worker-loss": "scalescope.workloads.stability:worker_loss",
    "worker-retire": "scalescope.workloads.stability:worker_retire",
    "xarray-anomaly": "scalescope.workloads.xarrays:xarray_anomaly",
    "xarray-climatology": "scalescope.workloads.xarrays:xarray_climatology",
    "xarray-resample": "scalescope.workloads.xarrays:xarray_resample",
    "xgboost-train": "scalescope.workloads.learning:xgboost_train",
    "zarr-roundtrip": "scalescope.workloads.xarrays:zarr_roundtrip",
}
BUILTIN: Table[Workload] = Table("scalescope.workloads", _OWN, _row)


def builtin() -> tuple[Workload, ...]:
    """The workloads of the table that can run without parameters."""
    return tuple(found for found in BUILTIN.values() if not any(each.required for each in found.parameters))


def load(reference: str) -> Workload:
    """Find a built-in workload by name, or a function as `package.module:function` or `path.py:function`.

    Raises:
        InvalidField: There is no such workload, or the function cannot be one.
    """
    reference = fields.text("workload", reference)
    if ":" in reference:
        return load_function(reference)
    if reference in BUILTIN:
        return BUILTIN[reference]
    if reference.endswith(".py"):
        raise InvalidField("workload", reference, f"a file with a function in it: {_suggested(reference)}")
    raise InvalidField(
        "workload",
        reference,
        fields.suggest(reference, BUILTIN),
        next_step=f"`scalescope workloads` lists the built-in ones; a function of your own is {FORMS}",
    )


# Workloads are pickled by name, because their function may be in a file that other processes cannot import.
copyreg.pickle(Workload, lambda workload: (load, (workload.name,)))


def _suggested(path: str) -> str:
    """References to those functions of a file that take a client; the file is parsed, not run."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        tree = ast.Module([], [])
    defined = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.args.args]
    found = [each.name for each in defined if each.args.args[0].arg == "client"] or ["FUNCTION"]
    return " or ".join(f"{path}:{name}" for name in found)


def check_installed(workload: Workload) -> None:
    """Refuse a workload whose packages are not installed here; nothing is imported."""
    for package in workload.packages:
        if find_spec(module_of(package)) is None:
            raise not_installed(
                f"workload {workload.name!r}", package, workload.extra, f"there is no package {package}"
            )


__all__ = ["Workload", "builtin", "check_installed", "load"]
