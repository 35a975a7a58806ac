from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scalescope.model.metrics import WORKER_TIME, Metrics
from scalescope.model.records import TABLES
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial, TrialState
from scalescope.store import Store

PASSWORD = "s3cret-pass/word"
QUOTED = "s3cret-pass%2Fword"


@pytest.fixture(scope="session")
def child_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of child processes: they share bytecode even where this one writes none, and so start in a third of the time."""
    cache = str(tmp_path_factory.mktemp("bytecode"))
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": cache}


@pytest.fixture
def sweep() -> Sweep:
    return Sweep.from_mapping({"workload": "bag-map", "cluster": "virtual", "axes": {"workers": [1, 2, 4]}, "seed": 7})


@pytest.fixture
def make_trial() -> Callable[..., Trial]:
    def make(number: int = 0, **changes: Any) -> Trial:
        point = Point(
            number + 1, 2, {"items": 100 + number, "name": "ü"}, {"distributed.scheduler.work-stealing": False}
        )
        metrics = Metrics(
            makespan_s=10.25 + number,
            elapsed_s=10.5,
            work_s=20.0,
            span_s=0.1,
            ideal_s=10.0,
            efficiency=0.96,
            schedule_quality=0.97,
            parallelism=200.0,
            tasks=100,
            widest_stage=50,
            workers_used=2,
            peak_parallelism=2,
            mean_parallelism=1.95,
            peak_runnable=98,
            worker_time_s=dict.fromkeys(WORKER_TIME, 1.5),
        )
        given: dict[str, Any] = {
            "key": f"{point.id}-r{number}",
            "point": point,
            "repeat": number,
            "warmup": False,
            "state": TrialState.VALID,
            "metrics": metrics,
            "started_at": "2026-11-21T14:30:05.123456+00:00",
            "real_s": 0.125,
            "facts": {"cluster": {"kind": "virtual", "limit": 300}, "packages": {"dask": "2026.8.0"}},
            "warnings": ("one sentence.", "another."),
        }
        return Trial(**{**given, **changes})

    return make


@pytest.fixture
def make_tables() -> Callable[..., dict[str, dict[str, Any]]]:
    """Two tables of raw records; `rows` tells trials apart."""

    def make(rows: int = 3) -> dict[str, dict[str, Any]]:
        tables: dict[str, dict[str, Any]] = {}
        for name in ("tasks", "events"):
            tables[name] = {
                column: [f"{column}-{i}" for i in range(rows)]
                if kind == "str"
                else array(kind, [i + 0.5 if kind in "df" else i % 100 for i in range(rows)])
                for column, kind in TABLES[name].items()
            }
        return tables

    return make


@dataclass(frozen=True)
class Server:
    port: int

    def url(self, database: str, *, password: str = QUOTED, port: int = 0) -> str:
        return f"postgresql://tester:{password}@127.0.0.1:{port or self.port}/{database}"

    def create(self) -> str:
        """A schema of its own, which is made much faster than a database."""
        import psycopg

        name = f"store_{uuid.uuid4().hex[:10]}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return self.url("postgres") + f"?options=-csearch_path%3D{name}"


@pytest.fixture(scope="session")
def postgresql(missing: Any) -> Iterator[Server]:
    """A real server on a free port of loopback, or a skip (a failure if SCALESCOPE_REQUIRE names postgresql)."""
    try:
        import psycopg  # noqa: F401
    except ModuleNotFoundError:
        missing("postgresql", 'no PostgreSQL driver: pip install "scalescope[postgresql]"')
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = shutil.which("initdb") or (str(programs[-1]) if programs else None)
    if found is None:
        missing(
            "postgresql",
            "no PostgreSQL server: initdb is not on PATH nor in /usr/lib/postgresql (apt-get install postgresql)",
        )
    with contextlib.ExitStack() as stack:
        yield _start(Path(found), stack)


def _start(initdb: Path, stack: contextlib.ExitStack) -> Server:
    folder = Path(tempfile.mkdtemp(prefix="scalescope-pg-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    password = folder / "password"
    password.write_text(PASSWORD)
    identity: dict[str, Any] = {}
    if os.geteuid() == 0:  # initdb and postgres refuse to run as root
        identity = {"user": "nobody", "extra_groups": []}
        for path in (folder, password):
            shutil.chown(path, "nobody")
    options = [f"--pgdata={folder}/data", "--username=tester", f"--pwfile={password}", "--auth=scram-sha-256"]
    made = subprocess.run(
        [initdb, *options, "--encoding=UTF8", "--locale=C", "--no-sync"],
        cwd=folder, capture_output=True, text=True, check=False, **identity,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = [f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}", "fsync=off"]
    log = stack.enter_context((folder / "log").open("w"))
    process = subprocess.Popen(
        [initdb.with_name("postgres"), "-D", folder / "data", *[word for item in settings for word in ("-c", item)]],
        cwd=folder, stdout=log, stderr=log, **identity,
    )  # fmt: skip
    stack.callback(process.wait, 30)
    stack.callback(process.send_signal, signal.SIGQUIT)  # at once: nothing is to be kept
    server = Server(port)
    _await(server, process, folder / "log")
    return server


def _await(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    for _ in range(300):
        assert process.poll() is None, log.read_text()
        try:
            psycopg.connect(server.url("postgres")).close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(log.read_text())


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store: each test that takes it runs on both databases."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    server: Server = request.getfixturevalue("postgresql")
    return server.create()


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite store without runs, to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "store.db"
    Store.open(str(path)).close()
    return path


@pytest.fixture
def store(url: str, migrated: Path, tmp_path: Path) -> Iterator[Store]:
    if "://" not in url:
        shutil.copy(migrated, url)
    with Store.open(url, str(tmp_path / "raw")) as opened:
        yield opened
