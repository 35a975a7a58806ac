"""Where a store is: addresses understood, defaults chosen, passwords hidden."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from scalescope.errors import InvalidField
from scalescope.owner import home
from scalescope.store import network_filesystem

VARIABLE = "SCALESCOPE_STORE"
_ALLOWED = "a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE"


@dataclass(frozen=True)
class Location:
    """An address that was understood.

    Attributes:
        url: For SQLAlchemy; holds the password, so it is never shown.
        path: The SQLite file, or None for a server.
        default_records: Folder of the raw records unless another is asked for.
    """

    url: URL = field(repr=False)
    path: Path | None
    default_records: Path

    @cached_property
    def network(self) -> str:
        """The type of the network file system on which the SQLite file is; empty where it is on none."""
        return network_filesystem.file_system(self.path) if self.path else ""

    @property
    def shown(self) -> str:
        """The address without a password, as errors and reports show it."""
        return str(self.path) if self.path else redact(self.url.render_as_string(hide_password=True))


def locate(address: str) -> Location:
    """Understand the address of a store.

    Args:
        address: A path, `sqlite:///PATH` or `postgresql://...`; empty takes the environment variable
            `SCALESCOPE_STORE`, or else a SQLite file in the user's data folder.

    Raises:
        InvalidField: It is none of these.
    """
    address = address or os.environ.get(VARIABLE, "")
    if not address:
        return _sqlite(data_folder() / "scalescope.db")
    if "://" not in address:
        if address == ":memory:":
            raise InvalidField("store", address, _ALLOWED, next_step="A store in memory would not outlive a crash.")
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
    if "@" in after or (at and "?" in before):  # else a part of the password is taken for the host, and shown
        quoting = "Write @ as %40 and / as %2F in a password."
        raise InvalidField("store", redact(address), "an address with one @ at most", next_step=quoting)
    if backend in ("postgresql", "postgres") and url.database:
        return Location(url.set(drivername="postgresql+psycopg"), None, data_folder() / "records")
    raise InvalidField("store", redact(address), _ALLOWED)


def data_folder() -> Path:
    """The user's data folder of Scalescope, by the XDG base directory specification."""
    base = os.environ.get("XDG_DATA_HOME", "")
    root = Path(base) if os.path.isabs(base) else home() / ".local" / "share"
    return root / "scalescope"


def redact(text: str) -> str:
    """`text` with every password of an address in it hidden."""
    text = re.sub(r"(://[^:/@\s]*):.*@", r"\1:***@", text)
    return re.sub(r"(?i)((?:ssl)?password=)[^&\s]*", r"\1***", text)


def holds_password(address: str) -> bool:
    """Whether `address` would show a password."""
    return redact(address) != address


def _sqlite(path: Path) -> Location:
    if path.parts[:1] == ("~",):
        path = home().joinpath(*path.parts[1:])
    path = Path(os.path.abspath(os.path.expanduser(path)))
    return Location(URL.create("sqlite", database=str(path)), path, path.parent / "records")
