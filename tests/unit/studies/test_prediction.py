"""Predictions from runs on simulated clusters, whose larger sizes can be measured as well."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from scalescope.analysis.cost import Prices
from scalescope.analysis.fitted_costs import Fetched, ResultLinks
from scalescope.errors import InvalidField
from scalescope.model.cluster import cluster_spec
from scalescope.model.finding import Finding, Severity
from scalescope.model.metrics import PrefixWork
from scalescope.model.recorded_graph import RecordedGraph, RecordedTask, Submission
from scalescope.model.study import Study
from scalescope.model.sweep import Sweep
from scalescope.model.trial import Trial, TrialState
from scalescope.run.progress import Progress
from scalescope.run.runner import Runner
from scalescope.run.sweep import run_sweep
from scalescope.store.store import Store
from scalescope.studies import STUDIES
from scalescope.studies.prediction import judge, plan
from scalescope.studies.prediction.data_growth import DataGrowth
from scalescope.studies.prediction.judge import NOISE, PredictedSize, Prediction, _Ratio, _ratio
from scalescope.studies.prediction.measured import MeasuredSizes, work_of
from scalescope.studies.prediction.not_simulated import ACTORS, NEW, WAITING
from scalescope.studies.prediction.parameters import PredictionParameters
from scalescope.studies.report import export
from scalescope.studies.report.html import render_study
from scalescope.studies.running import run_study

SWEEP: dict[str, Any] = {"workload": "futures-map", "params": {"items": 64, "seconds": 1}, "repeats": 1}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('prediction') / 'runs.db'}"


def seconds(found: Prediction) -> dict[int, float]:
    return {size.workers: size.predicted_s for size in found.sizes}


def test_a_run_predicts_the_makespan_at_sizes_that_were_not_run(store: str) -> None:
    measured = run_sweep({**SWEEP, "axes": {"workers": [2, 4]}, "store": store})
    done = run_study("prediction", {"run": measured.run_id, "workers": "16,64", "store": store})
    found = Prediction.from_mapping(done.result)
    assert seconds(found)[16] == pytest.approx(4.0, rel=0.05)
    assert seconds(found)[64] == pytest.approx(1.0, rel=0.2)
    assert found.trust is not None
    assert abs(found.trust.error) < 0.03
    assert all(size.low_s <= size.predicted_s <= size.high_s for size in found.sizes)
    assert not done.alarm
    assert {size.workers for size in found.sizes if size.measured_s is not None} == {2, 4}
    assert "16 workers" in done.line
    assert "64" in export.to_markdown(done.study, done.runs)
    assert "At other sizes" in render_study(done.study, done.runs)
    assert "<td>64</td>" in done._repr_html_()
    assert list(done.to_dataframe()["workers"]) == [2, 4, 16, 64]


@pytest.mark.thorough
def test_a_prediction_can_measure_its_workload_first(store: str) -> None:
    given = {**SWEEP, "cluster": "simulated", "axes": {"workers": [1, 2]}, "workers": "8", "store": store}
    done = run_study("prediction", given)
    assert seconds(Prediction.from_mapping(done.result))[8] == pytest.approx(8.0, rel=0.05)
    assert [run.sweep.workload for run in done.runs] == ["futures-map", "replay", "replay"]


@pytest.mark.thorough
def test_a_graph_that_grows_with_the_workers_is_built_again_for_each_size(store: str) -> None:
    sweep = {**SWEEP, "params": {"seconds": 1}, "axes": {"workers": [2, 4], "items_per_worker": [3]}, "store": store}
    done = run_study("prediction", {"run": run_sweep(sweep).run_id, "workers": "32", "store": store})
    found = Prediction.from_mapping(done.result)
    assert done.runs[0].sweep.workload == "futures-map"
    assert seconds(found)[32] == pytest.approx(3.0, rel=0.1)
    assert found.trust is not None
    assert abs(found.trust.error) < 0.1


@pytest.fixture(scope="module")
def ratio(trial: Callable[..., Trial]) -> Callable[[dict[int, list[float]]], _Ratio]:
    """The ratio for trials that took these times as long as simulated, by workers."""

    def found(longer: dict[int, list[float]]) -> _Ratio:
        run: Any = None
        sizes = {n: tuple(trial(n, 20, n, stretch=each) for each in times) for n, times in longer.items()}
        measured = MeasuredSizes(run, sizes)
        simulated = {n: [trial(n, 20, n)] for n in sizes}
        return _ratio(measured, simulated, None, judge._noise(measured, simulated))

    return found


@hypothesis.given(st.floats(0.5, 2.0))
def test_if_simulations_are_wrong_by_the_same_ratio_at_all_sizes_it_is_the_correction_factor(
    ratio: Callable[..., _Ratio], longer: float
) -> None:
    found = ratio({1: [longer], 2: [longer], 4: [longer]})
    assert found.factor == pytest.approx(longer)
    assert found.error_at(16) > found.error_at(4) > 0


def test_with_one_measured_size_the_correction_factor_is_its_ratio(ratio: Callable[..., _Ratio]) -> None:
    assert ratio({4: [1.2]}).factor == pytest.approx(1.2)


@pytest.mark.parametrize(("repeats", "least", "most"), [((1.2, 1.2), 1.19, 1.21), ((0.9, 1.5), 1.01, 1.1)])
def test_a_size_measured_with_noise_has_less_weight_in_the_correction_factor(
    ratio: Callable[..., _Ratio], repeats: tuple[float, float], least: float, most: float
) -> None:
    assert least < ratio({1: [1.0, 1.0], 2: [1.0, 1.0], 4: list(repeats)}).factor < most


def test_a_prediction_names_a_doubt_if_a_size_needs_more_memory_than_there_is() -> None:
    sizes = tuple(PredictedSize(workers, 1.0, 0.9, 1.1, 0.5, held_bytes=8e9 / workers) for workers in (1, 8))
    assert len(Prediction(sizes, (1, 8), 1.0, room_bytes=2e9).doubts) == 1
    assert not Prediction(sizes, (8,), 1.0, room_bytes=2e9).doubts
    assert not Prediction(sizes, (1, 8), 1.0).doubts
    assert Prediction(sizes, (1, 8), 1.0, not_simulated={"of it is lost": 0.5}).doubts == ("50 % of it is lost",)


def test_of_the_recorded_client_waits_a_replayed_graph_keeps_only_that_before_its_first_tasks() -> None:
    sent = (Submission(), Submission(-1, 0.1, 0.2), Submission(0, 0.1, 0.2))
    graph = RecordedGraph(("inc",), tuple(RecordedTask(0, 1.0, submission=i) for i in range(3)), sent)
    client = {"time": [8.0], "seconds": [1.5], "waits": [1.0]}
    attempts: Any = SimpleNamespace(begin=-2.0, epoch=10.0)
    assert plan.prepared(graph, {"client": client}, attempts).submissions == (
        Submission(-1, 0.5, 1.5),
        Submission(-1, 0.1),
        Submission(0, 0.1),
    )


def test_the_wait_before_the_first_tasks_is_extrapolated_to_more_workers() -> None:
    graph = RecordedGraph(("inc",), (RecordedTask(0, 1.0),), (Submission(0, 0.1, 3.0),))
    waited = plan.waiting_longer(graph, {1: 1.0, 2: 2.0, 4: 3.0}, 8).submissions[0]
    assert (waited.pause_s, waited.waited_s) == (0.1, pytest.approx(4.0))
    assert plan.waiting_longer(graph, {1: 0.0, 2: 0.1}, 8) == graph


def test_packing_is_taken_from_the_recorded_durations(trial: Callable[..., Trial]) -> None:
    run: Any = None
    metrics = trial(2, 20, 2).metrics
    assert metrics is not None
    metrics = replace(metrics, work_by_prefix={"load": PrefixWork(4, 8.0, 2.0), "sum": PrefixWork(1, 1.0, 1.0)})
    measured = MeasuredSizes(run, {n: (replace(trial(n, 20, n), metrics=metrics),) for n in (2, 4)})
    less = measured.without({2: {}, 4: {"load": 2.0}})
    assert less.mean_durations == {"load": 1.5, "sum": 1.0}
    assert work_of(less.typical[0])["load"].work_s == 8.0


CHUNKS = """
import time

