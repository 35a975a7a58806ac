"""A real sshd of this user on loopback, with keys made for it."""

from __future__ import annotations

import getpass
import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

SSHD = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


@dataclass(frozen=True)
class Server:
    """Fields of a cluster that is reached by it."""

    port: int
    key_file: str
    known_hosts: str

    def fields(self) -> dict[str, Any]:
        return {"hosts": ("127.0.0.1",), "username": getpass.getuser(), "start_timeout_s": 40.0, **asdict(self)}


@contextmanager
def serving(folder: Path, missing: Any, **environ: str) -> Iterator[Server]:
    """A server with its keys and log in a folder, and variables for what it starts; or a skip."""
    if SSHD is None:
        missing("ssh", "no sshd on this machine (apt-get install openssh-server)")
    if importlib.util.find_spec("asyncssh") is None:
        missing("ssh", 'no SSH client: pip install ".[ssh]"')
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # which the service would have made
    options = {
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "user.pub",
        "ListenAddress": "127.0.0.1",
        "Port": port,
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "MaxStartups": "100",
    }
    if environ:
        options["SetEnv"] = " ".join(f"{name}={value}" for name, value in environ.items())
    arguments = [f"-o{name}={value}" for name, value in options.items()]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([str(SSHD), "-D", "-e", "-f", "/dev/null", *arguments], stderr=log)
    try:
        deadline = time.monotonic() + 10
        while process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        else:
            pytest.skip(f"sshd does not start here: {(folder / 'log').read_text().strip()}")
        yield Server(port, str(folder / "user"), str(folder / "known_hosts"))
    finally:
        process.terminate()
        process.wait(10)
