"""A server that speaks the part of GitHub's API with which issues are kept.

It searches at once unless `lags`, as GitHub's index does for some seconds, takes one word of a query after the
qualifiers, knows one repository and one token, and has no pages, permissions or notifications.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "ghp_0123456789abcdefghij"
REPOSITORY = "team/slow.things"


class GitHub(ThreadingHTTPServer):
    """Its issues, what was asked of it, and what it answers instead."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.issues: list[dict[str, Any]] = []
        self.comments: list[tuple[int, str]] = []
        self.asked: list[str] = []
        self.fails: tuple[int, dict[str, str], bytes] | None = None  # status, headers and body of every answer
        self.refuses = ""  # method that the token may not use
        self.lags = False  # whether the index for searches has nothing yet
        self.silent = False  # whether it answers nothing
        self.ended = Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: dict[str, Any]) -> tuple[int, Any]:
        parts = path.strip("/").split("/")
        if (method, path) == ("GET", "/search/issues"):
            repository, kind, within, word = query["q"][0].split()
            assert (repository, kind, within) == (f"repo:{REPOSITORY}", "is:issue", "in:body")
            return 200, {"items": [each for each in self.issues if word in each["body"] and not self.lags]}
        if parts[:4] != ["repos", *REPOSITORY.split("/"), "issues"]:
            return 404, {"message": "Not Found"}
        if method == self.refuses:
            return 403, {"message": "Resource not accessible by personal access token"}
        if method == "GET" and len(parts) == 4:
            assert query["state"] == ["all"]
            return 200, self.issues[:-101:-1]
        if method == "POST" and len(parts) == 4:
            assert len(body["title"]) <= 256
            assert len(body["body"]) <= 65_536
            self.issues.append({"number": len(self.issues) + 1, "state": "open", **body})
            return 201, self.issues[-1]
        number = int(parts[4])
        if number > len(self.issues):
            return 404, {"message": "Not Found"}
        if method == "POST" and parts[5:] == ["comments"]:
            self.comments.append((number, body["body"]))
            return 201, {"id": len(self.comments)}
        if method == "PATCH" and len(parts) == 5:
            self.issues[number - 1].update(body)
            return 200, self.issues[number - 1]
        return 404, {"message": "Not Found"}


class _Handler(BaseHTTPRequestHandler):
    server: GitHub

    def _answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        parts = urlsplit(self.path)
        self.server.asked.append(f"{self.command} {parts.path}")
        if self.server.silent:
            self.server.ended.wait(30)
            return
        headers: dict[str, str] = {}
        if self.server.fails:
            status, headers, sent = self.server.fails
        elif self.headers["authorization"] != f"Bearer {TOKEN}":
            status, sent = 401, b'{"message": "Bad credentials"}'
        else:
            status, found = self.server.answer(self.command, parts.path, parse_qs(parts.query), body)
            sent = json.dumps(found).encode()
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(sent))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)

    do_GET = do_POST = do_PATCH = _answer

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def serving() -> Iterator[GitHub]:
    with GitHub() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()
