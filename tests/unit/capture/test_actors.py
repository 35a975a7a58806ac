"""Calls of actors, recorded on a real cluster whose workers are threads."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster, get_worker

from scalescope.capture import actors, recorder
from scalescope.capture.recording import Capture
from scalescope.model import spool
from scalescope.model.records import ACTOR_CALLS

Call = dict[str, Any]


class Counter:
    def add(self, seconds: float) -> str:
        time.sleep(seconds)
        return str(get_worker().address)

    def fail(self) -> None:
        time.sleep(0.05)
        raise ValueError("no")

    async def quick(self) -> int:
        return 1


@pytest.fixture
def told(client: Client, tmp_path: Path) -> Callable[[Callable[[Any], object]], list[Call]]:
    """Runs a function on an actor in a trial, and returns the recorded events of calls."""

    def record(use: Callable[[Any], object]) -> list[Call]:
        capture = Capture(client, drain_interval_s=0.05)
        try:
            with capture.trial(tmp_path / "spool") as recording:
                use(client.submit(Counter, actor=True, pure=False).result())
        finally:
            capture.close()
        assert recording.complete, recording.reason
        events = spool.read(tmp_path / "spool")["events"]
        rows = zip(events["topic"], events["message"], strict=True)
        return [json.loads(message) for topic, message in rows if topic == ACTOR_CALLS]

    return record


def test_a_call_of_an_actor_is_recorded_with_its_worker_and_its_time(told):
    seen = {}

    def use(counter: Any) -> None:
        seen["begin"] = time.time()
        seen["worker"] = counter.add(0.2).result()
        seen["end"] = time.time()

    (call,) = told(use)
    assert call["worker"] == seen["worker"]
    assert list(call["methods"]) == ["Counter.add"]
    assert call["methods"]["Counter.add"][0] == 1
    assert 0.19 <= call["seconds"] <= seen["end"] - seen["begin"] + 0.01
    assert seen["begin"] + 0.19 <= call["end"] <= seen["end"] + 0.01


def test_many_short_calls_of_actors_are_recorded_together_and_none_is_lost(told):
    def use(counter: Any) -> None:
        for future in [counter.add(0.001) for _ in range(100)]:
            future.result()

    began = time.monotonic()
    calls = told(use)
    assert len(calls) <= 2 + (time.monotonic() - began) / actors.WINDOW_S
    assert sum(call["methods"]["Counter.add"][0] for call in calls) == 100
    assert sum(call["seconds"] for call in calls) >= 0.1
    ends = [call["end"] for call in calls]
    begins = [call["end"] - call["seconds"] for call in calls]
    assert all(end <= begin + 1e-3 for end, begin in zip(ends, begins[1:], strict=False))


def test_calls_of_actors_that_fail_are_recorded_with_their_time(told):
    def use(counter: Any) -> None:
        with pytest.raises(ValueError, match="no"):
            counter.fail().result()

    (call,) = told(use)
    assert call["methods"]["Counter.fail"][1] >= 0.05


def test_coroutines_of_actors_are_not_recorded_as_calls_that_hold_a_thread(told):
    assert told(lambda counter: counter.quick().result()) == []


def test_the_modules_sent_to_workers_agree_on_the_topic_of_actor_calls():
    assert actors.TOPIC == recorder.ACTOR_CALLS == ACTOR_CALLS
    assert recorder.STRAGGLERS_S >= 2 * actors.WINDOW_S


def test_names_of_actor_methods_are_cut_to_a_limited_length():
    assert actors._method((1, Counter().add)) == "Counter.add"
    assert actors._method((1, None)) == "?"
    long = type("C" * 200, (Counter,), {})()
    assert len(actors._method((long.add,))) == actors.NAME_CHARACTERS


def test_closing_the_capture_restores_the_pool_of_actor_threads(client: Client, cluster: LocalCluster):
    pools = [worker.executors["actor"] for worker in cluster.workers.values()]
    capture = Capture(client, drain_interval_s=None)
    try:
        assert all("submit" in pool.__dict__ for pool in pools)
    finally:
        capture.close()
    assert not any("submit" in pool.__dict__ for pool in pools)
