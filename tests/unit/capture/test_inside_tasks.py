"""What tasks do inside, recorded on a real cluster of processes."""

from __future__ import annotations

import asyncio
import configparser
import functools
import gc
import hashlib
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, LocalCluster, get_worker, profile

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.inside_tasks import InsidePrefix, inside_tasks, thread_seconds
from scalescope.capture import inside_tasks as shipped
from scalescope.capture.memory import _inside, _same_calls
from scalescope.capture.recording import Capture, Recording
from scalescope.diagnosis.causes.event_loop_blocked import event_loop_blocked
from scalescope.diagnosis.causes.retried_tasks import retried_tasks
from scalescope.diagnosis.evidence.inside_tasks import LOCK, OUTSIDE, RETRY, on_event_loops, same_call, waits
from scalescope.diagnosis.observation import Observation
from scalescope.model import spool
from scalescope.model.sweep import Point
from scalescope.model.trial import Trial, TrialState


def sleeping(_: int) -> None:
    time.sleep(0.15)


def computing(_: int) -> None:
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        sum(range(1000))


def locking(_: int) -> None:
    lock = get_worker().__dict__.setdefault("one", threading.Lock())
    with lock:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            sum(range(1000))


def repeating(_: int) -> None:
    try:
        raise OSError("too many requests")
    except OSError:
        time.sleep(0.15)


@pytest.fixture(scope="module")
def workers() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=1, threads_per_worker=4, dashboard_address="127.0.0.1:0", silence_logs=False) as local,
        Client(local) as client,
    ):
        yield client


def recorded(client: Client, folder: Path, *functions: Any, tasks: int = 12) -> tuple[Recording, dict[str, Any]]:
    capture = Capture(client, drain_interval_s=0.05)
    try:
        with capture.trial(folder / "spool") as recording:
            for function in functions:
                client.gather(client.map(function, range(tasks), pure=False))
    finally:
        capture.close()
    assert recording.complete, recording.reason
    return recording, spool.read(folder / "spool")


def test_tasks_that_sleep_compute_or_wait_for_a_lock_are_distinguished(workers: Client, tmp_path: Path) -> None:
    workers.gather(workers.map(sleeping, range(4), pure=False))  # what ran before does not count
    recording, tables = recorded(workers, tmp_path, sleeping, computing, locking, repeating)
    assert recording.unprofiled == ""
    trial = Trial("t", Point(1, 4), 0, False, TrialState.VALID)
    seen = Observation.of(trial, tables)
    found = inside_tasks(tables, seen.measured, seen.seconds("busy"))
    assert found is not None
    assert sum(each.busy_s for each in found.values()) == pytest.approx(seen.seconds("busy"), rel=1e-9)
    part = {name: {part: s / found[name].busy_s for part, s in found[name].seconds.items()} for name in found}
    assert part["sleeping"]["waiting"] > 0.9
    assert part["computing"]["computing"] > 2 * part["sleeping"]["computing"]
    assert found["sleeping"].mostly[1] == "time.sleep"
    assert found["computing"].mostly[0].endswith("computing")
    told = waits(seen)
    assert (told[OUTSIDE].prefix, told[OUTSIDE].function) == ("sleeping", "time.sleep")
    assert (told[RETRY].prefix, told[RETRY].function) == ("repeating", "time.sleep [after OSError]")
    assert told[LOCK].prefix == "locking"
    assert told[LOCK].function == "lock.__enter__"
    assert told[LOCK].line.startswith("test_inside_tasks.py:")
    told_s = sum(pair[0] + pair[1] for pair in thread_seconds(tables).values())
    attempts = Attempts.read(tables)
    assert told_s == pytest.approx(float((attempts.stop - attempts.start).sum()), rel=0.1)


def test_sleeping_between_retries_is_found_as_a_cause(workers: Client, tmp_path: Path) -> None:
    """Nothing else runs, so the share does not depend on how busy the host is."""
    _, tables = recorded(workers, tmp_path, repeating)
    finding = retried_tasks(Observation.of(Trial("t", Point(1, 4), 0, False, TrialState.VALID), tables))
    assert finding is not None
    assert "OSError" in finding.summary


def test_each_trial_records_only_its_own_tasks(workers: Client, tmp_path: Path) -> None:
    for function in (sleeping, computing):
        _, tables = recorded(workers, tmp_path, function)
        assert set(tables["inside"]["prefix"]) == {function.__name__}


def test_the_profiler_of_a_worker_is_restored_after_the_trial(workers: Client, tmp_path: Path) -> None:
    def owner() -> str:
        return str(profile.process.__module__)

    recorded(workers, tmp_path, sleeping)
    assert set(workers.run(owner).values()) == {"distributed.profile"}


# ------------------------------------------------------------------ calls that read something


def load(path: str) -> int:
    """Read by Python code: C code that holds the interpreter lock is seen by too few samples."""
    parser = configparser.ConfigParser()
    parser.read(path)
    return len(parser["values"])


def scoring(item: tuple[str, str, int]) -> int:
    settings, part, number = item
    return load(settings) + load(part) + simulate(settings) + number


