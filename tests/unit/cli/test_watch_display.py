"""What `scalescope watch` draws of made-up clusters, and for how long it watches."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from scalescope.capture.live.remote_calls import DirectCalls
from scalescope.capture.live.standing_tasks import Hang, StandingTask
from scalescope.cli.watch_display import picture
from scalescope.own_code.cluster_watch import SHARE, WAITS, ClusterWatch, Group, Look

ADDRESS = "tls://scheduler.team-weather.svc.cluster.local:8786"
SEEN: dict[str, Any] = {
    "workers": [ADDRESS] * 100,
    "threads": 1_600,
    "working": 1_200,
    "idle": dict.fromkeys(WAITS, 80),
    "memory": 123_456_789_012,
    "limit": 999_999_999_999,
    "fullest": (ADDRESS, 0.987),
}
GROUPS = tuple(Group(f"{'a-long-name-of-a-task-' * 3}{number}", 123_456, 2_345_678, 98_765.0) for number in range(12))
TASK = StandingTask(
    "load-" * 20, ADDRESS, 1.7e9, "my_long_module_name.py:123 in a_function", "__enter__ (lock.py)", "", True, "Lock"
)
HINTS = tuple(f"Hint {number}: " + "look at the place where all of this comes from, " * 2 for number in range(3))
LOOK = Look(1.7e9, SEEN, GROUPS, 1_234.5, (), 0, 0, None)
STANDS = replace(LOOK, standstill=Hang(1.7e9 - 21, (TASK,) * 12, 5, (), HINTS), left=(ADDRESS,) * 3)


def drawn(look: Look, width: int, height: int) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(picture(ADDRESS, look, width, height))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_picture_of_watch_fits_the_terminal(width: int) -> None:
    shown = drawn(LOOK, width, 24)
    assert max(map(len, shown)) <= min(width, 80)
    assert len(shown) <= 24
    text = "\n".join(shown)
    assert "1,200" in text
    assert all(words in text for words in WAITS.values())
    assert text.count("123,456 2,345,678") == 8
    assert "and 4 more" in text


@pytest.mark.parametrize("width", [60, 80])
def test_hints_about_stuck_tasks_are_visible_on_a_small_terminal(width: int) -> None:
    shown = drawn(STANDS, width, 23)
    assert max(map(len, shown)) <= width
    assert len(shown) <= 23
    text = "\n".join(shown)
    assert "NOTHING MOVES" in text
    assert all(f"Hint {number}" in text for number in range(3))
    tasks = text.count("my_long_module_name.py:123 in a_function calls")
    assert tasks >= 1
    assert f"and {17 - tasks} more" in text


def test_watch_takes_a_last_look_even_if_each_look_is_costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would miss what happens in the last pause, which is long after a costly look."""
    busy = replace(LOOK, seen={**SEEN, "seconds": 60 * SHARE})  # then it would wait for a minute
    watch, shown = ClusterWatch(DirectCalls(ADDRESS)), list[float]()
    monkeypatch.setattr(watch, "look", lambda: busy)
    began = time.monotonic()
    watch.follow(0.5, lambda _: shown.append(time.monotonic() - began))
    assert len(shown) == 2
    assert 0.5 <= shown[1] < 60
