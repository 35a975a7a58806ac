from __future__ import annotations

import dataclasses
import math
import os
import re
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from scalescope.errors import InvalidField, StoreError, UsageError
from scalescope.model.finding import Evidence, Finding, Gain, Place, Severity, Verdict
from scalescope.model.metrics import METRICS, Combine, Metrics
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial, TrialState
from scalescope.owner import Owner, user
from scalescope.store import RunState, Store, location
from scalescope.store.schema import EnvironmentRow, FindingRow, PointRow, RunRow, TrialRow

Make = Callable[..., Any]

VERDICT = Verdict(
    "Half of 200 workers get nothing.",
    (
        Finding(
            "too-few-partitions",
            Severity.HIGH,
            "100 items make 100 partitions.",
            "Set npartitions.",
            (Evidence("tasks runnable at once", 100, "tasks"), Evidence("option", "128", "beam")),
            0.9,
            ("aabbccddeeff",),
            12.5,
            "https://github.com/apache/beam/issues/26669",
            Gain(16.1, 2.1, {"npartitions": 100}, 2.3),
            Place("my_job.py", 14, "run"),
        ),
        Finding("noise", Severity.LOW, "Few repeats.", "More repeats.", lost_s=math.inf),
    ),
)


def begin(store: Store, sweep: Sweep, **options: Any) -> str:
    return store.begin(sweep, [], workload_version=options.pop("version", 1), **options).id


def alter(store: Store, run_id: str, **values: Any) -> None:
    """Change fields of a stored run, as if another process had written them."""
    with store._engine.execution_options(scalescope_write=True).begin() as connection:
        connection.execute(update(RunRow).where(RunRow.id == run_id).values(**values))


def together(count: int, act: Callable[[], Any]) -> list[Any]:
    """Return values of threads that begin at the same time."""
    barrier = threading.Barrier(count)

    def begin_together(_: int) -> Any:
        barrier.wait()
        return act()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin_together, range(count)))


DEAD = {"pid": 2**22 + 1, "process_started": 1.0}


class TestSavedRuns:
    def test_a_run_is_read_back_as_it_was_saved(
        self, store: Store, sweep: Sweep, make_trial: Make, make_tables: Make
    ) -> None:
        before = datetime.now(UTC)
        run = store.begin(sweep, [None, None], workload_version=3)  # type: ignore[list-item]
        assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{6}", run.id)
        assert (run.state, run.planned, run.trials, run.verdict, run.finished_at) == (RunState.RUNNING, 2, (), None, "")
        saved = [store.save(run.id, make_trial(i), make_tables(i + 1)) for i in range(2)]
        assert saved == [dataclasses.replace(make_trial(i), records=saved[i].records) for i in range(2)]
        store.finish(run.id, "complete", VERDICT)

        found = store.run()
        assert found == store.run(run.id) == store.runs()[0]
        assert (found.sweep, found.workload_version, found.state) == (sweep, 3, RunState.COMPLETE)
        assert found.sweep.id == sweep.id
        assert found.trials == tuple(saved)
        assert found.verdict == VERDICT
        assert found.where == store.where
        assert abs(datetime.fromisoformat(found.created_at) - before) < timedelta(minutes=5)
        assert found.created_at == found.started_at <= found.finished_at
        assert store.finished(run.id) == found.done == {trial.key: trial for trial in saved}
        assert store.finished(run.id, besides={saved[0].key}) == {saved[1].key: saved[1]}
        assert store.finished(run.id, besides={trial.key for trial in saved}) == {}
        (listed,) = store.runs(trials=False)
        assert listed == dataclasses.replace(found, trials=())
        assert listed.saved == 2

    def test_raw_records_of_a_trial_are_read_back(
        self, store: Store, sweep: Sweep, make_trial: Make, make_tables: Make
    ) -> None:
        run_id = begin(store, sweep)
        saved = store.save(run_id, make_trial(), make_tables(4))
        tables = store.tables(saved)
        assert list(tables) == ["tasks", "events"]
        assert tables["tasks"]["key"] == ["key-0", "key-1", "key-2", "key-3"]
        np.testing.assert_array_equal(tables["tasks"]["start"], [0.5, 1.5, 2.5, 3.5])
        assert list(store.tables(saved, "events")) == ["events"]

    def test_equal_points_and_package_lists_are_stored_once(self, store: Store, sweep: Sweep, make_trial: Make) -> None:
        packages = {f"package-{i}": str(i) for i in range(300)}
        for _ in range(2):
            run_id = begin(store, sweep, fresh=True, facts={"packages": packages})
            for key in ("a", "b"):
                store.save(run_id, make_trial(key=key, facts={"host": "x", "packages": packages}))
        other = {**packages, "package-0": "newer"}
        store.save(run_id, make_trial(key="c", facts={"packages": other}))
        with Session(store._engine) as session:
            assert len(session.scalars(select(EnvironmentRow)).all()) == 2
            assert len(session.scalars(select(PointRow)).all()) == 1
            assert all("packages" not in facts for facts in session.scalars(select(TrialRow.facts)))
        run = store.run(run_id)
        assert run.facts == {"user": user(), "packages": packages}
        assert [trial.facts["packages"] for trial in run.trials] == [packages, packages, other]

    def test_a_packages_fact_that_is_only_a_digest_is_stored_unchanged(
        self, store: Store, sweep: Sweep, make_trial: Make
    ) -> None:
        saved = store.save(begin(store, sweep), make_trial(facts={"packages": "0123456789ab"}))
        assert store.run().trials == (saved,)
        assert saved.facts == {"packages": "0123456789ab"}

    @pytest.mark.parametrize("reason", ["nul \0 in it", "surrogate \udcff of a file name", "ünïcode 🚀", "x" * 100_000])
    def test_any_text_can_be_stored_as_reason_warning_or_fact(
        self, store: Store, sweep: Sweep, make_trial: Make, reason: str
    ) -> None:
        trial = make_trial(
            state=TrialState.FAILED, reason=reason, metrics=None, warnings=(reason,), facts={"a": reason}
        )
        saved = store.save(begin(store, sweep), trial)
        (found,) = store.run().trials
        assert found == saved
        assert found.reason == reason.replace("\0", "\\x00").replace("\udcff", "\\udcff")
        assert found.warnings == (reason,)
        assert found.facts == {"a": reason}


