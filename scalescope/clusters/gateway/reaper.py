"""Stops the clusters of dead owners on a server of Dask Gateway."""

from __future__ import annotations

from scalescope import leases
from scalescope.clusters import reaping
from scalescope.clusters.gateway.spec import GatewaySpec
from scalescope.clusters.reaping import Reaped
from scalescope.errors import ClusterError
from scalescope.leases import Lease
from scalescope.model.cluster import cluster_spec

GONE_S = 60.0  # seconds within which a stopped cluster must be gone
CLOCKS_S = 60.0  # seconds by which clocks may differ; clusters older than the lease by more cannot belong to it


def reap(lease: Lease, words: str, dry_run: bool) -> Reaped:
    """Stop the cluster of a lease; see `reaping.Reaper`."""
    known = dict(lease.details)
    name = str(known.pop("cluster", ""))
    spec = cluster_spec({"kind": lease.backend, **known})
    assert isinstance(spec, GatewaySpec)
    spec.require()
    from scalescope.clusters.gateway_server import GatewayServer  # late, because dask-gateway may be missing

    server = GatewayServer(spec.address, spec.proxy_address, spec.auth, spec.login())
    if name:
        there = server.running(name)
        if there and not dry_run and not server.stop(name, GONE_S):
            raise ClusterError(
                f"cluster {name} still exists {GONE_S:g} s after it was stopped",
                where=server.address,
                next_step="run `scalescope reap` again later",
                category="not-removed",
            )
        return reaping.removed(lease, dry_run, [name] if there else [], words)
    # The owner died before it knew the name of its cluster, so we can only guess which cluster that is.
    taken = {each.details.get("cluster") for each in leases.read_all()[0]}
    since = lease.created_at - CLOCKS_S
    clusters = server.ask(lambda gateway: gateway.list_clusters())
    found = [each.name for each in clusters if each.start_time.timestamp() > since and each.name not in taken]
    if not found:
        return reaping.removed(lease, dry_run, [], words)
    return reaping.elsewhere(
        lease,
        f"{words}; the owner had asked {server.address} for a cluster, which may be {' or '.join(found)}",
        f"unless others use it, run `dask_gateway.Gateway().stop_cluster({found[0]!r})`; then `scalescope reap` again",
    )
