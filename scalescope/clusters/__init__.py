"""Clusters of every kind behind one interface, a folder for each kind; `jobqueue` holds all batch systems.

Importing it loads only the standard library, so that the simulated cluster's clock can be installed before Dask loads.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from scalescope.errors import ClusterError

if TYPE_CHECKING:
    from scalescope.clusters.base import Cluster
    from scalescope.model.cluster import ClusterSpec


def build(spec: ClusterSpec, seed: int = 0) -> Cluster[Any]:
    """The cluster that `spec` describes, not yet open; raises `ScalescopeError` if a package for it is missing."""
    spec.require()
    try:
        implementation: type[Cluster[Any]] = resolve_name(spec.implementation)
    except ImportError as error:
        raise ClusterError(
            f"clusters of kind {spec.kind!r} cannot be used in this environment",
            where=spec.implementation,
            cause=str(error),
            next_step="install what is missing into the environment that the driver runs in",
        ) from error
    return implementation(spec, seed=seed)
