"""What the client's thread does is recorded by line: in this process and in drivers on real and virtual clocks."""

from __future__ import annotations

import gc
import json
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import dask
import dask.array as da
import joblib
import numpy as np
import pytest
from distributed import Client

from scalescope.analysis.attempts import Attempts
from scalescope.capture.client_thread import ClientWatch
from scalescope.capture.deferred_collection import collection_deferred
from scalescope.clusters.local.spec import LocalSpec
from scalescope.clusters.simulated.spec import SimulatedSpec
from scalescope.driver.process import Driver
from scalescope.model import spool
from scalescope.model.records import HASHED, JOBLIB, LOCAL, META, TRAVERSED
from scalescope.model.sweep import PlannedTrial, Point
from scalescope.run.trials import read_records


@contextmanager
def in_real_time(passed: object) -> Iterator[bool]:
    yield False


def spent(table: dict[str, Any]) -> Counter[tuple[str, str, int]]:
    """Seconds by the name of the function, the call that it made, and whether the call waited."""
    found: Counter[tuple[str, str, int]] = Counter()
    for where, what, waits, seconds in zip(
        *(table[name] for name in ("where", "what", "waits", "seconds")), strict=True
    ):
        found[where.rpartition(" ")[2], what, waits] += seconds
    return found


def line_of(text: str) -> int:
    return 1 + next(i for i, line in enumerate(Path(__file__).read_text().splitlines()) if line.strip() == text)


def busy(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def parse(seconds: float) -> None:
    json.loads("[" + "1," * 10 + "1]", parse_int=lambda digit: time.sleep(seconds / 11))


def workload() -> None:
    time.sleep(0.3)
    busy(0.3)
    parse(0.3)
    max(
        [2, 1],
        key=lambda _: time.sleep(0.15) or 0,
    )


def watched(function: Any) -> ClientWatch:
    with ClientWatch(function, time.time, in_real_time) as watch:
        function()
    return watch


def test_the_time_of_each_call_is_recorded_by_line() -> None:
    table = watched(workload).columns(0.0)
    found = spent(table)
    assert found["workload", "time.sleep", 0] == pytest.approx(0.3 + 0.3, rel=0.4)  # a lambda has no name of its own
    assert sum(s for (function, _, _), s in found.items() if function == "busy") == pytest.approx(0.3, rel=0.4)
    assert found["parse", "time.sleep", 0] == pytest.approx(0.3, rel=0.4)
    name = Path(__file__).name
    assert f"{name}:{line_of('time.sleep(0.3)')} workload" in table["where"]


def test_a_call_by_which_dask_infers_the_result_of_a_function_is_recorded_as_such() -> None:
    def chunk(part: Any) -> Any:
        time.sleep(0.3)
        return part

    found = spent(watched(lambda: da.ones(4, chunks=2).map_blocks(chunk)).columns(0.0))
    assert found["chunk", META, 0] == pytest.approx(0.6, rel=0.5)  # Dask calls it once or twice
    found = spent(watched(lambda: chunk(da.ones(4, chunks=2))).columns(0.0))
    assert found["chunk", "time.sleep", 0] == pytest.approx(0.3, rel=0.4)


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_computing_with_dasks_local_scheduler_is_recorded_as_such_at_the_line_that_calls_it(scheduler: str) -> None:
    def compute() -> None:
        dask.delayed(time.sleep)(0.3).compute(scheduler=scheduler)

    assert spent(watched(compute).columns(0.0))["compute", LOCAL, 0] == pytest.approx(0.3, rel=0.4)


@pytest.mark.parametrize("jobs", [1, 2])
def test_joblib_that_does_not_use_the_cluster_is_recorded_as_such_at_the_line_that_calls_it(jobs: int) -> None:
    def compute() -> None:
        joblib.Parallel(n_jobs=jobs, backend="threading")([joblib.delayed(time.sleep)(0.15)] * 2 * jobs)

    assert spent(watched(compute).columns(0.0))["compute", JOBLIB, 0] == pytest.approx(0.3, rel=0.4)


def test_time_spent_searching_an_argument_for_dask_objects_is_recorded_as_such() -> None:
    rows, wrapped = [{"id": i} for i in range(20_000)], dask.delayed(len)

    def call() -> None:
        for _ in range(3):
            wrapped(rows)

    found = spent(watched(call).columns(0.0))
    assert found["call", TRAVERSED, 0] > 0.5 * sum(found.values())


@pytest.mark.parametrize("name", ["client.scatter", "client.submit", "da.from_array"])
def test_time_spent_hashing_data_is_recorded_with_the_call_that_hashed_it(name: str) -> None:
    with Client(processes=False, n_workers=1, dashboard_address=None) as client:
        data = np.ones(8_000_000) if name == "da.from_array" else {str(i): [i] for i in range(60_000)}

        def call() -> None:
            for _ in range(2):
                match name:
                    case "client.scatter":
                        client.scatter([data])
                    case "client.submit":
                        client.submit(len, data)
                    case _:
                        da.from_array(data + 1, chunks=1_000_000)

        found = spent(watched(call).columns(0.0))
    assert {what for _, what, _ in found if what.startswith(HASHED)} == {HASHED + name}


def test_the_recorded_rows_cover_the_whole_call_without_a_gap() -> None:
    watch = watched(workload)
    table = watch.columns(10.0)
    ends = [begin + seconds for begin, seconds in zip(table["time"], table["seconds"], strict=True)]
    assert table["time"][0] == watch.began + 10
    assert list(table["time"][1:]) == pytest.approx(ends[:-1], abs=1e-6)
    assert ends[-1] == pytest.approx(watch.ended + 10, abs=1e-6)


def test_a_call_too_short_to_be_sampled_is_still_counted() -> None:
    watch = watched(lambda: None)
    assert sum(watch.columns(0.0)["seconds"]) == pytest.approx(watch.ended - watch.began, abs=1e-9)


def test_sampling_the_client_thread_costs_less_than_a_quarter_of_its_cpu_time() -> None:
    def alone() -> float:
        begin = time.thread_time()
        sum(i * i for i in range(3_000_000))
        return time.thread_time() - begin

    ratios = []
    while not ratios or min(ratios) >= 1.25:  # a core is slower while others use what it shares with them
        assert len(ratios) < 10, ratios
        bare, taken = alone(), list[float]()
        watched(lambda: taken.append(alone()))  # noqa: B023  # it is called here
        ratios.append(taken[0] / bare)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="later versions never collect within f_back")
