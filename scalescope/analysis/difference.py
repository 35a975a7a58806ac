"""Why B took longer than A: divides the difference of two runs, in seconds, into parts without remainder.

The `Account` of a trial charges every thread-second to a task prefix (its tasks ran, or idle threads waited for them)
or to an overhead, such as transfers or a line of the client. All charges, divided by the requested threads, add up to
the seconds of the call.

The seconds `s` of a prefix are a product: tasks × seconds per task ÷ tasks at once. Their difference between A and B is
divided in proportion to the logarithms of the factors' ratios (additive LMDI-I, Ang 2004), which leaves no remainder:

    s_B - s_A = L × (ln of the ratio of tasks + ln of that of seconds per task - ln of that of tasks at once)

where L is the logarithmic mean of s_A and s_B. The last term is split: `threads` is the share that fewer threads
explain, `waiting` the rest. Additional tasks on threads that were idle before cost nothing: opposite terms cancel. If a
stage is cut into other tasks (more of them, each shorter), its terms become one part, `chunks`. Overheads that grow
with the number of tasks are charged to the prefixes with more tasks, up to the growth in tasks. If an overhead also
grows with the bytes of graphs, its remaining growth is charged to the bytes that were sent for each task.

Intervals come from a bootstrap over trials (Efron 1979) of the parts' shares of ln(B / A), because a busy host
multiplies all seconds of a trial. They are widened, because trials are few (Student's t) and parts are many.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

import numpy as np

from scalescope.analysis.attempts import Bools, Floats
from scalescope.analysis.distributions import t_quantile
from scalescope.model.words import size

SEED = 0  # seed of the bootstrap
DRAWN = 500  # bootstrap samples
ALPHA = 0.01  # chance that any part is named if both runs are equal
# Smallest parts that are named:
LEAST_EQUAL = 0.005  # share of the shorter side's seconds, on a virtual clock if repeats take equally long
LEAST_S = 0.05  # seconds, in real time: other processes on the host may take as much
# In other cases: share of the same seconds, by trials of the smaller side. By chance, all 3 trials of one side exceed
# all 3 of the other in 1 of 10 cases; with 5 trials, in 1 of 126.
LEAST = {1: 0.1, 2: 0.04, 5: 0.02}
LEAST_SENT = 100_000  # bytes of graphs; the cost of fewer bytes is negligible
CUT_OTHERWISE = 0.2  # opposite terms become `chunks` if the smaller is at least this share of the larger
ALIKE = 0.05  # smallest share of all seconds from which a prefix tells whether all tasks are slower by one factor
EQUAL = 1e-9  # seconds; smaller amounts count as 0


class PartKind(StrEnum):
    """Reason why B took more or fewer seconds than A."""

    GRAPH = "graph"  # tasks are new or gone, or their number changed
    CHUNKS = "chunks"  # the same work, cut into other tasks
    GRAPH_SIZE = "graph-size"  # more bytes of graphs were sent for each task
    SLOWER = "slower"  # each task of a prefix took longer
    MACHINE = "machine"  # all tasks took longer by one factor: another host, or load by other processes
    THREADS = "threads"  # fewer threads were requested
    WAITING = "waiting"  # fewer tasks of a prefix ran at once, and threads waited for them
    TRANSFER = "transfer"
    SERIALISATION = "serialisation"
    SPILL = "spill"
    PAUSED = "paused"
    ACTORS = "actors"
    LOST = "lost"
    PLACEMENT = "placement"  # tasks were runnable, and threads idle
    SCHEDULER = "scheduler"
    CLIENT = "client"  # the client computed at one line
    IMPORTS = "imports"  # time in which the client imported modules
    START_UP = "start-up"  # time before workers had joined
    OTHER_CLUSTER = "other-cluster"


# Overheads that threads share like work: twice the threads take half the seconds
_WORK = (PartKind.TRANSFER, PartKind.SERIALISATION, PartKind.SPILL, PartKind.LOST)
# Overheads that grow with the number of tasks
_PER_TASK = (PartKind.PLACEMENT, PartKind.SCHEDULER, PartKind.SERIALISATION, PartKind.TRANSFER)


@dataclass(frozen=True)
class PrefixAccount:
    """Cost of the tasks of one prefix in one trial."""

    tasks: int  # number of tasks that finished
    busy_s: float  # thread-seconds in which these tasks ran
    idle_s: float = 0.0  # thread-seconds in which idle threads waited for these tasks
    first_s: float = 0.0  # time at which the first of these tasks started, in seconds
    sent_at: str = ""  # line of the client that sent the first such task, `my_job.py:61 prepare`; empty when unknown
    frames: Mapping[str, float] = field(default_factory=dict)  # thread-seconds by `CALL at LINE` in the user's code


@dataclass(frozen=True)
class Overhead:
    """Cost that is charged to no task; `name` is an action of the client or the scheduler, or empty."""

    kind: PartKind
    name: str = ""
    of_graphs: bool = False  # True if it grows with the number of tasks and the bytes of graphs


@dataclass(frozen=True)
class Account:
    """All thread-seconds of one trial."""

    threads: int  # threads asked for
    prefixes: Mapping[str, PrefixAccount]
    overheads: Mapping[Overhead, float]  # thread-seconds
    free: float | None = None  # share of the tasks' time that other processes on the host left to them; None: unknown
    sent_bytes: float = 0.0  # bytes of the graphs that the client sent; 0 when unknown

    @property
    def thread_s(self) -> float:
        of_tasks = (each.busy_s + each.idle_s for each in self.prefixes.values())
        return math.fsum([*of_tasks, *self.overheads.values()])

    @property
    def elapsed_s(self) -> float:
        return self.thread_s / self.threads


@dataclass(frozen=True)
class Match:
    """Prefixes of A and B that name the same tasks; one side is empty if the tasks are new or gone."""

    a: tuple[str, ...]
    b: tuple[str, ...]
    how: str  # way in which they match: `name`, `fused` or `renamed`; empty if one side is empty

    @property
    def name(self) -> str:
        return " + ".join(self.b or self.a)


@dataclass(frozen=True)
class DifferencePart:
    """Seconds by which B took longer than A for one reason."""

    kind: PartKind
    name: str  # prefixes, an action of the client or the scheduler, bytes of graphs, or empty
    seconds: float  # seconds of the call
    thread_s: float  # thread-seconds
    low: float | None = None  # lower end of the interval of `seconds`; None with one trial of a side
    high: float | None = None
    named: bool = False  # True if the difference is large enough, and not chance
    tasks: tuple[float, float] | None = None  # number of tasks of A and of B, on average over trials
    per_task_s: tuple[float, float] | None = None
    where: str = ""  # line of code in which tasks became slower, or that sent the tasks


@dataclass(frozen=True)
class Difference:
    """All parts: their `seconds` add up to `b_s` - `a_s`, their `thread_s` to `b_thread_s` - `a_thread_s`."""

    a_s: float  # seconds of the call, on average over trials
    b_s: float
    a_thread_s: float
    b_thread_s: float
    threads: tuple[int, int]  # threads asked for
    trials: tuple[int, int]
    parts: tuple[DifferencePart, ...]  # the named parts, the largest first; then the others
    matches: tuple[Match, ...]  # matches whose prefixes have different names in A and B
    seed: int = SEED

    @property
    def seconds(self) -> float:
        return self.b_s - self.a_s

    @property
    def named(self) -> tuple[DifferencePart, ...]:
        return tuple(part for part in self.parts if part.named)


def difference(a: Sequence[Account], b: Sequence[Account], *, virtual: bool, other_host: bool = False) -> Difference:
    """Divide the seconds by which B took longer than A; each side has at least one trial, all of one size.

    `virtual`: both ran on a virtual clock. `other_host`: A and B ran on different machines.
    """
    sides, overheads, threads = (_means(a), _means(b)), _overheads(a, b), (a[0].threads, b[0].threads)
    matches = match(*sides)
    costs = [_Costs.of(side, matches, overheads, i) for i, side in enumerate((a, b))]
    means = [each.mean for each in costs]
    machine = (-math.inf, math.inf) if other_host else _of_load(a, b)
    divide = partial(_divide, overheads=overheads[0], threads=threads, cut=_cut_otherwise(*means), machine=machine)
    seconds, thread_s = (divide(*means, by_threads=each).flat[0] for each in (False, True))
    a_thread_s, b_thread_s = (float(mean.total[0]) for mean in means)
    a_s, b_s = a_thread_s / threads[0], b_thread_s / threads[1]
    fewest = min(len(a), len(b))
    spread = _spread(costs, threads, divide) if fewest > 1 else None
    least = _least(min(a_s, b_s), fewest, virtual=virtual, varies=spread is not None and bool(spread.any()))
    reach = None if spread is None else spread * _quantile(len(a) + len(b) - 2, int(np.sum(np.abs(seconds) >= least)))
    labels = _labels(matches, overheads[0])
    sent = [size(float(mean.sent[0, 0])) for mean in means]
    graphs, parts = f"graphs of {sent[1]} instead of {sent[0]}", []
    for i in np.flatnonzero((np.abs(seconds) > EQUAL) | (np.abs(thread_s) > EQUAL)).tolist():
        kind, at = labels[i]
        part = _part(kind, float(seconds[i]), float(thread_s[i]), None if reach is None else float(reach[i]), least)
        name = at.name if at else graphs if kind is PartKind.GRAPH_SIZE else ""
        parts.append(_of_tasks(part, at, sides) if isinstance(at, Match) else replace(part, name=name))
    parts.sort(key=lambda part: (not part.named, part.seconds * (b_s - a_s) < 0, -abs(part.seconds)))
    told = tuple(each for each in matches if each.how != "name")
    return Difference(a_s, b_s, a_thread_s, b_thread_s, threads, (len(a), len(b)), tuple(parts), told)


# ------------------------------------------------------------------ the same tasks


def _means(accounts: Sequence[Account]) -> dict[str, PrefixAccount]:
    """The prefixes of one side, with means over its trials."""
    found: dict[str, list[PrefixAccount]] = {}
    for account in accounts:
        for name, each in account.prefixes.items():
            found.setdefault(name, []).append(each)
    count = len(accounts)
    return {name: _mean(own, count) for name, own in found.items()}


def _mean(own: Sequence[PrefixAccount], count: int) -> PrefixAccount:
    frames: dict[str, float] = {}
    for each in own:
        for frame, seconds in each.frames.items():
            frames[frame] = frames.get(frame, 0.0) + seconds / count
    return PrefixAccount(
        round(sum(each.tasks for each in own) / count),
        sum(each.busy_s for each in own) / count,
        sum(each.idle_s for each in own) / count,
        min(each.first_s for each in own),
        own[0].sent_at,
        frames,
    )


def match(a: Mapping[str, PrefixAccount], b: Mapping[str, PrefixAccount]) -> tuple[Match, ...]:
    """Match prefixes by name, then by names joined by fusion, then by number of tasks and line of code."""
    found = [Match((name,), (name,), "name") for name in b if name in a]
    left, right = ([name for name in own if name not in other] for own, other in ((a, b), (b, a)))
    for whole, pieces, swapped in ((b, left, False), (a, right, True)):
        for name in [name for name in (left if swapped else right) if name in whole]:
            inside = tuple(piece for piece in pieces if _holds(name, piece))
            if not inside or name not in (left if swapped else right):
                continue
            found.append(Match((name,), inside, "fused") if swapped else Match(inside, (name,), "fused"))
            (left if swapped else right).remove(name)
            for piece in inside:
                pieces.remove(piece)
    for same in (_same_shape, _same_line):
        for name in sorted(right, key=lambda name: b[name].first_s):
            like = [other for other in left if same(a[other], b[name])]
            if like and (same is _same_shape or len(like) == 1):
                chosen = min(like, key=lambda other: abs(a[other].first_s - b[name].first_s))
                found.append(Match((chosen,), (name,), "renamed"))
                left.remove(chosen)
                right.remove(name)
    found += [Match((name,), (), "") for name in left] + [Match((), (name,), "") for name in right]
    return tuple(found)


def _holds(whole: str, piece: str) -> bool:
    return len(piece) < len(whole) and re.search(rf"(^|[-_]){re.escape(piece)}([-_]|$)", whole) is not None


def _same_shape(one: PrefixAccount, other: PrefixAccount) -> bool:
    return one.tasks == other.tasks and _function(one.sent_at) == _function(other.sent_at)


def _same_line(one: PrefixAccount, other: PrefixAccount) -> bool:
    return bool(one.sent_at) and one.sent_at == other.sent_at


def _function(line: str) -> str:
    # A line of code without its line number, which changes if code above is edited.
    return re.sub(r":\d+(?= |$)", "", line)


def _overheads(a: Sequence[Account], b: Sequence[Account]) -> tuple[list[Overhead], list[Overhead]]:
    """All overheads, as named in A and as named in B: line numbers of the client may differ."""
    sides = [dict.fromkeys(overhead for account in side for overhead in account.overheads) for side in (a, b)]
    rest = {each: _function(each.name) for each in sides[1] if each not in sides[0]}
    in_a, in_b = [*sides[0]], [*sides[0]]
    for i, own in enumerate(in_a):
        like = [each for each, text in rest.items() if text == _function(own.name) and each.kind is own.kind]
        if own not in sides[1] and own.name and like:
            in_b[i] = like[0]
            del rest[like[0]]
    return [*in_a, *rest], [*in_b, *rest]


# ------------------------------------------------------------------ dividing


@dataclass(frozen=True)
class _Costs:
    """Thread-seconds of one side: a row per trial or bootstrap sample, a column per match or overhead."""

    tasks: Floats
    busy: Floats
    whole: Floats  # `busy` plus the seconds of idle threads that waited for these tasks
    overheads: Floats
    sent: Floats  # bytes of graphs, in one column

    @classmethod
    def of(
        cls, side: Sequence[Account], matches: Sequence[Match], overheads: Sequence[Sequence[Overhead]], which: int
    ) -> _Costs:
        """Costs of A (`which` is 0) or B (1), with a row for each trial."""
        none = PrefixAccount(0, 0.0)
        names = [(each.a, each.b)[which] for each in matches]
        rows = [[[account.prefixes.get(name, none) for name in own] for own in names] for account in side]
        shape = (len(side), len(matches))

        def column(value: str) -> Floats:
            values = [[sum(getattr(each, value) for each in own) for own in row] for row in rows]
            return np.array(values, np.float64).reshape(shape)

        own = [[account.overheads.get(each, 0.0) for each in overheads[which]] for account in side]
        busy = column("busy_s")
        overhead = np.array(own, np.float64).reshape(len(side), len(overheads[which]))
        sent = np.array([[account.sent_bytes] for account in side], np.float64)
        return cls(column("tasks"), busy, busy + column("idle_s"), overhead, sent)

    @property
    def total(self) -> Floats:
        found: Floats = self.whole.sum(axis=-1) + self.overheads.sum(axis=-1)
        return found

    @property
    def mean(self) -> _Costs:
        return self.drawn(np.full((1, len(self.tasks)), 1 / len(self.tasks)))

    def drawn(self, weights: Floats) -> _Costs:
        """Means over trials, by weights of shape (samples, trials)."""
        return _Costs(*(weights @ each for each in (self.tasks, self.busy, self.whole, self.overheads, self.sent)))


@dataclass(frozen=True)
class _Divided:
    """Terms of the division, one row per sample. `flat` has those of matches, of all tasks, and of overheads."""

    terms: Mapping[PartKind, Floats]
    threads: Floats
    machine: Floats
    graph_size: Floats
    overheads: Floats

    @property
    def flat(self) -> Floats:
        shared = np.column_stack([self.threads, self.machine, self.graph_size])
        return np.concatenate([*(self.terms[kind] for kind in _TERMS), shared, self.overheads], axis=1)


_TERMS = (PartKind.GRAPH, PartKind.CHUNKS, PartKind.SLOWER, PartKind.WAITING)


def _labels(matches: Sequence[Match], overheads: Sequence[Overhead]) -> list[tuple[PartKind, Match | Overhead | None]]:
    found: list[tuple[PartKind, Match | Overhead | None]] = [(kind, each) for kind in _TERMS for each in matches]
    found += [(kind, None) for kind in (PartKind.THREADS, PartKind.MACHINE, PartKind.GRAPH_SIZE)]
    return found + [(each.kind, each) for each in overheads]


def _divide(
    a: _Costs,
    b: _Costs,
    *,
    overheads: Sequence[Overhead],
    threads: tuple[int, int],
    cut: Bools,
    machine: tuple[float, float],  # limits for the logarithm of the factor charged to `MACHINE`
    by_threads: bool,
) -> _Divided:
    """The terms, in seconds of the call or in thread-seconds (`by_threads`)."""
    scale = (1.0, 1.0) if by_threads else (1.0 / threads[0], 1.0 / threads[1])
    more_threads = math.log(threads[1] / threads[0])
    left, right = a.whole * scale[0], b.whole * scale[1]
    whole = right - left
    both = (a.busy > 0) & (b.busy > 0) & (a.tasks > 0) & (b.tasks > 0) & (left > 0) & (right > 0)
    mean = _log_mean(left, right) * both
    tasks = mean * _log_ratio(a.tasks, b.tasks, both)
    slower = mean * _log_ratio(a.busy, b.busy, both) - tasks
    # Tasks missing on one side count as more or fewer tasks; tasks that took no time on one side count as slower.
    one_side = ~both & ((a.tasks == 0) | (b.tasks == 0))
    tasks = np.where(one_side, whole, tasks)
    slower = np.where(~both & ~one_side, whole, slower)
    at_once = whole - tasks - slower
    of_threads = _no_more_than(mean * (more_threads if by_threads else -more_threads), at_once)
    waiting = at_once - of_threads
    each = _log_ratio(a.busy, b.busy, both) - _log_ratio(a.tasks, b.tasks, both)
    of_machine = np.where(both & ~cut, mean * np.clip(_common(each, left, both & ~cut), *machine), 0.0)
    slower = slower - of_machine
    tasks, waiting = _cancelled(tasks, waiting)
    slower, waiting = _cancelled(slower, waiting)
    chunks = np.where(cut, tasks + slower + waiting, 0.0)
    tasks, slower, waiting = (np.where(cut, 0.0, each) for each in (tasks, slower, waiting))

    costs, later = a.overheads * scale[0], b.overheads * scale[1]
    over = later - costs
    growth = _log_mean(costs, later)
    work = np.array([each.kind in _WORK for each in overheads], bool)
    direction = np.where(work, 0.0, more_threads) if by_threads else np.where(work, -more_threads, 0.0)
    by_thread = _no_more_than(growth * direction, over)
    over = over - by_thread
    count = _log_ratio(a.tasks.sum(axis=1), b.tasks.sum(axis=1), np.True_)[:, None]
    of_graphs = np.array([each.of_graphs for each in overheads], bool)
    with_tasks = of_graphs | np.array([each.kind in _PER_TASK for each in overheads], bool)
    by_tasks = _no_more_than(growth * count, over) * with_tasks
    over = over - by_tasks
    known = (a.sent > 0) & (b.sent > 0) & (np.maximum(a.sent, b.sent) >= LEAST_SENT)
    by_size = _no_more_than(growth * (_log_ratio(a.sent, b.sent, known) - count) * known, over) * of_graphs
    over = over - by_size
    grown = np.maximum((b.tasks - a.tasks) * np.sign(count), 0.0)
    share = grown / np.maximum(grown.sum(axis=1, keepdims=True), EQUAL)
    given = by_tasks.sum(axis=1, keepdims=True) * share
    chunks, tasks = chunks + given * cut, tasks + given * ~cut
    return _Divided(
        {PartKind.GRAPH: tasks, PartKind.CHUNKS: chunks, PartKind.SLOWER: slower, PartKind.WAITING: waiting},
        of_threads.sum(axis=1) + by_thread.sum(axis=1),
        of_machine.sum(axis=1),
        by_size.sum(axis=1),
        over,
    )


def _cut_otherwise(a: _Costs, b: _Costs) -> Bools:
    """Whether each match has more but shorter tasks, or fewer but longer tasks."""
    both = (a.busy > 0) & (b.busy > 0) & (a.tasks > 0) & (b.tasks > 0)
    tasks = _log_ratio(a.tasks, b.tasks, both)
    each = _log_ratio(a.busy, b.busy, both) - tasks
    opposite = (tasks * each < 0) & (
        np.minimum(abs(tasks), abs(each)) >= CUT_OTHERWISE * np.maximum(abs(tasks), abs(each))
    )
    found: Bools = opposite[0]
    return found


def _log_mean(a: Floats, b: Floats) -> Floats:
    """The logarithmic mean of `a` and `b`; 0 if either is 0."""
    there = (a > 0) & (b > 0)
    low, high = np.where(there, a, 1.0), np.where(there, b, 1.0)
    ratio = np.log(high / low)
    near = np.abs(ratio) < 1e-6  # there the quotient suffers from rounding; the arithmetic mean is accurate
    found: Floats = np.where(near, (low + high) / 2, (high - low) / np.where(near, 1.0, ratio)) * there
    return found


def _log_ratio(a: Floats, b: Floats, there: Bools | np.bool_) -> Floats:
    there = there & (a > 0) & (b > 0)
    found: Floats = np.log(np.where(there, b, 1.0) / np.where(there, a, 1.0))
    return found


def _no_more_than(term: Floats, whole: Floats) -> Floats:
    """The term, clipped to lie between 0 and `whole`."""
    return np.clip(term, np.minimum(whole, 0.0), np.maximum(whole, 0.0))


def _cancelled(term: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Two terms without the amount by which they cancel each other."""
    common = np.where(term * other < 0, np.minimum(np.abs(term), np.abs(other)), 0.0)
    return term - np.sign(term) * common, other - np.sign(other) * common


