"""Real failures: full disks, missing permissions, damaged files, unreachable servers."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.faults import freeze

from scalescope import waiting
from scalescope.errors import StoreError
from scalescope.model.extras import install_command
from scalescope.model.sweep import Sweep
from scalescope.store import Store, patience
from scalescope.store import store as store_module
from scalescope.store.failures import AWAY, explain

Make = Callable[..., Any]


def child(code: str, path: object, environment: dict[str, str]) -> str:
    """The output of a process that runs `code` with a path as its argument."""
    command = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def failure(act: Callable[[], object]) -> StoreError:
    with pytest.raises(StoreError) as error:
        act()
    assert error.value.where
    assert error.value.cause
    assert error.value.next_step
    return error.value


class TestDisk:
    @pytest.fixture
    def small_disk(self, tmp_path: Path) -> Iterator[Path]:
        """A real file system of 2 MiB."""
        folder = tmp_path / "small"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip(
                "no file system can be mounted here; test_a_file_size_limit_raises_store_error covers the same path"
            )
        yield folder
        subprocess.run(["umount", "-l", str(folder)], check=True)

    def test_a_full_disk_loses_no_saved_trial_and_saving_works_again_later(
        self, small_disk: Path, sweep: Sweep, make_trial: Make
    ) -> None:
        ballast = small_disk / "ballast"
        with Store.open(str(small_disk / "a.db")) as store:
            run_id = store.begin(sweep, [], workload_version=1).id
            saved = [store.save(run_id, make_trial(0))]
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            error = failure(lambda: store.save(run_id, make_trial(1, facts={"large": "x" * 100_000})))
            assert "save a trial" in error.what
            assert "full" in error.cause
            assert "Free space" in error.next_step
            assert store.run().trials == tuple(saved)
            ballast.unlink()
            saved.append(store.save(run_id, make_trial(1)))
            assert store.run().trials == tuple(saved)

    @pytest.mark.thorough
    def test_a_file_size_limit_raises_store_error(self, tmp_path: Path, child_environment: dict[str, str]) -> None:
        code = """
            import resource, sys
            from scalescope.errors import StoreError
            from scalescope.model.sweep import Point, Sweep
            from scalescope.model.trial import Trial, TrialState
            from scalescope.store import Store
            store = Store.open(sys.argv[1])
            run = store.begin(Sweep("bag-map", axes={"workers": (1,)}), [], workload_version=1)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
            for number in range(100):
                try:
                    facts = {"large": "x" * 100_000}
                    store.save(run.id, Trial(str(number), Point(1), 0, False, TrialState.VALID, facts=facts))
                except StoreError as error:
                    print(number, error, sep="\\n")
                    break
        """
        path = str(tmp_path / "a.db")
        number, what, *rest = child(code, path, child_environment).splitlines()
        assert "save a trial:" in what
        assert rest[0] == f"  where: {path}"
        assert "ulimit -f" in rest[1]
        assert "next:" in rest[2]
        with Store.open(path) as store:
            assert len(store.run().trials) == int(number) > 0


class TestSqliteFile:
    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        path = str(tmp_path / "a.db")
        Store.open(path).close()
        return path

    def test_a_file_that_is_no_database_is_refused_and_not_changed(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.txt"
        path.write_text("Dear diary, " * 1000)
        error = failure(lambda: Store.open(str(path)))
        assert "not a SQLite database" in error.cause
        assert path.read_text().startswith("Dear diary")

    def test_damaged_pages_raise_store_error_that_names_recover(self, path: str, sweep: Sweep) -> None:
        connection = sqlite3.connect(path)
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'sweep_runs'").fetchone()
        connection.close()
        with open(path, "r+b") as file:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)
        with Store.open(path) as store:
            error = failure(lambda: store.begin(sweep, [], workload_version=1))
        assert "damaged" in error.cause
        assert ".recover" in error.next_step

    def test_a_folder_or_a_path_below_a_file_is_refused(self, path: str, tmp_path: Path) -> None:
        assert "folder" in failure(lambda: Store.open(str(tmp_path))).cause
        failure(lambda: Store.open(f"{path}/b.db"))

    def test_a_write_fails_after_the_timeout_if_another_process_holds_the_lock(
        self, path: str, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store_module, "LOCK_TIMEOUT_S", 0.05)
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with Store.open(path) as store:
            assert store.runs() == []  # readers do not wait
            error = failure(lambda: store.begin(sweep, [], workload_version=1))
            assert "database is locked" in error.what
            holder.execute("ROLLBACK")
            store.begin(sweep, [], workload_version=1)
        holder.close()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can pass for another user here")
    def test_a_store_without_write_permission_raises_store_error(
        self, tmp_path: Path, child_environment: dict[str, str]
    ) -> None:
        """The code runs as another user, for whom root's folders are really read-only."""
        folder = tmp_path / "team"
        folder.mkdir()
        path = folder / "a.db"
        Store.open(str(path)).close()
        for above in (folder, *tmp_path.parents):
            if oct(above.stat().st_mode)[-1] not in "57":
                above.chmod(0o755)
        code = """
            import os, sys
            from scalescope.errors import StoreError
            from scalescope.model.sweep import Sweep
            from scalescope.store import Store
            import scalescope.store.store, alembic.command, alembic.script  # the other user cannot read them
            path = sys.argv[1]
            os.setuid(65534)
            def begin():
                store = Store.open(path)
                store.begin(Sweep("bag-map", axes={"workers": (1,)}), [], workload_version=1)
            for act in (begin, lambda: Store.open(path + ".new")):
                try:
                    act()
                except StoreError as error:
                    print(error, end="\\n--\\n")
        """
        old, new, _ = child(code, path, child_environment).split("--\n")
        for text in (old, new):
            assert "has no permission there" in text
            assert "permissions" in text


