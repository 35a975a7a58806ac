"""What is run: importable functions `run(client, **params)` with metadata.

Importing this package needs the standard library and `distributed` alone; a workload imports its own packages when it
runs.
"""

from __future__ import annotations

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.workload import Workload
from scalescope.workloads import (
    array_matmul,
    bag_map,
    beam_files,
    beam_pardo,
    dataframe_shuffle,
    futures_map,
    replay,
    tree_reduce,
)
from scalescope.workloads.references import FORMS, load_function

_BUILTIN = (
    futures_map.WORKLOAD,
    bag_map.WORKLOAD,
    beam_pardo.WORKLOAD,
    beam_files.WORKLOAD,
    array_matmul.WORKLOAD,
    dataframe_shuffle.WORKLOAD,
    tree_reduce.WORKLOAD,
)
_NEEDS_A_FILE = (replay.WORKLOAD,)
"""Can be loaded by name, but not run without a file that another command writes."""


def builtin() -> tuple[Workload, ...]:
    """The workloads that come with Scalescope and run as they are."""
    return _BUILTIN


def load(reference: str) -> Workload:
    """Find a workload.

    Args:
        reference: The name of a built-in one, `package.module:function`, or `path.py:function` (the path absolute or
            relative to the working directory).

    Raises:
        InvalidField: There is no such workload, or the function cannot be one.
    """
    reference = fields.text("workload", reference)
    if ":" in reference:
        return load_function(reference)
    known = {workload.name: workload for workload in (*_BUILTIN, *_NEEDS_A_FILE)}
    if reference in known:
        return known[reference]
    raise InvalidField(
        "workload",
        reference,
        fields.suggest(reference, known),
        next_step=f"`scalescope workloads` lists the built-in ones; a function of your own is {FORMS}",
    )


__all__ = ["builtin", "load"]