def _of_load(a: Sequence[Account], b: Sequence[Account]) -> tuple[float, float]:
    """Limits for the logarithm of the factor by which load from other processes slowed all tasks; 0 if unknown."""
    known = [[account.free for account in side if account.free] for side in (a, b)]
    if not all(known):
        return 0.0, 0.0
    slower = math.log(sum(known[0]) / len(known[0])) - math.log(sum(known[1]) / len(known[1]))
    return min(slower, 0.0), max(slower, 0.0)


def _common(ratios: Floats, seconds: Floats, there: Bools) -> Floats:
    """Logarithm of the factor by which all tasks are slower, or all faster; else 0. Shape (samples, 1)."""
    tells = there & (seconds >= ALIKE * seconds.sum(axis=1, keepdims=True))
    low = np.where(tells, ratios, np.inf).min(axis=1, initial=np.inf)
    high = np.where(tells, ratios, -np.inf).max(axis=1, initial=-np.inf)
    found: Floats = np.where(low > 0, low, np.where(high < 0, high, 0.0))
    return np.where(np.isfinite(found), found, 0.0)[:, None]


# ------------------------------------------------------------------ intervals


def _spread(costs: Sequence[_Costs], threads: tuple[int, int], divide: Callable[..., _Divided]) -> Floats:
    """The standard error of each term, in seconds. The terms divided by `_ratio_unit` add up to ln(B / A)."""
    rng = np.random.default_rng(SEED)
    drawn = []
    for side in costs:
        trials = len(side.tasks)
        drawn.append(side.drawn(rng.multinomial(trials, np.full(trials, 1 / trials), DRAWN) / trials))
    fewest = min(len(side.tasks) for side in costs)
    terms = divide(*drawn, by_threads=False).flat / _ratio_unit(drawn, threads)[:, None]
    unit = _ratio_unit([side.mean for side in costs], threads)
    # A bootstrap of n trials underestimates the variance by the factor (n - 1) / n.
    found: Floats = terms.std(axis=0) * math.sqrt(fewest / (fewest - 1)) * unit
    return found


