"""Points that `refine` adds to a sweep: with a fake driver whose trials take 1 s, and with a real driver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.requests import asked

from scalescope.analysis.knee import of_sweep
from scalescope.cli import main as cli
from scalescope.errors import ExitStatus
from scalescope.model.trial import Trial
from scalescope.run.drivers import Drivers
from scalescope.run.progress import Progress
from scalescope.run.sweep import abort, analyse, begin
from scalescope.run.trials import run_trials
from scalescope.store.schema import RunState
from scalescope.store.store import Store, SweepRun
from scalescope_flows import scale_sweep
from scalescope_flows.runner import listening

SWEEP: dict[str, Any] = {"workload": "futures-map", "axes": {"workers": [1, 20, 60]}, "params": {"items": 4}}
ADDED = [4, 9]
"""Workers: the middles, by ratio, of the widest gaps, until there are as many counts as a knee needs."""


def carry_out(address: str, *, refine: int, **given: Any) -> tuple[list[Trial], SweepRun]:
    """Returns the trials that ran now, and the whole run."""
    request = asked({**SWEEP, **given}, store=address, refine=refine)
    finished: list[Trial] = []
    with request.open_store() as store:
        run, waiting = begin(request, store)
        try:
            run_trials(
                Drivers(request, run.id, store),
                waiting,
                finished=finished.append,
                more=lambda: request.grown(store, run.id),
            )
        except BaseException as error:
            abort(store, run.id, error)
            raise
        analyse(store, run.id)
        return finished, store.run(run.id)


def workers(trials: list[Trial]) -> list[int]:
    return [trial.point.workers for trial in trials]


# ------------------------------------------------------------------ what is fine


@pytest.mark.parametrize("refine", [0, 1])
def test_refine_adds_at_most_the_given_number_of_points(fake: Any, address: str, refine: int) -> None:
    finished, run = carry_out(address, refine=refine)
    assert len(finished) == run.planned == 3 + refine


def test_refine_adds_points_until_the_knee_is_known(fake: Any, address: str) -> None:
    finished, run = carry_out(address, refine=9)
    assert sorted(workers(finished[3:])) == ADDED
    assert (run.planned, len(run.trials), run.state) == (5, 5, RunState.COMPLETE)
    assert {trial.point.items for trial in run.trials} == {4}
    assert len(fake.started) == 1  # all on one cluster
    assert [planned.index for planned in fake.begun] == [0, 1, 2, 3, 4]
    [knee] = of_sweep(run.sweep, run.trials)
    assert knee.refine == ()


def test_added_points_have_repeats_and_warmups_too(fake: Any, address: str) -> None:
    finished, run = carry_out(address, refine=9, repeats=2, warmups=1)
    assert run.planned == len(run.trials) == 15
    assert sorted(workers(finished[9:])) == sorted(ADDED * 3)
    assert sum(trial.warmup for trial in finished[9:]) == 2
    assert [trial.warmup for trial in finished[9:11]] == [True, True]


def test_added_points_keep_the_items_per_worker_of_the_sweep(fake: Any, address: str) -> None:
    axes = {"workers": [1, 20, 60], "items_per_worker": [2]}
    finished, _ = carry_out(address, refine=9, axes=axes, params={})
    assert {trial.point.items for trial in finished[3:]} == {2 * n for n in ADDED}


# ------------------------------------------------------------------ what breaks


@pytest.mark.parametrize("moment", [1, *(pytest.param(each, marks=pytest.mark.thorough) for each in (3, 4, 7)), 9])
def test_an_interrupted_run_adds_the_same_points_when_it_is_resumed(
    fake: Any, address: str, tmp_path: Path, moment: int
) -> None:
    fake.script = {moment: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        carry_out(address, refine=9, repeats=2)
    with Store.open(address) as store:
        before = store.run("latest")
    finished, run = carry_out(address, refine=9, repeats=2)
    assert run.id == before.id
    assert run.planned == len(run.trials) == 10
    assert not {trial.key for trial in finished} & {trial.key for trial in before.trials}
    _, whole = carry_out(str(tmp_path / "other.db"), refine=9, repeats=2)
    assert [trial.key for trial in run.trials] == [trial.key for trial in whole.trials]


def test_a_run_ends_although_all_trials_of_its_added_points_are_invalid(fake: Any, address: str) -> None:
    fake.script = dict.fromkeys(range(3, 50), "invalid")
    finished, run = carry_out(address, refine=4)
    assert sorted(workers(finished[3:])) == ADDED
    assert (run.planned, run.state) == (5, RunState.COMPLETE)


# ------------------------------------------------------------------ as a flow, and on the command line


@pytest.mark.usefixtures("prefect_server")
def test_the_sweep_flow_resumes_and_refines(fake: Any, address: str) -> None:
    heard: list[Progress] = []
    fake.script = {4: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        scale_sweep(**SWEEP, store=address, refine=9)
    with listening(heard.append):
        result = scale_sweep(**SWEEP, store=address, refine=9)
    assert (result.valid, result.resumed) == (5, 4)
    assert [(progress.done, progress.total) for progress in heard if progress.trial] == [(5, 5)]


@pytest.mark.usefixtures("prefect_server")
def test_the_sweep_command_refines_and_shows_the_knee(
    fake: Any, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["sweep", "-w", "futures-map", "-a", "workers=1,20,60", "-p", "items=4", "--refine", "9"]
    cli.run([*arguments, "--store", address, "--json"])
    output = capsys.readouterr()
    shown = json.loads(output.out)
    assert (shown["planned"], shown["finished"]) == (5, 5)
    assert shown["knees"][0]["line"].startswith("Throughput does not grow from 1 worker on")
    assert "5/5" in output.err
    assert cli.run([*arguments[:-1], "-1", "--store", address]) == ExitStatus.USAGE


# ------------------------------------------------------------------ on a simulated cluster


def test_refine_finds_a_knee_between_two_points(address: str) -> None:
    finished, run = carry_out(address, refine=8, axes={"workers": [5, 20, 60]}, params={"items": 30, "seconds": 1.0})
    assert 3 < len(finished) <= 3 + 8
    [knee] = of_sweep(run.sweep, run.trials)
    assert (knee.k, knee.capped) == (30, True)
    assert knee.line == (
        "Capped at 30 workers: the widest stage has 30 tasks, 30 ran at once on 60 workers, and 30 were idle."
    )