numbers = st.floats(allow_nan=False, width=64)  # infinite ones, too
counts = st.integers(0, 2**53)
text = st.text(max_size=30)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | numbers | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
facts = st.dictionaries(text.filter(lambda name: name not in ("packages", "interrupted")), json_values, max_size=4)
metrics = st.builds(
    Metrics,
    **{name: counts if each.combine is Combine.LOWER_MEDIAN else numbers for name, each in METRICS.items()},
    worker_time_s=st.dictionaries(text, numbers, max_size=3),
)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False) | text
)
points = st.builds(
    Point,
    st.integers(1, 100_000),
    st.integers(1, 1024),
    st.dictionaries(text, scalars, max_size=3),
    st.dictionaries(text, scalars, max_size=3),
)
trials = st.builds(
    Trial,
    key=st.from_regex(r"[0-9a-f]{12}-[rw][0-9]{1,3}", fullmatch=True),
    point=points,
    repeat=st.integers(0, 1000),
    warmup=st.booleans(),
    state=st.sampled_from(TrialState),
    reason=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50),
    metrics=st.none() | metrics,
    started_at=st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
    real_s=st.floats(0, 1e9),
    facts=facts,
    warnings=st.lists(text, max_size=3).map(tuple),
    records=st.just(""),
)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(trial=trials)
def test_any_trial_is_read_back_as_it_was_saved(store: Store, sweep: Sweep, trial: Trial) -> None:
    run_id = begin(store, sweep, fresh=True)
    assert store.save(run_id, trial) == trial
    (found,) = store.run(run_id).trials
    assert found == trial
    assert found.point.id == trial.point.id


