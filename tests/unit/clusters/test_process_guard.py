"""Clusters on this machine, as another user of it sees them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import dask
import distributed
import psutil
import pytest
from support import another_user, http_servers

from scalescope import clusters
from scalescope.clusters.light.spec import LightSpec
from scalescope.clusters.local.spec import LocalSpec

NOBODY = 65534
ASK = """\
import asyncio, os, sys
from distributed.core import rpc
import distributed
os.setuid(int(sys.argv[1]))

async def ask(address):
    async with rpc(address, timeout=1) as server:
        try:
            return (await server.identity())["type"].removeprefix("Light")
        except OSError:
            return "refused"

async def main():
    print(*[await ask(address) for address in sys.argv[2:]])

asyncio.run(main())
"""
LISTEN = """\
import os, socket
os.setuid(65534)
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:  # the port stays taken: clients of other tests would wait for whoever gets it next
        connection, _ = server.accept()
        print(connection.recv(1), flush=True)
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0, reason="only root of Linux can act as another user"
)


@pytest.fixture(scope="module", params=[LocalSpec(), LightSpec(hosts=1, check_limit=False)], ids=lambda s: s.kind)
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[list[str], set[int]]]:
    """Addresses of everything that listens: scheduler, worker, and nanny if there is one; ports of other tests."""
    before = set(http_servers.ports([psutil.Process()]))
    cluster = clusters.build(request.param)
    try:
        cluster.open()
        cluster.scale(1, 1)
        assert "other users refused" in cluster.facts()["layout"]
        with cluster.client() as client:
            ((worker, said),) = client.scheduler_info()["workers"].items()
            yield [client.scheduler.address, worker, *([said["nanny"]] if said["nanny"] else [])], before
    finally:
        cluster.close()


@pytest.fixture
def addresses(opened: tuple[list[str], set[int]]) -> list[str]:
    return opened[0]


def ask(user: int, addresses: list[str]) -> list[str]:
    """The names that servers tell a user who knows their addresses, or `refused`."""
    command = [sys.executable, "-c", ASK, str(user), *addresses]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split()


def test_only_processes_of_the_same_user_are_answered(addresses: list[str]) -> None:
    assert ask(0, addresses) == ["Scheduler", "Worker", "Nanny"][: len(addresses)]
    assert ask(NOBODY, addresses) == ["refused"] * len(addresses)


def test_no_http_server_answers_another_user(opened: tuple[list[str], set[int]]) -> None:
    listening = sorted({*http_servers.ports([psutil.Process()])} - opened[1])
    assert listening
    assert http_servers.answered(listening) == []


def test_the_http_routes_of_an_unprotected_cluster_are_found() -> None:
    routes = [f"distributed.http.{name}" for name in ("scheduler.info", "scheduler.json", "health")]
    options = {"processes": False, "dashboard_address": "127.0.0.1:0", "protocol": "tcp"}
    with (
        dask.config.set({"distributed.scheduler.http.routes": routes}),
        distributed.LocalCluster(n_workers=1, **options) as cluster,
    ):
        found = http_servers.answered([cluster.scheduler.http_server.port])
    assert {path.partition("/")[2] for path in found} >= {"info/main/workers.html", "json/counts.json", "health"}


@contextmanager
def listener() -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen([sys.executable, "-c", LISTEN], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, f"tcp://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def test_a_client_sends_nothing_to_a_listener_of_another_user(addresses: list[str]) -> None:
    with listener() as (process, address):
        with pytest.raises(OSError, match=r"[Tt]imed out"):
            distributed.Client(address, timeout="1s", set_as_default=False)
        assert process.stdout is not None
        assert process.stdout.readline() == "b''\n"


def test_a_dead_connection_is_not_confused_with_one_on_the_same_port() -> None:
    from scalescope.clusters import process_guard

    process_guard.refuse_other_users()
    with socket.create_server(("127.0.0.1", 0)) as server:
        dead = socket.create_connection(server.getsockname())
        place = dead.getsockname()
        accepted, _ = server.accept()
        dead.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        dead.close()
        with accepted, socket.create_connection(server.getsockname(), source_address=place) as living:
            again, _ = server.accept()
            with again:
                assert process_guard._ours(again, process_guard._ESTABLISHED)
                assert living.getsockname() == place
                assert not process_guard._ours(accepted, process_guard._ESTABLISHED)


def test_the_search_as_another_user_reports_files_that_everybody_may_read_or_write() -> None:
    with another_user.open_folder() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        for name, mode in (("open", 0o644), ("closed", 0o600), ("writable", 0o622)):
            (folder / name).touch(mode)
            (folder / name).chmod(mode)
        asked = {"ports": [server.getsockname()], "sockets": [], "files": [str(path) for path in folder.iterdir()]}
        got = another_user.walk(asked)
    assert sorted(got) == [f"file {folder}/open", f"write {folder}/writable"]


@pytest.mark.parametrize("kind", ["local", pytest.param("light", marks=pytest.mark.thorough)])
def test_another_user_gets_nothing_of_a_sweep(kind: str) -> None:
    got, tried = another_user.gets_of_a_sweep("-c", kind)
    assert got == []
    assert len(tried["ports"]) >= 3