def _ratio_unit(costs: Sequence[_Costs], threads: tuple[int, int]) -> Floats:
    """The logarithmic mean of the seconds of A and B, at least `EQUAL`."""
    return np.maximum(_log_mean(costs[0].total / threads[0], costs[1].total / threads[1]), EQUAL)


def _quantile(freedom: int, parts: int) -> float:
    return t_quantile(1 - ALPHA / (2 * max(parts, 1)), freedom)


def _least(shorter_s: float, fewest: int, *, virtual: bool, varies: bool) -> float:
    """Smallest seconds of a part that is named. `fewest`: number of trials of the side with fewer trials."""
    if virtual and not varies:
        return LEAST_EQUAL * shorter_s
    share = max((few, share) for few, share in LEAST.items() if few <= fewest)[1]
    return max(share * shorter_s, 0.0 if virtual else LEAST_S)


def _part(kind: PartKind, seconds: float, thread_s: float, reach: float | None, least: float) -> DifferencePart:
    """A part. It is named if it has at least `least` seconds and its interval (± `reach`) excludes 0."""
    low, high = (None, None) if reach is None else (seconds - reach, seconds + reach)
    return DifferencePart(kind, "", seconds, thread_s, low, high, abs(seconds) >= max(least, reach or 0.0))


# ------------------------------------------------------------------ numbers of a part


