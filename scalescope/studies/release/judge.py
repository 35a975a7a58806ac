"""Bisection over ordered candidates, the first of which is good and the last bad.

Candidates are releases of a package, or mixtures of two lock files (`mixtures`). Both ends are tried first: where they
do not differ, nothing is bisected. Then the middle of what is left is tried, as `git bisect` does; a candidate that
cannot be installed, or about which trials do not agree, is skipped and its nearest neighbour tried instead.

One flaky trial never decides. Where a trial shows something or does not, a candidate is decided once one answer has a
probability of 98 %. What share q of trials lie is learnt from how far the trials of all candidates agree (a sequential
test of mixtures, after Wald 1945; Jeffreys' prior for q, below one half). Where none disagree, that takes three trials
of each end and two of any other candidate; about 20 where 35 % lie. What as many trials as are in `max_pairs` do not
decide is skipped. Of 28 releases with 35 % lies, 5 % of searches end wrong (with 20 % lies 4 %; a lead of two trials:
33 % and 23 %), and half cannot tell the ends apart (`tests/benchmarks/bench_release.py`).

Where trials give a number, each candidate runs in interleaved pairs with the good end, and it is bad when its log ratio
lies significantly beyond half of the bad end's. Where pairs are equal to the last bit, as on a simulated cluster, two
are enough.

The answer is a boundary that was seen: good on its left, bad on its right. Where a symptom came, went, and came again,
there are several; this is one of them, and not always the first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import count
from statistics import median

import numpy as np

from scalescope.analysis import sequential
from scalescope.analysis.paired import Effects, Floats, effects, interval, t_test, typical, welch
from scalescope.errors import InvalidField, UsageError
from scalescope.model import parameters
from scalescope.model.mapping import Mapped
from scalescope.model.words import plural
from scalescope.studies.comparison.judge import change, order
from scalescope.studies.release.parameters import (
    FEWEST_PAIRS,
    MaxEnvironments,
    MaxPairs,
    ReleaseParameters,
    SmallestEffect,
)

LEAD = 2
"""By how many trials one answer must lead at least."""
MOST_INVALID = 3
"""Trials or pairs that are not valid, after which a candidate with no more valid ones is given up."""
ALPHA = 0.02
"""Wrong decisions about one candidate, all looks together; a bisection over 30 candidates makes about five."""
HALF = 0.5
_LIES = (np.arange(100) + 0.5) / 200
_PRIOR = 1 / np.sqrt(_LIES * (1 - _LIES))
"""Shares of trials that lie, and how probable each is before any trial (Jeffreys 1946)."""


class Mode(StrEnum):
    """What one trial gives: whether it shows a finding, or a metric."""

    FINDING = "finding"
    METRIC = "metric"


class CandidateState(StrEnum):
    """What is known of a candidate; `open`: not enough yet."""

    GOOD = "good"
    BAD = "bad"
    UNAVAILABLE = "unavailable"
    UNDECIDED = "undecided"
    OPEN = "open"


class ReleaseDecision(StrEnum):
    """How the search ended.

    `found`: first bad and last good are neighbours. `between`: there are candidates between them that were skipped or
    not tried. `no-difference`: the bad end is as good as the good one. `good-end-bad`: the good end shows it already.
    `no-end`: an end could not be installed or decided. `unfinished`: there is more to ask.
    """

    FOUND = "found"
    BETWEEN = "between"
    NO_DIFFERENCE = "no-difference"
    GOOD_END_BAD = "good-end-bad"
    NO_END = "no-end"
    UNFINISHED = "unfinished"


@dataclass(frozen=True)
class ReleaseQuestion(Mapped):
    """What is searched.

    Attributes:
        labels: Names of the candidates in order; the first is the good end, the last the bad one.
        mode: Whether a trial shows a finding, or gives a number.
        subject: The package, for words only; may be empty.
        symptom: What a bad candidate does, for words only: `shows too-few-partitions`.
        metric: Name of the number, for words only.
        max_candidates: Candidates touched at most, ends included: each needs an environment.
        seed: Random seed for the order within pairs.

    Raises:
        InvalidField: A field is out of bounds.
    """

    labels: tuple[str, ...]
    mode: Mode = Mode.FINDING
    subject: str = ""
    symptom: str = "shows it"
    metric: str = "makespan_s"
    max_candidates: MaxEnvironments = ReleaseParameters.max_environments
    max_pairs: MaxPairs = ReleaseParameters.max_pairs
    smallest_effect: SmallestEffect = ReleaseParameters.smallest_effect
    seed: int = 0

    def __post_init__(self) -> None:
        parameters.check_fields(self)
        if len(self.labels) < 2:
            raise InvalidField("labels", self.labels, "a good end, a bad end, and what lies between them")

    @property
    def last(self) -> int:
        """Index of the bad end."""
        return len(self.labels) - 1

    @property
    def looks(self) -> tuple[int, ...]:
        """Numbers of valid pairs at which to look."""
        return sequential.looks(FEWEST_PAIRS, self.max_pairs)

    @property
    def level(self) -> float:
        """Nominal level of each look."""
        return sequential.level(ALPHA, self.looks)


@dataclass(frozen=True)
class CandidateTrial:
    """One trial to run of a candidate: its number, or that of the pair where trials give a number."""

    candidate: int
    turn: int


@dataclass(frozen=True)
class ReleaseReading:
    """What came of an ask.

    Attributes:
        candidate: Index of its label.
        turn: As it was asked.
        value: Whether the trial shows it, or the number that it gave; None when the trial is not valid.
        unavailable: The environment could not be built: the candidate is never asked for again.
    """

    candidate: int
    turn: int
    value: bool | float | None = None
    unavailable: bool = False


@dataclass(frozen=True)
class ReleaseCandidate:
    """What is known of a candidate, in words too; `trials` counts all that were run, valid or not."""

    index: int
    label: str
    state: CandidateState
    trials: int
    words: str


@dataclass(frozen=True)
class ReleaseAnswer(Mapped):
    """Where it came in.

    Attributes:
        question: What was searched.
        decision: How the search ended.
        first_bad: The earliest candidate seen bad, right of `last_good`; None where nothing was bisected.
        last_good: The latest candidate seen good.
        skipped: Candidates between the two, and why they are neither.
        tried: All candidates touched, in the order in which they were.
        trials: Trials run, valid or not.
        line: One sentence for people.
    """

    question: ReleaseQuestion
    decision: ReleaseDecision
    first_bad: ReleaseCandidate | None
    last_good: ReleaseCandidate | None
    skipped: tuple[ReleaseCandidate, ...]
    tried: tuple[ReleaseCandidate, ...]
    trials: int
    line: str


def further(question: ReleaseQuestion, readings: Sequence[ReleaseReading]) -> tuple[CandidateTrial, ...]:
    """Trials to run next, in this order; none when the search is over.

    Depends on nothing but the readings: a search that was killed goes on where it was.

    Raises:
        UsageError: A reading is of no candidate of the question.
    """
    table = _Readings(question, readings)
    return tuple(ask for index in _search(table).open for ask in table.asks(index))


def judge(question: ReleaseQuestion, readings: Sequence[ReleaseReading]) -> ReleaseAnswer:
    """Where it came in, as far as the readings say.

    Raises:
        UsageError: A reading is of no candidate of the question.
    """
    table = _Readings(question, readings)
    search = _search(table)
    bisected = search.decision in (ReleaseDecision.FOUND, ReleaseDecision.BETWEEN)
    between = range(search.good + 1, search.bad) if bisected else ()
    skipped = tuple(table.candidate(index) for index in between)
    return ReleaseAnswer(
        question=question,
        decision=search.decision,
        first_bad=table.candidate(search.bad) if bisected else None,
        last_good=table.candidate(search.good) if bisected else None,
        skipped=skipped,
        tried=tuple(table.candidate(index) for index in search.tried),
        trials=table.trials,
        line=_line(table, search, skipped),
    )


# ------------------------------------------------------------------ the search


@dataclass(frozen=True)
class _Bisection:
    """How far it has come: `open` are the candidates that need more trials."""

    decision: ReleaseDecision
    good: int
    bad: int
    tried: tuple[int, ...]
    open: tuple[int, ...] = ()


def _search(table: _Readings) -> _Bisection:
    good, bad = 0, table.question.last
    tried = [index for index in (good, bad) if table.readings_of(index)]
    ended = _ends(table)
    if ended is not None:
        wanted = [index for index in (good, bad) if table.candidate(index).state is CandidateState.OPEN]
        return _Bisection(ended, good, bad, tuple(tried), tuple(wanted) if ended is ReleaseDecision.UNFINISHED else ())
    skipped: set[int] = set()
    while (index := _next(good, bad, skipped)) is not None and len(tried) < table.question.max_candidates:
        state = table.candidate(index).state
        if table.readings_of(index):
            tried.append(index)
        if state is CandidateState.OPEN:
            return _Bisection(ReleaseDecision.UNFINISHED, good, bad, tuple(tried), (index,))
        if state is CandidateState.GOOD:
            good = index
        elif state is CandidateState.BAD:
            bad = index
        else:
            skipped.add(index)
    decision = ReleaseDecision.FOUND if bad - good == 1 else ReleaseDecision.BETWEEN
    return _Bisection(decision, good, bad, tuple(tried))


def _ends(table: _Readings) -> ReleaseDecision | None:
    """Why there is nothing to bisect; None where there is."""
    good, bad = table.candidate(0).state, table.candidate(table.question.last).state
    if any(state in (CandidateState.UNAVAILABLE, CandidateState.UNDECIDED) for state in (good, bad)):
        return ReleaseDecision.NO_END
    if good is CandidateState.BAD:
        return ReleaseDecision.GOOD_END_BAD
    if bad is CandidateState.GOOD:
        return ReleaseDecision.NO_DIFFERENCE
    return ReleaseDecision.UNFINISHED if CandidateState.OPEN in (good, bad) else None


def _next(good: int, bad: int, skipped: Collection[int]) -> int | None:
    """The candidate nearest to the middle that was not skipped."""
    middle = (good + bad) // 2
    left = (index for index in range(good + 1, bad) if index not in skipped)
    return min(left, key=lambda index: (abs(index - middle), index), default=None)


# ------------------------------------------------------------------ what readings say


class _Readings:
    """The readings of a question, and what they say of each candidate."""

    def __init__(self, question: ReleaseQuestion, readings: Sequence[ReleaseReading]) -> None:
        self.question = question
        self.cells: dict[int, dict[int, ReleaseReading]] = {}
        for reading in readings:
            if not 0 <= reading.candidate <= question.last:
                raise UsageError(
                    f"a reading is of candidate {reading.candidate}, but there are {len(question.labels)}",
                    cause="the list of releases has changed since the search began",
                    next_step="begin a new search",
                )
            self.cells.setdefault(reading.candidate, {})[reading.turn] = reading
        self._known: dict[int, ReleaseCandidate] = {}

    @property
    def trials(self) -> int:
        return sum(not reading.unavailable for cells in self.cells.values() for reading in cells.values())

    def readings_of(self, index: int) -> list[ReleaseReading]:
        """By turn."""
        return [reading for _, reading in sorted(self.cells.get(index, {}).items())]

    def candidate(self, index: int) -> ReleaseCandidate:
        if index not in self._known:
            state, words = self._assess(index)
            trials = sum(not reading.unavailable for reading in self.readings_of(index))
            self._known[index] = ReleaseCandidate(index, self.question.labels[index], state, trials, words)
        return self._known[index]

    def asks(self, index: int) -> list[CandidateTrial]:
        """What an open candidate needs next."""
        if self.question.mode is Mode.FINDING:
            return [CandidateTrial(index, next(turn for turn in count() if turn not in self.cells.get(index, {})))]
        if index == 0:
            return []  # it is the partner in the pairs of the bad end
        good = self.cells.get(0, {})
        used = {turn for other, cells in self.cells.items() if other for turn in cells}
        turn = next(turn for turn in count() if not (turn in good and turn in used))
        pair = [0 if arm == "a" else index for arm in order(self.question.seed, turn)]
        return [CandidateTrial(each, turn) for each in pair if turn not in self.cells.get(each, {})]

    def _assess(self, index: int) -> tuple[CandidateState, str]:
        readings = self.readings_of(index)
        if any(reading.unavailable for reading in readings):
            return CandidateState.UNAVAILABLE, "could not be installed"
        if self.question.mode is Mode.FINDING:
            return self._vote(index)
        if index == 0:
            good = CandidateState.GOOD if self.cells.get(self.question.last) else CandidateState.OPEN
            return good, "what all others are compared with"
        return self._weigh(index)

    # -------------------------------------------------------------- shown or not

    def _votes(self, index: int) -> list[bool]:
        return [bool(reading.value) for reading in self.readings_of(index) if reading.value is not None]

    def _vote(self, index: int) -> tuple[CandidateState, str]:
        """Decided where one answer is probable enough; trials that are not valid have no vote."""
        votes, invalid = self._votes(index), sum(reading.value is None for reading in self.readings_of(index))
        words = f"shown by {sum(votes)} of {plural(len(votes), 'trial')}" if votes else "not tried"
        if invalid:
            words += f", {invalid} not valid"
        lies = _PRIOR.copy()
        for other in self.cells.keys() - {index}:
            lies *= sum(_chances(self._votes(other)))
        good, bad = (float((lies * chances).sum()) for chances in _chances(votes))
        if min(good, bad) <= ALPHA * (good + bad) and abs(2 * sum(votes) - len(votes)) >= LEAD:
            return (CandidateState.BAD if bad > good else CandidateState.GOOD), words
        if len(votes) >= 2 * self.question.max_pairs or invalid >= max(MOST_INVALID, len(votes)):
            return CandidateState.UNDECIDED, words
        return CandidateState.OPEN, words

    # -------------------------------------------------------------- numbers

    @cached_property
    def _log(self) -> bool:
        """Whether all numbers have ratios; where one is 0, all pairs are compared by relative differences."""
        return all(reading.value != 0 for cells in self.cells.values() for reading in cells.values())

    def _effects(self, index: int) -> Effects:
        return typical(effects(self._pairs(index), log=self._log))

    def _weigh(self, index: int) -> tuple[CandidateState, str]:
        found, question = self._effects(index), self.question
        valid = found.pairs + found.outlying
        if valid < 2:
            given_up = found.dropped >= MOST_INVALID
            words = f"{plural(found.dropped, 'pair')} not valid" if found.dropped else "not tried"
            return (CandidateState.UNDECIDED if given_up else CandidateState.OPEN), words
        end = index == question.last
        words = f"{self._compared(index, found)}, {plural(valid, 'pair')}"
        state = CandidateState.OPEN
        if found.exact or valid in question.looks or valid >= question.max_pairs:
            state = self._end_differs(found, last=valid >= question.max_pairs) if end else self._nearer(found)
        if state is CandidateState.OPEN and (valid >= question.max_pairs or found.dropped >= max(MOST_INVALID, valid)):
            return CandidateState.UNDECIDED, f"{words}, too noisy to tell"
        return state, words

    def _compared(self, index: int, found: Effects) -> str:
        """A candidate beside the good end: `workers_used 2 instead of 101 in 2.50.0`."""
        metric, good = self.question.metric, self.question.labels[0]
        valid = [pair for pair in self._pairs(index) if None not in pair]
        a, b = (median(side) for side in zip(*valid, strict=True))
        if a == b:
            return f"{metric} {b:,.4g} as in {good}"
        more = "" if found.exact else f", {change(found.ratio(found.mean))}"
        return f"{metric} {b:,.4g} instead of {a:,.4g} in {good}{more}"

    def _pairs(self, index: int) -> list[tuple[float | None, float | None]]:
        """The good end and a candidate, pair by pair; None where a trial is not valid."""
        good = self.cells.get(0, {})
        return [(good[each.turn].value, each.value) for each in self.readings_of(index) if each.turn in good]

    def _end_differs(self, found: Effects, *, last: bool) -> CandidateState:
        """Bad once the effect is known so well that it could be told from its half, by which all others are judged."""
        smallest = found.effect(1 + self.question.smallest_effect)
        low, high = interval(found, 2 * self.question.level)
        if -smallest <= low and high <= smallest:
            return CandidateState.GOOD
        low, high = interval(found, self.question.level)
        differs = t_test(found) <= self.question.level and abs(found.mean) > smallest
        return CandidateState.BAD if differs and (last or high - low <= abs(found.mean)) else CandidateState.OPEN

    def _nearer(self, found: Effects) -> CandidateState:
        """Good or bad: on which side of half the bad end's effect."""
        end = self._effects(self.question.last)
        if welch(found, end, HALF) > self.question.level:
            return (
                CandidateState.UNDECIDED if found.exact and end.exact else CandidateState.OPEN
            )  # just half, and no noise to average
        beyond = (found.mean - HALF * end.mean) * end.mean > 0
        return CandidateState.BAD if beyond else CandidateState.GOOD


