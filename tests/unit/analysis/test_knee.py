from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest

from scalescope.analysis.knee import SHARP, Knee, Scaling, further, of_sweep
from scalescope.model.metrics import Metrics
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial, TrialState

SWEEP = Sweep("mine.py:run")
WORKERS = [10, 50, 100, 150, 199, 200, 250, 300]


def trial(
    workers: int,
    items: int | None,
    makespan: float,
    *,
    work: float,
    widest: int,
    peak: int | None = None,
    threads: int = 1,
    repeat: int = 0,
    **params: object,
) -> Trial:
    point = Point(workers, threads, {**({} if items is None else {"items": items}), **params})  # type: ignore[arg-type]
    most = min(widest if peak is None else peak, workers * threads)
    ones = dict.fromkeys(("span_s", "ideal_s", "efficiency", "schedule_quality", "parallelism"), 1.0)
    counts = {"tasks": widest, "widest_stage": widest, "peak_runnable": widest}
    counts |= {"workers_used": most, "peak_parallelism": most}
    times = {"makespan_s": makespan, "elapsed_s": makespan, "work_s": work, "mean_parallelism": work / makespan}
    metrics = Metrics(**ones, **counts, **times)
    return Trial(f"{point.id}-r{repeat}", point, repeat, False, TrialState.VALID, metrics=metrics)


def tasks(workers: Iterable[int], count: int, **given: object) -> list[Trial]:
    """Strong scaling: `count` equal tasks of a second each."""
    return [
        trial(n, 1000, math.ceil(count / (n * int(given.get("threads", 1)))), work=count, widest=count, **given)  # type: ignore[arg-type]
        for n in workers
    ]


def capped(
    workers: Iterable[int], k: float, *, widest: int, spread: float = 0.0, repeats: int = 1, peak: int | None = None
) -> list[Trial]:
    """Strong scaling of divisible work that uses no more than `k` workers."""
    rng = np.random.default_rng(1)
    given = {"work": 3000, "widest": widest, "peak": peak}
    return [
        trial(n, 3000, 3000 / min(n, k) * math.exp(rng.normal(0, spread)), repeat=repeat, **given)
        for n in workers
        for repeat in range(repeats)
    ]


def weak(workers: Iterable[int], pieces: Callable[[int], int], *, per_worker: float = 1) -> list[Trial]:
    """Weak scaling: items of a second each in proportion to workers; `pieces` gives the number of tasks for them."""
    found = []
    for n in workers:
        items = round(per_worker * n)
        parts = pieces(items)
        makespan = math.ceil(items / parts) * math.ceil(parts / n)
        found.append(trial(n, items, makespan, work=items, widest=parts))
    return found


def only(trials: list[Trial], sweep: Sweep = SWEEP) -> Knee:
    [found] = of_sweep(sweep, trials)
    return found


# ------------------------------------------------------------------ what is fine


def test_there_is_no_knee_when_throughput_grows_in_proportion() -> None:
    found = only(capped(WORKERS, 1e9, widest=3000))
    assert found.fit is not None
    assert (found.fit.model.name, found.k, found.capped, found.refine) == ("linear", None, False, ())
    assert re.findall(r"\d+ .", found.line) == ["300 w", "100 %"]
    assert found.ideal() == ((10.0, 10.0), (300.0, 300.0))
    assert found.curve()[-1] == pytest.approx((300, 300))


def test_throughput_is_in_units_of_one_busy_thread() -> None:
    found = only(tasks([10, 20, 40, 60, 100], 200, threads=2))
    assert found.series.threads == (20, 40, 80, 120, 200)
    assert found.series.speedup == pytest.approx((20, 40, 200 / 3, 100, 200))
    assert found.series.unit == "thread"


def test_ideal_weak_scaling_is_reported_at_100_percent() -> None:
    found = only(weak(WORKERS, lambda items: items, per_worker=2))
    assert (found.series.scaling, found.series.items, found.series.items_per_worker) == (Scaling.WEAK, None, 2)
    assert found.title == "weak scaling, 2 items per worker"
    assert "at 100 %" in found.line


def test_a_knee_can_be_written_as_json() -> None:
    for found in of_sweep(SWEEP, [*capped(WORKERS, 100, widest=100), *weak([7, 9], lambda items: items)]):
        data = json.loads(json.dumps(found.to_mapping(), allow_nan=False))
        assert data["scaling"] == found.series.scaling
        assert len(data["measured"]) == len(found.series.threads)


# ------------------------------------------------------------------ capped, and by what


def test_a_knee_is_capped_when_the_task_count_and_the_curve_agree() -> None:
    found = only(capped(WORKERS, 100, widest=100))
    assert (found.k, found.low, found.high, found.capped) == (100, 100, 100, True)
    assert found.title == "strong scaling, 3,000 items"
    assert re.findall(r"\d+ \w+", found.line) == ["100 workers", "100 tasks", "100 ran", "300 workers", "200 were"]
    assert found.refine == ()


