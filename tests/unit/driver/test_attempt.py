from __future__ import annotations

import json
import time
from types import SimpleNamespace

import distributed
import numpy as np
import pytest
from distributed.client import FutureCancelledError
from hypothesis import given, settings
from hypothesis import strategies as st

from scalescope.driver.attempt import (
    LEFT_OUT,
    LOST_CONNECTION,
    MESSAGE_LIMIT,
    RESULT_LIMIT,
    TRACEBACK_LIMIT,
    Attempt,
    changes,
    describe,
    is_lost_connection,
    judge,
    kept_result,
    plain,
)
from scalescope.driver.protocol import RunTrial
from scalescope.driver.trial_run import TrialRunner, _result
from scalescope.errors import ClusterError, WorkersMissing
from scalescope.model.sweep import Point
from scalescope.model.trial import TrialState

CANCELLED = {"type": "FutureCancelledError"}  # what a workload sees of the loss of its worker
BEFORE = {"tcp://a": ("0", 1, "running"), "tcp://b": ("1", 1, "running")}


@pytest.mark.parametrize(
    ("attempt", "state", "reason"),
    [
        (Attempt(), TrialState.VALID, ""),
        (Attempt(raised="it raised"), TrialState.FAILED, "it raised"),
        (Attempt(missing="3 tasks"), TrialState.INVALID, "the capture is incomplete: 3 tasks"),
        (Attempt(raised="it raised", missing="3 tasks"), TrialState.FAILED, "it raised"),
        (Attempt(changes="lost 1", raised="it raised"), TrialState.INVALID, "lost 1\nthen it raised"),
        (Attempt(changes="lost 1", raised="cancelled", error=CANCELLED), TrialState.INVALID, "lost 1"),
        (Attempt(raised="it raised", cut_off="away"), TrialState.INVALID, "away\nthen it raised"),
        (Attempt(raised="cancelled", error=CANCELLED), TrialState.FAILED, "cancelled"),
        (Attempt(changes="lost 1"), TrialState.INVALID, "lost 1"),
        (Attempt(problem="no workers", raised="it raised"), TrialState.INVALID, "no workers"),
    ],
)
def test_a_fault_of_the_cluster_makes_a_trial_invalid_even_if_the_workload_raised_too(
    attempt: Attempt, state: TrialState, reason: str
) -> None:
    assert judge(attempt) == (state, reason)


def test_a_lost_connection_is_recognised_from_the_exception() -> None:
    cut_off = describe(FutureCancelledError("x", reason="scheduler-connection-lost"))
    assert is_lost_connection(cut_off)
    assert not is_lost_connection(describe(FutureCancelledError("x", reason="unknown")))
    assert not is_lost_connection({**cut_off, "type": "KeyError"})


@pytest.mark.parametrize("error", [OSError("timed out"), ClusterError("the scheduler does not answer")])
@pytest.mark.parametrize("outage", ["", "it did not answer for 60 s"])
def test_an_outage_that_the_cluster_reports_is_the_reason_of_the_trial(error: Exception, outage: str) -> None:
    def enter(phase: str, limit_s: float, text: str) -> None:
        if phase == "loading":
            raise error

    known = {"outage": outage, "is_whole": True, "facts": {"kind": "light"}, "records": {}}
    cluster = SimpleNamespace(**{name: lambda value=value: value for name, value in known.items()})
    runner = TrialRunner(SimpleNamespace(cluster=cluster, enter=enter, spoiled=False), "")  # type: ignore[arg-type]
    point = Point(workers=1, threads_per_worker=1, params={}, dask_config={}).to_mapping()
    attempt = runner.run(RunTrial("k", point, 0, False, "futures-map", 1.0, "/nowhere"))
    assert (attempt.problem == outage) == bool(outage)
    assert str(error) in (attempt.error or {})["message"]


