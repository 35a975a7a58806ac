"""Prefect blocks: validated configuration that can be saved, and builds the plain specifications of the library.

There is a block for each kind of cluster that was ever run, and `ResultStore`. Registered as a Prefect collection
(`prefect block register -m scalescope_blocks`); a flow takes a saved block by its name, such as
`cluster="simulated-cluster/prod"` or `store="result-store/team"`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalescope_blocks.clusters import BLOCKS
from scalescope_blocks.resolve import cluster, store
from scalescope_blocks.store import ResultStore

if TYPE_CHECKING:
    from scalescope_blocks.clusters import ClusterBlock

__all__ = ["ResultStore", "cluster", "store"]
__all__ += list(BLOCKS)

globals().update(BLOCKS)


def __getattr__(name: str) -> type[ClusterBlock]:
    """Tells type checkers what the names of `BLOCKS` are; called for names that are not there alone."""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
