from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scalescope.model.standstill import NO_THREAD, StandingTasks, Standstill

ASKS = StandingTasks("fib", 4, True, "mine.py:7 in fib", "result (client.py)", "Client", "", 4)
STARVED = StandingTasks("fib", 2, False, "", "", "", NO_THREAD, 2)
AWAY = StandingTasks("load", 1, False, "", "", "", "no worker may run it", 0)
STOPPED = Standstill(52.3, 4, 4, 6, 2, 0, (STARVED, ASKS), ("Look there.",))


@pytest.mark.parametrize(
    "stopped",
    [
        pytest.param(replace(STOPPED, left=0, ready=0), id="nothing is left"),
        pytest.param(replace(STOPPED, still_s=None), id="none has begun"),
        pytest.param(replace(STOPPED, still_s=0.25), id="moved just now"),
        pytest.param(replace(STOPPED, still_s=6.0, ready=0, groups=(ASKS,), enough_s=5.0), id="still for so long"),
        pytest.param(replace(STOPPED, computing=1), id="a worker computes"),
        pytest.param(STOPPED, id="some wait for a thread"),
        pytest.param(replace(STOPPED, ready=0, groups=(AWAY, replace(ASKS, tasks=1, holds=False))), id="no worker may"),
        pytest.param(replace(STOPPED, ready=0, groups=()), id="unfinished"),
    ],
)
def test_a_standstill_is_described_in_one_sentence(stopped: Standstill, golden: Any) -> None:
    golden(stopped.sentence(), stopped.sentence(" of simulated time"))
    assert Standstill.from_mapping(stopped.to_mapping()) == stopped
