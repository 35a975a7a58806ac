"""What another user of this machine gets of a sweep while it runs: from its ports, sockets, files and processes."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from scalescope import leases
from support import http_servers
from support.waiting import wait_for

_LISTENS = "0A"  # state of a socket in /proc/net/tcp
EMPTY = ".dirlock"  # ends the names of distributed's locks, which are empty, beside its closed folders
SWEEP = "import os; os.umask(0); from scalescope.cli.main import main; main()"
# A scheduler or worker of Dask sends its part of the handshake to whoever may connect.
WALK = """\
import encodings.idna, json, os, socket, ssl, sys
from concurrent.futures import ThreadPoolExecutor
asked = json.load(sys.stdin)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
def plain(where):
    with socket.create_connection(tuple(where), 2) as connection:
        return connection.recv(1)
def tls(where):
    with socket.create_connection(tuple(where), 2) as connection:
        with ssl._create_unverified_context().wrap_socket(connection) as encrypted:
            return encrypted.recv(1)
def unix(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2)
        connection.connect(path)
        return True
def file(path):
    if os.path.isdir(path):
        return [os.listdir(path)]
    with open(path, "rb") as content:
        return [content.read(1)]
def write(path):
    with open(path, "ab"):
        return True
ways = {"ports": (plain, tls), "sockets": (unix,), "files": (file, write)}
def try_it(way, what):
    try:
        return f"{way.__name__} {what}" if way(what) else ""
    except OSError:
        return ""
with ThreadPoolExecutor(16) as pool:
    tried = [pool.submit(try_it, way, what) for kind, found in asked.items() for what in found for way in ways[kind]]
    print(json.dumps([each.result() for each in tried if each.result()]))
"""


only_root = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0, reason="only root of Linux can act as another user"
)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that all may enter, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="another-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def walk(asked: Mapping[str, object]) -> list[str]:
    """What another user got of these ports (address, number), sockets and files."""
    command = [sys.executable, "-I", "-S", "-c", WALK]
    done = subprocess.run(command, input=json.dumps(asked), check=True, stdout=subprocess.PIPE, text=True, timeout=120)
    return list(json.loads(done.stdout))


def gets_of_a_sweep(
    *arguments: str, others: Callable[[], Iterable[psutil.Process]] = list
) -> tuple[list[str], dict[str, list[Any]]]:
    """What another user got, and what was tried.

    All files that the sweep writes lie in a folder that all may enter, and its umask is 0. Its processes are those
    below it, those that name the folder, and `others`.
    """
    with open_folder() as folder:
        return _gets(folder, arguments, others)


def _gets(
    folder: Path, arguments: Sequence[str], others: Callable[[], Iterable[psutil.Process]]
) -> tuple[list[str], dict[str, list[Any]]]:
    environ = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache")}
    environ = {name: value for name, value in environ.items() if name != leases.VARIABLE}
    sweep = ["sweep", "-w", "futures-map", "-p", "items=24", "-p", "seconds=1.0", "-a", "workers=2", "--verbose"]
    command = [sys.executable, "-c", SWEEP, *sweep, "--store", str(folder / "results.db"), *arguments]
    with (folder / "said").open("wb") as said:
        process = psutil.Popen(command, env=environ, cwd=folder, stdout=said, stderr=said)
    try:
        words = folder / "said"
        wait_for(lambda: "running futures-map" in words.read_text() or process.poll() is not None, "", 120)
        assert process.poll() is None, words.read_text()
        tried = _found(folder, {process, *process.children(recursive=True), *_naming(folder), *others()})
        got = walk(tried) + http_servers.answered(port for _, port in tried["ports"])
        assert process.wait(120) == 0, words.read_text()
    finally:
        if process.is_running():
            process.terminate()
            process.wait(60)
    return got, tried


def _naming(folder: Path) -> set[psutil.Process]:
    found = set()
    for process in psutil.process_iter():
        try:
            if str(folder) in f"{process.cmdline()} {process.environ()}":
                found.add(process)
        except psutil.Error:
            continue
    return found - {psutil.Process()}


def _listening(pid: int) -> set[tuple[str, int]]:
    """Where a process listens, whatever network namespace it is in: psutil looks into our own alone."""
    ours = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()}
    found = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            address, _, port = local.partition(":")
            packed = struct.pack(
                f"<{len(address) // 8}I", *struct.unpack(f">{len(address) // 8}I", bytes.fromhex(address))
            )
            where = socket.inet_ntop(family, packed)
            if state == _LISTENS and f"socket:[{inode}]" in ours:
                every = where in ("0.0.0.0", "::")
                found |= {(each, int(port, 16)) for each in (_addresses(pid) if every else [where])}
    return found


def _addresses(pid: int) -> list[str]:
    """Where we reach a process that listens on all addresses: a host of its own has others than ours."""
    if os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        return ["127.0.0.1"]
    routes = Path(f"/proc/{pid}/net/fib_trie").read_text()
    return sorted({each for each in re.findall(r"-- (\S+)\n +/32 host LOCAL", routes) if not each.startswith("127.")})


def _found(folder: Path, processes: set[psutil.Process]) -> dict[str, list[Any]]:
    ports: set[tuple[str, int]] = set()
    sockets: set[str] = set()
    files = {str(path) for path in folder.rglob("*") if path.name != "said"}
    for process in processes:
        try:
            ports |= _listening(process.pid)
            sockets |= {each.laddr for each in process.net_connections("unix") if each.laddr.startswith("/")}
            written = [each.path for each in process.open_files() if each.mode != "r"]
            files |= {path for path in written if not path.startswith("/dev/") and not path.endswith(EMPTY)}
            files |= {f"/proc/{process.pid}/{name}" for name in ("environ", "mem", "maps", "fd", "cwd/", "stack")}
        except (psutil.Error, OSError):
            continue
    return {"ports": sorted(ports), "sockets": sorted(sockets), "files": sorted(files - {str(folder / "said")})}
