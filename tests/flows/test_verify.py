"""Remedies that a run with `verify` or `explain` tries by itself, mostly on the simulated cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.requests import asked

from scalescope.diagnosis.causes.no_known_cause import UNKNOWN
from scalescope.model.finding import Finding, Gain, Severity, Verdict
from scalescope.run import growth, request
from scalescope.run.sweep import run_sweep
from scalescope.store.store import Store, SweepRun

FEW = """
import time
import dask.bag

def nap(number):
    time.sleep(1)
    return number

def run(client):
    return dask.bag.from_sequence(range(40), npartitions=2).map(nap).sum().compute()
"""


SLOW_CLIENT = """
import time

def nap(number):
    time.sleep(0.2)
    return number

def run(client):
    futures = []
    for number in range(40):
        time.sleep(0.5)
        futures.append(client.submit(nap, number))
    return sum(client.gather(futures))
"""


def swept(address: str, **given: Any) -> SweepRun:
    result = run_sweep({"store": address, **given})
    with Store.open(address) as store:
        return store.run(result.run_id)


def few(point: str, change: dict[str, Any]) -> Verdict:
    gain = Gain(2.0, 1.0, change)
    return Verdict.of([Finding("too-few-partitions", Severity.HIGH, "Slow.", "Do better", points=(point,), gain=gain)])


def gain_of(run: SweepRun, code: str) -> Gain:
    assert run.verdict is not None
    [finding] = [each for each in run.verdict.findings if each.code == code]
    assert finding.gain is not None
    return finding.gain


def test_verify_measures_the_predicted_gain_of_more_partitions(address: str, tmp_path: Path) -> None:
    job = tmp_path / "few.py"
    job.write_text(FEW)
    given = {"workload": f"{job}:run", "axes": {"workers": [2, 8]}}
    gain = gain_of(swept(address, **given), "too-few-partitions")
    assert gain.measured_s is None
    assert gain.now_s == pytest.approx(20, rel=0.05)
    assert gain.predicted_s == pytest.approx(5, rel=0.05)
    run = swept(address, **given, verify=True)
    gain = gain_of(run, "too-few-partitions")
    assert gain.change == {"scalescope.npartitions": 8}
    assert gain.measured_s == pytest.approx(gain.predicted_s, rel=0.1)
    assert run.verdict is not None
    assert run.verdict.line.endswith(f"({gain}).")
    assert str(gain).startswith("predicted 5")
    assert "; measured 5." in str(gain)
    assert run.planned == len(run.trials) == 3


def test_an_interrupted_run_verifies_the_same_remedy_when_it_is_resumed(
    fake: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "diagnose", lambda sweep, trials: few(trials[0].point.id, {"npartitions": 300}))
    given = {"workload": "bag-map", "axes": {"workers": [300]}, "repeats": 2, "verify": True}
    fake.script = {3: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        swept(address, **given)
    run = swept(address, **given)
    assert [trial.point.params["npartitions"] for trial in run.trials] == [None, None, 300, 300]
    assert len(fake.begun) == 5  # only the interrupted trial runs again


@pytest.mark.thorough
def test_a_remedy_that_a_point_of_the_sweep_measured_is_not_run_again(address: str) -> None:
    given = {"workload": "bag-map", "params": {"items": 300, "seconds": 1}}
    run = swept(address, **given, axes={"workers": [300], "npartitions": [None, 300]}, verify=True)
    assert run.planned == 2
    gain = gain_of(run, "too-few-partitions")
    assert gain.measured_s == pytest.approx(gain.predicted_s, rel=0.4)  # assigning 300 tasks takes time too


def test_a_remedy_that_cannot_be_run_here_is_logged(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = swept(address, workload="futures-map", axes={"workers": [2]}, params={"items": 2})
    trial = run.trials[0]
    monkeypatch.setattr(growth, "diagnose", lambda sweep, trials: few(trial.point.id, {"workers": 10**9}))
    asked_for = asked({"workload": "futures-map", "axes": {"workers": [2]}}, store=address, verify=True)
    assert asked_for.grow is not None
    assert asked_for.grow([trial]) == []
    assert "point.workers" in caplog.text


# ------------------------------------------------------------------ experiments


@pytest.mark.parametrize(
    ("code", "real_s", "added"), [("too-few-partitions", 0.1, 0), (UNKNOWN.code, 60.0, 0), (UNKNOWN.code, 0.1, 3)]
)
def test_experiments_are_added_unasked_only_if_they_are_short_and_no_cause_explains_idle_workers(
    address: str, monkeypatch: pytest.MonkeyPatch, code: str, real_s: float, added: int
) -> None:
    given = {"workload": "futures-map", "axes": {"workers": [4]}, "params": {"items": 2}}
    trial = replace(swept(address, **given).trials[0], real_s=real_s)
    told = few(trial.point.id, {}).findings[0]
    monkeypatch.setattr(growth, "diagnose", lambda sweep, trials: Verdict.of([replace(told, code=code, gain=None)]))
    grow = request.resolve({**given, "store": address}).grow
    assert grow is not None
    assert asked(given, store=address).grow is None  # of a study, or of a night
    extra = grow([trial])
    assert len(extra) == added  # half the workers, one worker, tasks of zero length
    assert all(each.point.cluster in ("", "simulated") for each in extra)


@pytest.mark.thorough
def test_explain_runs_experiments_and_shows_which_part_explains_the_time(address: str, tmp_path: Path) -> None:
    job = tmp_path / "few.py"
    job.write_text(FEW.replace("sleep(1)", "sleep(0.1)"))
    given = {"workload": f"{job}:run", "cluster": "local", "axes": {"workers": [4]}, "explain": True}
    run = swept(address, **given)
    assert sorted((each.point.cluster, each.point.workers) for each in run.trials) == [
        ("", 1),
        ("", 2),
        ("", 4),
        ("", 4),
        ("simulated", 4),
        ("simulated", 4),
    ]
    [empty] = [each for each in run.trials if each.point.has_zero_length_tasks]
    assert empty.metrics is not None
    assert empty.metrics.elapsed_s < 0.5  # without zero-length tasks, each of two tasks sleeps 2 s
    assert run.verdict is not None
    [said] = [finding.summary for finding in run.verdict.findings if finding.code == "experiments"]
    machine = re.search(r"explain the time, and the machine does not|so ([0-9]+)\s% goes to the machine", said)
    assert machine is not None, said
    assert int(machine[1] or 0) < 50  # percent; a busy host adds some
    assert "2 workers took" in said
    assert "1 worker took" in said
    assert "4 partitions instead of 2" in said
    assert "tasks of zero length" in said
    assert "the rest" in said
    assert run.verdict.findings[0].code == "too-few-partitions"


@pytest.mark.thorough
def test_explain_blames_the_client_if_zero_length_tasks_take_as_long(address: str, tmp_path: Path) -> None:
    job = tmp_path / "slow_client.py"
    job.write_text(SLOW_CLIENT)
    run = swept(address, workload=f"{job}:run", axes={"workers": [4]}, explain=True)
    assert run.verdict is not None
    [said] = [finding.summary for finding in run.verdict.findings if finding.code == "experiments"]
    assert "shorter tasks change nothing" in said
    assert run.verdict.findings[0].code in ("slow-submission", "client-waits")
