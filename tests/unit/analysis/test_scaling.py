from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalescope.analysis import scaling
from scalescope.analysis.scaling import STRONG, WEAK, compare, in_waves, interval_of

DENSE = np.array([10.0, 20, 40, 60, 80, 90, 95, 100, 105, 110, 125, 150, 200])
EVEN = np.arange(10, 201, 10.0)
K = 100.0
CURVES = {
    "linear": lambda p: 0.9 * p,
    "cap": lambda p: np.minimum(p, K),
    "amdahl-cap": lambda p: np.minimum(p, K) / (1 + 0.002 * (np.minimum(p, K) - 1)),
    "amdahl": lambda p: p / (1 + 0.01 * (p - 1)),
    "usl": lambda p: p / (1 + 0.005 * (p - 1) + 1e-4 * p * (p - 1)),
    "wave": lambda p: K / np.ceil(K / p),
    "retrograde": lambda p: np.minimum(p, K) * np.minimum(1, K / p) ** 0.5,
}


def noisy(name: str, grid: np.ndarray, *, seed: int, spread: float = 0.03) -> tuple[np.ndarray, np.ndarray]:
    threads = np.repeat(grid, 3)
    return threads, CURVES[name](threads) * np.exp(np.random.default_rng(seed).normal(0, spread, len(threads)))


# ------------------------------------------------------------------ without noise


@pytest.mark.parametrize("name", list(CURVES))
@pytest.mark.parametrize("grid", [DENSE, EVEN])
def test_the_model_that_made_a_curve_is_found_exactly(name: str, grid: np.ndarray) -> None:
    best = compare(STRONG, grid, CURVES[name](grid))[0]
    assert best.model.name == name
    assert best.error < 1e-4
    assert best.curve(grid) == pytest.approx(CURVES[name](grid), rel=1e-3)


@given(k=st.integers(30, 190), rate=st.floats(0.1, 10), start=st.integers(1, 10), step=st.integers(2, 6))
@settings(max_examples=12)
def test_a_hard_cap_is_found_to_the_last_digit(k: int, rate: float, start: int, step: int) -> None:
    grid = np.arange(start, 2 * k, step, dtype=float)
    throughput = rate * np.minimum(grid, k)
    best = compare(STRONG[:-1], grid, throughput)[0]  # without the wave model, which looks like a cap if points are few
    found = interval_of(best, grid, throughput)
    assert best.model.name == "cap"
    assert best.rate == pytest.approx(rate, rel=1e-6)
    assert found is not None
    assert (found.low, found.k, found.high) == pytest.approx((k, k, k), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "curve", "k"),
    [
        ("wave", lambda p: p / np.ceil(p / K), K),
        ("merge", lambda p: p / np.maximum(1, np.floor(p / 100)), 199),
        ("batch", lambda p: np.maximum(1, p / 128), None),
        ("linear", lambda p: p, None),
    ],
)
def test_the_model_of_a_weak_scaling_curve_is_found(name: str, curve: object, k: float | None) -> None:
    grid = np.array([10.0, 50, 100, 101, 149, 150, 199, 200, 250, 300])
    best = compare(WEAK, grid, curve(grid))[0]  # type: ignore[operator]
    assert (best.model.name, best.k) == (name, k)


def test_waves_are_fitted_only_to_the_given_task_counts() -> None:
    grid = np.arange(20, 201, 20.0)
    best = compare(in_waves([90, 300]), grid, CURVES["wave"](grid))[0]
    found = interval_of(best, grid, CURVES["wave"](grid))
    assert found is not None
    assert (found.low, found.k, found.high) == (90, 90, 90)
    assert compare(in_waves([300]), grid, CURVES["wave"](grid))[0].model.name != "wave"


def test_the_interval_holds_all_whole_numbers_that_fit_equally_well() -> None:
    grid = np.arange(20, 201, 20.0)  # 81 to 100 equal tasks give the same steps here
    best = compare(STRONG, grid, CURVES["wave"](grid))[0]
    found = interval_of(best, grid, CURVES["wave"](grid))
    assert found is not None
    assert (found.low, found.k, found.high) == (81, 100, 100)


# ------------------------------------------------------------------ with noise


@pytest.mark.parametrize("name", list(CURVES))
def test_the_model_of_a_noisy_curve_is_found_at_least_four_times_in_five(name: str) -> None:
    found = [compare(STRONG, *noisy(name, DENSE, seed=seed))[0].model.name for seed in range(5)]
    assert found.count(name) >= 4


def test_the_interval_holds_the_truth_and_is_no_wider_than_the_noise_makes_it() -> None:
    found = []
    for seed in range(10):
        threads, throughput = noisy("cap", DENSE, seed=seed)
        found.append(interval_of(compare(STRONG, threads, throughput)[0], threads, throughput))
    intervals = [each for each in found if each is not None]
    assert len(intervals) == 10
    assert sum(each.low <= K <= each.high for each in intervals) >= 8
    assert all(each.low <= each.k <= each.high and each.high - each.low < 12 for each in intervals)


def test_the_interval_of_five_points_still_holds_the_truth() -> None:
    """The spread of five points is so uncertain that the interval needs Student's t."""
    threads = np.array([10.0, 50, 90, 150, 300])
    held = 0
    for seed in range(100):
        throughput = np.minimum(threads, 100) * np.exp(np.random.default_rng(seed).normal(0, 0.03, 5))
        found = interval_of(compare([scaling.CAP], threads, throughput)[0], threads, throughput)
        assert found is not None
        held += found.low <= 100 <= found.high
    assert held >= 92


def test_the_same_measurements_give_the_same_answer_to_the_last_bit() -> None:
    threads, throughput = noisy("amdahl-cap", DENSE, seed=3)
    once, again = (compare(STRONG, threads, throughput) for _ in range(2))
    assert once == again
    assert interval_of(once[0], threads, throughput) == interval_of(again[0], threads, throughput)


# ------------------------------------------------------------------ few points


def test_a_model_is_not_fitted_to_fewer_points_than_it_needs() -> None:
    def names(count: int) -> set[str]:
        grid = EVEN[:count]
        return {fit.model.name for fit in compare(STRONG, grid, grid)}

    assert names(3) == set()
    assert names(4) == {"linear"}
    assert names(5) == {"linear", "amdahl", "cap", "wave"}
    assert names(6) == {model.name for model in STRONG}


def test_repeats_do_not_count_as_further_points_when_models_are_fitted() -> None:
    threads = np.repeat(EVEN[:2], 10)
    assert {fit.model.name for fit in compare(STRONG, threads, threads)} == {"linear"}