def test_five_worker_counts_measured_once_cannot_show_a_gradual_bend() -> None:
    workers = [10, 50, 90, 150, 300]
    once, twice = (only(capped(workers, 100, widest=3000, spread=0.02, repeats=repeats)) for repeats in (1, 2))
    assert once.line.startswith("Throughput saturates near ")
    assert once.line.endswith(SHARP)
    assert twice.line.startswith("Throughput saturates near ")
    assert SHARP not in twice.line


@pytest.mark.parametrize("seed_spread", [0.02, 0.03])
def test_a_capped_knee_is_found_despite_noise(seed_spread: float) -> None:
    workers = [10, 20, 40, 60, 80, 90, 110, 125, 150, 200]
    found = only(capped(workers, 100, widest=100, spread=seed_spread, repeats=3))
    assert found.capped
    assert found.k == 100
    assert found.low is not None
    assert found.high is not None
    assert 90 < found.low < 100 < found.high < 110


LOWER = {1: 8.05, 2: 8.05, 4: 8.06, 8: 8.11, 16: 8.10, 32: 8.18, 64: 8.10, 128: 8.56}  # measured on two cores
# fifty tasks, a few of which wait for each other
FIFTY = {5: 4.82, 8: 6.84, 12: 9.49, 20: 15.47, 40: 23.3, 60: 41.2, 80: 41.2}
UNKNOWN = "Throughput saturates near 100 workers, cause unknown"
FALLS = "Throughput falls beyond 199 workers: on 200 workers the widest stage has only 100 tasks."
BATCHES = "No knee up to 300 workers: every batch of 128 items runs on one worker"
STORIES: dict[str, tuple[list[Trial], float | None, bool, str]] = {
    **{
        f"{widest} tasks, {peak} at once": (capped(WORKERS, 100, widest=widest, peak=peak), 100, False, UNKNOWN)
        for widest, peak in [(3000, 100), (100, 300), (120, 100), (60, 60)]
    },
    "waves below the tasks": (tasks([10, 20, 30, 40, 60, 80], 100), None, False, "No knee up to 80 workers"),
    "threads": (tasks([5, 10, 20, 30, 40, 50, 60], 100, threads=4), 100, True, "Capped at 100 threads: "),
    "nothing grows": (capped(WORKERS, 5, widest=5), None, False, "Throughput does not grow from 10 workers on"),
    # dask before mid-2023: ceil(n / floor(n / 100)) partitions of n items
    "bag": (weak(WORKERS, lambda n: n if n < 100 else math.ceil(n / (n // 100))), 199, False, FALLS),
    "beam": ([trial(n, n, min(n, 128), work=n, widest=math.ceil(n / 128)) for n in WORKERS], None, False, BATCHES),
    "waves": (tasks(range(10, 201, 10), 100), 100, True, "Capped at 100 workers"),
    "no items": (
        [trial(n, None, 300 / min(n, 40), work=300, widest=40) for n in (10, 20, 30, 50, 60, 80)],
        40,
        True,
        "Capped",
    ),
    "a last point that lies a little lower": (
        [trial(n, 4 * n, took, work=8.0 * n, widest=4 * n) for n, took in LOWER.items()],
        None,
        False,
        "No knee is certain",
    ),
    "noise that 85 waves would fit a little better": (
        [trial(n, 800, 8 / value, work=8, widest=50) for n, value in FIFTY.items()],
        50,
        True,
        "Capped at 50 workers",
    ),
    "few counts": (capped([10, 100, 300], 100, widest=100), None, False, "Too few worker counts"),
    "neighbours": (capped([1, 2, 3], 2, widest=2), None, False, "Too few worker counts"),
}


@pytest.mark.parametrize(("trials", "k", "is_capped", "line"), STORIES.values(), ids=list(STORIES))
def test_each_typical_curve_gets_its_knee_and_its_sentence(
    trials: list[Trial], k: float | None, is_capped: bool, line: str
) -> None:
    found = only(trials)
    assert (found.k, found.capped) == (k, is_capped)
    assert found.line.startswith(line)


def test_further_worker_counts_are_proposed_when_there_are_too_few() -> None:
    found = only(STORIES["few counts"][0])
    assert (found.fit, found.fits, found.curve(), found.refine) == (None, (), (), (32, 18))
    assert only(STORIES["neighbours"][0]).refine == ()


def test_a_peak_of_throughput_is_called_a_peak() -> None:
    trials = [trial(n, 300, 300 * (1 + 0.001 * n + 1e-4 * n * n) / n, work=300, widest=300) for n in WORKERS]
    found = only(trials)
    assert found.k == pytest.approx(100, rel=0.02)
    assert found.line.startswith("Throughput peaks near 100")


def test_a_knee_whose_interval_leaves_the_sweep_is_called_uncertain() -> None:
    rng = np.random.default_rng(0)
    trials = [
        trial(n, 300, 300 * (1 + 0.002 * n + 1.2e-4 * n * n) / n * math.exp(rng.normal(0, 0.03)), work=300, widest=300)
        for n in (10, 20, 40, 60, 80, 100)
        for _ in range(3)
    ]
    found = only([replace(one, repeat=i) for i, one in enumerate(trials)])
    assert (found.k, found.capped) == (None, False)
    assert found.line.startswith("No knee is certain")
    assert re.findall(r"\d+ \w+", found.line)[0] == "100 workers"
    assert all(80 < n < 100 for n in found.refine)


# ------------------------------------------------------------------ which points belong together


def test_each_number_of_items_is_a_series_of_its_own() -> None:
    trials = [
        trial(n, items, math.ceil(items / n), work=items, widest=items)
        for n in (10, 20, 40, 80, 100)
        for items in (40, 80)
    ]
    found = of_sweep(SWEEP, trials)
    assert [(knee.series.items, knee.k) for knee in found] == [(40, 40), (80, 80)]


def test_an_axis_of_items_per_worker_means_weak_scaling_even_where_items_agree() -> None:
    sweep = Sweep("w", axes={"workers": (50, 100, 200), "items_per_worker": (1, 2)})
    trials = [*weak([50, 100, 200], lambda n: n), *weak([50, 100, 200], lambda n: n, per_worker=2)]
    assert {knee.series.items_per_worker for knee in of_sweep(sweep, trials)} == {1, 2}
    assert {knee.series.items for knee in of_sweep(SWEEP, trials)} == {100, 200}


def test_a_fraction_of_an_item_per_worker_is_still_weak_scaling() -> None:
    workers = [3, 10, 33, 101, 250]
    found = only(weak(workers, lambda n: n, per_worker=0.7))
    assert found.series.items_per_worker == pytest.approx(0.7)
    assert [found.series.at(n).items for n in workers] == [round(0.7 * n) for n in workers]


def test_different_settings_make_separate_series_with_their_own_titles() -> None:
    trials = [replace(one, point=replace(one.point, params={**one.point.params, "seconds": s}))
              for s in (1.0, 2.0) for one in capped(WORKERS, 100, widest=100)]  # fmt: skip
    assert [knee.title for knee in of_sweep(SWEEP, trials)] == [
        "strong scaling, 3,000 items, seconds=1.0",
        "strong scaling, 3,000 items, seconds=2.0",
    ]


def test_single_points_and_trials_that_do_not_count_are_left_out() -> None:
    good = capped(WORKERS, 100, widest=100)
    bad = [replace(good[0], state=TrialState.INVALID), replace(good[1], warmup=True), replace(good[2], metrics=None)]
    assert of_sweep(SWEEP, [*good, *bad, trial(7, 13, 1, work=1, widest=1)]) == of_sweep(SWEEP, good)
    assert of_sweep(SWEEP, good[:1]) == ()
    assert of_sweep(SWEEP, []) == ()


# ------------------------------------------------------------------ what cannot be fitted, and what to measure next


def test_no_model_is_chosen_for_throughput_that_fits_none() -> None:
    times = {10: 10, 50: 1, 100: 9, 150: 2, 200: 8, 250: 1, 300: 7}
    found = only([trial(n, 300, seconds, work=300, widest=300) for n, seconds in times.items()])
    assert (found.k, found.fit) == (None, None)
    assert found.line.startswith("No model fits")
    assert found.refine


def test_further_points_are_proposed_around_an_uncertain_knee() -> None:
    workers = [10, 20, 40, 60, 80, 130, 150, 200]
    found = only(capped(workers, 100, widest=3000, peak=100, spread=0.03, repeats=3))
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low > 1
    assert len(found.refine) == 3
    assert all(80 < n < 130 for n in found.refine)
    assert not set(found.refine) & set(workers)


def test_points_to_add_keep_the_items_or_items_per_worker_of_their_series() -> None:
    asked = further(SWEEP, [*capped([10, 100, 300], 100, widest=100), *weak([11, 99], lambda n: n, per_worker=3)])
    assert {(point.workers, point.items) for point in asked} == {(32, 3000), (18, 3000), (33, 99), (57, 171), (19, 57)}
    assert further(SWEEP, capped(WORKERS, 100, widest=100)) == ()


def test_identical_repeats_do_not_count_as_new_evidence() -> None:
    once, thrice = (only(capped(WORKERS, 100, widest=100, repeats=n)) for n in (1, 3))
    assert once.fits == thrice.fits
