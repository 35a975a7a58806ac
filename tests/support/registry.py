"""A registry of images inside a node of infra/kubernetes/mini.py, at `ADDRESS`, and images that lack something.

    python tests/support/registry.py FOLDER...

serves manifests named `NAME:TAG` and blobs from the first folder, and blobs from the others. Repositories differ:
`closed/...` wants `USER`, `limited/...` answers that too much was asked, `broken/...` that it is broken.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PORT = 5000
ADDRESS = f"127.0.0.1:{PORT}"  # a runtime asks such an address without TLS
USER, WORD = "reader", "right"  # whom `closed/...` lets in, and by which password
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Handler(BaseHTTPRequestHandler):
    folders: tuple[Path, ...] = ()
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        _, _, path = self.path.partition("/v2/")
        known = f"Basic {base64.b64encode(f'{USER}:{WORD}'.encode()).decode()}"
        if path.startswith("limited/"):
            return self._answer(429, b'{"errors": [{"code": "TOOMANYREQUESTS"}]}')
        if path.startswith("broken/"):
            return self._answer(500, b"{}")
        if path.startswith("closed/") and self.headers.get("Authorization") != known:
            return self._answer(401, b"{}", {"WWW-Authenticate": 'Basic realm="closed"'})
        name, _, reference = path.rpartition("/")
        if name.endswith("/blobs"):
            places = [folder / "blobs/sha256" / reference.removeprefix("sha256:") for folder in self.folders]
            kind = "application/octet-stream"
        else:
            places = [self.folders[0] / f"{name.removesuffix('/manifests').rpartition('/')[2]}:{reference}"]
            places += [self.folders[0] / "blobs/sha256" / reference.removeprefix("sha256:")]
            kind = _MANIFEST
        found = next((place.read_bytes() for place in places if place.is_file()), None)
        if found is None and path:
            return self._answer(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}')
        digest = f"sha256:{hashlib.sha256(found or b'').hexdigest()}"
        return self._answer(200, found or b"{}", {"Content-Type": kind, "Docker-Content-Digest": digest})

    do_HEAD = do_GET

    def _answer(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def derive(image: Path, folder: Path, name: str, files: Mapping[str, tuple[str, int] | None], **config: Any) -> None:
    """Add an image to the registry's folder: `image` (in OCI's layout) with these files (text and mode; None: gone)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for path, file in files.items():
            place = Path(path)
            entry = tarfile.TarInfo(str(place if file else place.with_name(f".wh.{place.name}")))
            content = (file[0] if file else "").encode()
            entry.size, entry.mode = len(content), file[1] if file else 0o644
            archive.addfile(entry, io.BytesIO(content))

    def put(content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (folder / "blobs/sha256" / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    def read(described: dict[str, Any]) -> dict[str, Any]:
        return dict(json.loads((image / "blobs" / described["digest"].replace(":", "/")).read_text()))

    (folder / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    manifest = read(json.loads((image / "index.json").read_text())["manifests"][0])
    made = read(manifest["config"])
    if files:
        layer = put(data.getvalue())
        manifest["layers"].append({"mediaType": _LAYER, **layer})
        made["rootfs"]["diff_ids"].append(layer["digest"])
        made["history"].append({"created_by": "tests/support/registry.py"})
    made["config"].update(config)
    manifest["config"] |= put(json.dumps(made).encode())
    manifest["mediaType"] = _MANIFEST
    (folder / name).write_text(json.dumps(manifest))
    put(json.dumps(manifest).encode())


if __name__ == "__main__":
    Handler.folders = tuple(map(Path, sys.argv[1:]))
    ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
