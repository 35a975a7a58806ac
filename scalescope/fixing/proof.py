"""Proves that a patch makes a script faster and changes nothing else: it runs in turn without and with the patch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import psutil

from scalescope.analysis import sequential
from scalescope.analysis.paired import effects, interval
from scalescope.fixing.comparison import differences
from scalescope.fixing.outcome import Outcome
from scalescope.model.mapping import to_mapping
from scalescope.model.words import duration, number, plural, size
from scalescope.remedies.source import Values
from scalescope.studies.comparison.judge import order

# Numbers of pairs after which the interval is checked; the first number of pairs is always run
LOOKS: tuple[int, ...] = (3, 4, 5, 7, 10, 14, 20)
HOPELESS = 2  # pairs after which a patch is withdrawn if it was faster in none
SAME = 1e-3  # on a virtual clock, one pair is enough if two runs of the original differ by at most this share
ALPHA = 0.05  # chance, over all looks together, that a patch without effect counts as faster or slower
WORTH = 0.95  # largest ratio of patched to original time at which a patch is offered
MEMORY = 0.8  # share of this machine's memory; a patch is not offered if it needs more, and more than the original

Which = Literal["a", "b"]  # the original script (`a`), or the patched script (`b`)


@dataclass(frozen=True)
class Proof:
    """Result of the pairs of runs for one patch."""

    proven: bool
    reason: str  # reason for withdrawing the patch; empty if it stays
    pairs: tuple[tuple[float, float], ...] = ()  # (original, patched) seconds of each pair, in the order of the runs
    original_s: float | None = None  # geometric mean of the seconds; None without a complete pair
    patched_s: float | None = None
    times: float | None = None  # speed-up; None with too few pairs
    low: float | None = None  # lower end of the interval of `times`; also None on a virtual clock
    high: float | None = None
    original_bytes: int = 0  # largest memory of all processes together
    patched_bytes: int = 0
    # What was not compared: what differs between runs of the original, or values that the patched client does not get
    not_compared: tuple[str, ...] = field(default_factory=tuple)
    changed: bool = False  # True if it was withdrawn because its results differ
    uses: str = ""  # workers and transferred bytes, if the two scripts differ in them

    def to_json(self) -> dict[str, Any]:
        return to_mapping(self)

    @property
    def line(self) -> str:
        figures = ""
        if self.original_s is not None and self.patched_s is not None:
            figures = f"{number(self.original_s)} s -> {number(self.patched_s)} s"
            if self.times is not None and self.low is None:
                figures += f" ({number(self.times)} times, on a virtual clock)"
            elif self.times is not None and self.low is not None and self.high is not None:
                figures += f" ({number(self.times)} times; {number(self.low)} to {number(self.high)}"
                figures += f" in {plural(len(self.pairs), 'pair')})"
        if not self.proven:
            return f"withdrawn: {self.reason}{f' ({figures})' if figures else ''}"
        memory = f"memory {size(self.original_bytes)} -> {size(self.patched_bytes)}" if self.original_bytes else ""
        uses = "; ".join(filter(None, (memory, self.uses)))
        same = "same output, exit status, files and values"
        if self.not_compared:
            same += f" except what cannot be compared: {'; '.join(self.not_compared)}"
        return "; ".join(filter(None, (figures, uses, same)))


def prove(
    run: Callable[[Which], Outcome],  # runs the original (`a`) or the patched script (`b`) in a fresh copy
    recorded: Outcome,  # recorded run of the original: its results are compared, its time only if `virtual`
    *,
    budget_s: float,  # seconds for all runs; the first pairs are always run
    says: Callable[[str], object] = lambda text: None,
    values: Values = "same",  # which values the patched script's client gets, compared with the original
    virtual: bool = False,  # True: all times, also that of `recorded`, are on a simulated cluster's clock
) -> Proof:
    """Run pairs until the patch is clearly faster, or is not faster, or results differ, or the budget is used."""
    originals, pairs, spent, peaks = [recorded], list[tuple[float, float]](), 0.0, {"a": 0, "b": 0}
    varies: list[str] = []
    looks, level = LOOKS, sequential.level(ALPHA, LOOKS)
    while len(pairs) < looks[-1]:
        done: dict[str, Outcome] = {}
        for which in order(0, len(pairs)):
            done[which] = run(which)
            spent += done[which].seconds
            peaks[which] = max(peaks[which], done[which].peak_bytes)
        originals.append(done["a"])
        changed, varies = differences(originals, done["b"], values)
        pairs.append((done["a"].seconds, done["b"].seconds))
        done["b"].copy.remove()
        if len(originals) > 3:
            originals.pop().copy.remove()
        if done["a"].status != recorded.status:
            return _proof(pairs, level, peaks, varies, reason="the original's exit status differs from run to run")
        if changed:
            return _proof(pairs, level, peaks, varies, reason=changed[0], changed=True)
        if virtual and len(pairs) == 1 and abs(done["a"].seconds / recorded.seconds - 1) <= SAME:
            return _exact(pairs[0], varies)
        if len(pairs) == 1:  # fewer looks leave more of `ALPHA` for each look
            looks = affordable(budget_s, spent)
            level = sequential.level(ALPHA, looks)
        says(f"pair {len(pairs)}: {duration(pairs[-1][0])} -> {duration(pairs[-1][1])}")
        if len(pairs) == HOPELESS and all(patched >= original for original, patched in pairs):
            return _proof(pairs, level, peaks, varies, reason="it is not faster")
        if len(pairs) not in looks:
            continue
        found = effects(pairs)
        high = found.ratio(interval(found, level)[1])
        ratio = found.ratio(found.mean)
        if ratio >= 1:
            return _proof(pairs, level, peaks, varies, reason="it is not faster")
        if high < 1:
            break
    return _judged(pairs, level, peaks, varies)


def _exact(pair: tuple[float, float], varies: list[str]) -> Proof:
    """The proof on a virtual clock, where each run takes the same time; memory of a simulation is not judged."""
    original_s, patched_s = pair
    slower = "it is not faster" if patched_s >= original_s else "it gains less than 5 %"
    reason = slower if patched_s > WORTH * original_s else ""
    return Proof(not reason, reason, (pair,), original_s, patched_s, original_s / patched_s, not_compared=tuple(varies))


def affordable(budget_s: float, pair_s: float) -> tuple[int, ...]:
    """Numbers of pairs after which to check the interval, as far as the budget allows at `pair_s` seconds a pair."""
    most = int(max(LOOKS[0], min(LOOKS[-1], budget_s / max(pair_s, 1e-9))))
    return tuple(sorted({each for each in LOOKS if each <= most} | {most}))


def _judged(pairs: list[tuple[float, float]], level: float, peaks: dict[str, int], varies: list[str]) -> Proof:
    found, reason = effects(pairs), ""
    if found.ratio(interval(found, level)[1]) >= 1:
        reason = "the budget of this patch was used up before the result was clear: raise --budget"
    elif found.ratio(found.mean) > WORTH:
        reason = "it gains less than 5 %"
    elif peaks["b"] > max(MEMORY * psutil.virtual_memory().total, peaks["a"]):
        reason = f"the patched script needs {size(peaks['b'])} of memory"
    return _proof(pairs, level, peaks, varies, reason=reason)


def _proof(
    pairs: list[tuple[float, float]],
    level: float,
    peaks: dict[str, int],
    varies: list[str],
    *,
    reason: str,
    changed: bool = False,
) -> Proof:
    found = effects(pairs)
    times = low = high = None
    if len(pairs) >= LOOKS[0]:
        times = 1 / found.ratio(found.mean)
        high, low = (1 / found.ratio(each) for each in interval(found, level))
    a = _mean([each for each, _ in pairs])
    return Proof(
        *(not reason, reason, tuple(pairs), a, _mean([each for _, each in pairs]), times, low, high),
        *(peaks["a"], peaks["b"], tuple(varies), changed),
    )


def _mean(values: list[float]) -> float:
    product = 1.0
    for each in values:
        product *= each ** (1 / len(values))
    return product
