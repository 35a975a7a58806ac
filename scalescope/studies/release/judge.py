"""Bisects ordered candidates: the first is good, and the last is bad.

Candidates are releases of a package, commits, or mixtures of two lock files (`mixtures`). Both ends are tried first: if
they do not differ, nothing is bisected. Then the middle is tried, as `git bisect` does. A candidate that cannot be
installed or decided is skipped, and its nearest neighbour tried instead. The answer is a boundary that was observed;
if a symptom came, went, and came again, there are other boundaries.

If the symptom is a finding, a candidate is decided once one answer has a probability of 98 %. Some trials show a wrong
answer; their share is learnt from how far the trials of each candidate agree (sequential test of mixtures, after Wald
1945, with Jeffreys' prior). If all trials agree, each end takes three trials and any other candidate two; if 35 % are
wrong, about 20. A candidate that is undecided after the trials of `max_pairs` pairs is skipped.
`python -m evidence release` measures how often the answer is wrong.

If the symptom is a metric, each candidate runs in interleaved pairs with the good end. It is bad if its log ratio is
significantly above half of the bad end's log ratio. Two pairs suffice if they are exactly equal.
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
from scalescope.model.words import change, plural
from scalescope.studies.comparison.judge import order
from scalescope.studies.release.parameters import (
    FEWEST_PAIRS,
    MaxEnvironments,
    MaxPairs,
    ReleaseParameters,
    SmallestEffect,
)

# Trials showing one answer must outnumber those showing the other by at least this number.
LEAD = 2
# A candidate is given up after this many invalid trials or pairs, unless more of them are valid.
MOST_INVALID = 3
# Probability of deciding one candidate wrongly, over all looks; bisecting 30 candidates decides about five of them.
ALPHA = 0.02
HALF = 0.5
_LIES = (np.arange(100) + 0.5) / 200
# Prior density (Jeffreys 1946) of each share of trials with the wrong answer (`_LIES`, 0 to 0.5).
_PRIOR = 1 / np.sqrt(_LIES * (1 - _LIES))


class Mode(StrEnum):
    """Kind of result that a trial gives: whether it shows a finding, or the value of a metric."""

    FINDING = "finding"
    METRIC = "metric"


class CandidateState(StrEnum):
    """State of a candidate; `open`: more trials may decide it."""

    GOOD = "good"
    BAD = "bad"
    UNAVAILABLE = "unavailable"
    UNDECIDED = "undecided"
    OPEN = "open"


class ReleaseDecision(StrEnum):
    """Outcome of a search."""

    FOUND = "found"  # first bad and last good candidate are neighbours
    BETWEEN = "between"  # some candidates between the last good and the first bad one were skipped or not tried
    NO_DIFFERENCE = "no-difference"  # the bad end is as good as the good one
    GOOD_END_BAD = "good-end-bad"
    NO_END = "no-end"  # an end could not be installed or decided
    UNFINISHED = "unfinished"


@dataclass(frozen=True)
class ReleaseQuestion(Mapped):
    """The question of one search."""

    labels: tuple[str, ...]  # candidates in order: the first is the good end, the last the bad one
    mode: Mode = Mode.FINDING
    subject: str = ""  # name of the package or empty; like `symptom` and `metric`, used in texts only
    symptom: str = "shows it"
    metric: str = "makespan_s"
    max_candidates: MaxEnvironments = ReleaseParameters.max_environments  # most candidates tried, ends included
    max_pairs: MaxPairs = ReleaseParameters.max_pairs
    smallest_effect: SmallestEffect = ReleaseParameters.smallest_effect
    seed: int = 0  # random seed for the order within pairs

    def __post_init__(self) -> None:
        parameters.check_fields(self)
        if len(self.labels) < 2:
            raise InvalidField("labels", self.labels, "at least two candidates: a good end and a bad end")

    @property
    def last(self) -> int:
        return len(self.labels) - 1

    @property
    def looks(self) -> tuple[int, ...]:
        return sequential.looks(FEWEST_PAIRS, self.max_pairs)

    @property
    def level(self) -> float:
        return sequential.level(ALPHA, self.looks)


@dataclass(frozen=True)
class CandidateTrial:
    """A trial to run: index of its candidate, and its number (for a metric, the number of its pair)."""

    candidate: int
    turn: int


@dataclass(frozen=True)
class ReleaseReading:
    """Result of a trial."""

    candidate: int
    turn: int
    value: bool | float | None = None  # the metric, or whether the trial shows the finding; None: not valid
    unavailable: bool = False  # the environment could not be built; the candidate gets no more trials


@dataclass(frozen=True)
class ReleaseCandidate:
    """A candidate with its state; `trials` counts all that were run, valid or not."""

    index: int
    label: str
    state: CandidateState
    trials: int
    words: str


@dataclass(frozen=True)
class ReleaseAnswer(Mapped):
    """The boundary between good and bad candidates."""

    question: ReleaseQuestion
    decision: ReleaseDecision
    first_bad: ReleaseCandidate | None  # None if nothing was bisected
    last_good: ReleaseCandidate | None
    skipped: tuple[ReleaseCandidate, ...]  # candidates between `last_good` and `first_bad` without a decision
    tried: tuple[ReleaseCandidate, ...]  # candidates in the order of their first trials
    trials: int  # trials run, valid or not
    line: str


def further(question: ReleaseQuestion, readings: Sequence[ReleaseReading]) -> tuple[CandidateTrial, ...]:
    """Trials to run next, in this order; empty when the search is over. Depends on the readings alone."""
    table = _Readings(question, readings)
    return tuple(ask for index in _search(table).open for ask in table.asks(index))


def judge(question: ReleaseQuestion, readings: Sequence[ReleaseReading]) -> ReleaseAnswer:
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
    return _Bisection(ReleaseDecision.FOUND if bad - good == 1 else ReleaseDecision.BETWEEN, good, bad, tuple(tried))


def _ends(table: _Readings) -> ReleaseDecision | None:
    good, bad = table.candidate(0).state, table.candidate(table.question.last).state
    if any(state in (CandidateState.UNAVAILABLE, CandidateState.UNDECIDED) for state in (good, bad)):
        return ReleaseDecision.NO_END
    if good is CandidateState.BAD:
        return ReleaseDecision.GOOD_END_BAD
    if bad is CandidateState.GOOD:
        return ReleaseDecision.NO_DIFFERENCE
    return ReleaseDecision.UNFINISHED if CandidateState.OPEN in (good, bad) else None


def _next(good: int, bad: int, skipped: Collection[int]) -> int | None:
    middle = (good + bad) // 2
    left = (index for index in range(good + 1, bad) if index not in skipped)
    return min(left, key=lambda index: (abs(index - middle), index), default=None)


# ------------------------------------------------------------------ assessing one candidate


class _Readings:
    def __init__(self, question: ReleaseQuestion, readings: Sequence[ReleaseReading]) -> None:
        self.question = question
        self.cells: dict[int, dict[int, ReleaseReading]] = {}
        for reading in readings:
            if not 0 <= reading.candidate <= question.last:
                raise UsageError(
                    f"a reading names candidate {reading.candidate}, but there are only {len(question.labels)}",
                    cause="the list of releases has changed since the search began",
                    next_step="begin a new search",
                )
            self.cells.setdefault(reading.candidate, {})[reading.turn] = reading
        self._known: dict[int, ReleaseCandidate] = {}

    @property
    def trials(self) -> int:
        return sum(not reading.unavailable for cells in self.cells.values() for reading in cells.values())

    def readings_of(self, index: int) -> list[ReleaseReading]:
        return [reading for _, reading in sorted(self.cells.get(index, {}).items())]

    def candidate(self, index: int) -> ReleaseCandidate:
        if index not in self._known:
            state, words = self._assess(index)
            trials = sum(not reading.unavailable for reading in self.readings_of(index))
            self._known[index] = ReleaseCandidate(index, self.question.labels[index], state, trials, words)
        return self._known[index]

    def asks(self, index: int) -> list[CandidateTrial]:
        if self.question.mode is Mode.FINDING:
            return [CandidateTrial(index, next(turn for turn in count() if turn not in self.cells.get(index, {})))]
        if index == 0:
            return []  # the good end runs as partner of the other candidates
        good = self.cells.get(0, {})
        used = {turn for other, cells in self.cells.items() if other for turn in cells}
        turn = next(turn for turn in count() if not (turn in good and turn in used))
        pair = [0 if arm == "a" else index for arm in order(self.question.seed, turn)]
        return [CandidateTrial(each, turn) for each in pair if turn not in self.cells.get(each, {})]

    def _assess(self, index: int) -> tuple[CandidateState, str]:
        if any(reading.unavailable for reading in self.readings_of(index)):
            return CandidateState.UNAVAILABLE, "could not be installed"
        if self.question.mode is Mode.FINDING:
            return self._vote(index)
        if index == 0:
            good = CandidateState.GOOD if self.cells.get(self.question.last) else CandidateState.OPEN
            return good, "the reference"
        return self._weigh(index)

    # -------------------------------------------------------------- findings

    def _votes(self, index: int) -> list[bool]:
        return [bool(reading.value) for reading in self.readings_of(index) if reading.value is not None]

    def _vote(self, index: int) -> tuple[CandidateState, str]:
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

    # -------------------------------------------------------------- metrics

    @cached_property
    def _log(self) -> bool:
        # True: pairs are compared by log ratios. False, if any number is 0: by relative differences.
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
        metric, good = self.question.metric, self.question.labels[0]
        valid = [pair for pair in self._pairs(index) if None not in pair]
        a, b = (median(side) for side in zip(*valid, strict=True))
        if a == b:
            return f"{metric} {b:,.4g} as in {good}"
        more = "" if found.exact else f", {change(found.ratio(found.mean))}"
        return f"{metric} {b:,.4g} instead of {a:,.4g} in {good}{more}"

    def _pairs(self, index: int) -> list[tuple[float | None, float | None]]:
        good = self.cells.get(0, {})
        return [(good[each.turn].value, each.value) for each in self.readings_of(index) if each.turn in good]

    def _end_differs(self, found: Effects, *, last: bool) -> CandidateState:
        # Bad once the interval is narrow enough to tell the effect from half of it (the limit for other candidates).
        smallest = found.effect(1 + self.question.smallest_effect)
        low, high = interval(found, 2 * self.question.level)
        if -smallest <= low and high <= smallest:
            return CandidateState.GOOD
        low, high = interval(found, self.question.level)
        differs = t_test(found) <= self.question.level and abs(found.mean) > smallest
        return CandidateState.BAD if differs and (last or high - low <= abs(found.mean)) else CandidateState.OPEN

    def _nearer(self, found: Effects) -> CandidateState:
        end = self._effects(self.question.last)
        if welch(found, end, HALF) > self.question.level:
            # not significantly different from half the end's effect; without noise, more pairs would change nothing
            return CandidateState.UNDECIDED if found.exact and end.exact else CandidateState.OPEN
        return CandidateState.BAD if (found.mean - HALF * end.mean) * end.mean > 0 else CandidateState.GOOD


def _chances(votes: Sequence[bool]) -> tuple[Floats, Floats]:
    # Probability of these votes if the candidate is good, and if it is bad, for each share in `_LIES`.
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
            return f"The change came between {subject}{good.label} (good) and {bad.label} (bad); {reasons}. {spent}."
        case ReleaseDecision.NO_DIFFERENCE:
            return f"{subject}{bad.label} is no worse than {good.label} ({bad.words}): nothing to look for. {spent}."
        case ReleaseDecision.GOOD_END_BAD:
            return f"{subject}{good.label} already {question.symptom} ({good.words}): choose an older good end."
        case ReleaseDecision.NO_END:
            decided = (CandidateState.GOOD, CandidateState.BAD)
            ends = [f"{end.label} ({end.words})" for end in (good, bad) if end.state not in decided]
            unsure = f"{subject}{' and '.join(ends)}"
            return f"Nothing was searched, as an end is undecided: {unsure}. Choose another end, or raise max_pairs."
    return f"Not finished: between {subject}{good.label} and {bad.label} so far; {spent}. Run the command again."


def _reasons(skipped: Sequence[ReleaseCandidate]) -> list[str]:
    why = {
        CandidateState.UNAVAILABLE: "could not be installed",
        CandidateState.UNDECIDED: "could not be decided",
        CandidateState.OPEN: "not tried (max_environments)",
    }
    named = {state: [each.label for each in skipped if each.state is state] for state in why}
    return [f"{', '.join(labels)} {why[state]}" for state, labels in named.items() if labels]
