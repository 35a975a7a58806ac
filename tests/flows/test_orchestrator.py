"""Whether Prefect is configured, and our own temporary Prefect server."""

from __future__ import annotations

import base64
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from prefect.settings import Settings
from support import prefect_home

from scalescope_flows import serving
from scalescope_flows.orchestrator import PREFECT

# ------------------------------------------------------------------ whether an API is configured

URL = "http://127.0.0.1:9/api"
PROFILES = f"""
active = "cloud"
[profiles.cloud]
PREFECT_API_URL = "{URL}"
[profiles.none]
PREFECT_LOGGING_LEVEL = "DEBUG"
"""
ACTIVE_NONE = PROFILES.replace('"cloud"', '"none"', 1)
PROFILES_FILE = "home/profiles.toml"

CASES: dict[str, tuple[bool, dict[str, str], dict[str, str]]] = {
    "nothing": (False, {}, {}),
    "environment": (True, {"PREFECT_API_URL": URL}, {}),
    "dotenv": (True, {}, {".env": f"PREFECT_API_URL={URL}\n"}),
    "dotenv-quoted": (True, {}, {".env": f'# ours\nexport PREFECT_API_URL = "{URL}"  # of the team\n'}),
    "dotenv-other": (False, {}, {".env": "#PREFECT_API_URL=http://x\nOTHER=1\n\nnot an assignment\n"}),
    "prefect-toml": (True, {}, {"prefect.toml": f'[api]\nurl = "{URL}"\n'}),
    "prefect-toml-other": (False, {}, {"prefect.toml": '[logging]\nlevel = "DEBUG"\n'}),
    "pyproject": (True, {}, {"pyproject.toml": f'[tool.prefect.api]\nurl = "{URL}"\n'}),
    "pyproject-other": (False, {}, {"pyproject.toml": '[project]\nname = "mine"\n'}),
    "both-files": (
        True,
        {},
        {"prefect.toml": '[logging]\nlevel = "DEBUG"\n', "pyproject.toml": f'[tool.prefect.api]\nurl = "{URL}"\n'},
    ),
    "profile": (True, {}, {PROFILES_FILE: PROFILES}),
    "profile-without-url": (False, {}, {PROFILES_FILE: ACTIVE_NONE}),
    "profile-of-variable": (True, {"PREFECT_PROFILE": "cloud"}, {PROFILES_FILE: ACTIVE_NONE}),
    "profile-of-variable-without-url": (False, {"PREFECT_PROFILE": "none"}, {PROFILES_FILE: PROFILES}),
    "profile-that-is-not-there": (False, {"PREFECT_PROFILE": "nobody"}, {PROFILES_FILE: PROFILES}),
    "profiles-elsewhere": (True, {"PREFECT_PROFILES_PATH": "mine.toml"}, {"mine.toml": PROFILES}),
    "profiles-elsewhere-by-dotenv": (True, {}, {".env": "PREFECT_PROFILES_PATH=mine.toml\n", "mine.toml": PROFILES}),
    "profiles-elsewhere-by-file": (True, {}, {"prefect.toml": 'profiles_path = "mine.toml"\n', "mine.toml": PROFILES}),
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder; the environment has PREFECT_HOME and no other setting of Prefect."""
    for name in os.environ:
        if name.startswith("PREFECT_"):
            monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", CASES)
def test_prefect_counts_as_configured_exactly_if_prefect_finds_a_url(
    case: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured, environ, files = CASES[case]
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    for name, text in files.items():
        (project / name).write_text(text)
    assert PREFECT.is_configured() is configured
    assert (Settings().api.url is not None) is configured


def test_an_empty_api_url_means_that_prefect_is_not_configured(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / PROFILES_FILE).write_text(PROFILES)
    monkeypatch.setenv("PREFECT_API_URL", "")
    assert not PREFECT.is_configured()


@pytest.mark.parametrize("name", [".env", "prefect.toml", "pyproject.toml", PROFILES_FILE])
@pytest.mark.parametrize("content", [b"\xff\xfe", b"= [", b"api = 3\ntool = 4\nprofiles = 5\nactive = [6]\n"])
def test_a_broken_settings_file_means_that_prefect_is_not_configured(project: Path, name: str, content: bytes) -> None:
    (project / name).write_bytes(content)
    assert not PREFECT.is_configured()


def test_checking_the_configuration_does_not_import_prefect(project: Path) -> None:
    """Importing Prefect takes seconds, which would delay every sweep on the command line."""
    (project / PROFILES_FILE).write_text(PROFILES)
    program = (
        "import sys, scalescope.cli.main; from scalescope_flows.orchestrator import PREFECT; "
        "sys.exit(not PREFECT.is_configured() or bool({'prefect', 'dask'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# ------------------------------------------------------------------ a temporary server

OWNER = """
import json, sys
from scalescope_flows import server
mine = server.Server()
print(json.dumps({"pid": mine.pid, **mine.client}), flush=True)
mine.wait()
print("ready", flush=True)
sys.stdin.read()
"""
GONE_WITHIN_S = 15.0
NOBODY = "nobody"


@dataclass
class Owned:
    """A server and the process that started it."""

    owner: subprocess.Popen[str]
    pid: int
    url: str
    secret: str
    bound: bool

    def ask(self, secret: str | None) -> int:
        """The HTTP status of a harmless request."""
        request = urllib.request.Request(f"{self.url}/flows/filter", b"{}", {"Content-Type": "application/json"})
        if secret is not None:
            request.add_header("Authorization", f"Basic {base64.b64encode(secret.encode()).decode()}")
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code


def accepts(url: str) -> bool:
    """Whether the server's port accepts connections, even if no request is answered yet."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=10):
        return True


@contextmanager
def owned(home: Path) -> Iterator[Owned]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        env={**environ, "PREFECT_HOME": str(home)},
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    try:
        told = json.loads(owner.stdout.readline())
        bound = accepts(told["PREFECT_API_URL"])
        assert owner.stdout.readline() == "ready\n"
        yield Owned(owner, told["pid"], told["PREFECT_API_URL"], told["PREFECT_API_AUTH_STRING"], bound)
    finally:
        owner.kill()
        owner.communicate()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prefect_home.fill(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Owned]:
    with owned(home) as made:
        yield made


@pytest.mark.parametrize("secret", [None, "", "scalescope:guessed"])
def test_our_server_refuses_requests_without_its_secret(server: Owned, secret: str | None) -> None:
    assert server.ask(secret) == 401


def test_our_server_is_a_single_process_and_answers_requests_with_its_secret(server: Owned) -> None:
    assert server.ask(server.secret) == 200
    assert server.bound  # the port is bound before it is announced
    assert psutil.Process(server.pid).children(recursive=True) == []


@pytest.mark.thorough
def test_two_processes_have_separate_servers_and_secrets(home: Path, server: Owned) -> None:
    with owned(home) as other:
        assert server.pid != other.pid
        assert server.url != other.url
        assert server.secret != other.secret
        assert server.ask(other.secret) == other.ask(server.secret) == 401
        assert other.ask(other.secret) == 200


def test_our_server_listens_only_on_localhost(server: Owned) -> None:
    listening = [each for each in psutil.Process(server.pid).net_connections() if each.status == psutil.CONN_LISTEN]
    assert [each.laddr.ip for each in listening] == ["127.0.0.1"]


def test_no_command_line_shows_the_secret_of_the_server(server: Owned) -> None:
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        assert server.secret not in line


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is /proc on Linux alone")
def test_another_user_cannot_read_the_secret_of_the_server(server: Owned) -> None:
    environ = Path(f"/proc/{server.pid}/environ")
    assert server.secret.encode() in environ.read_bytes()
    assert environ.stat().st_mode & 0o777 == 0o400
    if os.getuid() == 0:
        assert as_nobody(lambda: environ.read_bytes()) == "PermissionError"
        assert as_nobody(lambda: Path(f"/proc/{server.owner.pid}/environ").read_bytes()) == "PermissionError"


def as_nobody(call: Callable[[], object]) -> str:
    """Call a function as user nobody in another process; return the name of the error it raised."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(pwd.getpwnam(NOBODY).pw_gid)
            os.setuid(pwd.getpwnam(NOBODY).pw_uid)
            call()
            os.write(write, b"none")
        except OSError as error:
            os.write(write, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        return pipe.read().decode()


def test_our_server_ends_when_its_owner_is_killed(server: Owned) -> None:
    """This test must be the last of the module, since it ends the server."""
    found = psutil.Process(server.pid)
    server.owner.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs([found], timeout=GONE_WITHIN_S)
    assert alive == []
    assert serving.GRACE_S < GONE_WITHIN_S