def run(client, chunks=4):
    client.gather(client.map(part, [8 / chunks] * chunks, pure=False))

def part(seconds):
    time.sleep(seconds)
"""


@pytest.mark.thorough
def test_with_more_chunks_the_measured_work_is_predicted_to_be_divided_among_more_tasks(
    store: str, tmp_path: Path
) -> None:
    (tmp_path / "chunks.py").write_text(CHUNKS)
    measured = run_sweep(
        {"workload": f"{tmp_path}/chunks.py:run", "axes": {"workers": [2]}, "repeats": 1, "store": store}
    )
    asked = {"run": measured.run_id, "workers": "8", "store": store}
    same, smaller = (
        Prediction.from_mapping(run_study("prediction", {**asked, **given}).result)
        for given in ({}, {"params": {"chunks": 16}})
    )
    assert seconds(same)[8] == pytest.approx(2.0, rel=0.1)
    assert seconds(smaller)[8] == pytest.approx(1.0, rel=0.1)


MORE = """
import time

def run(client, rows=4):
    parts = client.map(part, range(rows), pure=False)
    client.submit(whole, parts, rows, pure=False).result()

def part(i):
    time.sleep(0.2)

def whole(parts, rows):
    time.sleep(0.001 * rows**2)

def other(client, rows=4):
    client.gather(client.map(part if rows < 9 else new, range(rows), pure=False))

