"""What another user of this machine reads over HTTP, without a secret."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import psutil

# Each port that listens is asked for all that Dask's default servers serve.
ASK = """\
import encodings.idna, os, socket, sys
from concurrent.futures import ThreadPoolExecutor
if os.getuid() == 0:
    os.setuid(65534)
def ask(port, path, limit_s):
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", int(port)), limit_s) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n".encode())
            while more := connection.recv(65536):
                answer += more
    except OSError:
        pass
    return answer
def content(answer):
    head, _, content = answer.partition(b"\\r\\n\\r\\n")
    return head.startswith(b"HTTP/") and head.split()[1] < b"400" and content
every = [(port, path) for port in sys.argv[1].split(",") for path in sys.argv[2].split(",")]
with ThreadPoolExecutor(18) as pool:  # a port that speaks no HTTP answers nothing for 2 s
    answers = dict(zip(every, pool.map(lambda one: ask(*one, 2), every)))
    servers = {port for (port, _), answer in answers.items() if answer.startswith(b"HTTP/")}
    late = [one for one in every if one[0] in servers and not answers[one]]  # a busy host needs more than 2 s
    answers.update(zip(late, pool.map(lambda one: ask(*one, 60), late)))
print(*(port + path for (port, path), answer in answers.items() if content(answer)), sep="\\n")
"""
PATHS = ["/", "/sitemap.json", "/health", "/metrics", "/status", "/api/v1", "/api/v1/get_workers", "/api/v1/check_idle"]
PATHS += [
    "/info/main/workers.html",
    "/info/logs.html",
    "/info/call-stacks/x.html",
    "/json/counts.json",
    "/json/identity.json",
]
PATHS += [
    "/json/index.html",
    "/individual-plots.json",
    "/eventstream",
    "/proxy/1/127.0.0.1/status",
    "/api/v1/adaptive_target",
]


def ports(roots: Iterable[psutil.Process]) -> list[int]:
    """Ports on which these processes or those below them listen."""
    found: set[int] = set()
    for root in roots:
        for process in (root, *root.children(recursive=True)):
            try:
                found |= {each.laddr.port for each in process.net_connections("inet") if each.status == "LISTEN"}
            except psutil.Error:
                continue
    return sorted(found)


def answered(listening: Iterable[int]) -> list[str]:
    """PORT/PATH of all that another user gets an answer with content from."""
    command = [sys.executable, "-I", "-S", "-c", ASK, ",".join(map(str, listening)), ",".join(PATHS)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout.split()
