"""Prefect blocks: saved configuration of clusters and stores.

Registered as a Prefect collection (`prefect block register -m scalescope_blocks`). A flow takes a saved block by its
name, such as `cluster="simulated-cluster/prod"` or `store="result-store/team"`.
"""

from scalescope_blocks.clusters import BLOCKS, ClusterBlock
from scalescope_blocks.resolve import saved
from scalescope_blocks.store import ResultStore

_CLUSTERS = {block.__name__: block for block in BLOCKS.values()}  # classes by name, such as `SimulatedCluster`

__all__ = [*_CLUSTERS, "ResultStore", "saved"]


def __getattr__(name: str) -> type[ClusterBlock]:
    if name in _CLUSTERS:
        return _CLUSTERS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:  # Prefect registers the blocks in this list
    return __all__
