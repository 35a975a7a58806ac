"""The lease in the annotations of a cluster: it tells other hosts whether the owner lives, by the API server's clock.

The owner's host has a lease of its own in the ledger (`scalescope.leases`).
"""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime

from scalescope import leases
from scalescope.clusters.kubernetes.api import Api, Raw
from scalescope.errors import ScalescopeError
from scalescope.leases import Lease
from scalescope.owner import Owner

LEASE_S = 300.0  # lifetime in seconds: other hosts touch the cluster only after that
RENEW_S, RETRY_S = 60.0, 10.0  # seconds until the next renewal, after a success and after a failure
LEDGER_S = 3600.0  # seconds by which the lease in the ledger outlasts the idle timeout: clocks of hosts may differ

UNTIL, OWNER = "scalescope/lease-until", "scalescope/owner"  # annotations of the custom resource

_logger = logging.getLogger(__name__)


def begun(api: Api) -> dict[str, str]:
    """Annotations for a lease of this process that begins now."""
    owner = Owner.current()
    until = datetime.fromtimestamp(api.now() + LEASE_S, UTC).isoformat(timespec="seconds")
    return {UNTIL: until, OWNER: f"process {owner.pid} on {owner.host.split()[0]}"}


def holds_until(cluster: Raw) -> datetime | None:
    """When the lease on a cluster ends; None if it has none."""
    try:
        found = datetime.fromisoformat(cluster["metadata"].get("annotations", {})[UNTIL])
    except (KeyError, ValueError):
        return None
    return found if found.tzinfo else None


class Renewer:
    """A thread that renews both leases of a cluster while this process lives."""

    def __init__(self, api: Api, lease: Lease, limit_s: float) -> None:  # `limit_s`: lifetime of the ledger's lease
        self._api, self._lease, self._limit_s = api, lease, limit_s
        self._over, self._writing = threading.Event(), threading.Lock()
        threading.Thread(target=self._renew, name="scalescope-lease", daemon=True).start()

    def stop(self) -> None:
        """Stop renewing; after this returns, nothing is written to the ledger."""
        with self._writing:
            self._over.set()

    def _renew(self) -> None:
        pause_s = RENEW_S
        while not self._over.wait(pause_s):
            try:
                if self._api.cluster(self._lease.label) is None:  # the answer also sets the clock that `begun` reads
                    return
                self._api.annotate(self._lease.label, begun(self._api))
                with self._writing:
                    if not self._over.is_set():
                        self._lease = leases.renew(self._lease, limit_s=self._limit_s)
                pause_s = RENEW_S
            except ScalescopeError as error:
                if not self._over.is_set():
                    _logger.warning("the lease of %s could not be renewed now: %s", self._lease.label, error)
                pause_s = RETRY_S
