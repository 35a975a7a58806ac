"""Command that installs an extra of Scalescope, from wherever the installed package came (an index or a folder)."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname


def install_command(extra: str) -> str:
    """The command that adds an extra to the installed package: `pip install -e "/src/scalescope[beam]"`."""
    try:
        origin = json.loads(metadata.distribution("scalescope").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:  # only a driver uses this environment
        return f'pip install ".[{extra}]" in a copy of Scalescope\'s repository'
    if "url" not in origin:  # installed from an index
        return f'pip install "scalescope[{extra}]"'
    if "dir_info" in origin:
        folder = Path(url2pathname(urlsplit(origin["url"]).path))
        return f'pip install {"-e " * bool(origin["dir_info"].get("editable"))}"{folder}[{extra}]"'
    vcs = origin.get("vcs_info")
    address = f"{vcs['vcs']}+{origin['url']}@{vcs['commit_id']}" if vcs else origin["url"]
    return f'pip install "scalescope[{extra}] @ {address}"'