@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_while_frames_are_walked(enabled: bool) -> None:
    """Otherwise Python 3.11 reads frames that are gone, and crashes."""
    begun: list[int] = []
    threshold, here = gc.get_threshold(), threading.get_ident()

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and threading.get_ident() == here:
            begun.append(1)

    def walk(depth: int) -> None:
        if depth:
            walk(depth - 1)
            return
        with collection_deferred():
            begun.clear()
            frame: FrameType | None = sys._current_frames()[here]
            while frame is not None:
                frame = frame.f_back  # makes an object for each
            assert begun == []

    gc.callbacks.append(note)
    (gc.enable if enabled else gc.disable)()
    try:
        gc.set_threshold(1)
        walk(200)
        assert gc.isenabled() == enabled
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(note)
        gc.enable()


# ------------------------------------------------------------------ in a driver

JOB = """
    import time

    import dask


    def load(i):
        time.sleep(0.2)
        return i


    def crunch(n):
        return sum(i * i for i in range(n))


    def prepare(n):
        time.sleep(0.5)
        crunch(n)


    def run(client, n: int = 6_000_000):
        prepare(n)
        dask.compute([dask.delayed(load)(i) for i in range(4)])
        time.sleep(0.7)
        client.submit(load, 1).result()
        time.sleep(0.4)
"""


@pytest.mark.parametrize("spec", [SimulatedSpec(), LocalSpec()], ids=lambda spec: spec.kind)
def test_the_line_of_the_client_is_recorded_on_real_and_simulated_clusters(spec: Any, tmp_path: Path) -> None:
    path = tmp_path / "my_job.py"
    path.write_text(textwrap.dedent(JOB))
    with Driver.start(spec, folder=tmp_path / "driver") as driver:
        outcome = driver.run(PlannedTrial(0, Point(2, 1, {}), 0), f"{path}:run", timeout_s=60)
        table = spool.read(outcome.spool / "client.spool")["client"]
        attempts = Attempts.read(read_records(outcome.spool))
    assert sum(table["seconds"]) == pytest.approx(outcome.elapsed_s)
    assert attempts.elapsed == pytest.approx(outcome.elapsed_s)
    free = attempts.elapsed - float((attempts.pending[:, 1] - attempts.pending[:, 0]).sum())
    found = spent(table)
    assert 0.35 <= found["prepare", "time.sleep", 0] < found["run", "time.sleep", 0]  # 0.5 and 1.1 s, and more if late
    assert 0.9 <= found["run", "time.sleep", 0] <= outcome.elapsed_s
    assert found["crunch", "", 0] > 0.1  # CPU seconds, in virtual time, too
    assert found["run", "dask.compute", 1] + found["run", "client.submit().result", 1] > 0.5
    own = sum(seconds for (_, _, waits), seconds in found.items() if not waits)
    assert free == pytest.approx(own, rel=0.15)  # samples miss more on a slow host
    lines = path.read_text().splitlines()
    assert f"my_job.py:{1 + lines.index('    time.sleep(0.7)')} run" in table["where"]
