"""Where it runs: clusters of every kind behind one interface, a folder for each kind.

A folder has the modules `spec` (see `scalescope.model.cluster`), `cluster` (its class is named `CLUSTER`) and, if it
leaves something outside this machine, `reaper` (see `scalescope.clusters.reaping`). Beside the folders stands what
several kinds share; `jobqueue` is the folder of all batch
systems.

This module imports no cluster, and only the standard library, so that the simulated cluster's clock can be installed
before anything else is loaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scalescope.errors import ClusterError

if TYPE_CHECKING:
    from scalescope.clusters.base import Cluster
    from scalescope.model.cluster import ClusterSpec


def build(spec: ClusterSpec, seed: int = 0) -> Cluster[Any]:
    """The cluster that `spec` describes, not yet open.

    Raises:
        UsageError: A package that it needs is not installed.
        ClusterError: No implementation is known for its kind, or it cannot be imported.
    """
    from scalescope.model.cluster import kinds

    if spec.kind not in kinds():
        raise ClusterError(f"there is no cluster of kind {spec.kind!r}", cause=f"known: {', '.join(kinds())}")
    spec.require()
    where = module(type(spec), "cluster")
    try:
        implementation: type[Cluster[Any]] = import_module(where).CLUSTER
    except ImportError as error:
        raise ClusterError(
            f"clusters of kind {spec.kind!r} cannot be used in this environment",
            where=where,
            cause=str(error),
            next_step="install what is missing into the environment that the driver runs in",
        ) from error
    return implementation(spec, seed=seed)


def module(spec: type[ClusterSpec], name: str) -> str:
    """The full name of a module in the folder of a kind."""
    return f"{spec.__module__.rpartition('.')[0]}.{name}"