def simulate(settings: str) -> int:
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        sum(range(1000))
    return len(settings)


def test_only_a_call_that_reads_the_same_data_in_each_task_is_recorded_as_repeated(
    workers: Client, tmp_path: Path
) -> None:
    """Neither a call that reads something else in each task, nor one that computes with equal arguments."""
    paths = [tmp_path / f"{i}.json" for i in range(13)]
    for path in paths:
        path.write_text("\n".join(["[values]", *(f"option{i} = {i}" for i in range(4_000))]), encoding="utf-8")
    items = [(str(paths[0]), str(path), i) for i, path in enumerate(paths[1:])]
    capture = Capture(workers, drain_interval_s=0.05)
    try:
        with capture.trial(tmp_path / "spool"):
            workers.gather(workers.map(scoring, items, pure=False))
    finally:
        capture.close()
    trial = Trial("t", Point(1, 4), 0, False, TrialState.VALID)
    same = same_call(Observation.of(trial, spool.read(tmp_path / "spool")))
    assert same is not None
    assert (same.function, same.arguments, same.prefix) == ("load", repr(str(paths[0])), "scoring")
    assert 8 < same.tasks <= 12


def load_detector(size: int) -> int:
    time.sleep(0.08)
    return size


def draw(size: int) -> int:
    time.sleep(0.04)
    return random.randrange(size)


def detecting(number: int) -> int:
    return load_detector(640) + draw(640) + number


@functools.cache
def load_once(size: int) -> int:
    return load_detector(size)


def detecting_once(number: int) -> int:
    return load_once(640) + draw(640) + number


def table() -> str:
    with open(__file__) as file:
        time.sleep(0.08)
        return file.readline()


def looking_up(number: int) -> int:
    return len(table()) + draw(640) + number


def test_a_function_that_holds_an_open_file_counts_as_reading(workers: Client, tmp_path: Path) -> None:
    _, tables = recorded(workers, tmp_path, looking_up, tasks=12)
    same = same_call(Observation.of(Trial("t", Point(1, 4), 0, False, TrialState.VALID), tables))
    assert same is not None
    assert (same.function, same.arguments) == ("table", "")


@pytest.mark.parametrize(
    ("function", "tasks", "found"), [(detecting, 12, 1), (detecting, 8, 1), (detecting_once, 8, 0)]
)
def test_a_function_whose_name_suggests_setting_up_is_recorded_as_repeated_if_all_tasks_call_it(
    function: Any, tasks: int, found: int, workers: Client, tmp_path: Path
) -> None:
    """Not if a cache lets only the first task of each of the four threads call it."""
    _, tables = recorded(workers, tmp_path, function, tasks=tasks)
    same = same_call(Observation.of(Trial("t", Point(1, 4), 0, False, TrialState.VALID), tables))
    assert [(each.function, each.arguments) for each in (same,) if each] == [("load_detector", "640")] * found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a/b", "'a/b'"),
        (Path("a/b"), "a/b"),
        ((1, None, [True]), "tuple['1', 'None', \"list['True']\"]"),
        ({"a": object()}, None),
        (object(), None),
        (list(range(100)), None),
    ],
)
def test_only_simple_arguments_are_turned_into_text_for_comparison(value: Any, text: str | None) -> None:
    assert shipped._argument_text(value) == text


def login(user: str, password: str) -> Any:
    return sys._getframe()


def connect(address: str) -> Any:
    return sys._getframe()


def test_arguments_of_a_call_with_a_parameter_named_like_a_secret_are_not_recorded() -> None:
    assert shipped._arguments(connect("db")) == "'db'"
    assert shipped._arguments(login("me", "hunter2")) is None


def test_an_address_in_a_call_loses_its_password() -> None:
    call = ("connect", repr("postgresql://me:hunter2@db/x"), "my_job.py:7 load", 9, 9, 9)
    (told,) = _same_calls([{"calls": {"load": (9, [call])}}])
    assert "hunter2" not in json.dumps(told)
    assert "postgresql://me:***" in told["arguments"]


# ------------------------------------------------------------------ coroutine functions


async def fetching(_: int) -> None:
    time.sleep(0.15)


async def awaiting(_: int) -> None:
    await asyncio.sleep(0.15)


def test_a_call_that_blocks_the_event_loop_is_named(tmp_path: Path) -> None:
    """The worker runs in the client's process; a coroutine that awaits does not block the event loop."""
    with Client(processes=False, n_workers=1, threads_per_worker=4, dashboard_address=None) as client:
        recording, tables = recorded(client, tmp_path, fetching, awaiting)
        assert recording.unprofiled == ""
    trial = Trial("t", Point(1, 4), 0, False, TrialState.VALID)
    seen = Observation.of(trial, tables)
    spent = on_event_loops(seen)
    assert spent is not None
    assert (spent.prefix, spent.function) == ("fetching", "time.sleep")
    assert spent.line.startswith("test_inside_tasks.py:")
    assert spent.seconds >= 0.8 * 12 * 0.15
    finding = event_loop_blocked(seen)
    assert finding is not None
    assert "`time.sleep` at test_inside_tasks.py" in finding.summary
    assert "asyncio.to_thread" in finding.remedy or "asyncio.sleep" in finding.remedy
    samples = Counter[str]()
    for prefix, count in zip(tables["inside"]["prefix"], tables["inside"]["samples"], strict=True):
        samples[prefix] += count
    assert samples["awaiting"] < samples["fetching"] / 2