class TestSavingTwice:
    def test_a_second_save_of_a_trial_changes_nothing(
        self, store: Store, sweep: Sweep, make_trial: Make, make_tables: Make
    ) -> None:
        run_id = begin(store, sweep)
        first = store.save(run_id, make_trial(), make_tables(1))
        again = store.save(run_id, make_trial(real_s=99.0, state=TrialState.FAILED, reason="no"), make_tables(2))
        assert again == first
        assert store.run().trials == (first,)
        assert len(store.tables(first)["tasks"]["key"]) == 1

    @pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.INVALID])
    def test_failed_and_invalid_trials_count_as_finished(
        self, store: Store, sweep: Sweep, make_trial: Make, state: TrialState
    ) -> None:
        run_id = begin(store, sweep)
        saved = store.save(run_id, make_trial(state=state, reason="so it was"))
        assert store.finished(run_id) == {saved.key: saved}

    def test_an_interrupted_trial_is_stored_but_not_finished(
        self, store: Store, sweep: Sweep, make_trial: Make, make_tables: Make
    ) -> None:
        run_id = begin(store, sweep)
        stopped = make_trial(state=TrialState.INVALID, reason="stopped", facts={"interrupted": True})
        assert store.save(run_id, stopped, make_tables(1)).facts == {"interrupted": True}
        assert store.finished(run_id) == {}
        assert len(store.run().trials) == 1
        done = store.save(run_id, make_trial(), make_tables(2))
        assert store.finished(run_id) == {done.key: done}
        assert store.run().trials == (done,)
        assert len(store.tables(done)["tasks"]["key"]) == 2

    def test_threads_that_save_the_same_trial_all_get_the_stored_one(
        self, store: Store, sweep: Sweep, make_trial: Make
    ) -> None:
        run_id = begin(store, sweep)
        numbers = iter(range(4))
        saved = together(4, lambda: store.save(run_id, make_trial(real_s=float(next(numbers)))))
        assert saved == [store.run().trials[0]] * 4


