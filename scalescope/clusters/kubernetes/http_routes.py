"""HTTP routes of a scheduler in Kubernetes: only what operator and kubelet need, since every pod can reach them.

Pods import this module from the secret of the cluster, so it imports Dask's packages only.
"""

from __future__ import annotations

import json
from typing import Any

from distributed.http.health import HealthHandler
from distributed.http.utils import RequestHandler


class RetireWorkers(RequestHandler):  # type: ignore[misc]
    """Retires only workers that the driver has chosen (`retire_order`), whoever sends the request."""

    async def post(self) -> None:
        scheduler = self.server
        choose = vars(scheduler).get("workers_to_close")
        chosen = choose(n=json.loads(self.request.body).get("n", 0)) if choose else []
        retired = await scheduler.retire_workers(workers=chosen) if chosen else {}
        self.set_header("Content-Type", "application/json")
        self.write(json.dumps({address: {"name": str(each["name"])} for address, each in retired.items()}))


class CheckIdle(RequestHandler):  # type: ignore[misc]
    """Tells the operator since when the scheduler is idle; the operator removes a cluster that is idle for too long."""

    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.write(json.dumps({"idle_since": self.server.check_idle()}))


routes: list[tuple[str, Any, dict[str, Any]]] = [
    ("/health", HealthHandler, {}),
    ("/api/v1/retire_workers", RetireWorkers, {}),
    ("/api/v1/check_idle", CheckIdle, {}),
]
