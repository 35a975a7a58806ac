"""`scalescope serve`: a real server, asked by a browser and by an intruder."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from scalescope.cli import main as cli
from scalescope.cli.file_server import FileServer, secret_of
from scalescope.errors import ExitStatus, StoreError

PAGE = "<p>a report</p>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of records: a report, files that must not be served, and links that lead out of it."""
    trial = tmp_path / "records" / "run-1" / "trial"
    trial.mkdir(parents=True)
    (trial / "tasks.parquet").write_text("secret")
    (trial.parent / "report.html").write_text(PAGE)
    (tmp_path / "records" / "beside.html").write_text("secret")
    (trial.parent / ".hidden.html").write_text("secret")
    (tmp_path / "results.db").write_text("secret")
    (trial.parent / "out.html").symlink_to(tmp_path / "results.db")
    (trial.parent / "folder").symlink_to(tmp_path)
    return tmp_path / "records"


@pytest.fixture
def server(folder: Path) -> Iterator[FileServer]:
    with FileServer(folder, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: FileServer, path: str, method: str = "GET") -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def test_the_file_server_serves_a_report_under_its_secret(server: FileServer) -> None:
    secret = urlsplit(server.url).path
    status, text, headers = ask(server, f"{secret}/run-1/report.html")
    assert (status, text) == (200, PAGE)
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert ask(server, f"{secret}/run-1/report.html", "HEAD")[:2] == (200, "")
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "path",
    [
        "/", "/run-1/report.html", "/wrong/run-1/report.html", "//run-1/report.html", "{s}", "{s}/", "{s}/run-1",
        "{s}/run-1/", "{s}/run-1/report.html/", "{s}/run-1/trial/tasks.parquet", "{s}/run-1/.hidden.html",
        "{s}/run-1/none.html", "{s}/../results.db", "{s}/%2e%2e/results.db", "{s}/run-1/..%2f..%2fresults.db",
        "{s}//etc/passwd", "{s}/run-1/out.html", "{s}/run-1/folder/results.db", "{s}/%00", "{s}/" + "a" * 5000,
        "{s}x/run-1/report.html", "{s}/beside.html",
    ],
)  # fmt: skip
def test_paths_other_than_reports_are_not_found(server: FileServer, path: str) -> None:
    status, text, _ = ask(server, path.replace("{s}", urlsplit(server.url).path))
    assert status == 404
    assert "secret" not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_methods_that_write_are_refused_and_change_nothing(server: FileServer, folder: Path, method: str) -> None:
    assert ask(server, f"{urlsplit(server.url).path}/run-1/report.html", method)[0] == 501
    assert (folder / "run-1" / "report.html").read_text() == PAGE


def test_the_secret_of_the_file_server_is_readable_only_by_its_owner(folder: Path) -> None:
    secret = secret_of(folder)
    kept = folder.with_name("records.secret")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert len(secret) > 40
    assert secret_of(folder) == secret
    kept.chmod(0o644)
    with pytest.raises(StoreError, match="read the secret"):
        secret_of(folder)


def test_the_serve_command_prints_an_address_that_survives_a_restart(folder: Path, tmp_path: Path) -> None:
    """As a process: it prints the variable that a worker needs, links survive a restart, and Ctrl-C ends it."""
    (tmp_path / "results.db").unlink()
    arguments = [sys.executable, "-c", "from scalescope.cli.main import main; main()", "serve", "--port", "0"]
    for _ in range(2):
        store = ["--store", str(tmp_path / "results.db")]
        process = subprocess.Popen([*arguments, *store], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("export SCALESCOPE_FILES_URL=http://127.0.0.1:")
        assert line.rstrip().endswith("/" + secret_of(folder))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        assert (process.returncode, "Traceback" in said) == (0, False)


def test_a_port_that_is_taken_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.run(["serve", "--port", str(port), "--store", address]) == ExitStatus.INFRASTRUCTURE
    said = capsys.readouterr()
    assert f"port {port}: Address already in use" in said.err
    assert "--port NUMBER" in said.err
    assert said.out == ""


def test_records_outside_this_machine_are_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from scalescope.cli.commands import serve
    from scalescope.store.store import Store

    monkeypatch.setattr(serve, "open_store", lambda address: Store.open(str(tmp_path / "a.db"), "memory://records"))
    assert cli.run(["serve"]) == ExitStatus.USAGE
    assert "SCALESCOPE_FILES_URL" in capsys.readouterr().err
    assert not os.path.exists("memory:")