class TestResuming:
    def test_a_run_whose_owner_is_dead_is_resumed(self, store: Store, sweep: Sweep, make_trial: Make) -> None:
        run = store.begin(sweep, [], workload_version=1)
        saved = store.save(run.id, make_trial())
        alter(store, run.id, **DEAD)
        resumed = store.begin(sweep, [None], workload_version=1)  # type: ignore[list-item]
        assert (resumed.id, resumed.trials, resumed.state) == (run.id, (saved,), RunState.RUNNING)
        assert (resumed.created_at, resumed.planned) == (run.created_at, 1)
        assert resumed.started_at > run.started_at
        assert len(store.runs()) == 1

    def test_a_run_of_this_process_is_resumed_unless_fresh_is_given(self, store: Store, sweep: Sweep) -> None:
        run_id = begin(store, sweep)
        store.extend(run_id, 7)
        assert store.run(run_id).planned == 7
        assert begin(store, sweep) == run_id != begin(store, sweep, fresh=True)

    @pytest.mark.parametrize("state", ["stopped", "failed"])
    def test_a_stopped_or_failed_run_is_resumed_without_its_verdict(
        self, store: Store, sweep: Sweep, state: str
    ) -> None:
        run_id = begin(store, sweep)
        store.finish(run_id, state, VERDICT)
        resumed = store.begin(sweep, [], workload_version=1)
        assert (resumed.id, resumed.state, resumed.finished_at, resumed.verdict) == (run_id, RunState.RUNNING, "", None)
        with Session(store._engine) as session:
            assert session.scalars(select(FindingRow)).all() == []

    def test_a_resumed_run_that_fails_without_a_new_trial_is_unchanged(
        self, store: Store, sweep: Sweep, make_trial: Make
    ) -> None:
        """For example a run of another user whose cluster refuses this user."""
        run_id = begin(store, sweep)
        store.save(run_id, make_trial())
        store.finish(run_id, "stopped", VERDICT)
        alter(store, run_id, host="elsewhere")
        before = store.run(run_id)
        assert begin(store, sweep) == run_id
        store.finish(run_id, "failed")
        assert store.run(run_id) == before
        assert begin(store, sweep) == run_id
        store.save(run_id, make_trial(1))
        store.finish(run_id, "failed")
        assert store.run(run_id).state is RunState.FAILED

    def test_neither_a_complete_run_nor_an_older_one_is_resumed(self, store: Store, sweep: Sweep) -> None:
        older = begin(store, sweep)
        alter(store, older, **DEAD)
        newer = begin(store, sweep, fresh=True)
        store.finish(newer, "complete")
        assert begin(store, sweep) not in (older, newer)

    def test_only_a_run_with_the_same_sweep_version_and_packages_is_resumed(self, store: Store, sweep: Sweep) -> None:
        run_id = begin(store, sweep, facts={"packages": {"dask": "1"}})
        others = [
            begin(store, dataclasses.replace(sweep, seed=8), facts={"packages": {"dask": "1"}}),
            begin(store, sweep, version=2, facts={"packages": {"dask": "1"}}),
            begin(store, sweep, facts={"packages": {"dask": "2"}}),
            begin(store, sweep),
        ]
        assert len({run_id, *others}) == 5
        assert begin(store, sweep, facts={"packages": {"dask": "1"}}) == run_id

    def test_a_run_of_a_live_process_is_not_resumed(self, store: Store, sweep: Sweep) -> None:
        run_id = begin(store, sweep)
        parent = Owner.of(os.getppid())
        alter(store, run_id, pid=parent.pid, process_started=parent.process_started)
        assert begin(store, sweep) != run_id

    def test_a_run_is_resumed_if_another_process_has_its_pid_now(self, store: Store, sweep: Sweep) -> None:
        run_id = begin(store, sweep)
        alter(store, run_id, pid=os.getppid(), process_started=Owner.of(os.getppid()).process_started - 1000)
        assert begin(store, sweep) == run_id

    @pytest.mark.parametrize(("silent_s", "resumed"), [(60, False), (180, True)])
    def test_a_run_of_another_host_is_resumed_once_its_heartbeat_is_old(
        self, store: Store, sweep: Sweep, silent_s: float, resumed: bool
    ) -> None:
        run_id = begin(store, sweep)
        alter(store, run_id, host="elsewhere", heartbeat_at=datetime.now(UTC) - timedelta(seconds=silent_s))
        assert (begin(store, sweep) == run_id) is resumed

    @pytest.mark.parametrize("ahead_s", [-3600, 3600])
    @pytest.mark.parametrize("alive", [True, False])
    def test_heartbeats_on_a_network_file_system_are_judged_without_comparing_clocks(
        self, tmp_path: Path, sweep: Sweep, monkeypatch: pytest.MonkeyPatch, ahead_s: float, alive: bool
    ) -> None:
        monkeypatch.setattr(location, "network_filesystem", lambda path: "nfs4")
        monkeypatch.setattr("scalescope.store.store.HEARTBEAT_LIMIT_S", 0.3)
        monkeypatch.setattr("scalescope.store.store.WATCH_INTERVAL_S", 0.05)
        with Store.open(str(tmp_path / "a.db")) as store:
            run_id = begin(store, sweep)

            def beat() -> None:  # with the clock of the other host
                alter(store, run_id, host="elsewhere", heartbeat_at=datetime.now(UTC) + timedelta(seconds=ahead_s))

            beat()
            later = threading.Timer(0.1, beat)
            if alive:
                later.start()
            assert (begin(store, sweep) == run_id) is not alive
            later.cancel()

    def test_beating_and_saving_renew_the_heartbeat_of_a_run(
        self, store: Store, sweep: Sweep, make_trial: Make
    ) -> None:
        run_id = begin(store, sweep)
        for act in (lambda: store.beat(run_id), lambda: store.save(run_id, make_trial())):
            alter(store, run_id, host="elsewhere", heartbeat_at=datetime.now(UTC) - timedelta(seconds=180))
            act()
            assert begin(store, sweep) != run_id

    def test_only_one_of_several_processes_resumes_a_run(
        self, url: str, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        processes = [subprocess.Popen(["sleep", "60"]) for _ in range(4)]  # each resumer pretends to be one
        owners = [Owner.of(process.pid) for process in processes]
        stores = [Store.open(url) for _ in owners]
        run_id = begin(stores[0], sweep)
        alter(stores[0], run_id, **DEAD)
        monkeypatch.setattr(Owner, "current", classmethod(lambda cls: owners.pop()))
        waiting = iter(stores)
        got = together(len(stores), lambda: begin(next(waiting), sweep))
        for mine in stores:
            mine.close()
        for process in processes:
            process.kill()
            process.wait()
        assert len(got) == 4
        assert got.count(run_id) == 1

    def test_a_process_whose_run_was_taken_over_cannot_save(
        self, url: str, sweep: Sweep, make_trial: Make, make_tables: Make, tmp_path: Path
    ) -> None:
        with Store.open(url, str(tmp_path / "raw")) as slept, Store.open(url, str(tmp_path / "raw")) as other:
            run_id = begin(slept, sweep)
            alter(slept, run_id, host="elsewhere", heartbeat_at=datetime.now(UTC) - timedelta(seconds=180))
            assert begin(other, sweep) == run_id
            for act in (
                lambda: slept.beat(run_id),
                lambda: slept.save(run_id, make_trial(), make_tables()),
                lambda: slept.save(run_id, make_trial()),
                lambda: slept.finish(run_id, "complete"),
            ):
                with pytest.raises(StoreError, match=r"has taken over run"):
                    act()
            assert other.run(run_id).trials == ()
            assert not (tmp_path / "raw").exists()
            other.save(run_id, make_trial())
            with Store.open(url) as helper:  # a process that works for the owner
                helper.save(run_id, make_trial(1))
            assert len(other.run(run_id).trials) == 2


def test_saving_to_a_store_whose_file_was_moved_raises_store_error(
    tmp_path: Path, sweep: Sweep, make_trial: Make
) -> None:
    with Store.open(str(tmp_path / "a.db")) as store:
        run_id = begin(store, sweep)
        (tmp_path / "a.db").rename(tmp_path / "b.db")
        with pytest.raises(StoreError, match="the store is gone"):
            store.save(run_id, make_trial())


class TestFindingRuns:
    def test_runs_are_listed_newest_first_up_to_a_limit(self, store: Store, sweep: Sweep) -> None:
        other = dataclasses.replace(sweep, workload="array-matmul")
        ids = [begin(store, question, fresh=True) for question in (sweep, other, sweep)]
        assert [run.id for run in store.runs()] == ids[::-1]
        assert [run.id for run in store.runs(limit=2)] == ids[:0:-1]
        assert store.run().id == store.run("latest").id == ids[2]

    def test_a_run_is_found_by_the_beginning_of_its_id(self, store: Store, sweep: Sweep) -> None:
        ids = [begin(store, sweep, fresh=True) for _ in range(2)]
        assert store.run(ids[0][:-1]).id == ids[0]
        with pytest.raises(UsageError, match=r"Several .* '20'") as error:
            store.run("20")
        assert all(run_id in str(error.value) for run_id in ids)

    @pytest.mark.parametrize("reference", ["nonsense", "", "%", "_", "20%", "\0", "\udcff"])
    def test_an_unknown_run_id_is_refused_with_the_newest_id(self, store: Store, sweep: Sweep, reference: str) -> None:
        run_id = begin(store, sweep)
        with pytest.raises(UsageError, match="There is no run") as error:
            store.run(reference)
        assert run_id in error.value.next_step
        assert error.value.exit_status == 2

    def test_an_empty_store_has_no_latest_run(self, store: Store) -> None:
        assert store.runs() == []
        with pytest.raises(UsageError, match="holds no runs"):
            store.run()


class TestRefusals:
    def test_saving_to_an_unknown_run_raises_store_error(self, store: Store, make_trial: Make) -> None:
        for act in (
            lambda: store.save("none", make_trial()),
            lambda: store.beat("none"),
            lambda: store.finish("none", "complete"),
        ):
            with pytest.raises(StoreError, match="no run 'none'"):
                act()

    @pytest.mark.parametrize("state", ["running", "done", ""])
    def test_finishing_a_run_in_an_invalid_state_is_refused(self, store: Store, sweep: Sweep, state: str) -> None:
        with pytest.raises(InvalidField, match="'complete', 'stopped', 'failed'"):
            store.finish(begin(store, sweep), state)

    def test_reading_missing_tables_names_the_existing_ones(
        self, store: Store, sweep: Sweep, make_trial: Make, make_tables: Make
    ) -> None:
        run_id = begin(store, sweep)
        with pytest.raises(StoreError, match="has no raw records"):
            store.tables(store.save(run_id, make_trial(0)))
        saved = store.save(run_id, make_trial(1), make_tables())
        with pytest.raises(StoreError, match="has no table memory") as error:
            store.tables(saved, "tasks", "memory")
        assert error.value.next_step == "It has: tasks, events."


class TestPlaceOfRecords:
    def test_default_records_lie_next_to_the_database_and_move_with_it(
        self, tmp_path: Path, sweep: Sweep, make_trial: Make, make_tables: Make
    ) -> None:
        (tmp_path / "old").mkdir()
        with Store.open(str(tmp_path / "old" / "a.db")) as store:
            saved = store.save(begin(store, sweep), make_trial(), make_tables())
            assert saved.records.startswith(str(tmp_path / "old" / "records"))
        (tmp_path / "old").rename(tmp_path / "new")
        with Store.open(str(tmp_path / "new" / "a.db")) as store:
            assert store.tables(store.run().trials[0], "tasks")["tasks"]["key"]

    def test_a_custom_address_of_records_is_stored_with_the_database(
        self, tmp_path: Path, sweep: Sweep, make_trial: Make, make_tables: Make
    ) -> None:
        with Store.open(str(tmp_path / "a.db"), "memory://elsewhere/") as store:
            saved = store.save(begin(store, sweep), make_trial(), make_tables())
            assert saved.records.startswith("memory://elsewhere/2")
        with Store.open(str(tmp_path / "a.db")) as store:
            assert store.tables(store.run().trials[0], "tasks")["tasks"]["key"]
