"""Clusters that a test opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from scalescope import clusters
from scalescope.clusters.base import Cluster
from scalescope.model.cluster import ClusterSpec


@contextmanager
def opening(spec: Callable[..., ClusterSpec]) -> Iterator[Callable[..., Any]]:
    """A function that opens a cluster by the fields of its specification; clusters are closed at the end."""
    with ExitStack() as stack:

        def opened(**given: Any) -> Cluster[Any]:
            cluster = clusters.build(spec(**given))
            stack.callback(cluster.close)
            cluster.open()
            return cluster

        yield opened
