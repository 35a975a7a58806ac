"""Control planes that stand still for a while, at three stages of a sweep that uses them.

The sweeps of a control plane are hit together: each waits at its stage until all have reached theirs.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
import pytest
from support import gateway, infra
from support.faults import COMMAND, PATIENCE_S, Commands, Seen, freeze, see
from support.site import Site
from support.waiting import wait_for

from evidence.faults.hits import note

pytestmark = pytest.mark.timeout(1800, func_only=True)
STANDS_S = (5, 60, 300)
# The last is reached last: a driver cannot be held there for long. Meanwhile the trial of the second runs.
STAGES = ("provisioning", "warm-up", "teardown")
TRIAL_S = 30
NETWORK = 71  # of Grid Engine's hosts
IN_BUCKET = """
from scalescope.store.store import Store
open_store = Store.open
Store.open = lambda url="", records="": open_store(url, records or "s3://bucket/records")
"""


@dataclass(frozen=True)
class Plane:
    """What stands still, and the sweeps that use it."""

    freeze: Callable[[bool], object]
    arguments: Sequence[str] = ("--cluster=light",)  # STAGE stands for the stage, so that sweeps share nothing
    environ: Mapping[str, str] = field(default_factory=dict)
    program: str = COMMAND
    database: Callable[[], str] = str  # address of a new store; empty: a file


# ------------------------------------------------------------------ control planes


@contextmanager
def prefect_server(folder: Path, request: pytest.FixtureRequest, **environ: str) -> Iterator[Plane]:
    (folder / "site").mkdir()
    with closing(Site(folder / "site", **environ)) as site:
        server = site.start_server()
        names = ("PREFECT_API_URL", "PREFECT_HOME", "DO_NOT_TRACK")
        own = {name: site.environ[name] for name in names}
        yield Plane(partial(freeze, server.pid), ("--cluster=light", "--prefect"), own)


@contextmanager
def database_of_prefect(folder: Path, request: pytest.FixtureRequest) -> Iterator[Plane]:
    server = request.getfixturevalue("postgresql")
    address = server.new_database().replace("postgresql:", "postgresql+asyncpg:")
    with prefect_server(folder, request, PREFECT_API_DATABASE_CONNECTION_URL=address) as plane:
        yield Plane(partial(freeze, server.pid), plane.arguments, plane.environ)


@contextmanager
def database_of_the_store(folder: Path, request: pytest.FixtureRequest) -> Iterator[Plane]:
    server = request.getfixturevalue("postgresql")
    yield Plane(partial(freeze, server.pid), database=server.create)


@contextmanager
def object_storage(folder: Path, request: pytest.FixtureRequest) -> Iterator[Plane]:
    import fsspec

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = psutil.Popen(command, stdout=log, stderr=log)
    given = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "test", "secret": "test"}
    try:
        files = fsspec.filesystem("s3", **given)

        def answers() -> bool:
            with suppress(Exception):
                files.mkdir("bucket")
                return True
            return False

        wait_for(answers)
        environ = {"FSSPEC_S3": json.dumps(given)}
        yield Plane(partial(freeze, server.pid), environ=environ, program=IN_BUCKET + COMMAND)
    finally:
        server.kill()
        server.wait()


@contextmanager
def grid_engine(folder: Path, request: pytest.FixtureRequest) -> Iterator[Plane]:
    mini = infra.module("minisge", "infra/sge/mini.py")
    if reason := mini.unmet():
        request.getfixturevalue("missing")("sge", reason)
    with (
        tempfile.TemporaryDirectory(prefix="sge-", dir="/tmp", ignore_cleanup_errors=True) as own,
        mini.MiniGridEngine(own, network=NETWORK) as engine,
    ):
        os.chmod(own, 0o755)
        options = {"parallel_environment": "smp", "local_directory": own}
        arguments = ["--cluster=sge", *(f"--cluster-option={name}={value}" for name, value in options.items())]
        yield Plane(lambda frozen: engine.freeze(mini.MASTER, frozen), arguments, engine.environment)


@contextmanager
def dask_gateway(folder: Path, request: pytest.FixtureRequest) -> Iterator[Plane]:
    (folder / "gateway").mkdir()
    with gateway.serving(folder / "gateway", request.getfixturevalue("missing")) as server:
        fields = {**server.fields("STAGE"), "secrets": json.dumps(server.fields()["secrets"]), "start_timeout_s": 100}
        arguments = ["--cluster=gateway", *(f"--cluster-option={name}={value}" for name, value in fields.items())]
        yield Plane(
            lambda frozen: server.signal(signal.SIGSTOP if frozen else signal.SIGCONT),
            arguments,
            {gateway.VARIABLE: gateway.PASSWORD},
        )


PLANES = {
    "Prefect server": prefect_server,
    "PostgreSQL of Prefect": database_of_prefect,
    "PostgreSQL of the store": database_of_the_store,
    "object storage": object_storage,
    "qmaster (Grid Engine)": grid_engine,
    "server of Dask Gateway": dask_gateway,
}


# ------------------------------------------------------------------ the test


@pytest.mark.parametrize("seconds", STANDS_S)
@pytest.mark.parametrize("name", PLANES)
def test_a_control_plane_that_stands_still(
    name: str, seconds: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What is waited for in vain is named; nothing finished is lost, and one reap leaves nothing."""
    with PLANES[name](tmp_path, request) as plane:
        found = stood_still(plane, seconds, tmp_path)
    for stage, seen in found.items():
        note(f"stands still for {seconds} s", name, stage, seen)
        said = " ".join([seen.error, *seen.trials])
        wrong = ("unexpected", "could not run the trial", "overloaded", "got no CPU")
        assert not any(word in said for word in wrong), said


def stood_still(plane: Plane, seconds: float, folder: Path) -> dict[str, Seen]:
    """What came of the sweeps, by the stage at which they were hit."""
    goes_on = threading.Event()

    def go_on() -> None:
        plane.freeze(False)
        goes_on.set()

    def stop() -> None:
        plane.freeze(True)
        threading.Timer(seconds, go_on).start()

    together = threading.Barrier(len(STAGES), stop)
    sweeps = {stage: Commands(folder / stage, plane.environ) for stage in STAGES}
    for commands in sweeps.values():
        commands.program = plane.program
        if database := plane.database():
            commands.database = commands.environ["SCALESCOPE_STORE"] = database

    def hit(stage: str) -> Seen:
        try:
            return see(
                sweeps[stage],
                stage,
                lambda commands, flow: together.wait(PATIENCE_S),
                *(each.replace("STAGE", stage) for each in plane.arguments),
                seconds=TRIAL_S if stage == "warm-up" else 1,
                mend=lambda commands: goes_on.wait(),
            )
        except BaseException:
            together.abort()  # the others would wait for this one
            raise

    try:
        with ThreadPoolExecutor(len(STAGES)) as pool:
            running = {stage: pool.submit(hit, stage) for stage in STAGES[:-1]}
            wait_for(lambda: together.n_waiting == len(running) or together.broken)
            running[STAGES[-1]] = pool.submit(hit, STAGES[-1])
            return {stage: each.result() for stage, each in running.items()}
    finally:
        go_on()
        for stage, commands in sweeps.items():
            print(f"--- {stage}\n{commands.text()}")
            commands.kill()
