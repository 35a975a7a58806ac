"""Failures of databases and file systems: their cause, and what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EEXIST, EFBIG, EIO, EISDIR, ENOSPC, ENOTDIR, EPERM, EROFS

from sqlalchemy.exc import SQLAlchemyError, StatementError

from scalescope.errors import StoreError
from scalescope.store.location import redact

FULL = ("The disk, or this user's share of it, is full.", "Free space there and start the same command again.")
FAULTY = (
    "The disk is full or failing, or a limit on the size of files was reached (`ulimit -f`).",
    "Free space or raise the limit, and start the same command again.",
)
READ_ONLY = (
    "This user has no permission there, or the file system is read-only.",
    "Correct the permissions, or choose another store (SCALESCOPE_STORE).",
)
CLOSED = (
    "The file's folder is missing, the path is a folder, or this user may not write there.",
    "Correct the path or the permissions, or choose another store (SCALESCOPE_STORE).",
)
OBSTRUCTED = ("There is a file where a folder should be, or the reverse.", "Correct the path.")
DAMAGED = (
    "The file is not a SQLite database, or is damaged.",
    "Restore the file from a backup or move it away; `sqlite3 FILE .recover` saves what can be read.",
)
BUSY = (
    "Another process has held the database's lock for a minute.",
    "End that process (`fuser FILE` names it), or use PostgreSQL where many processes write.",
)
DENIED = ("The server refused this user or password.", "Correct user and password, or ask for access.")
MISSING = ("The server has no such database.", "Create the database (`createdb NAME`), or correct the name.")
UNREACHABLE = (
    "The server cannot be reached.",
    "Check that the server runs, and its host and port; then start the same command again.",
)
UNKNOWN = ("", "If the next attempt fails as well, report this with the text above.")

AWAY = "away"  # error category: the server is silent, but may answer in a minute

# https://www.sqlite.org/rescode.html; the name of an extended code starts with the primary code's name
SQLITE = {
    "SQLITE_FULL": FULL,
    "SQLITE_IOERR": FAULTY,
    "SQLITE_READONLY": READ_ONLY,
    "SQLITE_PERM": READ_ONLY,
    "SQLITE_CANTOPEN": CLOSED,
    "SQLITE_NOTADB": DAMAGED,
    "SQLITE_CORRUPT": DAMAGED,
    "SQLITE_BUSY": BUSY,
    "SQLITE_LOCKED": BUSY,
}

# https://www.postgresql.org/docs/current/errcodes-appendix.html
POSTGRESQL = {
    "53100": FULL,
    "25006": READ_ONLY,
    "42501": READ_ONLY,
    "28": DENIED,
    "3D": MISSING,
    "08": UNREACHABLE,
    "57P": UNREACHABLE,
}

# Failed connection attempts have no error code, only a message of libpq.
LIBPQ = {
    "authentication failed": DENIED,
    "no password supplied": DENIED,
    "no pg_hba.conf entry": DENIED,
    'database "': MISSING,
    "onnection": UNREACHABLE,
    "could not translate host name": UNREACHABLE,
    "failed to resolve host": UNREACHABLE,
    "not known": UNREACHABLE,
    "name resolution": UNREACHABLE,
    "timeout": UNREACHABLE,
}

SYSTEM = {
    **dict.fromkeys((ENOSPC, EDQUOT), FULL),
    **dict.fromkeys((EIO, EFBIG), FAULTY),
    **dict.fromkeys((EACCES, EPERM, EROFS), READ_ONLY),
    **dict.fromkeys((EEXIST, ENOTDIR, EISDIR), OBSTRUCTED),
}

# s3fs raises these errors if object storage answers with status 500 or 503
BROKEN = (errno.EBUSY, getattr(errno, "EREMOTEIO", errno.EIO))
# Parts of the names of errors in libraries for object storage, which have no common base class
CONNECTION = re.compile("Connect|Timeout|HTTPClient|Streaming|ServiceRequest")


@contextmanager
def explained(doing: str, where: str) -> Iterator[None]:
    """Turn errors of databases and file systems into a `StoreError`; `doing` follows "Could not"."""
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        raise explain(error, doing, where) from error


def explain(error: Exception, doing: str, where: str) -> StoreError:
    origin = error.orig if isinstance(error, StatementError) and error.orig else error
    if isinstance(origin, StoreError):
        return origin
    text = redact(" ".join(str(origin).split()))
    cause, next_step = meaning = _meaning(origin, text)
    category = AWAY if meaning is UNREACHABLE else ""
    return StoreError(f"Could not {doing}: {text}", where=where, cause=cause, next_step=next_step, category=category)


def _meaning(origin: BaseException, text: str) -> tuple[str, str]:
    if CONNECTION.search(type(origin).__name__) or (isinstance(origin, OSError) and origin.errno in BROKEN):
        return UNREACHABLE
    if isinstance(origin, OSError):
        return SYSTEM.get(origin.errno or 0, UNKNOWN)
    if code := getattr(origin, "sqlite_errorname", None):
        return _by_prefix(SQLITE, code)
    if code := getattr(origin, "sqlstate", None):
        return _by_prefix(POSTGRESQL, code)
    if type(origin).__module__.startswith("psycopg"):
        return next((meaning for words, meaning in LIBPQ.items() if words in text), UNKNOWN)
    return UNKNOWN


def _by_prefix(meanings: dict[str, tuple[str, str]], code: str) -> tuple[str, str]:
    return next((meaning for prefix, meaning in meanings.items() if code.startswith(prefix)), UNKNOWN)
