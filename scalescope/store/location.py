"""Addresses of stores: parsed, with their defaults, and shown without passwords."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from scalescope.errors import InvalidField
from scalescope.owner import home, user_folder

VARIABLE = "SCALESCOPE_STORE"
MOUNTS = Path("/proc/self/mounts")
# Types of file systems (`proc_pid_mounts(5)`) that several machines can mount: SQLite's WAL does not work there, and
# times in the store come from the clocks of several hosts.
_NETWORK = re.compile(
    r"nfs4?|cifs|smb3|smbfs|ncpfs|lustre|gpfs|mmfs|beegfs|fhgfs|panfs|wekafs|pvfs2|orangefs|ceph|glusterfs|afs"
    r"|9p|virtiofs|vboxsf|fuse\.(?!fuse-overlayfs|lxcfs|portal).*"
)
_ALLOWED = "a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE"


@dataclass(frozen=True)
class Location:
    """A parsed address of a store."""

    url: URL = field(repr=False)  # holds the password
    path: Path | None  # path of the SQLite file; None for a server
    default_records: Path  # folder of the raw records

    @cached_property
    def network(self) -> str:
        """Type of the network file system that holds the SQLite file; empty if it is local."""
        return network_filesystem(self.path) if self.path else ""

    @property
    def shown(self) -> str:
        return str(self.path) if self.path else redact(self.url.render_as_string(hide_password=True))


def locate(address: str) -> Location:
    """Parse the address of a store: a path, `sqlite:///PATH` or `postgresql://USER:PASSWORD@HOST/DATABASE`.

    Empty: the environment variable `SCALESCOPE_STORE`, or else `scalescope/scalescope.db` in the user's data folder.
    """
    address = address or os.environ.get(VARIABLE, "")
    if not address:
        return _sqlite(data_folder() / "scalescope.db")
    if "://" not in address:
        if address == ":memory:":
            raise InvalidField("store", address, _ALLOWED, next_step="Give a path: memory does not outlive a crash.")
        return _sqlite(Path(address))
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        url = None
    if url is None:  # outside the handler: the error above may quote the password
        raise InvalidField("store", redact(address), _ALLOWED)
    backend = url.get_backend_name()
    if backend == "sqlite" and url.database and not url.query and not url.host and url.database != ":memory:":
        return _sqlite(Path(url.database))
    before, at, after = address.partition("@")
    if "@" in after or (at and "?" in before):  # part of the password would be taken for the host, and shown
        quoting = "Write @ as %40 and / as %2F in a password."
        raise InvalidField("store", redact(address), "an address with one @ at most", next_step=quoting)
    if backend in ("postgresql", "postgres") and url.database:
        return Location(url.set(drivername="postgresql+psycopg"), None, data_folder() / "records")
    raise InvalidField("store", redact(address), _ALLOWED)


def data_folder() -> Path:
    return user_folder("XDG_DATA_HOME", ".local", "share")


def redact(text: str) -> str:
    """Hide the passwords of all addresses in a text."""
    text = re.sub(r"(://[^:/@\s]*):.*@", r"\1:***@", text)
    return re.sub(r"(?i)((?:ssl)?password=)[^&\s]*", r"\1***", text)


def holds_password(address: str) -> bool:
    return redact(address) != address


def refuse_password(what: str, address: str) -> None:
    if holds_password(address):
        next_step = "Put the password into fsspec's configuration (~/.config/fsspec)."
        raise InvalidField(what, redact(address), "an address without a password", next_step=next_step)


def network_filesystem(path: Path) -> str:
    """Type of the network file system that holds a path; empty if it is local or unknown."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # not Linux
        return ""
    where, found = os.path.realpath(path), ("", "")
    for line in lines:
        _, point, kind, *_ = line.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point)
        if os.path.commonpath([where, point]) == point and len(point) >= len(found[0]):
            found = point, kind
    return found[1] if _NETWORK.fullmatch(found[1]) else ""


def _sqlite(path: Path) -> Location:
    if path.parts[:1] == ("~",):
        path = home().joinpath(*path.parts[1:])
    path = Path(os.path.abspath(os.path.expanduser(path)))
    return Location(URL.create("sqlite", database=str(path)), path, path.parent / "records")
