"""Bisection over releases: the plain case first, then missing releases, wrong trials and noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.golden import Compare

from scalescope.errors import InvalidField, UsageError
from scalescope.studies.release.judge import (
    CandidateState,
    CandidateTrial,
    Mode,
    ReleaseAnswer,
    ReleaseDecision,
    ReleaseQuestion,
    ReleaseReading,
    further,
    judge,
)

PATCHED = {55: 1, 58: 1}
BEAM = tuple(f"2.{minor}.{PATCHED.get(minor, 0)}" for minor in range(50, 78))
Value = bool | float | None
Trial = Callable[[int, int], Value]


def names(count: int) -> tuple[str, ...]:
    return tuple(f"r{i}" for i in range(count))


def search(
    question: ReleaseQuestion, trial: Trial, gone: Collection[int] = ()
) -> tuple[ReleaseAnswer, list[ReleaseReading]]:
    """Asks for trials until no more are needed."""
    readings: list[ReleaseReading] = []
    while asks := further(question, readings):
        assert asks == further(question, readings)
        for ask in asks:
            assert (ask.candidate, ask.turn) not in {(each.candidate, each.turn) for each in readings}
            away = ask.candidate in gone
            value = None if away else trial(ask.candidate, ask.turn)
            readings.append(ReleaseReading(ask.candidate, ask.turn, value, unavailable=away))
        assert len(readings) < 3000
    return judge(question, readings), readings


def step(culprit: int) -> Trial:
    return lambda candidate, _: candidate >= culprit


def noisy(culprit: int, effect: float, seed: int, *, own: float = 0.022, outliers: float = 0.0) -> Trial:
    rng = np.random.default_rng(seed)
    shared = rng.normal(0, 0.045, 3000)

    def trial(candidate: int, turn: int) -> float:
        late = 1 + 0.3 * (rng.random() < outliers)
        return float(np.exp(shared[turn] + rng.normal(0, own)) * late * (1 + effect * (candidate >= culprit)))

    return trial


# ------------------------------------------------------------------ the plain case


def test_the_first_bad_release_is_found_with_two_trials_each_and_three_of_the_ends(golden: Compare) -> None:
    question = ReleaseQuestion(BEAM, subject="apache-beam", symptom="shows too-few-partitions")
    answer, readings = search(question, step(BEAM.index("2.63.0")))
    assert answer.decision is ReleaseDecision.FOUND
    assert answer.first_bad is not None
    assert answer.last_good is not None
    assert (answer.first_bad.label, answer.last_good.label, answer.skipped) == ("2.63.0", "2.62.0", ())
    assert answer.trials == len(readings) == 2 * len(answer.tried) + 2
    golden(answer.line)


@pytest.mark.parametrize("culprit", range(1, 28))
def test_a_culprit_among_28_releases_is_found_with_at_most_seven_environments(culprit: int) -> None:
    answer, _ = search(ReleaseQuestion(BEAM), step(culprit))
    assert answer.first_bad is not None
    assert answer.first_bad.index == culprit
    assert len(answer.tried) <= 7


def test_releases_with_exact_metrics_are_judged_by_two_pairs_each() -> None:
    question = ReleaseQuestion(BEAM, mode=Mode.METRIC, subject="apache-beam", symptom="has moved makespan_s")
    answer, readings = search(question, lambda candidate, _: 76.8 if candidate >= 13 else 0.6)
    assert answer.first_bad is not None
    assert answer.first_bad.label == "2.63.0"
    assert answer.first_bad.words == "makespan_s 76.8 instead of 0.6 in 2.50.0, 2 pairs"
    assert Counter(reading.candidate for reading in readings if reading.candidate) == Counter(
        {each.index: 2 for each in answer.tried if each.index}
    )
    pairs = Counter(reading.turn for reading in readings)
    assert set(pairs.values()) == {2}


def test_a_release_search_tries_both_ends_first_and_then_the_middle() -> None:
    question = ReleaseQuestion(names(9))
    ends = (CandidateTrial(0, 0), CandidateTrial(8, 0))
    assert further(question, []) == ends
    readings = [ReleaseReading(i, turn, i == 8) for turn in range(3) for i in (0, 8)]
    assert further(question, readings[:1]) == (CandidateTrial(0, 1), CandidateTrial(8, 0))
    assert further(question, readings) == (CandidateTrial(4, 0),)


def test_an_interrupted_pair_of_trials_is_completed() -> None:
    question = ReleaseQuestion(names(5), mode=Mode.METRIC)
    first, second = further(question, [])
    assert {first.candidate, second.candidate} == {0, 4}
    assert further(question, [ReleaseReading(first.candidate, first.turn, 1.0)]) == (second,)
    assert further(question, [ReleaseReading(second.candidate, second.turn, 1.0)]) == (first,)


# ------------------------------------------------------------------ any culprit, any gaps


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, int, set[int]]:
    count = draw(st.integers(2, 40))
    culprit = draw(st.integers(1, count - 1))
    gone = draw(st.sets(st.integers(1, max(1, count - 2)), max_size=count)) if count > 2 else set()
    return count, culprit, gone


@pytest.mark.parametrize("mode", list(Mode))
@given(histories())
@settings(max_examples=60)
def test_the_boundary_is_right_whichever_releases_cannot_be_installed(
    mode: Mode, history: tuple[int, int, set[int]]
) -> None:
    count, culprit, gone = history
    question = ReleaseQuestion(names(count), mode=mode, max_candidates=count + 1)
    trial = step(culprit) if mode is Mode.FINDING else lambda candidate, _: 3.0 if candidate >= culprit else 1.0
    answer, readings = search(question, trial, gone)
    assert answer.last_good is not None
    assert answer.first_bad is not None
    good, bad = answer.last_good.index, answer.first_bad.index
    assert good < culprit <= bad
    assert (answer.last_good.state, answer.first_bad.state) == (CandidateState.GOOD, CandidateState.BAD)
    assert {each.index for each in answer.skipped} == set(range(good + 1, bad)) <= gone
    assert (answer.decision is ReleaseDecision.FOUND) == (bad - good == 1)
    assert all(each.state is CandidateState.UNAVAILABLE for each in answer.skipped)
    asked = Counter(reading.candidate for reading in readings if reading.unavailable)
    assert set(asked.values()) <= {1}  # an unavailable candidate is tried once


@given(st.lists(st.booleans(), min_size=0, max_size=30), st.sets(st.integers(1, 30)))
def test_both_sides_of_the_boundary_were_measured_in_a_history_with_several_changes(
    inner: list[bool], gone: set[int]
) -> None:
    shows = [False, *inner, True]
    gone = {index for index in gone if index < len(shows) - 1}
    answer, _ = search(
        ReleaseQuestion(names(len(shows)), max_candidates=100), lambda candidate, _: shows[candidate], gone
    )
    assert answer.last_good is not None
    assert answer.first_bad is not None
    assert not shows[answer.last_good.index]
    assert shows[answer.first_bad.index]
    assert {each.index for each in answer.skipped} <= gone


def test_releases_that_could_not_be_installed_are_named_in_the_answer(golden: Compare) -> None:
    answer, _ = search(ReleaseQuestion(BEAM, subject="apache-beam"), step(13), {11, 13, 14})
    assert answer.decision is ReleaseDecision.BETWEEN
    golden(answer.line)


def test_a_release_search_tries_at_most_max_candidates() -> None:
    answer, _ = search(ReleaseQuestion(names(100), max_candidates=4), step(60))
    assert (len(answer.tried), answer.decision) == (4, ReleaseDecision.BETWEEN)
    assert "not tried (max_environments)" in answer.line
    assert answer.last_good is not None
    assert answer.first_bad is not None
    assert answer.last_good.index < 60 <= answer.first_bad.index


# ------------------------------------------------------------------ ends


@pytest.mark.parametrize(
    ("shows", "decision", "words"),
    [
        ([False, False, False], ReleaseDecision.NO_DIFFERENCE, "r2 is no worse than r0"),
        ([True, True, True], ReleaseDecision.GOOD_END_BAD, "r0 already shows it"),
        ([True, False, False], ReleaseDecision.GOOD_END_BAD, "r0 already shows it"),
    ],
)
def test_releases_are_not_bisected_if_the_ends_are_not_good_and_bad(
    shows: list[bool], decision: ReleaseDecision, words: str
) -> None:
    answer, readings = search(ReleaseQuestion(names(3)), lambda candidate, _: shows[candidate])
    assert (answer.decision, answer.first_bad, answer.last_good) == (decision, None, None)
    assert answer.line.startswith(words)
    assert {reading.candidate for reading in readings} == {0, 2}


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("end", [0, 4])
def test_a_release_search_ends_if_its_good_or_bad_end_cannot_be_installed(mode: Mode, end: int) -> None:
    answer, readings = search(ReleaseQuestion(names(5), mode=mode), lambda candidate, _: float(candidate + 1), {end})
    assert answer.decision is ReleaseDecision.NO_END
    assert f"r{end} (could not be installed)" in answer.line
    assert len(readings) <= 4


def test_releases_are_not_bisected_if_the_ends_differ_by_too_little() -> None:
    question = ReleaseQuestion(names(5), mode=Mode.METRIC)
    answer, _ = search(question, noisy(3, 0.01, seed=0, own=0.002))
    assert answer.decision is ReleaseDecision.NO_DIFFERENCE


def test_an_unfinished_release_search_has_the_decision_unfinished(golden: Compare) -> None:
    answer = judge(ReleaseQuestion(names(9)), [ReleaseReading(0, 0, False)])
    assert answer.decision is ReleaseDecision.UNFINISHED
    golden(answer.line)


# ------------------------------------------------------------------ trials that lie, or are lost


@pytest.mark.parametrize(
    ("votes", "state"),
    [
        ([True, True], CandidateState.BAD),
        ([False, False], CandidateState.GOOD),
        ([True, False, True], CandidateState.OPEN),
        ([True, False, True, True], CandidateState.BAD),
        ([False, True, False, True, False, False], CandidateState.GOOD),
        ([True, False] * 20, CandidateState.UNDECIDED),
        ([None, True, None, True], CandidateState.BAD),
        ([None, None, None], CandidateState.UNDECIDED),
        ([True], CandidateState.OPEN),
    ],
)
def test_a_candidate_is_decided_as_soon_as_one_answer_is_nearly_certain(
    votes: list[bool | None], state: CandidateState
) -> None:
    ends = [ReleaseReading(i, turn, i == 2) for i in (0, 2) for turn in range(20)]
    answer = judge(ReleaseQuestion(names(3)), ends + [ReleaseReading(1, turn, vote) for turn, vote in enumerate(votes)])
    assert next(each for each in answer.tried if each.index == 1).state is state


def test_more_trials_are_run_of_a_release_if_the_trials_of_the_ends_disagree() -> None:
    sure = [ReleaseReading(i, turn, i == 2) for i in (0, 2) for turn in range(8)]
    torn = [ReleaseReading(i, turn, (i == 2) != (turn % 3 == 0)) for i in (0, 2) for turn in range(30)]
    twice = [ReleaseReading(1, turn, True) for turn in range(2)]
    assert further(ReleaseQuestion(names(3)), sure + twice) == ()
    assert further(ReleaseQuestion(names(3)), torn + twice) == (CandidateTrial(1, 2),)


@pytest.mark.parametrize(("lies", "most"), [(0.1, 3), (0.35, 5)])
def test_wrong_trials_rarely_turn_a_good_release_into_a_bad_one(lies: float, most: int) -> None:
    """With 35 % of wrong trials, a lead of two trials would make it bad in 19 % of searches."""
    wrong = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        answer, _ = search(ReleaseQuestion(names(3)), lambda index, _, rng=rng: (index == 2) != (rng.random() < lies))
        wrong += answer.first_bad is not None and answer.first_bad.index == 1
    assert wrong <= most


@given(st.integers(2, 20), st.data())
def test_one_wrong_trial_does_not_change_the_first_bad_release(count: int, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(1, count - 1))
    liar, turn = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, 8))
    answer, _ = search(
        ReleaseQuestion(names(count)), lambda index, at: (index >= culprit) != (index == liar and at == turn)
    )
    assert answer.first_bad is not None
    assert answer.first_bad.index == culprit


def test_a_release_search_ends_if_no_trial_is_valid() -> None:
    for mode in Mode:
        answer, readings = search(ReleaseQuestion(names(4), mode=mode), lambda candidate, _: None)
        assert answer.decision is ReleaseDecision.NO_END
        assert len(readings) <= 6


# ------------------------------------------------------------------ noise


def outcomes(effect: float, series: int, **noise: float) -> Counter[str]:
    question, found = ReleaseQuestion(names(12), mode=Mode.METRIC), Counter[str]()
    for seed in range(series):
        culprit = 1 + seed % 11
        answer, _ = search(question, noisy(culprit, effect, seed, **noise))
        if answer.first_bad is None or answer.last_good is None:
            found["none"] += 1
        elif not answer.last_good.index < culprit <= answer.first_bad.index:
            found["wrong"] += 1
        else:
            found["right" if answer.decision is ReleaseDecision.FOUND else "around"] += 1
    return found


@pytest.mark.thorough
def test_noisy_metrics_lead_to_the_first_bad_release() -> None:
    assert outcomes(0.5, 30)["right"] >= 29
    for found in (outcomes(0.1, 20), outcomes(0.2, 20, outliers=0.05)):
        assert found["right"] >= 16
        assert found["wrong"] <= 1


def test_a_release_search_on_noise_alone_finds_no_difference() -> None:
    assert outcomes(0.0, 20)["none"] >= 19


def test_a_release_with_half_of_the_effect_is_undecided() -> None:
    values = [1.0, 2.0**0.5, 2.0]
    answer, readings = search(ReleaseQuestion(names(3), mode=Mode.METRIC), lambda candidate, _: values[candidate])
    assert [each.state for each in answer.skipped] == [CandidateState.UNDECIDED]
    assert len(readings) == 8


def test_a_metric_that_was_zero_in_good_releases_is_compared(golden: Compare) -> None:
    answer, _ = search(ReleaseQuestion(names(9), mode=Mode.METRIC), lambda candidate, _: 7.0 if candidate >= 5 else 0.0)
    assert answer.first_bad is not None
    assert answer.first_bad.index == 5
    golden(answer.line)


# ------------------------------------------------------------------ what cannot be right


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("labels", {"labels": ("1.0",)}),
        ("max_candidates", {"max_candidates": 1}),
        ("max_pairs", {"max_pairs": 2}),
        ("smallest_effect", {"smallest_effect": 1.0}),
    ],
)
def test_an_invalid_release_search_is_refused_by_its_field(field: str, given: dict[str, object]) -> None:
    with pytest.raises(InvalidField, match=field):
        ReleaseQuestion(**{"labels": names(3), **given})  # type: ignore[arg-type]


def test_a_reading_of_an_unknown_candidate_is_refused() -> None:
    with pytest.raises(UsageError, match="candidate 3"):
        further(ReleaseQuestion(names(3)), [ReleaseReading(3, 0, True)])
