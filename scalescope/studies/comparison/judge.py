"""Is B slower than A? Judges one comparison in interleaved pairs, and corrects the judgements of many comparisons.

The pairs are judged after 7, 10, 14, 20, ... pairs, until the answer is clear:

- **same**: two one-sided tests (Schuirmann 1987) show that any difference is below the smallest effect. Outliers
  included, the mean plus its standard error does not exceed it, either. There are at least `SAME_FROM` pairs, or all
  ratios are exactly equal;
- **slower, faster**: the interval of the ratio excludes 1, the sign-flip test agrees, and the outliers do not change
  the sign of the mean;
- **undecided** after the last pair otherwise.

Each look uses the same nominal level, so that all looks together raise a false alarm in at most 5 % of comparisons
(`sequential`). The interval is the repeated confidence interval (Jennison and Turnbull 1989): it holds at every look.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Literal

import numpy as np

from scalescope.analysis import sequential
from scalescope.analysis.paired import (
    Effects,
    Pairs,
    effects,
    false_discovery,
    interval,
    minimal_effect,
    sign_flip,
    t_test,
    typical,
)
from scalescope.model import parameters
from scalescope.model.mapping import Mapped, from_mapping
from scalescope.model.words import change, plural, signed_change
from scalescope.studies.comparison.parameters import FEWEST, Alpha, ComparisonParameters, MaxPairs, SmallestEffect

# Pairs after which a comparison ends if none of them is valid.
FIRST = 3
# Fewest pairs for "same", unless `max_pairs` is smaller. If 15 % of B's trials are slow, 10 % of comparisons with 14
# pairs contain no slow trial, and 33 % of comparisons with 7 pairs.
SAME_FROM = 14


class ComparisonDecision(StrEnum):
    """Result of comparing B with A."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    UNDECIDED = "undecided"


DIFFERENT = (ComparisonDecision.SLOWER, ComparisonDecision.FASTER)


@dataclass(frozen=True)
class ComparisonQuestion(Mapped):
    """What is compared, and how closely."""

    metric: str = "makespan_s"
    name: str = ""  # name among other comparisons, such as the workload
    a: str = "A"
    b: str = "B"
    larger_is_slower: bool = True  # False for metrics whose larger values are better, such as `efficiency`
    smallest_effect: SmallestEffect = ComparisonParameters.smallest_effect
    max_pairs: MaxPairs = ComparisonParameters.max_pairs
    alpha: Alpha = ComparisonParameters.alpha

    def __post_init__(self) -> None:
        parameters.check_fields(self)

    @property
    def looks(self) -> tuple[int, ...]:
        return sequential.looks(FEWEST, self.max_pairs)

    @property
    def level(self) -> float:
        return sequential.level(self.alpha, self.looks)


@dataclass(frozen=True)
class PairedComparison:
    """Result of one comparison."""

    question: ComparisonQuestion
    ratio: float | None  # typical b / a; infinite if only A is 0; None with fewer than two valid pairs
    low: float | None  # lower end of the ratio's interval, with confidence 1 - alpha over all looks together
    high: float | None
    p: float | None  # p of the paired t-test, corrected for all planned looks
    sign_flip_p: float | None  # p of the sign-flip test at the last look alone; it does not assume normal noise
    pairs: int  # number of valid pairs, outliers included
    dropped: int  # pairs with a trial that is not valid
    outlying: int
    minimal_effect: float | None  # smallest difference (0.03: 3 %) that four of five such comparisons would show
    decision: ComparisonDecision
    line: str
    # all pairs, valid or not, in the order in which they ran
    measured: tuple[tuple[float | None, float | None], ...] = ()
    q: float | None = None  # p adjusted for the family (Benjamini-Hochberg); None without family or with too few pairs

    @property
    def different(self) -> bool:
        return self.decision in DIFFERENT

    @property
    def size(self) -> float:
        return abs(math.log(self.ratio)) if self.ratio and self.ratio < math.inf else math.inf

    def to_mapping(self) -> dict[str, Any]:
        """The fields for JSON: infinite numbers become None; `q` is left out, since only a family has it."""
        given = {name: value for name, value in asdict(self).items() if name != "q"}
        return {
            name: None if isinstance(value, float) and math.isinf(value) else value for name, value in given.items()
        }

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> PairedComparison:
        """The inverse of `to_mapping`; with two or more valid pairs, None means infinity."""
        names = ("ratio", "low", "high", "minimal_effect") if data["pairs"] >= 2 else ()
        return from_mapping(cls, {**data, **{name: math.inf for name in names if data[name] is None}})


