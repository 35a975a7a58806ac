"""Dask's metrics over HTTP in Kubernetes, for holders of the token in a secret of `cluster.environment_secrets`.

Pods import this module from the secret of the cluster, so it imports Dask's packages only.
"""

from __future__ import annotations

import hmac
import os
from typing import Any

from distributed.http.routing import DirectoryHandler
from distributed.http.utils import RequestHandler
from tornado.web import HTTPError

TOKEN = "SCALESCOPE_METRICS_TOKEN"  # noqa: S105 - the variable's name


class Metrics(RequestHandler):  # type: ignore[misc]
    """What Prometheus scrapes; without prometheus_client in the image, status 404."""

    def get(self) -> None:
        given = self.request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {os.environ[TOKEN]}".encode()):
            raise HTTPError(401)
        try:
            import prometheus_client

            if hasattr(self.server, "task_prefixes"):
                from distributed.http.scheduler.prometheus.core import SchedulerMetricCollector as Collector
            else:
                from distributed.http.worker.prometheus.core import WorkerMetricCollector as Collector
        except ImportError as error:
            raise HTTPError(404) from error
        registry = prometheus_client.CollectorRegistry()
        registry.register(Collector(self.server))
        self.set_header("Content-Type", "text/plain; version=0.0.4")
        self.write(prometheus_client.generate_latest(registry) + prometheus_client.generate_latest())


def _nothing(handler: DirectoryHandler) -> None:
    raise HTTPError(404)


DirectoryHandler.get = _nothing  # distributed always serves `/sitemap.json`, which would list the routes
routes: list[tuple[str, Any, dict[str, Any]]] = [("/metrics", Metrics, {})] if os.environ.get(TOKEN) else []