def _chances(votes: Sequence[bool]) -> tuple[Floats, Floats]:
    """The probability of these votes of a good and of a bad candidate, for each of `_LIES`."""
    shown, not_shown = sum(votes), len(votes) - sum(votes)
    return _LIES**shown * (1 - _LIES) ** not_shown, _LIES**not_shown * (1 - _LIES) ** shown


# ------------------------------------------------------------------ in words


def _line(table: _Readings, search: _Bisection, skipped: Sequence[ReleaseCandidate]) -> str:
    question = table.question
    subject = f"{question.subject} " if question.subject else ""
    good, bad = table.candidate(search.good), table.candidate(search.bad)
    tried, every = len(search.tried), len(question.labels)
    spent = f"{tried} of {every} tried, {plural(table.trials, 'trial')}"
    match search.decision:
        case ReleaseDecision.FOUND:
            return (
                f"{subject}{bad.label} is the first that {question.symptom}: {bad.words}; "
                f"{good.label} is the last that does not: {good.words}. {spent[0].upper()}{spent[1:]}."
            )
        case ReleaseDecision.BETWEEN:
            reasons = "; ".join(_reasons(skipped))
            return f"It came between {subject}{good.label} (good) and {bad.label} (bad); {reasons}. {spent}."
        case ReleaseDecision.NO_DIFFERENCE:
            return f"{subject}{bad.label} is no worse than {good.label} ({bad.words}): nothing to look for. {spent}."
        case ReleaseDecision.GOOD_END_BAD:
            return f"{subject}{good.label} already {question.symptom} ({good.words}): begin with an older one."
        case ReleaseDecision.NO_END:
            ends = [
                f"{end.label} ({end.words})"
                for end in (good, bad)
                if end.state not in (CandidateState.GOOD, CandidateState.BAD)
            ]
            uncertain = f"{subject}{' and '.join(ends)}"
            return (
                f"Nothing was searched, as an end is not certain: {uncertain}. Choose another end, or raise max_pairs."
            )
    return f"Not finished: between {subject}{good.label} and {bad.label} so far; {spent}. Run it again to go on."


def _reasons(skipped: Sequence[ReleaseCandidate]) -> list[str]:
    why = {
        CandidateState.UNAVAILABLE: "could not be installed",
        CandidateState.UNDECIDED: "could not be decided",
        CandidateState.OPEN: "not tried (max_candidates)",
    }
    named = {state: [each.label for each in skipped if each.state is state] for state in why}
    return [f"{', '.join(labels)} {why[state]}" for state, labels in named.items() if labels]
