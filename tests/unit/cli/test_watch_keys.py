"""What keys change of the picture of `scalescope watch`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live

from scalescope.capture.live.remote_calls import DirectCalls
from scalescope.cli.watch_keys import KeyedDisplay
from scalescope.own_code.cluster_watch import WAITS, ClusterWatch, Group, Look

SEEN: dict[str, Any] = {
    **{"workers": ["tcp://a", "tcp://b"], "threads": 4, "working": 4, "idle": dict.fromkeys(WAITS, 0)},
    **{"memory": 1_000, "limit": 2_000, "fullest": ("tcp://a", 0.5)},
}
LOOK = Look(1.7e9, SEEN, (Group("load", 50, 100, 99.0), Group("clean", 1, 100, 9.0)), 1.0, (), 0, 0, None)
WORKERS = [
    {"name": name, "address": f"tcp://{name}", "threads": 2, "tasks": tasks, "memory": memory, "status": "running"}
    for name, tasks, memory in (("a", 9, 1), ("b", 1, 9))
]


class MadeUp(ClusterWatch):
    def workers(self) -> list[dict[str, Any]]:
        return WORKERS

    def inside(self, kind: str, name: str) -> list[tuple[str, int]]:
        return [(f"{kind} {name}", 123)]


@pytest.fixture
def keys() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for each in ends:
        os.close(each)


@pytest.fixture
def display(keys: tuple[int, int]) -> KeyedDisplay:
    live = Live(console=Console(file=StringIO(), width=80, height=24), auto_refresh=False)
    found = KeyedDisplay(MadeUp(DirectCalls("tcp://127.0.0.1:1")), live, keys[0])
    found.show(LOOK)
    return found


def text(display: KeyedDisplay, height: int = 24) -> str:
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(display.picture(80, height))
    shown = captured.get()
    assert len(shown.splitlines()) <= height
    assert max(map(len, shown.splitlines())) <= 80
    return shown


def typed(display: KeyedDisplay, keys: tuple[int, int], text: str) -> None:
    os.write(keys[1], text.encode())
    display.wait(0.05)


def test_the_key_s_sorts_groups_and_workers_by_the_next_column(display: KeyedDisplay, keys: tuple[int, int]) -> None:
    orders = []
    for _ in range(3):
        shown = text(display)
        orders.append(shown.index("load") < shown.index("clean"))
        typed(display, keys, "s")
    assert orders == [False, False, True]  # by what is left, by name, by the end
    typed(display, keys, "wss")
    assert text(display).index("\na ") < text(display).index("\nb ")


@pytest.mark.parametrize(
    ("keys_typed", "found"),
    [
        ("\n", "group clean"),
        ("j\r", "group load"),
        ("\x1b[B\x1b[C", "group load"),
        ("w\n", "worker tcp://a"),
        ("wsj\n", "worker tcp://a"),
    ],
)
def test_enter_shows_the_details_of_the_selected_row_until_b_is_typed(
    display: KeyedDisplay, keys: tuple[int, int], keys_typed: str, found: str
) -> None:
    typed(display, keys, keys_typed)
    assert found in text(display)
    typed(display, keys, "b")
    assert found not in text(display)


def test_the_key_f_freezes_the_picture_until_it_is_pressed_again(display: KeyedDisplay, keys: tuple[int, int]) -> None:
    typed(display, keys, "f")
    before = text(display)
    display.show(Look(1.7e9, SEEN, (), 1.0, (), 0, 0, None))
    assert text(display) == before
    typed(display, keys, "f")
    display.show(Look(1.7e9, SEEN, (), 1.0, (), 0, 0, None))
    assert "clean" not in text(display)


def test_the_key_r_ends_the_watch_with_a_report_only_if_it_records(
    display: KeyedDisplay, keys: tuple[int, int]
) -> None:
    typed(display, keys, "r")
    assert not display.wants_report
    display.records = True
    with pytest.raises(KeyboardInterrupt):
        typed(display, keys, "r")
    assert display.wants_report


def test_q_ends_the_watch_and_other_keys_do_nothing(display: KeyedDisplay, keys: tuple[int, int]) -> None:
    before = text(display)
    typed(display, keys, "xyz\x1b[A")
    assert text(display) == before
    with pytest.raises(KeyboardInterrupt):
        typed(display, keys, "q")
    assert not display.wants_report


def test_the_selected_row_stays_visible_on_a_small_terminal(display: KeyedDisplay, keys: tuple[int, int]) -> None:
    groups = tuple(Group(f"group-{number}", 0, 100 - number, None) for number in range(20))
    display.show(Look(1.7e9, SEEN, groups, 1.0, (), 0, 0, None))
    typed(display, keys, "j" * 15)
    assert "group-15 " in text(display, height=12)
