"""A real server of Dask Gateway on loopback, whose clusters are processes of this user."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from dask_gateway import Gateway
from dask_gateway.auth import BasicAuth

from support.waiting import wait_for

PASSWORD = "c4nary-of-the-gateway"
VARIABLE = "GATEWAY_OF_THE_TESTS"  # holds the password
MOST = 4  # workers of a cluster
CONFIG = f"""
from dask_gateway_server.options import Integer, Options

c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.address = "127.0.0.1:%d"
c.Proxy.address = "127.0.0.1:%d"
c.SimpleAuthenticator.password = "{PASSWORD}"
c.UnsafeLocalBackend.clusters_directory = "%s"
c.UnsafeLocalBackend.cluster_heartbeat_period = 1
c.UnsafeLocalBackend.cluster_heartbeat_timeout = 20
c.UnsafeLocalBackend.sigint_timeout = 2
c.ClusterConfig.cluster_max_workers = {MOST}
c.ClusterConfig.scheduler_cmd = ["{sys.executable}", "-m", "dask", "scheduler"]
c.ClusterConfig.worker_cmd = ["{sys.executable}", "-m", "dask", "worker"]
c.Backend.cluster_options = Options(Integer("worker_cores", 1, min=1, max=4))
"""


@dataclass(frozen=True)
class Server:
    address: str
    process: psutil.Popen

    def fields(self, user: str = "me") -> dict[str, Any]:
        """Fields of a cluster; its password stands in the variable."""
        return {"address": self.address, "auth": "basic", "username": user, "secrets": {"password": VARIABLE}}

    def clusters(self, user: str = "me") -> list[str]:
        """Names of a user's clusters that run or stop."""
        there = self._ask(user, lambda gateway: gateway.list_clusters(status=["pending", "running", "stopping"]))
        return [each.name for each in there]

    def submit(self, user: str) -> str:
        return str(self._ask(user, lambda gateway: gateway.submit()))

    def stop(self, user: str, name: str) -> None:
        self._ask(user, lambda gateway: gateway.stop_cluster(name))
        wait_for(lambda: name not in self.clusters(user))

    def _ask(self, user: str, question: Callable[[Gateway], Any]) -> Any:
        async def asked() -> Any:
            async with Gateway(self.address, auth=BasicAuth(user, PASSWORD), asynchronous=True) as gateway:
                return await question(gateway)

        return asyncio.run(asked())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server and its proxy."""
        for each in (self.process, *(child for child in self.process.children() if "proxy" in child.name())):
            each.send_signal(number)


@contextmanager
def serving(folder: Path, missing: Any) -> Iterator[Server]:
    if importlib.util.find_spec("dask_gateway_server") is None:
        missing("gateway", 'no server: pip install ".[dev]"')
    ports = []
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
            ports.append(each.getsockname()[1])
    (folder / "clusters").mkdir()
    (folder / "config.py").write_text(CONFIG % (*ports, folder / "clusters"))
    command = [sys.executable, "-m", "dask_gateway_server", "-f", folder / "config.py"]
    with (folder / "log").open("wb") as log:
        process = psutil.Popen(command, cwd=folder, stdout=log, stderr=log)
    server = Server(f"http://127.0.0.1:{ports[1]}", process)

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        try:
            with urllib.request.urlopen(f"{server.address}/api/health", timeout=5):
                return True
        except OSError:
            return False

    try:
        wait_for(answers, lambda: (folder / "log").read_text())
        yield server
    finally:
        server.signal(signal.SIGCONT)
        process.terminate()  # stops all clusters, too
        process.wait(60)
