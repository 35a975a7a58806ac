"""How a runner carries out steps: one by one or in parallel, with retries, and how they are stopped."""

from __future__ import annotations

import logging
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from scalescope.errors import ClusterError, InfrastructureError, StoreError
from scalescope.run import runner as module
from scalescope.run.progress import Progress
from scalescope.run.runner import BACKOFF_S, JITTER, RETRIES, Runner, RunStep

TOGETHER_S = 20.0
"""For another thread to come as far; never waited for where all is well."""


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Requested pauses; none is waited for."""
    asked: list[float] = []
    monkeypatch.setattr(module.time, "sleep", asked.append)
    return asked


def raising(*errors: BaseException | None) -> tuple[RunStep[str], list[Any]]:
    """A step that raises these errors one after the other, and the list of arguments of its calls."""
    called: list[Any] = []

    def call(*arguments: Any) -> str:
        error = errors[len(called)] if len(called) < len(errors) else None
        called.append(arguments)
        if error is not None:
            raise error
        return "done"

    return RunStep("provision", call, retried=(InfrastructureError,)), called


def test_a_step_with_a_retryable_error_is_tried_again(pauses: list[float], caplog: pytest.LogCaptureFixture) -> None:
    told: list[Progress] = []
    step, called = raising(ClusterError("no node is free", next_step="wait"))
    with caplog.at_level(logging.WARNING):
        assert Runner(told.append).do(step, "same") == "done"
    assert called == [("same",)] * 2
    [progress] = told
    assert progress.notable
    assert progress.text.startswith("provision: no node is free;")
    assert "no node is free" in caplog.text


def test_pauses_between_retries_grow_and_have_jitter(pauses: list[float]) -> None:
    for _ in range(20):
        step, _ = raising(ClusterError("one"), ClusterError("two"))
        Runner().do(step)
    for attempt in range(RETRIES):
        found, least = pauses[attempt::RETRIES], BACKOFF_S * 2**attempt
        assert all(least <= pause <= least * (1 + JITTER) for pause in found)
        assert len(set(found)) > 1


def test_the_last_error_is_raised_after_all_retries(pauses: list[float]) -> None:
    step, called = raising(*(ClusterError(f"attempt {number}") for number in range(RETRIES + 5)))
    with pytest.raises(ClusterError, match=f"attempt {RETRIES}"):
        Runner().do(step)
    assert len(called) == RETRIES + 1
    assert len(pauses) == RETRIES


@pytest.mark.parametrize("error", [StoreError("full"), ZeroDivisionError(), KeyboardInterrupt(), SystemExit()])
def test_errors_that_are_not_retryable_are_raised_at_once(pauses: list[float], error: BaseException) -> None:
    step, called = raising(error)
    with pytest.raises(type(error)) as raised:
        Runner().do(step)
    assert raised.value is error
    assert len(called) == 1
    assert pauses == []


def test_a_step_without_retryable_errors_is_not_retried(pauses: list[float]) -> None:
    def fail() -> None:
        raise ClusterError("gone")

    with pytest.raises(ClusterError, match="gone"):
        Runner().do(RunStep("analyse", fail))
    assert pauses == []


@pytest.mark.parametrize("order", [(True, False), (False, True)], ids=["first", "last"])
@pytest.mark.parametrize("error", [StoreError("full"), KeyboardInterrupt()])
def test_an_error_in_one_step_stops_the_others_before_it_is_raised(
    error: BaseException, order: tuple[bool, bool]
) -> None:
    """The other step ends only by `stop`: if that were called later, the test would wait for ever."""
    stopped, ended, running = threading.Event(), threading.Event(), threading.Event()

    def call(fails: bool) -> None:
        if fails:
            assert running.wait(TOGETHER_S)
            raise error
        running.set()
        assert stopped.wait(TOGETHER_S)
        ended.set()

    with pytest.raises(type(error)) as raised:
        Runner().together(RunStep("cluster", call), [(fails,) for fails in order], stop=stopped.set)
    assert raised.value is error
    assert ended.is_set()


def test_parallel_steps_run_at_the_same_time_and_results_keep_their_order() -> None:
    barrier = threading.Barrier(3, timeout=TOGETHER_S)

    def call(number: int) -> int:
        barrier.wait()
        return number * number

    step = RunStep("cluster", call)
    assert Runner().together(step, [(1,), (2,), (3,)], stop=unexpected) == [1, 4, 9]


def test_parallel_steps_have_the_context_of_the_caller() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="none")
    variable.set("mine")
    step = RunStep("cluster", lambda number: (number, variable.get()))
    assert Runner().together(step, [(1,), (2,)], stop=unexpected) == [(1, "mine"), (2, "mine")]


def test_an_interrupt_while_waiting_stops_parallel_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()

    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "as_completed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Runner().together(RunStep("cluster", lambda _: stopped.wait(TOGETHER_S)), [(1,), (2,)], stop=stopped.set)
    assert stopped.is_set()


def unexpected() -> None:
    raise AssertionError("nothing was to be stopped")
