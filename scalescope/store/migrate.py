"""Creates or upgrades the tables of a database; processes that do so at the same time wait for each other."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from scalescope.errors import StoreError
from scalescope.owner import opener
from scalescope.store.location import Location
from scalescope.store.schema import REVISION, VERSION_TABLE, StoreBase

WAIT_S = 60.0  # seconds that a process waits for another to finish the migration
ADVISORY_LOCK = 0x7363616C6573636F  # a number that no other application uses: "scalesco" in ASCII
_IN_PROCESS = threading.Lock()  # Alembic keeps its context in module globals


def upgrade(engine: Engine, location: Location) -> None:
    """Create or upgrade the tables; refuse a database of another application or of a newer Scalescope."""
    path, where, journal = location.path, location.shown, "DELETE" if location.network else "WAL"
    with engine.connect() as connection:
        kept = path is None or journal == "WAL" or _journal(connection) == journal
        if _revision(connection) == REVISION and kept:
            return
    with _IN_PROCESS, _file_lock(path, where) if path else nullcontext():
        if path:
            _set_journal(engine, journal)
        with engine.execution_options(scalescope_write=True).begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
            found = _revision(connection)
            if found is None and path and inspect(connection).get_table_names():
                next_step = "Give the store a file of its own."
                raise StoreError("The file is the database of another application", where=where, next_step=next_step)
            if found != REVISION:
                _migrate(connection, found, where)


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()  # noqa: S608
    return None if found is None else str(found)


def _migrate(connection: Connection, found: str | None, where: str) -> None:
    from alembic import command  # imported here: it takes 0.1 s and is seldom needed
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "scalescope.store:migrations")
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise StoreError(
            f"The store has schema revision {found}; this Scalescope knows revisions up to {REVISION}",
            where=where,
            cause="A newer Scalescope has upgraded the store.",
            next_step="Upgrade Scalescope here, or choose another store (SCALESCOPE_STORE).",
        )
    if found is None:
        StoreBase.metadata.create_all(connection)
        command.stamp(config, "head")
    else:
        command.upgrade(config, "head")


def _journal(connection: Connection) -> str:
    return str(connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()).upper()


def _set_journal(engine: Engine, journal: str) -> None:
    connection = engine.raw_connection()
    try:
        connection.cursor().execute(f"PRAGMA journal_mode={journal}")
    finally:
        connection.close()


@contextmanager
def _file_lock(path: Path, where: str) -> Iterator[None]:
    deadline = time.monotonic() + WAIT_S
    with open(path.with_name(path.name + ".lock"), "w", opener=opener) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    text = f"Another process has held {file.name} for {WAIT_S:.0f} s"
                    next_step = f"End that process (`fuser {file.name}` names it) and start again."
                    raise StoreError(text, where=where, next_step=next_step) from error
                time.sleep(0.02)
        yield
