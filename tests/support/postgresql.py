"""A real PostgreSQL server."""

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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PASSWORD = "s3cret-pass/word"
QUOTED = "s3cret-pass%2Fword"


@dataclass(frozen=True)
class Server:
    port: int
    pid: int

    def url(self, database: str, *, password: str = QUOTED, port: int = 0) -> str:
        return f"postgresql://tester:{password}@127.0.0.1:{port or self.port}/{database}"

    def new_database(self) -> str:
        import psycopg

        name = f"database_{uuid.uuid4().hex[:10]}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def create(self) -> str:
        """A schema of its own, which is made much faster than a database."""
        import psycopg

        name = f"store_{uuid.uuid4().hex[:10]}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return self.url("postgres") + f"?options=-csearch_path%3D{name}"


@pytest.fixture(scope="session")
def postgresql(missing: Any) -> Iterator[Server]:
    """A real server on a free port, or a skip (a failure if SCALESCOPE_REQUIRE names postgresql)."""
    try:
        import psycopg  # noqa: F401
    except ModuleNotFoundError:
        missing("postgresql", 'no PostgreSQL driver: pip install ".[postgresql]"')
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
    with (folder / "data/pg_hba.conf").open("a") as access:
        access.write("host all all 10.0.0.0/8 scram-sha-256\n")  # pods of a Kubernetes on this machine
    settings = [f"port={port}", "listen_addresses=*", f"unix_socket_directories={folder}", "fsync=off"]
    log = stack.enter_context((folder / "log").open("w"))
    process = subprocess.Popen(
        [initdb.with_name("postgres"), "-D", folder / "data", *[word for item in settings for word in ("-c", item)]],
        cwd=folder, stdout=log, stderr=log, **identity,
    )  # fmt: skip
    stack.callback(process.wait, 30)
    stack.callback(process.send_signal, signal.SIGQUIT)  # at once: nothing is to be kept
    server = Server(port, process.pid)
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