class TestServer:
    @pytest.mark.parametrize(
        ("name", "given", "meaning"),
        [
            ("postgres", {"port": 1}, "cannot be reached"),
            ("postgres", {"password": "s3cret-wrong"}, "refused this user or password"),
            ("nowhere", {}, "has no such database"),
        ],
    )
    def test_a_refused_connection_raises_store_error_without_the_password(
        self, postgresql: Any, name: str, given: dict[str, Any], meaning: str
    ) -> None:
        error = failure(lambda: Store.open(postgresql.url(name, **given)))
        assert "open the store" in error.what
        assert meaning in error.cause
        assert "127.0.0.1" in error.where
        assert "s3cret" not in str(error)

    def test_a_read_only_server_raises_store_error(self, postgresql: Any, sweep: Sweep) -> None:
        url = postgresql.create()
        Store.open(url).close()
        with Store.open(url + "%20-cdefault_transaction_read_only%3Don") as store:
            error = failure(lambda: store.begin(sweep, [], workload_version=1))
        assert "has no permission" in error.cause

    def test_a_broken_connection_is_opened_again(self, postgresql: Any, sweep: Sweep) -> None:
        import psycopg

        with Store.open(postgresql.create()) as store:
            run_id = store.begin(sweep, [], workload_version=1).id
            with psycopg.connect(postgresql.url("postgres"), autocommit=True) as admin:
                admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            store.beat(run_id)

    def test_the_store_waits_for_a_server_that_stands_still(
        self, postgresql: Any, sweep: Sweep, make_trial: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said: list[str] = []
        with Store.open(postgresql.create()) as store:
            run_id = store.begin(sweep, [], workload_version=1).id
            store.says = said.append
            saved = [store.save(run_id, make_trial(0))]
            assert not said
            monkeypatch.setattr(patience, "SAY_S", 0.2)
            goes_on = self._stands_still(postgresql)
            saved.append(store.save(run_id, make_trial(1)))
            assert said
            goes_on.join()
            goes_on = self._stands_still(postgresql)
            with monkeypatch.context() as impatient:
                impatient.setattr(store, "patience_s", 0.1)
                assert failure(lambda: store.save(run_id, make_trial(2))).category == AWAY
            goes_on.join()
            assert store.run().trials[:2] == tuple(saved)

    @staticmethod
    def _stands_still(server: Any) -> threading.Timer:
        freeze(server.pid)
        goes_on = threading.Timer(1.0, freeze, (server.pid, False))
        goes_on.start()
        return goes_on

    def test_saving_is_retried_if_the_server_is_away(
        self, postgresql: Any, sweep: Sweep, make_trial: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(waiting, "AGAIN_S", 0.0)
        with Store.open(postgresql.create()) as store:
            run_id = store.begin(sweep, [], workload_version=1).id
            save, refusals = store._save_row, [StoreError("Could not save a trial", category=AWAY)] * 2

            def refuse_twice(*arguments: Any) -> Any:
                if refusals:
                    raise refusals.pop()
                return save(*arguments)

            monkeypatch.setattr(store, "_save_row", refuse_twice)
            assert store.save(run_id, make_trial(0)) == store.run().trials[0]

    def test_no_error_repr_or_log_shows_the_password(
        self, postgresql: Any, sweep: Sweep, make_trial: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("DEBUG")
        shown: list[str] = []
        secrets = ("s3cret", "pass/word", "pass%2Fword")
        with Store.open(postgresql.create()) as store:
            shown += [repr(store), str(store), store.where]
            run = store.begin(sweep, [], workload_version=1)
            shown.append(repr(run))
            for act in (
                lambda: Store.open(postgresql.url("nowhere")),
                lambda: Store.open(postgresql.url("postgres", port=1)),
                lambda: Store.open(postgresql.url("postgres", password="s3cret-wrong")),
                lambda: Store.open(postgresql.url("postgres") + "?nonsense=1"),
                lambda: Store.open(f"postgresql://127.0.0.1:1/x?user=u&password={'s3cret'}"),
                lambda: store.save(run.id, make_trial(facts={"x": object()})),
                lambda: store.save("none", make_trial()),
            ):
                with pytest.raises(StoreError) as error:
                    act()
                shown += [*traceback.format_exception(error.value), repr(error.value), repr(error.value.__dict__)]
                shown.append(repr(error.value.__cause__))
        assert len(shown) > 30
        for text in [*shown, caplog.text]:
            # the source lines of this test are in the tracebacks
            text = re.sub(r"^ .*", "", text, flags=re.MULTILINE)
            assert not any(secret in text for secret in secrets), text


@pytest.mark.parametrize(
    ("name", "category"),
    [("EndpointConnectionError", AWAY), ("ReadTimeoutError", AWAY), ("NoCredentialsError", "")],
)
def test_connection_errors_of_object_storage_have_the_category_away(name: str, category: str) -> None:
    error = type(name, (Exception,), {})("Could not reach it")  # botocore's errors have no base class of ours
    assert explain(error, "write the records", "s3://bucket").category == category


def test_a_missing_postgresql_driver_is_named_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    error = failure(lambda: Store.open("postgresql://u:s3cret@h/d"))
    assert error.next_step == install_command("postgresql")
    assert "s3cret" not in str(error)
