from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from scalescope.errors import StoreError
from scalescope.model.finding import Finding, Patch, Severity, Verdict
from scalescope.model.sweep import Sweep
from scalescope.store import Store, migrate
from scalescope.store.schema import REVISION, VERSION_TABLE, RunState, StoreBase


def test_an_older_store_becomes_like_a_new_one(url: str) -> None:
    with Store.open(url) as store, store._engine.execution_options(scalescope_write=True).begin() as connection:
        for column in ("place", "patch"):
            connection.execute(text(f"ALTER TABLE findings DROP COLUMN {column}"))
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0001'"))
    with Store.open(url) as store, store._engine.connect() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, StoreBase.metadata) == []
        assert context.get_current_revision() == REVISION


def test_findings_of_a_store_at_revision_0001_have_no_place_and_no_patch(tmp_path: Path, sweep: Sweep) -> None:
    path = tmp_path / "a.db"
    with Store.open(str(path)) as store:
        run = store.begin(sweep, [], workload_version=1, fresh=True)
        patch = Patch("-a\n+b\n", "2 s -> 1 s", proven=True)
        verdict = Verdict("It waits.", (Finding("client-waits", Severity.LOW, "It waits.", "Do not.", patch=patch),))
        store.finish(run.id, RunState.COMPLETE, verdict)
        assert store.run(run.id).verdict == verdict
    with sqlite3.connect(path) as connection:
        for column in ("place", "patch"):
            connection.execute(f"ALTER TABLE findings DROP COLUMN {column}")
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '0001'")
    connection.close()
    with Store.open(str(path)) as store:
        found = store.run(run.id).verdict
        assert found is not None
        assert (found.findings[0].place, found.findings[0].patch) == (None, None)


def test_a_current_store_is_not_migrated_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(url).close()
    monkeypatch.setattr(migrate, "_migrate", pytest.fail)
    monkeypatch.setattr(migrate, "_file_lock", pytest.fail)
    Store.open(url).close()


def test_sqlite_uses_settings_that_survive_power_cuts(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "a.db")) as store, store._engine.connect() as connection:
        found = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    assert found == ["wal", 2, 1, 60_000]


def test_sqlite_uses_no_wal_on_a_network_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/a {str(tmp_path).replace('t', chr(92) + '164')} nfs4 rw 0 0\n")
    for path in (tmp_path / "made before.db", tmp_path / "new.db"):
        Store.open(str(tmp_path / "made before.db")).close()
        monkeypatch.setattr("scalescope.store.location.MOUNTS", mounts)
        with Store.open(str(path)) as store, store._engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
        assert "(nfs4)" in caplog.text
        assert "use PostgreSQL" in caplog.text


def test_a_store_of_a_newer_release_is_refused(url: str) -> None:
    with Store.open(url) as store, store._engine.execution_options(scalescope_write=True).begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(StoreError, match="revision 9999") as error:
        Store.open(url)
    assert "Upgrade Scalescope" in error.value.next_step


def test_the_database_of_another_application_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StoreError, match="another application"):
        Store.open(str(path))
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    connection.close()


def test_a_failed_migration_leaves_no_tables_and_can_be_repeated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = migrate._migrate

    def broken(connection: Any, found: str | None, where: str) -> None:
        real(connection, found, where)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(migrate, "_migrate", broken)
        with pytest.raises(StoreError, match="No space left"):
            Store.open(url)
    with Store.open(url) as store:
        assert inspect(store._engine).has_table("trials")


def test_two_processes_can_open_a_new_store_at_the_same_time(url: str, child_environment: dict[str, str]) -> None:
    code = "import sys; from scalescope.store import Store; print(flush=True); input(); Store.open(sys.argv[1]).close()"
    processes = [
        subprocess.Popen([sys.executable, "-c", code, url], stdin=PIPE, stdout=PIPE, stderr=PIPE, env=child_environment)
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout
        process.stdout.readline()
    for process in processes:
        assert process.stdin
        process.stdin.write(b"go\n")
        process.stdin.flush()
    results = [(*process.communicate(timeout=120), process.returncode) for process in processes]
    assert [result[2] for result in results] == [0, 0], results


def test_a_migration_lock_that_is_never_released_raises_store_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "WAIT_S", 0.1)
    with migrate._file_lock(tmp_path / "a.db", "x"), pytest.raises(StoreError, match=r"has held .*a\.db\.lock"):
        Store.open(str(tmp_path / "a.db"))
