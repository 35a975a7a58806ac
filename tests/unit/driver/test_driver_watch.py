from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Iterator

import pytest

from scalescope.driver import driver_watch
from scalescope.driver.driver_watch import DriverWatch, where

Said = queue.Queue[tuple[object, ...]]


@pytest.fixture
def said() -> Said:
    return queue.Queue()


@pytest.fixture
def watch(said: Said) -> Iterator[tuple[DriverWatch, int]]:
    """A running watch and the parent's end of its pipe; signal handlers are restored afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    ours, theirs = os.pipe()
    watch = DriverWatch(
        ours,
        on_line=lambda line: said.put(("line", line)),
        on_gone=lambda reason: said.put(("gone", reason)),
        on_signal=lambda number: said.put(("signal", number)),
        on_expiry=lambda phase, limit: said.put(("expired", phase, limit)),
    )
    watch.start()
    yield watch, theirs
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)
    os.close(theirs)


def test_lines_arrive_whole_even_if_they_are_written_in_pieces(watch: tuple[DriverWatch, int], said: Said) -> None:
    for piece in (b"on", b"e\ntwo\nth", b"ree\n"):
        os.write(watch[1], piece)
    assert [said.get(timeout=10) for _ in range(3)] == [("line", b"one"), ("line", b"two"), ("line", b"three")]


def test_the_end_of_the_pipe_means_that_the_parent_is_gone(watch: tuple[DriverWatch, int], said: Said) -> None:
    watching, parent = watch
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.write(parent, b"last\n")
    os.dup2(nowhere, parent)
    os.close(nowhere)
    assert said.get(timeout=10) == ("line", b"last")
    assert said.get(timeout=10)[0] == "gone"
    watching.enter("closing", 0.05)  # phases are limited even without a parent
    assert said.get(timeout=10) == ("expired", "closing", 0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_reported_to_the_driver_and_interrupts_nothing(
    number: signal.Signals, watch: tuple[DriverWatch, int], said: Said
) -> None:
    os.kill(os.getpid(), number)
    assert said.get(timeout=10) == ("signal", number)


def test_a_changed_parent_process_means_that_the_parent_is_gone(
    watch: tuple[DriverWatch, int], said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_watch, "PARENT_CHECK_S", 0.01)
    watch[0]._parent = -1
    assert said.get(timeout=10)[0] == "gone"


def test_each_phase_that_outlasts_its_limit_expires_once(watch: tuple[DriverWatch, int], said: Said) -> None:
    for phase in ("running", "closing"):
        watch[0].enter(phase, 0.05)
        assert said.get(timeout=10) == ("expired", phase, 0.05)
    assert said.empty()


def test_a_phase_that_has_ended_does_not_expire(watch: tuple[DriverWatch, int], said: Said) -> None:
    watch[0].enter("left", 0.1)
    watch[0].leave()
    watch[0].enter("replaced", 0.1)
    watch[0].enter("outlasted", 0.2)
    assert said.get(timeout=10)[1] == "outlasted"
    assert said.empty()


def waits_for(event: threading.Event) -> None:
    event.wait(30)


def test_the_place_of_a_thread_is_described_by_the_function_asked_for_and_its_file() -> None:
    event = threading.Event()
    thread = threading.Thread(target=waits_for, args=(event,))
    thread.start()
    try:
        assert thread.ident is not None
        text = where(thread.ident, waits_for)
        while "waits_for" not in text:
            text = where(thread.ident, waits_for)
        assert __file__ in text
    finally:
        event.set()
        thread.join()
    assert where(thread.ident) == "the thread has ended"