@pytest.mark.parametrize("cut", [True, False])
def test_a_workload_that_lost_its_connection_is_invalid_and_one_that_raised_failed(cut: bool) -> None:
    def run(client: distributed.Client) -> None:
        held = client.submit(time.sleep, 60 if cut else 0)
        if cut:
            client.loop.add_callback(client.scheduler_comm.comm.abort)
            held.result(timeout=30)
        raise ValueError("its own")

    attempt = Attempt()
    workload = SimpleNamespace(name="w", run=run)
    options = {"n_workers": 1, "processes": False, "dashboard_address": None, "protocol": "tcp"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        point = Point(workers=1, threads_per_worker=1, params={}, dask_config={})
        _result(workload, client, point, attempt)  # type: ignore[arg-type]
    assert judge(attempt)[0] is (TrialState.INVALID if cut else TrialState.FAILED)
    assert attempt.cut_off == (LOST_CONNECTION if cut else "")


def test_workers_lost_or_joined_during_a_trial_are_counted_and_named() -> None:
    assert changes(BEFORE, dict(reversed(BEFORE.items()))) == ""
    after = {"tcp://a": BEFORE["tcp://a"], "tcp://c": ("1", 1, "running")}
    lost, joined = "lost 1 of 2 workers during the trial (1)", "1 worker joined during the trial (1)"
    assert changes(BEFORE, after) == f"{lost} and {joined}"
    assert changes(BEFORE, BEFORE, ["tcp://c"]) == joined.replace("(1)", "(tcp://c)")
    assert changes(BEFORE, BEFORE, ["tcp://a"]) == lost.replace("(1)", "(0)")


def test_only_ten_of_many_lost_workers_are_named() -> None:
    before = {f"tcp://{i}": (str(i), 1, "running") for i in range(300)}
    assert changes(before, {}).endswith("(0, 1, 2, 3, 4, 5, 6, 7, 8, 9 ...)")


@pytest.mark.parametrize("result", [None, {"n": [1, 2.5, None]}, "text", True])
def test_results_that_json_carries_are_kept(result: object) -> None:
    assert kept_result(result) == result


@pytest.mark.parametrize("result", [object(), float("nan"), b"", "x" * RESULT_LIMIT, [{1}]])
def test_results_that_json_cannot_carry_are_replaced_by_the_name_of_their_type(result: object) -> None:
    word = f"{LEFT_OUT}: {type(result).__name__}"
    assert kept_result(result) == word
    assert kept_result({"n": np.int64(3), 1: np.float32(0.5), "x": result}) == {"n": 3, "1": 0.5, "x": word}


def test_a_result_that_contains_itself_is_cut_off() -> None:
    around: dict[str, object] = {"n": 1}
    around["self"] = around
    assert kept_result(around) == {"n": 1, "self": f"{LEFT_OUT}: dict"}


def test_the_description_of_an_error_is_limited_in_length() -> None:
    def recurse(depth: int) -> None:
        if depth:
            recurse(depth - 1)
        raise ValueError("x" * 10 * MESSAGE_LIMIT)

    with pytest.raises(ValueError) as caught:
        recurse(200)
    described = describe(caught.value)
    assert described["type"] == "ValueError"
    assert len(described["message"]) < MESSAGE_LIMIT + 10
    assert len(described["traceback"]) < TRACEBACK_LIMIT + 10


def test_an_error_is_described_with_the_users_line_and_frames() -> None:
    def load() -> None:
        json.loads("no")

    with pytest.raises(ValueError, match="Expecting") as caught:
        load()
    described = describe(caught.value)
    assert described["where"].startswith("test_attempt.py:")
    assert described["where"].endswith(" in load")
    assert "raw_decode" in described["traceback"]  # what the user's line called
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.JSONDecoder().decode("no")
    assert described["repr"] == repr(caught.value)


def test_an_error_whose_text_raises_is_still_described() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert "Rude" in describe(Rude())["message"]
    Rude.__repr__ = Rude.__str__  # type: ignore[method-assign]
    assert describe(Rude())["repr"] == ""


def test_an_error_of_scalescope_keeps_its_cause_and_next_step() -> None:
    message = describe(WorkersMissing("1 of 2", cause="it died", next_step="look"))["message"]
    assert message.split() == ["1", "of", "2", "cause:", "it", "died", "next:", "look"]


@settings(max_examples=30)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_values_that_json_carries_are_kept_unchanged(value: object) -> None:
    assert plain(value) == value


def test_values_that_json_cannot_carry_are_replaced() -> None:
    facts = plain({"nan": float("nan"), "path": pytest, 3: (1, {2})})
    assert json.loads(json.dumps(facts, allow_nan=False))["nan"] is None
    assert facts["3"] == [1, [2]]