def new(i):
    pass
"""


@pytest.fixture(scope="module")
def more_data(store: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run with 10 and 20 rows."""
    place = tmp_path_factory.mktemp("more") / "more.py"
    place.write_text(MORE)
    axes = {"workers": [2, 4], "rows": [10, 20]}
    return str(run_sweep({"workload": f"{place}:run", "axes": axes, "repeats": 1, "store": store}).run_id)


@pytest.mark.parametrize("rows", ["4x", pytest.param(80, marks=pytest.mark.thorough)])
def test_the_time_for_more_data_is_extrapolated_from_two_measured_sizes_of_the_data(
    more_data: str, store: str, rows: object
) -> None:
    asked = {"run": more_data, "workers": "8", "params": {"rows": rows}, "store": store}
    found = Prediction.from_mapping(run_study("prediction", asked).result)
    assert seconds(found)[8] == pytest.approx(80 * 0.2 / 8 + 6.4, rel=0.1)
    assert found.settings == {"rows": 80}
    assert found.fitted_at == {"rows": "10 and 20"}
    assert not found.assumed


def test_growth_of_tiny_work_is_taken_as_noise_and_steep_growth_is_limited() -> None:
    def work(**seconds: float) -> dict[str, Any]:
        return {name: SimpleNamespace(tasks=10, work_s=each) for name, each in seconds.items()}

    growth = DataGrowth(
        "rows", 20, 80, {"much": {10: 1.0, 20: 2.0}, "few": {10: 1e-4, 20: 1e-2}, "steep": {10: 0.1, 20: 9.0}}
    )
    base: Any
    base, counted = (
        SimpleNamespace(metrics=SimpleNamespace(work_by_prefix=each))
        for each in (work(much=2.0, few=0.01, steep=9.0), work(much=0.0, few=0.0, steep=0.0))
    )
    found = growth.durations(base, counted)
    assert found == pytest.approx({"much": 0.8, "few": 0.001, "steep": 0.9 * 64})


def test_the_interval_is_wider_for_more_data() -> None:
    assert _Ratio(1.0, 0.02, 0.02, 0.02, data_doublings=2.0).error_at(2) > _Ratio(1.0, 0.02, 0.02, 0.02).error_at(2)


@pytest.mark.parametrize("params", [{"row": "4x"}, {"rows": "4x", "cost": "2x"}, {"rows": "many"}, {"rows": "0x"}])
def test_more_data_is_refused_for_an_unknown_parameter_two_parameters_or_an_invalid_factor(
    more_data: str, store: str, params: dict[str, Any]
) -> None:
    with pytest.raises(InvalidField):
        run_study("prediction", {"run": more_data, "workers": "8", "params": params, "store": store})


