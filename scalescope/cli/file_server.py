"""Serves the files next to a store's records to browsers on this machine that know the secret."""

from __future__ import annotations

import hmac
import os
import secrets
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from scalescope.errors import InfrastructureError, StoreError
from scalescope.owner import make_folder
from scalescope.report.files import replacing
from scalescope.store.records import SUFFIX

HOST = "127.0.0.1"


class FileServer(ThreadingHTTPServer):
    """Serves files in the folders of runs and studies, without raw records, read-only, on the loopback device."""

    def __init__(self, folder: Path, port: int) -> None:
        secret = secret_of(folder)
        try:
            super().__init__((HOST, port), partial(_Handler, root=folder.resolve(), secret=secret))
        except OSError as error:
            cause = "Another program, perhaps an earlier `scalescope serve`, uses it."
            next_step = "End that program, or give another port: --port NUMBER."
            text = f"Cannot listen on port {port}: {error.strerror}"
            raise InfrastructureError(text, where=HOST, cause=cause, next_step=next_step) from error
        self.url = f"http://{HOST}:{self.server_port}/{secret}"  # address of the folder for browsers


def secret_of(folder: Path) -> str:
    """The secret under which a folder is served, kept next to it for its owner, so that links stay valid."""
    path = folder.with_name(f"{folder.name}.secret")
    if not path.exists():
        make_folder(folder)
        with replacing(path, "secret of the files") as temporary:
            temporary.touch(mode=0o600)
            temporary.write_text(secrets.token_urlsafe(32), encoding="ascii")
    found = path.stat()
    if found.st_mode & 0o077 or found.st_uid != os.getuid():
        next_step = "Delete the file: a new secret is made, and older links stop working."
        raise StoreError(
            "Others can read the secret under which files are served", where=str(path), next_step=next_step
        )
    return path.read_text(encoding="ascii")


class _Handler(SimpleHTTPRequestHandler):
    """Answers 404 unless the secret is right and the file lies in the folder of a run or study and is no raw record."""

    extensions_map = {  # noqa: RUF012 (as the base class has it)
        ".html": "text/html; charset=utf-8",
        **dict.fromkeys((".md", ".py"), "text/plain; charset=utf-8"),
    }

    def __init__(self, *arguments: Any, root: Path, secret: str) -> None:
        self._root, self._secret = root, secret
        super().__init__(*arguments, directory=str(root))

    def send_head(self) -> IO[bytes] | None:  # type: ignore[override]
        if not self.translate_path(self.path):
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        return super().send_head()

    def translate_path(self, path: str) -> str:
        secret, _, name = unquote(urlsplit(path).path).removeprefix("/").partition("/")
        if not hmac.compare_digest(secret.encode(), self._secret.encode()) or "\0" in name:
            return ""
        file = Path(os.path.realpath(self._root / name.lstrip("/")))
        if not os.path.isfile(file) or not file.is_relative_to(self._root) or name.endswith("/"):
            return ""
        parts = file.relative_to(self._root).parts
        hidden = len(parts) == 1 or any(part.startswith(".") for part in (*Path(name).parts, *parts))
        return "" if hidden or file.suffix == SUFFIX else str(file)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Requests are not logged: they hold the secret."""
