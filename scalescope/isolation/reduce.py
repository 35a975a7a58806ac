"""Removes one thing after the other, and keeps a removal only if the symptom stays.

Greedy delta debugging (Zeller and Hildebrandt, 2002) with bisection for numbers, repeated until nothing more can be
removed. The caller says what can be removed (`Move`, `Number`) and measures. The result is 1-minimal: no known move,
and no number smaller by one, keeps the symptom.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class SymptomReading:
    """Result of a measurement: whether it shows the symptom, a text, and the problem (empty if it was measured)."""

    shows: bool
    text: str
    problem: str = ""


# Takes a state; returns words for the notebook and the state after a removal, or None if nothing can be removed.
Move = Callable[[T], tuple[str, T] | None]


@dataclass(frozen=True)
class Number(Generic[T]):
    """A number that can be made smaller."""

    name: str  # name of the number in the notebook
    read: Callable[[T], int | None]  # the number in a state; None if the state does not have it
    write: Callable[[T, int], T]
    least: Callable[[T], int]  # the smallest number allowed in a state


@dataclass(frozen=True)
class ReductionStep(Generic[T]):
    """A line of the notebook."""

    words: str
    state: T
    reading: SymptomReading
    kept: bool


@dataclass(frozen=True)
class Reduction(Generic[T]):
    """The smallest state that showed the symptom, all steps in order, and why they stopped early (empty if not)."""

    state: T
    steps: tuple[ReductionStep[T], ...] = field(default_factory=tuple)
    stopped: str = ""

    @property
    def minimal(self) -> bool:
        return not self.stopped

    @property
    def kept(self) -> tuple[ReductionStep[T], ...]:
        return tuple(step for step in self.steps if step.kept)


class _BudgetUsedUp(Exception):
    """The budget is used up."""


def reduce(
    start: T,
    *,
    moves: Sequence[Move[T]],
    numbers: Sequence[Number[T]],
    measure: Callable[[str, T], SymptomReading],
    spent: Callable[[int], str] = lambda done: "",
    tried: Callable[[ReductionStep[T]], None] = lambda step: None,
) -> Reduction[T]:
    """Search for the smallest state that shows the symptom.

    Args:
        start: A state that shows the symptom.
        moves: Removals in the order in which they are tried; those that save most come first.
        numbers: Numbers to make smaller, in this order, after the moves.
        measure: Measures a state; its first argument says how the state was reached. Called once per state.
        spent: Takes the number of measurements made; returns why no more are allowed, or an empty text.
        tried: Called with every step as it ends.
    """
    search = _Reducer(start, measure, spent, tried)
    stopped = ""
    try:
        before: T | None = None
        while before != search.state:
            before = search.state
            for move in moves:
                search.take(move)
            for number in numbers:
                search.shrink(number)
    except _BudgetUsedUp as reason:
        stopped = str(reason)
    return Reduction(search.state, tuple(search.steps), stopped)


@dataclass
class _Reducer(Generic[T]):
    state: T
    measure: Callable[[str, T], SymptomReading]
    spent: Callable[[int], str]
    tried: Callable[[ReductionStep[T]], None]
    steps: list[ReductionStep[T]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._known = {self.state}

    def take(self, move: Move[T]) -> None:
        """Repeat a move while it finds something to remove and the symptom stays."""
        while (change := move(self.state)) is not None and self._try(*change):
            pass

    def shrink(self, number: Number[T]) -> None:
        """Make a number as small as the symptom allows: first try the least, then bisect."""
        good = number.read(self.state)
        if good is None or good <= (least := number.least(self.state)):
            return
        if number.write(self.state, good - 1) in self._known:  # already bisected, and nothing else was removed since
            return
        if self._try(f"{number.name} {good:,} → {least:,}", number.write(self.state, least)):
            return
        bad = least
        while good - bad > 1:
            middle = (bad + good) // 2
            if self._try(f"{number.name} {good:,} → {middle:,}", number.write(self.state, middle)):
                good = middle
            else:
                bad = middle

    def _try(self, words: str, state: T) -> bool:
        if state in self._known:  # known to lose the symptom, or not smaller than the present state
            return False
        if reason := self.spent(len(self.steps)):
            raise _BudgetUsedUp(reason)
        reading = self.measure(words, state)
        self._known.add(state)
        step = ReductionStep(words, state, reading, reading.shows)
        self.steps.append(step)
        self.tried(step)
        if reading.shows:
            self.state = state
        return reading.shows
