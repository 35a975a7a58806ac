"""Processes that are killed while they save, and processes that save at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scalescope.model.sweep import Sweep
from scalescope.store import RunState, Store

SAVER = textwrap.dedent("""
    import os, random, signal, sys, threading
    from array import array

    from scalescope.model.sweep import Point, Sweep
    from scalescope.model.trial import Trial, TrialState
    from scalescope.store import Store

    url, records, kill, count, name = sys.argv[1:]
    sweep = Sweep.from_mapping({"workload": "bag-map", "cluster": "light", "axes": {"workers": [1, 2, 4]}, "seed": 7})
    store = Store.open(url, records)
    run = store.begin(sweep, [], workload_version=1, fresh=name != "")
    os.write(1, f"{run.id} {len(run.trials)}\\n".encode())
    finished = store.finished(run.id)
    done = 0
    for number in range(int(count)):
        point = Point(number + 1)
        key = f"{point.id}-r0"
        if key in finished:
            continue
        tables = {"events": {
            "time": array("d", [float(number)] * 2000), "topic": [key] * 2000, "message": [str(i) for i in range(2000)],
        }}
        store.save(run.id, Trial(key, point, 0, False, TrialState.VALID, facts={"name": name}), tables)
        os.write(1, f"{key}\\n".encode())
        done += 1
        if kill and done == 2:
            threading.Timer(random.uniform(0, 0.06), os.kill, (os.getpid(), signal.SIGKILL)).start()
    store.finish(run.id, "complete")
""")


@pytest.fixture
def spawn(url: str, tmp_path: Any, child_environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*, kill: bool, count: int, name: str = "") -> subprocess.Popen[str]:
        arguments = [url, str(tmp_path / "raw"), "kill" if kill else "", str(count), name]
        process = subprocess.Popen(
            [sys.executable, "-c", SAVER, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=child_environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


BOTH = pytest.mark.parametrize("url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.thorough)], indirect=True)


@BOTH
def test_a_killed_run_keeps_all_committed_trials_and_continues(
    url: str, tmp_path: Any, sweep: Sweep, spawn: Callable[..., subprocess.Popen[str]]
) -> None:
    ids, acknowledged = set(), set()
    for _ in range(2):
        out, err = (process := spawn(kill=True, count=100_000)).communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, err
        first, *keys = out.splitlines()
        run_id, resumed_with = first.split()
        assert int(resumed_with) >= len(acknowledged)
        assert len(keys) >= 2
        assert not acknowledged & set(keys), "a finished trial was repeated"
        ids.add(run_id)
        acknowledged |= set(keys)
        with Store.open(url) as store:
            run = store.run()
            assert acknowledged <= store.finished(run_id).keys()
            assert len(run.trials) <= len(acknowledged) + 3, "at most one trial a process was saved and not told"
            for trial in run.trials:
                (events,) = store.tables(trial).values()
                assert events["topic"] == [trial.key] * 2000
    assert len(ids) == 1
    with Store.open(url) as store:
        count = len(store.run().trials) + 2
    out, err = (process := spawn(kill=False, count=count)).communicate(timeout=120)
    assert process.returncode == 0, err
    assert len(out.splitlines()) == 3, "only what was missing"
    with Store.open(url) as store:
        run = store.run()
        assert (run.id, run.state, len(run.trials)) == (*ids, RunState.COMPLETE, count)


@BOTH
def test_two_processes_can_save_trials_at_the_same_time(url: str, spawn: Callable[..., subprocess.Popen[str]]) -> None:
    count = 25
    processes = [spawn(kill=False, count=count, name=name) for name in ("one", "two")]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    with Store.open(url) as store:
        runs = store.runs()
        assert len(runs) == 2
        for run in runs:
            assert run.state is RunState.COMPLETE
            assert len(run.trials) == count
            assert len({trial.facts["name"] for trial in run.trials}) == 1


@BOTH
def test_no_study_is_lost_if_another_process_looks_while_a_process_has_the_store_open_twice(
    url: str, child_environment: dict[str, str]
) -> None:
    counts = "import sys; from scalescope.store import Store; print(len(Store.open(sys.argv[1]).studies.newest()))"

    def seen_by_another() -> int:
        return int(subprocess.check_output([sys.executable, "-c", counts, url], env=child_environment))

    with Store.open(url) as store:
        with Store.open(url):
            assert seen_by_another() == 0
        assert seen_by_another() == 0
        store.studies.begin("predict", {})
        assert seen_by_another() == 1
