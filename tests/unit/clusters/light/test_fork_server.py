from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import psutil
import pytest

from scalescope.clusters.light import fork_server, process
from scalescope.clusters.light.cluster import LightCluster
from scalescope.clusters.light.fork_server import ForkServer
from scalescope.clusters.light.spec import LightSpec
from scalescope.errors import ClusterError

pytestmark = pytest.mark.timeout(120)

OWNER = """
import time
from scalescope.clusters.light import fork_server
fork_server.prepare()
print("ready", flush=True)
time.sleep(100)
"""


@pytest.fixture
def prepared() -> psutil.Process:
    fork_server.prepare()
    return psutil.Process(fork_server._prepared._process.pid)  # type: ignore[union-attr]


@contextmanager
def owner() -> Iterator[tuple[subprocess.Popen[bytes], psutil.Process]]:
    """A process that has prepared a fork server, and the fork server."""
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        (child,) = psutil.Process(process.pid).children()
        yield process, child


def test_a_fork_server_forks_the_requested_processes_and_ends_with_them() -> None:
    parent = ForkServer()
    pipes = [Connection(mine.detach()) for mine in parent.fork(2)]
    for pipe in pipes:
        pipe.send(process.SearchPath(tuple(sys.path)))
    assert [pipe.recv() for pipe in pipes] == [(True, None)] * 2
    assert not parent.wait(0)
    for pipe in pipes:
        pipe.close()
    assert parent.wait(15)


def test_a_cluster_uses_the_prepared_fork_server_and_the_next_starts_its_own(prepared: psutil.Process) -> None:
    for forks in (True, False):
        cluster = LightCluster(LightSpec(hosts=1, check_limit=False))
        cluster.open()
        try:
            assert (prepared.is_running() and len(prepared.children()) == 2) is forks
        finally:
            cluster.close()


def test_a_fork_server_does_not_hold_the_standard_output_of_its_driver() -> None:
    """A driver that has ended must not leave a process that holds its standard output open."""
    with owner() as (process, child):
        child.suspend()
        while child.status() != psutil.STATUS_STOPPED:  # the signal takes effect when it next runs
            time.sleep(0.01)
        process.kill()
        assert process.stdout is not None
        assert process.stdout.read() == b""  # returns: the pipe is at its end although the fork server lives
        assert child.status() == psutil.STATUS_STOPPED
        child.resume()


def test_a_fork_server_ends_when_its_owner_is_killed_during_the_imports() -> None:
    with owner() as (process, child):
        child.suspend()  # it has imported next to nothing so far
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        child.resume()
    _, alive = psutil.wait_procs([child], timeout=30)
    assert not alive


def test_a_fork_server_that_has_died_raises_a_clear_error(prepared: psutil.Process) -> None:
    prepared.kill()
    fork_server._prepared.wait(15)  # type: ignore[union-attr]
    cluster = LightCluster(LightSpec(hosts=1, check_limit=False))
    with pytest.raises(ClusterError, match="scheduler process ended unexpectedly"):
        cluster.open()
    cluster.close()
