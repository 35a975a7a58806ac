"""A temporary Prefect server for processes that have none configured.

Prefect's own temporary server has three faults. It shares our process group, so Ctrl-C ends the server before the flow,
which then waits minutes for the server. Prefect gives up its start after 20 s, too early to migrate a new database on a
busy machine. And it outlives a killed process. The server of this module has its own process group, and ends when our
end of a pipe closes. Its socket is bound before its address is known, and it requires a random authentication string.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from prefect.context import refresh_global_settings_context
from prefect.settings import get_current_settings

from scalescope.errors import InfrastructureError
from scalescope_flows import serving

STARTS = "Starting a temporary Prefect server (about 10 s; a first start takes about 20 s)"  # message while it starts
# Time limit of a start, in seconds: each takes 6 s of CPU, and the first another 11 s to migrate a new database
START_TIMEOUT_S = 180.0

_server: Server | None = None


def is_needed() -> bool:
    """Whether no server is configured; Prefect would then start its own temporary server."""
    settings = get_current_settings()
    return settings.api.url is None and settings.server.ephemeral.enabled


def is_used() -> bool:
    """Whether this process uses a server that `begin` started."""
    return _server is not None


def begin() -> None:
    """Begin to start a server if none is configured, without waiting for it; the server ends with this process."""
    global _server
    if is_needed() and _server is None:
        _ask_no_proxy()
        _server = Server()


def ready() -> None:
    """Wait until the temporary server answers, and make this process use it; does nothing if a server is configured."""
    global _server
    begin()
    if _server is None or not is_needed():
        return
    try:
        _server.wait()
    except InfrastructureError:
        _server = None
        raise
    # Set environment variables, so that threads without a Prefect context, and child processes, use the server, too.
    os.environ.update(_server.client)
    refresh_global_settings_context()


def _ask_no_proxy() -> None:
    """Let requests to this machine bypass a proxy that `http_proxy` names."""
    known = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(filter(None, [known, "127.0.0.1"]))


class Server:
    """A Prefect server on the loopback device, with the database of the user's Prefect profile."""

    def __init__(self) -> None:
        secret = f"scalescope:{secrets.token_urlsafe(24)}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        with socket.create_server(("127.0.0.1", 0)) as bound:
            self._url = f"http://127.0.0.1:{bound.getsockname()[1]}/api"
            self._process = subprocess.Popen(
                [sys.executable, "-P", serving.__file__, str(bound.fileno())],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
                pass_fds=[bound.fileno()],
                env={
                    **os.environ,
                    **get_current_settings().to_environment_variables(exclude_unset=True),
                    "PREFECT_SERVER_API_AUTH_STRING": secret,
                    # The settings of Prefect's own temporary server.
                    "PREFECT_UI_ENABLED": "0",
                    "PREFECT__SERVER_EPHEMERAL": "1",
                    "PREFECT__SERVER_FINAL": "1",
                    # Send nothing to other machines.
                    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
                },
            )
        self.client = {"PREFECT_API_URL": self._url, "PREFECT_API_AUTH_STRING": secret}
        self.pid = self._process.pid
        # Registered before Prefect's own exit handlers, so that it runs after them.
        atexit.register(self.stop)

    def wait(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.stop()
                raise InfrastructureError(
                    "the temporary Prefect server " + ("ended" if ended else f"did not start in {START_TIMEOUT_S:g} s"),
                    where=f"PREFECT_HOME {get_current_settings().home}",
                    cause=self._tail() or "the machine is overloaded",
                    next_step="try again, or start a server with `prefect server start` and set PREFECT_API_URL",
                )
            time.sleep(0.1)

    def stop(self) -> None:
        """End the server, and wait for its end; may be called again."""
        atexit.unregister(self.stop)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(serving.GRACE_S + 5)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/health", timeout=5) as reply:  # noqa: S310 (http, ours)
                return bool(reply.status == 200)
        except OSError:
            return False

    def _tail(self) -> str:
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace")[-2000:].strip()
