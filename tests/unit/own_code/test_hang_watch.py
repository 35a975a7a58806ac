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
            return SimpleNamespace(stands=step == "stands", standstill="here", standing="standing", time=1.0)

    monkeypatch.setattr(hang_watch, "ClusterWatch", Watch)
    monkeypatch.setattr(hang_watch, "ClientCalls", lambda client: None)
    monkeypatch.setattr(hang_watch, "INTERVAL_S", 0.001)
    watch = HangWatch(None, lambda found, now: told.append(found))  # type: ignore[arg-type]
    watch._watch()
    assert bool(watch.found) is stands
    assert len(told) == said