def order(seed: int, pair: int) -> tuple[Literal["a", "b"], Literal["a", "b"]]:
    """The order in which the two trials of a pair run.

    A coin is tossed for every two pairs, and the second pair runs in the opposite order: a steady drift of the machine
    cancels, and a periodic disturbance cannot keep in step.
    """
    first = random.Random(f"{seed}:{pair // 2}").random() < 0.5
    return ("a", "b") if first == (pair % 2 == 0) else ("b", "a")


def further(question: ComparisonQuestion, pairs: Pairs) -> int:
    """How many more pairs to run before the next look; 0 when the comparison is over.

    An invalid pair is replaced. The comparison ends once there are `FEWEST` invalid pairs, and at least as many invalid
    pairs as valid ones; or if the first `FIRST` pairs are all invalid.
    """
    found = effects(pairs)
    if not pairs:
        return FIRST
    if found.dropped >= max(FIRST if found.pairs == 0 else FEWEST, found.pairs):
        return 0
    upcoming = next((look for look in question.looks if look >= found.pairs), found.pairs)
    if found.pairs < upcoming:
        return upcoming - found.pairs
    if found.pairs >= question.max_pairs or _decide(question, found) is not ComparisonDecision.UNDECIDED:
        return 0
    return question.looks[question.looks.index(found.pairs) + 1] - found.pairs


def judge(question: ComparisonQuestion, pairs: Pairs) -> PairedComparison:
    """Judge all pairs that were run."""
    every, measured = effects(pairs), tuple(pairs)
    if every.pairs < 2:
        nothing = (None, None, None, None, None)
        undecided, line = ComparisonDecision.UNDECIDED, _too_few(question, every)
        return PairedComparison(question, *nothing, every.pairs, every.dropped, 0, None, undecided, line, measured)
    found = typical(every)
    low, high = interval(found, question.level)
    p = sequential.corrected(t_test(found), question.looks)
    decision = ComparisonDecision.UNDECIDED if every.pairs < FEWEST else _decide(question, every)
    return PairedComparison(
        question=question,
        ratio=found.ratio(found.mean),
        low=found.ratio(low),
        high=found.ratio(high),
        p=p,
        sign_flip_p=sign_flip(found),
        pairs=every.pairs,
        dropped=every.dropped,
        outlying=found.outlying,
        minimal_effect=minimal_effect(found, question.level),
        decision=decision,
        line=_too_few(question, every) if every.pairs < FEWEST else _line(question, found, decision, p),
        measured=measured,
    )


# ------------------------------------------------------------------ many comparisons


@dataclass(frozen=True)
class Family:
    """Many comparisons in the given order, and a sentence that counts their decisions."""

    members: tuple[PairedComparison, ...]
    line: str

    @property
    def hidden(self) -> tuple[PairedComparison, ...]:
        return tuple(each for each in self.members if not each.different)

    def count(self, decision: ComparisonDecision) -> int:
        return sum(each.decision is decision for each in self.members)

    def to_mapping(self) -> dict[str, Any]:
        members = [{**each.to_mapping(), "q": each.q} for each in self.members]
        counts = {str(decision): self.count(decision) for decision in ComparisonDecision}
        return {"line": self.line, "counts": counts, "hidden": len(self.hidden), "members": members}


def ordered(comparisons: Sequence[PairedComparison]) -> list[PairedComparison]:
    """Comparisons with a difference, the largest difference first; then the others in the given order."""
    return sorted(comparisons, key=lambda each: -each.size if each.different else 1.0)


def family(comparisons: Sequence[PairedComparison], *, alpha: float = ComparisonParameters.alpha) -> Family:
    """Correct for the number of comparisons: of the differences shown, a share of `alpha` at most should be false.

    A comparison whose difference is not significant after this correction becomes undecided.
    """
    tested = [each for each in comparisons if each.p is not None and each.pairs >= FEWEST]
    adjusted = dict(zip(map(id, tested), false_discovery([each.p or 0.0 for each in tested]), strict=True))
    members = []
    for each in comparisons:
        q = adjusted.get(id(each))
        faint = each.different and (q is None or q > alpha)
        members.append(replace(each, q=q, decision=ComparisonDecision.UNDECIDED if faint else each.decision))
    return Family(tuple(members), _family_line(members))


# ------------------------------------------------------------------ deciding


