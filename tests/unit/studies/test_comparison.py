"""Comparisons: clear answers first, then noise, outliers, lost trials, and many at once."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.golden import Compare

from scalescope.errors import InvalidField
from scalescope.run.request import RunRequest
from scalescope.store.store import Store, SweepRun
from scalescope.studies.comparison import plan
from scalescope.studies.comparison.judge import (
    FIRST,
    ComparisonDecision,
    ComparisonQuestion,
    PairedComparison,
    change,
    family,
    further,
    judge,
    order,
)
from scalescope.studies.planning import RequestAfter

Pair = tuple[float | None, float | None]
Source = Callable[[int], Pair]


def run(source: Source, question: ComparisonQuestion | None = None) -> tuple[PairedComparison, int]:
    """Asks for pairs until no more are needed; returns the answer and the number of pairs."""
    question, pairs = question or ComparisonQuestion(), []
    while more := further(question, pairs):
        pairs += [source(len(pairs) + i) for i in range(more)]
        assert len(pairs) < 1000
    return judge(question, pairs), len(pairs)


def noisy(slower: float, seed: int, *, own: float = 0.022, outliers: float = 0.0) -> Source:
    rng = np.random.default_rng(seed)

    def pair(_: int) -> Pair:
        shared = rng.normal(0, 0.045)
        late = 1 + 0.3 * (rng.random(2) < outliers)
        a, b = np.exp(shared + rng.normal(0, own, 2)) * late
        return float(a), float(b) * (1 + slower)

    return pair


# ------------------------------------------------------------------ clear answers


def test_seven_pairs_without_noise_give_the_exact_ratio(golden: Compare) -> None:
    answer, pairs = run(lambda i: (1.0 + i, 1.05 * (1.0 + i)))
    assert (answer.decision, pairs) == (ComparisonDecision.SLOWER, 7)
    assert answer.low == answer.high == answer.ratio == pytest.approx(1.05)
    assert (answer.p, answer.minimal_effect) == (0.0, 0.0)
    golden(answer.line)


def test_equal_pairs_are_the_same_even_with_a_smallest_effect_of_zero(golden: Compare) -> None:
    answer, pairs = run(lambda _: (2.0, 2.0), ComparisonQuestion(smallest_effect=0.0))
    assert (answer.decision, pairs, answer.p) == (ComparisonDecision.SAME, 7, 1.0)
    golden(answer.line)


def test_a_certain_difference_below_the_smallest_effect_is_the_same(golden: Compare) -> None:
    answer, _ = run(noisy(0.01, seed=1, own=0.002))
    assert answer.p is not None
    assert answer.p < 0.01
    assert answer.decision is ComparisonDecision.SAME
    golden(answer.line)


def test_a_lower_efficiency_counts_as_slower(golden: Compare) -> None:
    question = ComparisonQuestion(metric="efficiency", larger_is_slower=False, a="2023", b="2026", name="bag-map")
    answer, _ = run(noisy(-0.2, seed=1), question)
    assert answer.decision is ComparisonDecision.SLOWER
    golden(answer.line)
    assert run(noisy(0.2, seed=1), question)[0].decision is ComparisonDecision.FASTER


def test_a_clear_difference_needs_seven_pairs_and_a_faint_one_needs_more(golden: Compare) -> None:
    assert run(noisy(0.5, seed=3))[1] == 7
    answer, pairs = run(noisy(0.02, seed=3, own=0.05))
    assert (answer.decision, pairs) == (ComparisonDecision.UNDECIDED, 20)
    assert answer.minimal_effect is not None
    golden(answer.line)


def test_counts_that_begin_at_zero_are_compared() -> None:
    answer, _ = run(lambda _: (0.0, 5.0), ComparisonQuestion(metric="workers lost"))
    assert (answer.decision, answer.ratio) == (ComparisonDecision.SLOWER, math.inf)
    assert "above 0 instead of 0" in answer.line
    assert json.loads(json.dumps(answer.to_mapping(), allow_nan=False))["ratio"] is None


# ------------------------------------------------------------------ error rates


def rates(slower: float, *, series: int = 250, **noise: float) -> Counter[ComparisonDecision]:
    return Counter(run(noisy(slower, seed, **noise))[0].decision for seed in range(series))


def test_equal_sides_raise_a_false_alarm_in_at_most_one_of_twenty() -> None:
    found = rates(0.0)
    # 5 % and two standard errors of 250
    assert found[ComparisonDecision.SLOWER] + found[ComparisonDecision.FASTER] <= 19
    assert found[ComparisonDecision.SAME] > 200


@pytest.mark.thorough
def test_a_difference_of_5_percent_is_found_in_nine_of_ten_despite_outliers() -> None:
    assert rates(0.05, series=150)[ComparisonDecision.SLOWER] >= 145
    assert rates(0.05, series=150, outliers=0.05)[ComparisonDecision.SLOWER] >= 138


@pytest.mark.thorough
def test_a_difference_as_large_as_the_smallest_effect_is_rarely_called_the_same() -> None:
    assert rates(0.03)[ComparisonDecision.SAME] <= 19


def rarely_slow(seed: int) -> Source:
    """15 % of the trials of B take 1.5 times as long."""
    rng = np.random.default_rng(seed)
    return lambda _: (
        float(np.exp(rng.normal(0, 0.005))),
        float(np.exp(rng.normal(0, 0.005))) * rng.choice([1.0, 1.5], p=[0.85, 0.15]),
    )


def test_a_side_with_rare_slow_trials_is_seldom_called_the_same() -> None:
    answers = [run(rarely_slow(seed))[0] for seed in range(60)]
    # 10 % have no slow trial in 14 pairs
    assert sum(answer.decision is ComparisonDecision.SAME for answer in answers) <= 12
    [line] = [answer.line for answer in answers if answer.outlying == 3][:1]
    assert ", 20 pairs, 3 set aside in which B was 5" in line
    assert line.endswith(
        " Without the pairs set aside, A and B would be the same: raise max_pairs to see how often such pairs occur."
    )


# ------------------------------------------------------------------ what breaks


def test_more_pairs_are_run_if_t_test_and_sign_flip_test_disagree() -> None:
    # one of seven pairs against the others: the t-test is sure of the mean, three in 64 flips are not
    pairs: list[Pair] = [(1.0, math.exp(value)) for value in (0.05, 0.06, 0.05, 0.06, 0.05, 0.06, -0.012)]
    question = ComparisonQuestion(smallest_effect=0.0, alpha=0.3)
    strict = ComparisonQuestion(smallest_effect=0.0, alpha=0.03)
    assert judge(question, pairs).decision is ComparisonDecision.SLOWER
    answer = judge(strict, pairs)
    assert answer.sign_flip_p is not None
    assert (answer.decision, further(strict, pairs)) == (ComparisonDecision.UNDECIDED, 3)


def test_the_answer_mentions_a_disagreement_of_the_two_tests(golden: Compare) -> None:
    values = [0.1, 0.11, 0.12, 0.1, 0.11, 0.12, 0.1]
    question = ComparisonQuestion(alpha=0.015)  # seven pairs cannot have a smaller p than 2/128 by sign flips
    answer = judge(question, [(1.0, math.exp(value)) for value in values])
    assert answer.decision is ComparisonDecision.UNDECIDED
    golden(answer.line)


def test_invalid_pairs_are_replaced_and_counted() -> None:
    answer, pairs = run(lambda i: (1.0, None) if i < 2 else (1.0, 2.0))
    assert (answer.decision, answer.pairs, answer.dropped, pairs) == (ComparisonDecision.SLOWER, 7, 2, 9)
    assert "2 more not valid" in answer.line


def test_a_comparison_ends_undecided_if_no_pair_is_valid(golden: Compare) -> None:
    answer, pairs = run(lambda _: (None, 1.0))
    assert (answer.decision, pairs, answer.ratio) == (ComparisonDecision.UNDECIDED, FIRST, None)
    golden(answer.line)


def test_a_comparison_is_undecided_before_seven_pairs(golden: Compare) -> None:
    answer = judge(ComparisonQuestion(), [(1.0, 2.0)] * 6)
    assert (answer.decision, answer.ratio) == (ComparisonDecision.UNDECIDED, pytest.approx(2.0))
    golden(answer.line)


def test_an_outlier_does_not_hide_a_difference(golden: Compare) -> None:
    values = [0.05, 0.06, 0.05, 0.04, 0.05, 0.06, -0.3]
    answer = judge(ComparisonQuestion(), [(1.0, math.exp(value)) for value in values])
    assert (answer.decision, answer.outlying) == (ComparisonDecision.SLOWER, 1)
    golden(answer.line)
    # Rare trials that are slower by more make A and B no different after all.
    values[-1] = -1.0
    answer = judge(ComparisonQuestion(), [(1.0, math.exp(value)) for value in values])
    assert answer.decision is ComparisonDecision.UNDECIDED


@given(st.integers(0, 60), st.integers(7, 60), st.integers(0, 3))
def test_further_pairs_are_requested_up_to_the_next_look_until_max_pairs(valid: int, most: int, seed: int) -> None:
    question = ComparisonQuestion(max_pairs=most)
    source = noisy(0.02, seed, own=0.05)
    pairs = [source(i) for i in range(valid)]
    more = further(question, pairs)
    assert more == further(question, pairs)
    assert more == 0 or valid + more in (question.looks if valid else [FIRST])
    assert valid < most or more == 0


@pytest.mark.parametrize(
    ("field", "value"), [("max_pairs", 6), ("smallest_effect", -0.1), ("smallest_effect", 1.0), ("alpha", 0.0)]
)
def test_an_invalid_comparison_question_is_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidField, match=field):
        ComparisonQuestion(**{field: value})  # type: ignore[arg-type]


# ------------------------------------------------------------------ order


def test_the_order_of_the_sides_is_random_by_seed_and_balanced() -> None:
    first = [order(1, pair)[0] for pair in range(400)]
    assert first == [order(1, pair)[0] for pair in range(400)]
    assert first != [order(2, pair)[0] for pair in range(400)]
    assert all(sorted(first[i : i + 2]) == ["a", "b"] for i in range(0, 400, 2))
    assert 60 < first[::2].count("a") < 140


def test_a_steady_drift_cancels_over_two_pairs() -> None:
    for seed in range(20):
        gap = sum(place if arm == "b" else -place for pair in (0, 1) for place, arm in enumerate(order(seed, pair)))
        assert gap == 0


# ------------------------------------------------------------------ many


def many(equal: int, slower: int) -> list[PairedComparison]:
    effects = [0.0] * equal + [0.2] * slower
    return [
        run(noisy(effect, seed, own=0.01), ComparisonQuestion(name=f"w{seed}"))[0]
        for seed, effect in enumerate(effects)
    ]


def test_of_many_comparisons_those_with_a_difference_are_shown_and_the_others_counted(golden: Compare) -> None:
    found = family(many(6, 2))

    assert {each.question.name for each in found.members if each.different} == {"w6", "w7"}
    assert len(found.hidden) == 6
    golden(found.line)
    carried = json.loads(json.dumps(found.to_mapping()))
    assert (carried["hidden"], carried["counts"]["slower"]) == (6, 2)


FAINT = [(1.0, math.exp(value)) for value in (0.02, 0.06, 0.05, 0.01, 0.06, 0.03, 0.08)]


def test_a_faint_difference_is_undecided_among_many_comparisons() -> None:
    faint = judge(ComparisonQuestion(name="faint"), FAINT)
    assert faint.decision is ComparisonDecision.SLOWER
    assert faint.p is not None
    assert 0.005 < faint.p < 0.05
    alone, among = family([faint]), family([faint, *many(20, 0)])
    assert alone.members[0].decision is ComparisonDecision.SLOWER
    assert alone.members[0].q == pytest.approx(faint.p)
    assert among.members[0].decision is ComparisonDecision.UNDECIDED
    assert among.members[0] in among.hidden


def test_a_family_is_corrected_to_the_level_that_is_asked_for() -> None:
    every = [judge(ComparisonQuestion(), FAINT), *many(5, 0)]
    usual, lenient = (family(every, alpha=alpha).members[0] for alpha in (0.05, 0.3))
    assert usual.decision is ComparisonDecision.UNDECIDED
    assert lenient.decision is ComparisonDecision.SLOWER
    assert usual.q is not None
    assert 0.05 < usual.q < 0.3


def test_comparisons_with_too_few_pairs_do_not_count_in_a_family() -> None:
    few = judge(ComparisonQuestion(), [(1.0, 2.0)] * 3)
    found = family([few, *many(0, 1)])
    assert (found.members[0].q, found.members[0].decision) == (None, ComparisonDecision.UNDECIDED)
    assert found.members[1].q == found.members[1].p
    assert family([]).line == "0 comparisons: no difference."


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (1.0, "equal"),
        (1.051, "5.1 % higher"),
        (0.996, "0.4 % lower"),
        (1.99, "99 % higher"),
        (1.9999, "2 times as high"),
        (128.0, "128 times as high"),
        (0.01, "0.01 times as high"),
        (math.inf, "above 0 instead of 0"),
    ],
)
def test_ratios_are_written_as_percent_or_times(ratio: float, words: str) -> None:
    assert change(ratio) == words


@pytest.mark.parametrize(
    ("kind", "b", "split"),
    [
        ("simulated", {"environment": "dask==2025.1.0"}, True),
        ("simulated", {"workers": 4}, False),
        ("local", {"environment": "dask==2025.1.0"}, False),
    ],
)
@pytest.mark.parametrize(("ratio", "doubtful"), [(1.0, False), (1.08, True), (1.5, False)])
def test_a_small_difference_of_two_processes_is_confirmed_by_a_process_for_each_trial(
    kind: str, b: dict[str, Any], split: bool, ratio: float, doubtful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan._Pairing, "pairs", lambda self, done: [(1.0 + i / 1e4, ratio) for i in range(20)])
    given = {"workloads": ["futures-map"], "cluster": {"kind": kind}, "a": {"workers": 2}, "b": {"workers": 2, **b}}
    [request, *after] = plan.ask(given).requests
    assert isinstance(request, RunRequest)
    assert len(after) == split
    for each in after:
        again = cast("RequestAfter", each)([cast("SweepRun", SimpleNamespace(trials=()))], cast("Store", None), "")
        assert (again is not None) is doubtful
        assert again is None or (again.own_drivers and again.sweep.id != request.sweep.id)
