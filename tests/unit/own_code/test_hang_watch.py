"""The hang watch of a script: a standstill that ends is no hang."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scalescope.own_code import hang_watch
from scalescope.own_code.hang_watch import HangWatch


@pytest.mark.parametrize(
    ("looks", "stands", "said"),
    [
        ("moves moves", False, 0),
        ("moves stands stands", True, 1),
        ("stands moves", False, 1),
        ("stands fails moves", False, 1),
        ("stands fails fails fails", False, 1),
        ("fails stands", True, 1),
    ],
)
def test_a_standstill_counts_as_hang_only_if_it_holds_at_the_last_look(
    monkeypatch: pytest.MonkeyPatch, looks: str, stands: bool, said: int
) -> None:
    steps = iter(looks.split())
    told: list[Any] = []

    class Watch:
        def __init__(self, calls: object, sent_from: str) -> None: ...

        def look(self) -> Any:
            step = next(steps, None)
            if step == "fails":
                raise OSError("busy")
            if step is None:
                watch._over.set()
                step = "stands" if stands else "moves"
            return SimpleNamespace(
                stands=step == "stands",
                standstill="here",
                standing="standing",
                time=1.0,
                seen={"left": {"processing": 1}},
            )

    monkeypatch.setattr(hang_watch, "ClusterWatch", Watch)
    monkeypatch.setattr(hang_watch, "ClientCalls", lambda client: None)
    monkeypatch.setattr(hang_watch, "INTERVAL_S", 0.001)
    watch = HangWatch(None, lambda found, now: told.append(found))  # type: ignore[arg-type]
    watch._watch()
    assert bool(watch.found) is stands
    assert len(told) == said


@pytest.mark.parametrize(
    ("left", "waits", "moved", "said"),
    [
        ({"processing": 0}, ("my_job.py:7 main", "client.scatter", 8.0), 0.0, 1),
        ({"processing": 0}, ("my_job.py:7 main", "client.scatter", 60.0), 92.0, 1),
        ({"processing": 0}, ("my_job.py:7 main", "client.scatter", 3.0), 0.0, 0),
        ({"processing": 0}, ("my_job.py:7 main", "client.gather", 60.0), 98.0, 0),  # its results are to come
        ({"processing": 0}, None, 0.0, 0),
        ({"processing": 2}, ("my_job.py:7 main", "client.gather", 8.0), 0.0, 0),
    ],
)
def test_a_hanging_call_of_the_client_that_no_task_explains_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, left: dict[str, int], waits: Any, moved: float, said: int
) -> None:
    told: list[Any] = []
    looks = iter(range(3))

    class Watch:
        def __init__(self, calls: object, sent_from: str) -> None: ...

        def look(self) -> Any:
            if next(looks, None) is None:
                watch._over.set()
            seen = {"left": left, "workers": {"tcp://a": ()}}
            return SimpleNamespace(stands=False, standstill=None, standing=None, time=100.0, seen=seen, moved=moved)

    monkeypatch.setattr(hang_watch, "ClusterWatch", Watch)
    monkeypatch.setattr(hang_watch, "ClientCalls", lambda client: None)
    monkeypatch.setattr(hang_watch, "INTERVAL_S", 0.001)
    program: Any = SimpleNamespace(awaits=lambda: waits)
    watch = HangWatch(None, lambda found, now: told.append(found), program)  # type: ignore[arg-type]
    watch._watch()
    assert len(told) == said
    assert all("`client.scatter` at my_job.py:7 main" in each.hints[0] and each.since == 92.0 for each in told)
