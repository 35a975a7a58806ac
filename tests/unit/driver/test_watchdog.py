from __future__ import annotations

import queue
import threading

import pytest

from scalescope.driver.watchdog import Watchdog, where

Expiries = queue.Queue[tuple[str, float]]


@pytest.fixture
def expiries() -> Expiries:
    return queue.Queue()


@pytest.fixture
def watchdog(expiries: Expiries) -> Watchdog:
    dog = Watchdog(lambda phase, limit: expiries.put((phase, limit)))
    dog.start()
    return dog


def test_a_phase_that_ends_in_time_does_not_expire(watchdog: Watchdog, expiries: Expiries) -> None:
    watchdog.enter("running", 0.2)
    watchdog.leave()
    with pytest.raises(queue.Empty):
        expiries.get(timeout=0.5)


def test_a_new_phase_replaces_the_limit_of_the_last(watchdog: Watchdog, expiries: Expiries) -> None:
    watchdog.enter("running", 0.2)
    watchdog.enter("recording", 60)
    with pytest.raises(queue.Empty):
        expiries.get(timeout=0.5)


def test_a_phase_that_outlasts_its_limit_expires_once(watchdog: Watchdog, expiries: Expiries) -> None:
    watchdog.enter("running", 0.05)
    assert expiries.get(timeout=10) == ("running", 0.05)
    with pytest.raises(queue.Empty):
        expiries.get(timeout=0.2)


def test_it_watches_again_after_an_expiry(watchdog: Watchdog, expiries: Expiries) -> None:
    for phase in ("running", "closing"):
        watchdog.enter(phase, 0.05)
        assert expiries.get(timeout=10) == (phase, 0.05)


def waits_for(event: threading.Event) -> None:
    event.wait(30)


def test_where_names_the_function_asked_for_and_what_it_waits_in() -> None:
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
