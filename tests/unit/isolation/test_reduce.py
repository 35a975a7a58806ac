"""The search, on states that are plain numbers and flags."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from scalescope.isolation.reduce import Move, Number, Reduction, ReductionStep, SymptomReading, reduce

FLAGS = ("disk", "gpu", "network")


@dataclass(frozen=True)
class State:
    flags: frozenset[str]
    workers: int
    items: int

    def below(self, other: State) -> bool:
        return self.flags <= other.flags and self.workers <= other.workers and self.items <= other.items


def without(flag: str) -> Move[State]:
    def move(state: State) -> tuple[str, State] | None:
        return (f"{flag} removed", replace(state, flags=state.flags - {flag})) if flag in state.flags else None

    return move


MOVES = [without(flag) for flag in FLAGS]
NUMBERS = [
    Number[State]("workers", lambda s: s.workers, lambda s, n: replace(s, workers=n), lambda s: 1),
    Number[State]("items", lambda s: s.items, lambda s, n: replace(s, items=n), lambda s: 1),
]
STATES = st.builds(
    State, st.frozensets(st.sampled_from(FLAGS)), st.integers(min_value=1, max_value=400), st.integers(1, 400)
)


def search(start: State, shows: object, **given: object) -> tuple[Reduction[State], list[State]]:
    measured: list[State] = []

    def measure(words: str, state: State) -> SymptomReading:
        measured.append(state)
        assert callable(shows)
        return SymptomReading(shows(state), f"{state}")

    return reduce(start, moves=MOVES, numbers=NUMBERS, measure=measure, **given), measured  # type: ignore[arg-type]


def neighbours(state: State) -> list[State]:
    """Everything that is smaller by one step."""
    found = [change[1] for move in MOVES if (change := move(state)) is not None]
    if state.workers > 1:
        found.append(replace(state, workers=state.workers - 1))
    if state.items > 1:
        found.append(replace(state, items=state.items - 1))
    return found


@given(st.lists(STATES, min_size=1, max_size=4), STATES)
def test_monotone_symptoms_are_reduced_to_a_minimum(needed: list[State], extra: State) -> None:
    """The symptom shows in every state that contains one of the `needed` states."""
    start = State(
        frozenset().union(extra.flags, *(state.flags for state in needed)),
        max(state.workers for state in [*needed, extra]),
        max(state.items for state in [*needed, extra]),
    )

    def shows(state: State) -> bool:
        return any(least.below(state) for least in needed)

    reduction, measured = search(start, shows)
    assert reduction.minimal
    assert shows(reduction.state)
    assert not any(shows(smaller) for smaller in neighbours(reduction.state))
    assert len(measured) == len(set(measured))


@given(st.data(), STATES)
def test_no_removal_that_makes_the_symptom_disappear_is_kept(data: st.DataObject, start: State) -> None:
    """However random the symptom is, the search only continues from states that showed it."""
    known: dict[State, bool] = {}

    def shows(state: State) -> bool:
        return known.setdefault(state, data.draw(st.booleans()))

    reduction, measured = search(start, shows)
    kept = [step.state for step in reduction.kept]
    assert all(known[state] for state in kept)
    assert reduction.state == (kept[-1] if kept else start)
    assert all(step.kept == step.reading.shows for step in reduction.steps)
    assert [step.state for step in reduction.steps] == measured
    for before, after in zip([start, *kept], kept, strict=False):
        assert after.below(before)
        assert after != before
    # 1-minimal even so: each neighbour was measured, and did not show it
    assert all(known.get(state) is False for state in neighbours(reduction.state))


def test_the_threshold_of_a_partition_rule_is_found_exactly() -> None:
    start = State(frozenset(), 300, 1)
    reduction, measured = search(start, lambda state: state.workers >= 200)
    assert reduction.state.workers == 200
    assert len(measured) <= 10


def test_a_state_with_nothing_to_remove_needs_no_measurement() -> None:
    reduction, measured = search(State(frozenset(), 1, 1), lambda state: True)
    assert (reduction.steps, measured, reduction.minimal) == ((), [], True)


def test_the_smallest_state_so_far_is_returned_when_the_budget_is_spent() -> None:
    done: list[ReductionStep[State]] = []
    reduction, measured = search(
        State(frozenset(FLAGS), 300, 300),
        lambda state: True,
        spent=lambda count: "two trials are enough" if len(done) == count == 2 else "",
        tried=done.append,
    )
    assert reduction.stopped == "two trials are enough"
    assert not reduction.minimal
    assert reduction.state == State(frozenset({"network"}), 300, 300)
    assert len(measured) == 2


def test_a_removal_that_could_not_be_measured_is_put_back() -> None:
    reduction = reduce(
        State(frozenset({"gpu"}), 1, 1),
        moves=MOVES,
        numbers=NUMBERS,
        measure=lambda words, state: SymptomReading(False, "no cluster", "there is no GPU"),
    )
    assert reduction.state.flags == {"gpu"}
    assert [step.reading.problem for step in reduction.steps] == ["there is no GPU"]


def test_a_removal_that_another_removal_makes_possible_is_found() -> None:
    """The disk can be removed only after the GPU, which comes later in the order."""
    reduction, _ = search(
        State(frozenset({"disk", "gpu"}), 1, 1), lambda state: "disk" in state.flags or "gpu" not in state.flags
    )
    assert reduction.state.flags == frozenset()