def _of_tasks(part: DifferencePart, at: Match, sides: tuple[Mapping[str, PrefixAccount], ...]) -> DifferencePart:
    own = [[side[name] for name in names] for side, names in zip(sides, (at.a, at.b), strict=True)]
    tasks = [sum(each.tasks for each in side) for side in own]
    busy = [sum(each.busy_s for each in side) for side in own]
    per_task = tuple(seconds / count if count else 0.0 for seconds, count in zip(busy, tasks, strict=True))
    where = next((each.sent_at for side in reversed(own) for each in side if each.sent_at), "")
    if part.kind is PartKind.SLOWER:
        where = _grown(own) or where
    return replace(part, name=at.name, tasks=(tasks[0], tasks[1]), per_task_s=(per_task[0], per_task[1]), where=where)


def _grown(own: Sequence[Sequence[PrefixAccount]]) -> str:
    """The frame in which a task spends most of its additional seconds; empty if there is no profile."""
    per_task: list[dict[str, float]] = [{}, {}]
    for side, found in zip(own, per_task, strict=True):
        count = max(sum(each.tasks for each in side), 1)
        for each in side:
            for frame, seconds in each.frames.items():
                found[frame] = found.get(frame, 0.0) + seconds / count
    grown = {frame: seconds - per_task[0].get(frame, 0.0) for frame, seconds in per_task[1].items()}
    most = max(grown, key=lambda frame: grown[frame], default="")
    return most if most and grown[most] > 0 else ""
