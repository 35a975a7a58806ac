"""Clusters over SSH: a real sshd of this user on loopback, with keys made for it."""

from __future__ import annotations

import getpass
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import dask
import distributed
import psutil
import pytest
from support import another_user, http_servers
from support.sshd import Server, serving

from scalescope import clusters
from scalescope.clusters.ssh.cluster import SshCluster
from scalescope.clusters.ssh.spec import SshSpec
from scalescope.errors import ClusterError

BY_ADDRESS = "(lambda client: (len(client.nthreads()), client.close())[0])(__import__('distributed').Client(address))"
"""What a task may do: open a client by the address alone."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, missing: Any) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("sshd"), missing) as made:
        yield made


def spec(server: Server, **given: Any) -> SshSpec:
    return SshSpec(**{**server.fields(), **given})


def remote() -> set[psutil.Process]:
    """Scheduler and nannies of all SSH clusters of this machine."""
    found = set()
    for process in psutil.process_iter():
        try:
            if any("distributed.cli.dask_spec" in argument for argument in process.cmdline()[:3]):
                found.add(process)
        except psutil.Error:
            continue
    return found


def test_an_ssh_cluster_scales_replaces_dead_workers_and_leaves_nothing(server: Server) -> None:
    before, ports = remote(), set(http_servers.ports([psutil.Process()]))
    cluster = clusters.build(spec(server))
    assert isinstance(cluster, SshCluster)
    try:
        with dask.config.set({"jobqueue.password": "s3cret"}):
            cluster.open()
            cluster.scale(2, 1)
        lines = [" ".join(process.cmdline()) for process in remote() - before]  # visible to all users of the machine
        secrets = ("s3cret", "PRIVATE KEY", "DASK_INTERNAL_INHERIT_CONFIG=")
        assert lines
        assert not [line for line in lines for secret in secrets if secret in line]
        with cluster.client() as client:
            address = client.scheduler.address
            assert address.startswith("tls://")
            assert client.submit(sum, [1, 2]).result(timeout=30) == 3
            assert client.submit(dask.config.get, "jobqueue.password").result(timeout=30) == "s3cret"
            assert client.submit(eval, BY_ADDRESS, {"address": address}).result(timeout=30) == 2
            with pytest.raises(OSError, match=r"TLS|ssl|SSL|[Tt]imed out"):  # these credentials are not the cluster's
                distributed.Client(address, security=distributed.Security.temporary(), timeout="2s")
            listening = {*http_servers.ports([psutil.Process()])} - ports
            assert len(listening) >= 5  # of the scheduler, two workers and their nannies
            assert http_servers.answered(listening) == []
            first = client.nthreads()
            assert list(first.values()) == [1, 1]
        assert cluster.facts()["hosts"] == ["127.0.0.1"]
        cluster.scale(1, 1)
        with cluster.client() as client:
            (left,) = client.nthreads()
        assert left in first
        (nanny,) = (process for process in remote() - before if "Nanny" in " ".join(process.cmdline()))
        nanny.kill()
        nanny.wait(5)
        cluster.scale(1, 2)
        with cluster.client() as client:
            assert list(client.nthreads().values()) == [2]
            assert left not in client.nthreads()
    finally:
        cluster.close()
    psutil.wait_procs(remote() - before, timeout=5)
    assert not remote() - before
    cluster.close()
    with pytest.raises(ClusterError, match="not open"):
        cluster.scale(1, 1)


@pytest.mark.thorough
def test_workers_of_an_ssh_cluster_end_when_the_driver_is_killed(server: Server) -> None:
    before = remote()
    given = {name: value for name, value in spec(server).to_mapping().items() if name != "kind"}
    program = f"""
import time
from scalescope import clusters
from scalescope.clusters.ssh.spec import SshSpec
cluster = clusters.build(SshSpec(**{given!r}))
cluster.open()
cluster.scale(1, 1)
print("up", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "up\n"
        started = remote() - before
        assert len(started) == 2
        driver.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(started, timeout=10)
    assert not alive


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({"port": 1}, "Connect"),
        ({"known_hosts": "/dev/null"}, "Host key is not trusted"),
        ({"username": "nobody-of-that-name"}, "Permission denied"),
        ({"python": "/no/such/python"}, "No such file or directory"),
    ],
)
def test_a_failed_ssh_connection_raises_with_cause_and_next_step(
    server: Server, given: dict[str, Any], cause: str
) -> None:
    cluster = clusters.build(spec(server, **given))
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1") as caught:
        cluster.open()
    assert cause in caught.value.cause
    assert "dask_spec --version" in caught.value.next_step


@pytest.mark.thorough
@another_user.only_root
def test_another_user_gets_nothing_of_a_sweep_over_ssh(server: Server) -> None:
    before = remote()
    fields = {"hosts": "127.0.0.1", "username": getpass.getuser(), **asdict(server)}
    options = [f"--cluster-option={name}={value}" for name, value in fields.items()]
    got, tried = another_user.gets_of_a_sweep("-c", "ssh", *options, others=lambda: remote() - before)
    assert got == []
    assert len(tried["ports"]) >= 3
