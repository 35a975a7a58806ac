from __future__ import annotations

import os
import queue
import signal
from collections.abc import Iterator

import pytest

from scalescope.driver import lifeline
from scalescope.driver.lifeline import Lifeline

Said = queue.Queue[tuple[str, object]]


@pytest.fixture
def said() -> Said:
    return queue.Queue()


@pytest.fixture
def parent(said: Said) -> Iterator[int]:
    """The parent's end of the pipe of requests; signal handling is as before afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    ours, theirs = os.pipe()
    Lifeline(
        lambda line: said.put(("line", line)),
        lambda reason: said.put(("gone", reason)),
        lambda number: said.put(("signal", number)),
        requests=ours,
    ).start()
    yield theirs
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)
    try:
        os.close(theirs)
    except OSError:
        return  # the test has closed it
    said.get(timeout=10)


def test_lines_arrive_whole_however_they_are_cut(parent: int, said: Said) -> None:
    for piece in (b"on", b"e\ntwo\nth", b"ree\n"):
        os.write(parent, piece)
    assert [said.get(timeout=10) for _ in range(3)] == [("line", b"one"), ("line", b"two"), ("line", b"three")]


def test_the_end_of_the_pipe_means_that_the_parent_is_gone(parent: int, said: Said) -> None:
    os.write(parent, b"last\n")
    os.close(parent)
    assert said.get(timeout=10) == ("line", b"last")
    assert said.get(timeout=10) == ("gone", "the parent closed its end of standard input")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_reported_and_interrupt_nothing(number: signal.Signals, parent: int, said: Said) -> None:
    os.kill(os.getpid(), number)
    assert said.get(timeout=10) == ("signal", number)


def test_another_parent_means_that_the_parent_is_gone(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifeline, "PARENT_CHECK_S", 0.01)
    ours, theirs = os.pipe()
    watcher = Lifeline(lambda line: None, lambda reason: said.put(("gone", reason)), lambda number: None, requests=ours)
    watcher._parent = -1
    watcher._watch()
    assert said.get(timeout=10) == ("gone", "the parent process is gone")
    os.close(ours)
    os.close(theirs)