def test_event_loops_are_not_watched_without_coroutine_tasks(workers: Client, tmp_path: Path) -> None:
    def watches() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "scalescope-coroutines"]

    recorded(workers, tmp_path, sleeping)
    assert not any(workers.run(watches).values())


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be pinned")
def test_threads_that_share_a_core_report_their_wait_for_it() -> None:
    core = min(os.sched_getaffinity(0))

    def hashing() -> None:  # without the interpreter lock
        os.sched_setaffinity(0, {core})
        while time.thread_time() < 0.3:
            hashlib.sha256(bytes(10**6)).digest()

    both = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:

        def turn() -> None:
            both.wait()
            hashing()

        for future in [pool.submit(turn) for _ in range(2)]:
            future.result()
        told = shipped._waited_for_a_core(SimpleNamespace(executors={"default": pool}))
    assert len(told) == 2
    assert max(told.values()) > 0.05


# ------------------------------------------------------------------ parts


def sampled(function: Any) -> dict[str, int]:
    """The stacks of a function in a thread, as a worker samples them."""
    thread, tree = threading.Thread(target=function), profile.create()
    shipped._count(+1)
    try:
        thread.start()
        time.sleep(0.1)
        profile.process(sys._current_frames()[thread.ident or 0], True, tree, stop="threading.py")
    finally:
        shipped._count(-1)
    thread.join()
    return dict(shipped._stacks(tree))


def test_the_profiler_fetches_frames_without_a_collection_in_python_3_11(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a worker may stand still for ever (CPython issue 106883)."""
    collects: list[bool] = []
    monkeypatch.setattr(sys, "_current_frames", lambda: collects.append(gc.isenabled()) or {})
    assert shipped._handled(sys._getframe()) == ""
    assert collects == [sys.version_info >= (3, 12)]


def inner() -> None:
    time.sleep(0.3)


def outer() -> None:
    inner()


def test_the_innermost_function_and_its_call_are_counted() -> None:
    ((stack, samples),) = sampled(outer).items()
    names = [frame.split()[-1] for frame in stack.split(";")]
    assert (names, samples) == (["outer", "inner", "time.sleep()"], 1)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="places of calls are known from Python 3.11 on")
@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("sleep(0)", "sleep"),
        ("time.sleep(0)", "time.sleep"),
        ("a.b(1).sleep(2)", "a.b.sleep"),
        ("time.sleep(\n    0)", "time.sleep"),
        ("x = f(time.sleep(0))", "time.sleep"),
    ],
)
def test_calls_are_named_as_written_in_the_source(line: str, name: str) -> None:
    code = compile(line, "mine.py", "exec")
    calls = [each.offset for each in shipped.dis.get_instructions(code) if each.opname == "CALL"]
    assert name in {shipped.called(code, each) for each in calls}
    assert shipped.called(code, 0) == ""
    assert shipped.called(code, 10_000) == ""


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("/home/me/job.py", "job.py:9 f"),
        ("<ipython-input-1>", "<ipython-input-1>:9 f"),
        ("/opt/lib/python3.9/site-packages/prefect/server/api.py", "prefect.server.api.f"),
        ("/opt/lib/python3.9/site-packages/prefect/__init__.py", "prefect.f"),
        ("<frozen importlib._bootstrap>", "importlib._bootstrap.f"),
        (threading.__file__, "threading.f"),
    ],
)
def test_frames_are_shown_by_line_for_user_files_and_by_module_for_libraries(file: str, text: str) -> None:
    assert shipped.frame_text({"filename": file, "name": "f", "line_number": 9}) == text


def test_stacks_beyond_the_limit_are_counted_together() -> None:
    many = {f"job.py:{i} f": i + 1 for i in range(3 * shipped.STACKS)}
    asked = [{"stacks": {"f": {**many, "": 5}}, "absent": ""}] * 2
    columns = _inside(asked)
    assert len(columns["stack"]) == 2 * shipped.STACKS + 1
    assert sum(columns["samples"]) == 2 * (sum(many.values()) + 5)


def test_rare_stacks_keep_their_outermost_frames_and_those_of_the_user() -> None:
    outer = ";".join(f"library.f{i}" for i in range(20))
    common = {f"{outer};job.py:1 f;c.f{i}()": 9 for i in range(shipped.STACKS)}
    rare = {f"{outer};job.py:2 f;c.f{i};c.g()": 1 for i in range(5)} | {f"{outer};c.f{i}": 1 for i in range(4)}
    told = shipped.shortened(Counter(common | rare))
    assert told[f"{outer};job.py:2 f"] == 5
    assert told[";".join(outer.split(";")[: shipped.CUT])] == 4
    assert sum(told.values()) == sum(common.values()) + 9


def test_the_share_of_a_stack_is_zero_without_samples() -> None:
    assert InsidePrefix({}, (), 0).share(()) == 0.0