def test_tasks_that_were_never_measured_make_the_prediction_of_more_data_an_alarm(store: str, tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text(MORE)
    sweep = {"workload": f"{tmp_path}/more.py:other", "axes": {"workers": [2]}, "repeats": 1, "store": store}
    asked = {"run": run_sweep(sweep).run_id, "workers": "4", "params": {"rows": "4x"}, "store": store}
    done = run_study("prediction", asked)
    found = Prediction.from_mapping(done.result)
    assert found.not_simulated == {NEW: 1.0}
    assert len(found.assumed) == 1
    assert done.alarm


DIVIDED = """
import time

def run(client, whole, each):
    pieces = 3 * len(client.nthreads())
    client.gather(client.map(part, [whole / pieces + each] * pieces, pure=False))

def part(seconds):
    time.sleep(seconds)
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("whole", "each", "at_16"),
    [
        pytest.param(24, 0, 1.5, marks=pytest.mark.thorough),
        pytest.param(0, 2, 6.0, marks=pytest.mark.thorough),
        (24, 1, 4.5),
    ],
)
def test_tasks_that_grow_with_the_workers_divide_or_repeat_their_work_as_measured(
    whole: float, each: float, at_16: float, store: str, tmp_path: Path
) -> None:
    (tmp_path / "divided.py").write_text(DIVIDED)
    sweep = {"workload": f"{tmp_path}/divided.py:run", "params": {"whole": whole, "each": each}, "repeats": 1}
    measured = run_sweep({**sweep, "axes": {"workers": [1, 2, 4]}, "store": store})
    found = run_study("prediction", {"run": measured.run_id, "workers": "16", "store": store})
    assert seconds(Prediction.from_mapping(found.result))[16] == pytest.approx(at_16, rel=0.05)


MOVING = """
import time

def run(client):
    parts = client.map(part, range(8), pure=False)
    client.gather([client.submit(both, parts[i], parts[i - 1], pure=False) for i in range(8)])

def part(i):
    time.sleep(0.2)
    return bytes(20_000_000)

def both(a, b):
    return len(a) + len(b)
"""


@pytest.mark.thorough
def test_a_prediction_for_a_faster_network_has_shorter_transfers(store: str, tmp_path: Path) -> None:
    (tmp_path / "moving.py").write_text(MOVING)
    sweep = {"workload": f"{tmp_path}/moving.py:run", "axes": {"workers": [4]}, "repeats": 1, "store": store}
    run = run_sweep({**sweep, "cluster": {"kind": "simulated", "bandwidth": "1Gbit"}}).run_id
    same, faster = (
        Prediction.from_mapping(run_study("prediction", {"run": run, "workers": "4", "store": store, **given}).result)
        for given in ({}, {"bandwidth": "100Gbit"})
    )
    assert seconds(same)[4] == pytest.approx(same.sizes[0].measured_s, rel=0.05)
    assert same.sizes[0].limit == "transfer-bound"
    assert same.sizes[0].remedied_s < 0.9 * seconds(same)[4]
    assert seconds(faster)[4] < 0.8 * seconds(same)[4]
    assert faster.sizes[0].measured_s is None


HELD = """
import time

def run(client):
    model = client.scatter(bytes(12_000_000), hash=False)
    client.gather(client.map(scored, range(64), model=model, pure=False))

def scored(i, model):
    time.sleep(0.15)
"""


def test_data_held_by_one_worker_is_predicted_to_be_limited_by_the_link_of_that_worker(
    store: str, tmp_path: Path
) -> None:
    (tmp_path / "held.py").write_text(HELD)
    cluster = {"kind": "simulated", "task_cost": "none", "bandwidth": "200Mbit"}
    sweep = {"workload": f"{tmp_path}/held.py:run", "cluster": cluster, "axes": {"workers": [2, 4, 16]}, "repeats": 1}
    run = run_sweep({**sweep, "store": store}).run_id
    done = run_study("prediction", {"run": run, "using": "2,4", "workers": "16", "store": store})
    size = Prediction.from_mapping(done.result).sizes[-1]
    assert size.predicted_s == pytest.approx(size.measured_s, rel=0.25)
    assert size.limit == "transfer-bound"


NESTED = """
import time
from distributed import worker_client

def run(client):
    client.gather(client.map(whole, range(8), pure=False))

def whole(i):
    time.sleep(0.2)
    with worker_client() as inner:
        parts = inner.map(part, range(6), pure=False)
        inner.submit(sum, parts, pure=False).result()
    time.sleep(0.3)

def part(i):
    time.sleep(0.5)
    return i
"""


@pytest.mark.thorough
def test_tasks_that_submit_tasks_are_predicted(store: str, tmp_path: Path) -> None:
    (tmp_path / "nested.py").write_text(NESTED)
    cluster = {"kind": "simulated", "task_cost": "none"}  # CPU time of a busy host would decide who steals
    sweep = {"workload": f"{tmp_path}/nested.py:run", "cluster": cluster, "repeats": 1, "store": store}
    small, large = (run_sweep({**sweep, "axes": {"workers": workers}}) for workers in ([1, 2], [8]))
    found = run_study("prediction", {"run": small.run_id, "workers": "8", "store": store})
    prediction = Prediction.from_mapping(found.result)
    assert prediction.doubts == ()
    with Store.open(store) as opened:
        (trial,) = opened.run(large.run_id).trials
    assert seconds(prediction)[8] == pytest.approx(trial.metrics.elapsed_s, rel=0.1)


def test_a_prediction_shares_cores_with_a_task_that_seceded(store: str, tmp_path: Path) -> None:
    tasks = RecordedTask(0, 1.0), RecordedTask(1, 0.0, submission=1)
    inner = RecordedGraph(("part", "end"), tasks, (Submission(), Submission(pause_s=1.0)), shares_cores=True)
    graph = RecordedGraph(("whole",), (RecordedTask(0, 0.0, sends=inner, secedes=True),), shares_cores=True)
    (tmp_path / "graph.json").write_text(graph.to_json())
    sweep = {**SWEEP, "workload": "replay", "params": {"graph": str(tmp_path / "graph.json")}, "cluster": "simulated"}
    measured = run_sweep({**sweep, "axes": {"workers": [1]}, "store": store})
    found = Prediction.from_mapping(
        run_study("prediction", {"run": measured.run_id, "workers": 2, "store": store}).result
    )
    assert found.sizes[0].measured_s == pytest.approx(2.0, rel=0.1)
    assert seconds(found)[2] == pytest.approx(1.0, rel=0.1)


ALSO = """
import time
from distributed import Lock

class Counter:
    def add(self):
        time.sleep(0.2)

def actors(client):
    counter = client.submit(Counter, actor=True, pure=False).result()
    client.gather(client.map(time.sleep, [0.1] * 4, pure=False))
    for _ in range(5):
        counter.add().result()

def locks(client):
    client.gather(client.map(guarded, range(6), pure=False))

def guarded(i):
    with Lock("one"):
        time.sleep(0.2)
"""


@pytest.mark.parametrize(("name", "text", "waits"), [("actors", ACTORS, False), ("locks", WAITING, True)])
def test_parts_of_a_workload_that_a_prediction_cannot_simulate_are_named(
    name: str, text: str, waits: bool, store: str, tmp_path: Path
) -> None:
    (tmp_path / "also.py").write_text(ALSO)
    sweep = {"workload": f"{tmp_path}/also.py:{name}", "cluster": {"kind": "simulated"}, "repeats": 1, "store": store}
    run = run_sweep({**sweep, "axes": {"workers": [2]}})
    found = Prediction.from_mapping(run_study("prediction", {"run": run.run_id, "workers": "4", "store": store}).result)
    assert list(found.not_simulated) == [text]
    assert found.doubts[-1].endswith(text)
    limits = {size.workers: {size.limit, *size.also} for size in found.sizes}
    assert ("waiting-tasks" in limits[4]) is waits


def test_of_several_simulated_draws_of_a_size_the_median_trial_is_used() -> None:
    trials = [
        SimpleNamespace(
            counts=True, point=SimpleNamespace(workers=workers), metrics=SimpleNamespace(elapsed_s=elapsed_s)
        )
        for workers, elapsed_s in ((8, 3.0), (8, 1.0), (8, 2.0), (4, 5.0))
    ]
    run: Any = SimpleNamespace(trials=trials)
    assert {workers: trial.metrics.elapsed_s for workers, trial in judge.typical(run).items()} == {4: 5.0, 8: 2.0}


def test_the_interval_of_a_prediction_is_wider_if_draws_differ() -> None:
    def size(*elapsed_s: float) -> PredictedSize:
        point = SimpleNamespace(workers=8, threads=8)
        draws: Any = [
            SimpleNamespace(point=point, metrics=SimpleNamespace(elapsed_s=each, ideal_s=1.0, work_s=8.0))
            for each in elapsed_s
        ]
        sweep = SimpleNamespace(cluster_of=lambda _: SimpleNamespace(here=True))
        base = SimpleNamespace(point=point, virtual=False)
        measured: Any = SimpleNamespace(largest=4, all_seconds={}, base=base, run=SimpleNamespace(sweep=sweep))
        return judge._size(measured, draws, _Ratio(1.0, 0.02, 0.02, 0.02), Prices())

    alike, different = size(5.4, 5.4, 5.4), size(5.4, 4.8, 6.075)
    assert alike.predicted_s == pytest.approx(different.predicted_s)  # the geometric mean
    assert alike.predicted_s == pytest.approx(size(5.4).predicted_s)
    assert different.low_s < alike.low_s
    assert different.high_s > alike.high_s
    assert alike.high_s == pytest.approx(size(5.4).high_s)


@pytest.mark.parametrize(
    ("virtual", "spread", "noise"), [(False, None, NOISE), (False, 0.1, 0.1), (True, None, 0.0), (True, 0.1, 0.1)]
)
def test_on_a_virtual_clock_the_noise_of_a_measurement_is_only_the_spread_of_its_simulations(
    virtual: bool, spread: float | None, noise: float
) -> None:
    alike: Any = [SimpleNamespace(metrics=SimpleNamespace(elapsed_s=5.0))] * 3
    measured: Any = SimpleNamespace(spread=spread, base=SimpleNamespace(virtual=virtual))
    assert judge._noise(measured, {8: alike}) == noise


@pytest.mark.parametrize(
    ("most", "draws"), [(plan.TOO_MANY_TASKS, {0, 1, 2}), pytest.param(1, {0}, marks=pytest.mark.thorough)]
)
def test_small_graphs_are_simulated_with_several_draws(
    most: int, draws: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "TOO_MANY_TASKS", most)
    own = f"sqlite:///{tmp_path / 'runs.db'}"
    measured = run_sweep({**SWEEP, "axes": {"workers": [2]}, "store": own})
    run_study("prediction", {"run": measured.run_id, "workers": "4", "store": own})
    with Store.open(own) as opened:
        trials = [trial for run in opened.runs() if run.sweep.workload == plan.REPLAY for trial in run.trials]
    assert {trial.point.values.get("draw", 0) for trial in trials} == draws


@pytest.mark.thorough
@pytest.mark.parametrize(("most", "told"), [pytest.param(plan.TOO_MANY_TASKS, 0, marks=pytest.mark.thorough), (1, 1)])
def test_the_prediction_for_a_large_graph_is_shown_before_its_error_is_measured(
    most: int, told: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "TOO_MANY_TASKS", most)
    own = f"sqlite:///{tmp_path / 'runs.db'}"
    heard: list[Progress] = []
    asked = {
        "run": run_sweep({**SWEEP, "axes": {"workers": [1, 2]}, "store": own}).run_id,
        "workers": "8",
        "store": own,
    }
    found = Prediction.from_mapping(run_study("prediction", asked, Runner(heard.append)).result)
    assert found.trust is not None
    kept = [number for number, news in enumerate(heard) if news.kept]
    assert len(kept) == told
    for number in kept:
        assert "8 workers" in heard[number].text
        assert any(news.trial for news in heard[number:])


@pytest.mark.parametrize(
    ("costs", "named"),
    [
        ([("transfer-bound", 10.0), ("skewed-tasks", 8.0), ("tiny-tasks", 7.0)], ["transfer-bound", "skewed-tasks"]),
        ([("transfer-bound", 10.0), ("idle-workers-cause-unknown", 50.0)], ["transfer-bound"]),
        ([("idle-workers-cause-unknown", 50.0)], ["idle-workers-cause-unknown"]),
        ([("healthy", 0.0)], []),
        ([("transfer-bound", 3.0), ("uneven-waves", 9.0)], ["uneven-waves"]),
    ],
)
def test_limits_that_cost_nearly_as_much_as_the_costliest_are_named_too(
    monkeypatch: pytest.MonkeyPatch, costs: list[tuple[str, float]], named: list[str]
) -> None:
    findings = [
        SimpleNamespace(
            code=code,
            lost_s=lost_s,
            limits_trust=False,
            severity=Severity.HIGH if lost_s and code != "uneven-waves" else Severity.INFO,
        )
        for code, lost_s in costs
    ]
    monkeypatch.setattr(judge, "diagnose", lambda *_: SimpleNamespace(findings=findings))
    run: Any = SimpleNamespace(sweep=None)
    assert [each.code for each in judge._costliest(judge.holding_back(run, None))] == named


def test_predicted_limits_are_corrected_by_how_simulated_limits_differ_from_measured_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = {
        "measured": {"waiting-tasks": 3.0, "transfer-bound": 2.0},
        "the same simulated": {"transfer-bound": 1.0, "tiny-tasks": 4.0},
        "predicted": {"transfer-bound": 2.5, "tiny-tasks": 4.5},
    }

    def shares(name: str, factor: float = 1.0) -> list[Finding]:
        metrics = SimpleNamespace(worker_time_s={"busy": 6.0, "transfer": 4.0})
        run: Any = SimpleNamespace()
        trial: Any = SimpleNamespace(name=name, metrics=metrics)
        return judge._shares(run, [trial], factor)

    def holding_back(_: Any, trial: Any) -> list[Finding]:
        return [Finding(code, Severity.HIGH, "", "", lost_s=lost_s) for code, lost_s in costs[trial.name].items()]

    monkeypatch.setattr(judge, "holding_back", holding_back)
    size, ratio = PredictedSize(16, 1.0, 1.0, 1.0, 1.0), _Ratio(1.0, 0.0, 0.0, 0.0)
    besides = [*shares("measured"), *shares("the same simulated", -1.0)]
    found = judge._with_limits(size, [*shares("predicted"), *besides], ratio)
    assert (found.limit, found.also) == ("transfer-bound", ("waiting-tasks",))


def run_of(*trials: Trial, **sweep: Any) -> Any:
    return SimpleNamespace(
        id="r1", sweep=Sweep("futures-map", **sweep), trials=[replace(t, records=True) for t in trials]
    )


@pytest.mark.parametrize(
    ("axes", "given", "expected", "others"),
    [
        ({"workers": (2, 4), "items": (10, 100)}, {}, {"items": 10}, ({"items": 100},)),
        ({"workers": (2, 4), "items": (100, 10)}, {}, {"items": 100}, ({"items": 10},)),
        ({"workers": (2, 4), "items": (10, 100)}, {"items": (100,)}, {"items": 100}, ({"items": 10},)),
        ({"workers": (2, 4), "items_per_worker": (5, 50)}, {}, {"items_per_worker": 5}, ({"items_per_worker": 50},)),
        ({"workers": (2, 4), "items_per_worker": (5,)}, {}, {}, ()),
        (
            {"workers": (2, 4), "environment": ("b = x==1", "present")},
            {},
            {"environment": "b"},
            ({"environment": "present"},),
        ),
    ],
)
def test_a_prediction_uses_one_of_several_settings_and_names_the_others(
    trial: Callable[..., Trial],
    axes: dict[str, Any],
    given: dict[str, Any],
    expected: dict[str, Any],
    others: tuple[dict[str, Any], ...],
) -> None:
    trials = []
    for workers, setting in itertools.product(*axes.values()):
        [name] = axes.keys() - {"workers"}
        items = {"items": setting, "items_per_worker": workers * setting if name == "items_per_worker" else 0}.get(
            name, 8
        )
        one = trial(workers, items, 8)
        trials.append(replace(one, point=replace(one.point, environment=setting if name == "environment" else "")))
    found = MeasuredSizes.of(run_of(*reversed(trials), axes=axes), axes=given)
    assert (found.settings, found.other_settings) == (expected, others)
    assert {workers: len(same) for workers, same in found.by_workers.items()} == {2: 1, 4: 1}
    assert found.grows is (name == "items_per_worker")


@pytest.mark.parametrize(
    ("few", "many", "by_workers"),
    [
        ({"load": 64, "reduce": 4}, {"load": 64, "reduce": 8}, True),
        ({"load": 100}, {"load": 50}, True),
        ({"load": 64}, {"load": 64, "combine": 8}, True),
        ({"load": 100}, {"load": 101}, False),
        ({"branch": 103}, {"branch": 110}, False),  # The order in which tasks end decides which follow.
        ({"branch": 103, "polish": 2}, {"branch": 110, "polish": 3}, False),
    ],
)
def test_task_counts_that_differ_only_by_the_order_of_task_ends_count_as_one_graph(
    trial: Callable[..., Trial], few: dict[str, int], many: dict[str, int], by_workers: bool
) -> None:
    trials = []
    for workers, counts in ((4, few), (8, many)):
        one = trial(workers, 64, 8)
        assert one.metrics is not None
        work = {name: PrefixWork(tasks, float(tasks), 1.0) for name, tasks in counts.items()}
        metrics = replace(one.metrics, tasks=sum(counts.values()), work_by_prefix=work)
        trials.append(replace(one, metrics=metrics))
    assert MeasuredSizes.of(run_of(*trials)).builds_by_workers is by_workers


def test_a_setting_that_was_not_measured_cannot_be_chosen(trial: Callable[..., Trial]) -> None:
    run = run_of(trial(2, 10, 8), trial(2, 100, 8), axes={"workers": (2,), "items": (10, 100)})
    with pytest.raises(InvalidField) as error:
        MeasuredSizes.of(run, axes={"items": (20,)})
    assert error.value.field == "axes"
    assert "items=10; items=100" in error.value.allowed


@pytest.mark.parametrize(("kind", "cores", "beyond"), [("local", 4, [16]), ("local", 16, []), ("simulated", 4, [])])
def test_a_prediction_marks_sizes_beyond_the_cores_of_a_local_host(
    trial: Callable[..., Trial], kind: str, cores: int, beyond: list[int]
) -> None:
    on = [replace(trial(workers, 64, 64), facts={"host": {"usable_cpus": cores}}) for workers in (2, 4)]
    run = run_of(*on, axes={"workers": (2, 4)})
    run.sweep = replace(run.sweep, cluster=cluster_spec({"kind": kind}))
    measured = MeasuredSizes.of(run)
    again = run_of(*(trial(workers, 64, 64) for workers in (2, 4, 16)))
    answer = judge.judge(measured, judge.SimulatedSizes({}, again), (4, 16), Prices(), {}, 0.0)
    found = Prediction.from_mapping(answer.result)
    assert [size.workers for size in found.sizes if found.beyond_cores(size)] == beyond
    assert (f"has {cores}" in answer.line) is bool(beyond)


def test_a_size_that_could_not_be_simulated_is_an_alarm_with_its_reason(trial: Callable[..., Trial]) -> None:
    measured = MeasuredSizes.of(run_of(trial(2, 64, 64), trial(4, 64, 64), axes={"workers": (2, 4)}))
    failed = trial(64, 64, 64, state=TrialState.INVALID, reason="took longer than 60 s")
    again = run_of(trial(2, 64, 64), trial(4, 64, 64), trial(16, 64, 64), failed)
    answer = judge.judge(measured, judge.SimulatedSizes({}, again), (16, 64), Prices(), {}, 0.0)
    found = Prediction.from_mapping(answer.result)
    assert [size.workers for size in found.sizes if size.workers in found.asked] == [16]
    assert "60 s" in found.missing["64"]
    assert "64 workers" in answer.line
    assert answer.alarm
    study = Study("p-1", "prediction", result=answer.result, question={"workload": "futures-map"})
    assert [row["workers"] for row in export.to_rows(study, ())] == ["2", "4", "16", "64"]


@pytest.mark.parametrize("severity", [Severity.MEDIUM, Severity.INFO])
def test_a_measurement_on_a_busy_host_makes_its_prediction_an_alarm(
    trial: Callable[..., Trial], severity: Severity
) -> None:
    busy = replace(trial(2, 64, 64), findings=(Finding("host-overloaded", severity, "", ""),))
    measured = MeasuredSizes.of(run_of(busy, axes={"workers": (2,)}))
    again = run_of(trial(2, 64, 64), trial(8, 64, 64))
    answer = judge.judge(measured, judge.SimulatedSizes({}, again), (8,), Prices(), {}, 0.0)
    assert answer.alarm is (severity is Severity.MEDIUM)
    assert Prediction.from_mapping(answer.result).busy_host is answer.alarm


def test_with_one_measured_size_the_links_that_limit_fetching_results_are_an_assumption(
    trial: Callable[..., Trial],
) -> None:
    measured = MeasuredSizes.of(run_of(trial(2, 64, 64), axes={"workers": (2,)}))
    again = run_of(trial(2, 64, 64), trial(8, 64, 64))
    elapsed_s = again.trials[-1].metrics.elapsed_s or again.trials[-1].metrics.makespan_s

    def answer(*fetched: Fetched) -> Prediction:
        found = judge.SimulatedSizes({}, again, results=ResultLinks.of_sizes(fetched, None))
        return Prediction.from_mapping(judge.judge(measured, found, (8,), Prices(), {}, 0.0).result)

    one, two = Fetched(1e8, elapsed_s / 2, 2), Fetched(1e8, elapsed_s / 2, 4)
    assert len(answer(one).assumed) == 1
    assert answer(one, two).assumed == ()


def test_if_a_measured_size_cannot_be_simulated_the_prediction_is_marked_as_unchecked(
    trial: Callable[..., Trial],
) -> None:
    measured = MeasuredSizes.of(run_of(trial(2, 64, 64), trial(4, 64, 64), axes={"workers": (2, 4)}))
    again, known = run_of(trial(4, 64, 64)), run_of(trial(4, 64, 64, state=TrialState.FAILED, reason="MemoryError"))
    answer = judge.judge(measured, judge.SimulatedSizes({}, again, known=known), (4,), Prices(), {}, 0.0)
    assert "MemoryError" in Prediction.from_mapping(answer.result).unchecked


def test_a_prediction_fails_if_the_tasks_of_other_parameters_cannot_be_counted(trial: Callable[..., Trial]) -> None:
    measured = MeasuredSizes.of(run_of(trial(2, 64, 64), axes={"workers": (2,)}))
    prediction = plan.PredictionSteps(PredictionParameters(params={"items": 8}), ("", ""), measured)
    counted = run_of(trial(2, 8, 8, state=TrialState.FAILED, reason="ValueError: 8"))
    runs: Any = [run_of(trial(2, 64, 64)), counted]
    store: Any = None
    assert prediction.changed(runs, store, "") is None
    assert prediction.known(runs, store, "") is None
    assert prediction.answer(runs).alarm
    assert "ValueError: 8" in prediction.answer(runs).line


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"run": "latest", "axes": {"workers": [1]}}, "axes.workers"),
        ({"workload": "futures-map"}, "axes"),
        ({"workload": "futures-map", "run": "latest", "axes": {"workers": [1]}}, "run"),
        ({"run": "latest", "workers": "4,none"}, "workers"),
        ({"run": "latest", "bandwidth": "quick"}, "bandwidth"),
    ],
)
def test_an_invalid_prediction_question_is_refused(given: dict[str, Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidField) as error:
        STUDIES["prediction"].check(given, f"sqlite:///{tmp_path / 'none.db'}")
    assert field in error.value.field
