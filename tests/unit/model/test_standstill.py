from __future__ import annotations

from dataclasses import replace

import pytest

from scalescope.model.standstill import NO_THREAD, StandingTasks, Standstill

ASKS = StandingTasks("fib", 4, True, "mine.py:7 in fib", "result (client.py)", "Client", "", 4)
STARVED = StandingTasks("fib", 2, False, "", "", "", NO_THREAD, 2)
AWAY = StandingTasks("load", 1, False, "", "", "", "no worker may run it", 0)
STOPPED = Standstill(52.3, 4, 4, 6, 2, 0, (STARVED, ASKS), ("Look there.",))


@pytest.mark.parametrize(
    ("stopped", "said"),
    [
        (replace(STOPPED, left=0, ready=0), "the scheduler has no task that has not ended"),
        (replace(STOPPED, still_s=None), "6 tasks have not ended, and none has begun"),
        (replace(STOPPED, still_s=0.25), "6 tasks have not ended; the last began or ended 0.25 s before"),
        (
            replace(STOPPED, still_s=6.0, ready=0, groups=(ASKS,), enough_s=5.0),
            "no task has begun or ended for 6 s: 4 tasks `fib` hold 4 of 4 threads at mine.py:7 in fib, in result "
            "(client.py)",
        ),
        (
            replace(STOPPED, computing=1),
            "6 tasks have not ended; the last began or ended 52.3 s before, and 1 worker computes",
        ),
        (
            STOPPED,
            "no task has begun or ended for 52.3 s: 4 tasks `fib` hold 4 of 4 threads at mine.py:7 in fib, in result "
            "(client.py); 2 tasks wait for a thread",
        ),
        (
            replace(STOPPED, ready=0, groups=(AWAY, replace(ASKS, tasks=1, holds=False))),
            "no task has begun or ended for 52.3 s: 1 task `load`: no worker may run it; 1 task `fib` stands without a "
            "thread at mine.py:7 in fib, in result (client.py)",
        ),
        (replace(STOPPED, ready=0, groups=()), "no task has begun or ended for 52.3 s: 6 tasks have not ended"),
    ],
)
def test_what_is_said(stopped: Standstill, said: str) -> None:
    assert stopped.sentence() == said
    assert Standstill.from_mapping(stopped.to_mapping()) == stopped


def test_seconds_of_a_simulation_are_said_to_be_such() -> None:
    assert "for 52.3 s of simulated time: " in STOPPED.sentence(" of simulated time")