def _decide(question: ComparisonQuestion, every: Effects) -> ComparisonDecision:
    found = typical(every)
    if _close(question, found):
        many = (found.pairs == every.pairs and found.exact) or every.pairs >= min(SAME_FROM, question.max_pairs)
        rare = abs(every.mean) + every.error <= every.effect(1 + question.smallest_effect)
        return ComparisonDecision.SAME if many and rare else ComparisonDecision.UNDECIDED
    if t_test(found) > question.level or sign_flip(found) > question.alpha or found.mean * every.mean <= 0:
        return ComparisonDecision.UNDECIDED
    return ComparisonDecision.SLOWER if (found.mean > 0) is question.larger_is_slower else ComparisonDecision.FASTER


def _close(question: ComparisonQuestion, found: Effects) -> bool:
    low, high = interval(found, 2 * question.level)  # two one-sided tests, each at the level of a look
    smallest = found.effect(1 + question.smallest_effect)
    return -smallest <= low and high <= smallest


# ------------------------------------------------------------------ in words


def _line(question: ComparisonQuestion, found: Effects, decision: ComparisonDecision, p: float) -> str:
    low, high = interval(found, question.level)
    size = f"{question.metric} {change(found.ratio(found.mean))}"
    pairs = plural(found.pairs + found.outlying, "pair") + _set_aside(question, found)
    if found.exact:
        figures = f"{size}, exactly so in each of {pairs}"
    else:
        ends = f"{signed_change(found.ratio(low))} to {signed_change(found.ratio(high))}"
        figures = f"{size} ({100 * (1 - question.alpha):g} % interval {ends}, p = {p:.2g}, {pairs})"
    head = _head(question)
    a, b, smallest = question.a, question.b, f"{100 * question.smallest_effect:g} %"
    if decision is ComparisonDecision.SAME:
        same = f"the same as {a}" if question.smallest_effect == 0 else f"within {smallest} of {a}"
        return f"{head}{b} is {same}: {figures}."
    if decision is not ComparisonDecision.UNDECIDED:
        return f"{head}{b} is {decision} than {a}: {figures}."
    return f"{_undecided(question)}: {figures}. {_advice(question, found)}"


def _head(question: ComparisonQuestion) -> str:
    return f"{question.name}: " if question.name else ""


def _undecided(question: ComparisonQuestion) -> str:
    return f"{_head(question)}Undecided whether {question.b} differs from {question.a}"


def _advice(question: ComparisonQuestion, found: Effects) -> str:
    if _close(question, found):
        if not found.outlying:
            return "So far, A and B are the same, but there are too few pairs: allow more time."
        same = "Without the pairs set aside, A and B would be the same"
        return f"{same}: raise max_pairs to see how often such pairs occur."
    if t_test(found) <= question.level:
        if sign_flip(found) <= question.alpha:
            return "The pairs that were set aside turn the difference round: look at them."
        flipped = f"p = {sign_flip(found):.2g}"
        return f"The t-test sees a difference, the sign-flip test ({flipped}) does not: look for odd trials."
    seen = f"This run would have shown a difference of {100 * minimal_effect(found, question.level):.2g} %"
    return f"{seen}; for smaller differences, raise max_pairs or use a quieter machine."


def _too_few(question: ComparisonQuestion, found: Effects) -> str:
    have = f"{_undecided(question)}: {plural(found.pairs, 'valid pair')} of at least {FEWEST}"
    if not found.dropped:
        return f"{have}. Allow more time."
    return f"{have}, {plural(found.dropped, 'pair')} had a trial that was not valid. See why trials are not valid."


def _set_aside(question: ComparisonQuestion, found: Effects) -> str:
    parts = []
    for side, odd in ((question.b, found.odd[found.odd > 0]), (question.a, -found.odd[found.odd < 0])):
        if len(odd):
            factor = found.ratio(float(np.median(odd)))
            parts.append(f"{len(odd)} set aside in which {side} was {change(factor)}")
    if found.dropped:
        parts.append(f"{found.dropped} more not valid")
    return f", {', '.join(parts)}" if parts else ""


def _family_line(members: Sequence[PairedComparison]) -> str:
    counts = Counter(each.decision for each in members)
    shown, rest = (
        ", ".join(
            f"{counts[each]} {each}" for each in ComparisonDecision if counts[each] and (each in DIFFERENT) is different
        )
        for different in (True, False)
    )
    hidden = f"; hidden: {rest}" if rest else ""
    return f"{plural(len(members), 'comparison')}: {shown or 'no difference'}{hidden}."
