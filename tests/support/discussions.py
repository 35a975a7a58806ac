"""A server that speaks the parts of GitHub's and GitLab's APIs with which comments on a change are kept.

It knows one change of each, and one token, and has no users, threads or notifications.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "ghp_0123456789abcdefghij"
GITHUB, GITLAB = "/repos/team/slow.things/issues", "/projects/42/merge_requests/7/notes"
# Paths of all comments and before the id of one, method that edits, header of the token
FORMS = {
    "github": (f"{GITHUB}/7/comments", f"{GITHUB}/comments", "PATCH", ("authorization", f"Bearer {TOKEN}")),
    "gitlab": (GITLAB, GITLAB, "PUT", ("private-token", TOKEN)),
}


class Discussions(ThreadingHTTPServer):
    """The comments of both changes, and what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.comments: dict[int, str] = {}
        self.asked: list[str] = []
        self.may_write = True

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, method: str, path: str, query: dict[str, list[str]], text: str) -> tuple[int, Any]:
        for every, one, edits, _ in FORMS.values():
            last = path.rpartition("/")
            if method == "GET" and path == every:
                size, page = int(query["per_page"][0]), int(query["page"][0])
                found = [{"id": number, "body": body} for number, body in self.comments.items()]
                return 200, found[size * (page - 1) : size * page]
            if method in ("POST", edits) and not self.may_write:
                return 403, {"message": "Resource not accessible by integration"}
            if method == "POST" and path == every:
                self.comments[100 + len(self.comments)] = text
                return 201, {"id": 99 + len(self.comments)}
            if method == edits and last[0] == one and int(last[2]) in self.comments:
                self.comments[int(last[2])] = text
                return 200, {"id": int(last[2])}
        return 404, {"message": "Not Found"}


class _Handler(BaseHTTPRequestHandler):
    server: Discussions

    def _answer(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        parts = urlsplit(self.path)
        self.server.asked.append(f"{self.command} {parts.path}")
        status, found = 401, {"message": "Bad credentials"}
        if any(self.headers[name] == value for *_, (name, value) in FORMS.values()):
            status, found = self.server.answer(self.command, parts.path, parse_qs(parts.query), body.get("body", ""))
        sent = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    do_GET = do_POST = do_PATCH = do_PUT = _answer

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def serving() -> Iterator[Discussions]:
    with Discussions() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
