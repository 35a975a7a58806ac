"""The difference of two runs, computed from their stored records, with its texts and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scalescope.analysis.culprits import DifferingFact, culprits, differing, other_host
from scalescope.analysis.difference import Account, Difference, DifferencePart, PartKind, difference
from scalescope.analysis.summary import is_meant, label, varied
from scalescope.diagnosis.account import account
from scalescope.diagnosis.observation import Observation
from scalescope.errors import StoreError, UsageError
from scalescope.model.finding import Finding, Severity
from scalescope.model.trial import Trial
from scalescope.model.words import capital, cut, duration, number, percent
from scalescope.report import run_tables
from scalescope.report.table import ReportTable, Row, Tone, markdown_list, markdown_text, to_markdown
from scalescope.store import records
from scalescope.store.store import SweepRun

MOST_TRIALS = 10  # most trials of a side that are read: the newest ones
SHOWN = 0.001  # smallest part that has its own row, as a share of the seconds of the slower side
NAME = 70  # most characters of a name in the table
_READ = ("tasks", "dependencies", "graphs", "workers", "events", "client", "fine_metrics", "inside")

# For each kind of part: its title, and what to do if no differing fact explains the part
PARTS: Mapping[PartKind, tuple[str, str]] = {
    PartKind.GRAPH: (
        "number of tasks",
        "look for what makes these tasks: chunks, partitions, or a step that is computed again",
    ),
    PartKind.CHUNKS: ("other chunks or partitions", "use the chunks or partitions of A"),
    PartKind.GRAPH_SIZE: ("size of the graphs", "see what the graphs hold: data, or tasks that nothing needs"),
    PartKind.SLOWER: (
        "seconds per task",
        "see the flame chart of these tasks in the reports of both runs (`scalescope report RUN`)",
    ),
    PartKind.MACHINE: ("the machine (all tasks)", "run both on the same host, with nothing else running"),
    PartKind.THREADS: ("number of threads", "give B as many threads as A"),
    PartKind.WAITING: (
        "waiting for these tasks",
        "see in both reports which of these tasks runs last (`scalescope report RUN`)",
    ),
    PartKind.TRANSFER: ("transfers", "see which tasks fetch results, and where (`scalescope trace RUN`)"),
    PartKind.SERIALISATION: ("deserialising tasks", "send smaller arguments with each task"),
    PartKind.SPILL: ("spilling to disk", "give workers more memory, or make chunks smaller"),
    PartKind.PAUSED: ("paused workers", "give workers more memory, or make chunks smaller"),
    PartKind.ACTORS: ("actors", "see what the actors' methods do"),
    PartKind.LOST: ("lost work", "see why workers died or tasks failed (`scalescope show RUN`)"),
    PartKind.PLACEMENT: ("placing runnable tasks", "make fewer, longer tasks"),
    PartKind.SCHEDULER: ("the scheduler", "send smaller graphs"),
    PartKind.CLIENT: ("the client", "see what the client does at this line"),
    PartKind.IMPORTS: ("imports of the client", "import fewer modules, or import them before the measured part"),
    PartKind.START_UP: ("start of workers", "wait for the workers before the work begins"),
    PartKind.OTHER_CLUSTER: ("another cluster", "see what the other cluster did"),
}


@dataclass(frozen=True)
class RunDifference:
    """Why B took longer or less long than A."""

    a: str  # description of A
    b: str
    found: Difference
    culprits: tuple[DifferingFact, ...]
    trials: tuple[Trial, Trial]  # the trial of each side whose seconds are nearest to the average
    cause: Finding | None = None  # the worst finding of the slower side that the other side lacks
    prices: tuple[float, float] = (0.0, 0.0)  # price of a thread-second of A and of B
    currency: str = ""  # currency of the prices; empty where a price is not known

    @property
    def line(self) -> str:
        """`summary` and `advice`."""
        return f"{self.summary} {self.advice}".rstrip()

    @property
    def summary(self) -> str:
        """The largest part, its place and its seconds, in one sentence."""
        seconds = self.found.seconds
        took = f"B took {duration(abs(seconds))} {'longer' if seconds >= 0 else 'less'} than A"
        ends = f"{duration(self.found.b_s)} instead of {duration(self.found.a_s)}"
        if not self.found.named:
            return f"{took} ({ends}): no part of it is larger than chance."
        worst = self.found.named[0]
        share = worst.seconds / seconds if seconds else 0.0
        told = f" ({percent(share)})" if 0 < share < 9.995 else ""
        size = worst.seconds if seconds >= 0 else -worst.seconds
        return f"{took} ({ends}): {_amount(size)} of it{told} is {_what(worst)}."

    @property
    def advice(self) -> str:
        """What to do next; may be empty if B is faster and each side was measured more than once."""
        single = min(self.found.trials) < 2
        if not self.found.named:
            again = "Measure both again with --repeats 7" if single else "More repeats would show smaller differences"
            return f"{again}."
        doubt = " Each was measured once: run both again to be sure." if single else ""
        return f"{self._next(self.found.named[0])}{doubt}".strip()

    def _next(self, worst: DifferencePart) -> str:
        likely = next((each for each in self.culprits if each.explains_s >= 0.3 * abs(worst.seconds)), None)
        slower = self.found.seconds > 0
        if likely:
            undo = PARTS[PartKind.MACHINE][1] if likely.kind == "host" else "change it back first"
            return f"What differs: {likely}{f'; {undo}' if slower else ''}."
        if self.cause is not None:
            return f"Only {'B' if slower else 'A'} has this fault: {self.cause.line}"
        return f"{capital(PARTS[worst.kind][1])}." if slower else ""

    @property
    def brief(self) -> str:
        """The largest part and the likeliest fact, to add to a line that says that B differs; may be empty."""
        return "; ".join(filter(None, (self.largest(1), *map(str, self.culprits[:1]))))

    def largest(self, most: int) -> str:
        """The first named parts: `4.1 s less, 3.6 s of it: the client, job.py:14 run; 0.2 s more: transfers`."""
        seconds = self.found.seconds
        told: list[str] = []
        for part in self.found.named[:most]:
            way = f" {_direction(part.seconds)}" if part.seconds * seconds < 0 else "" if told else " of it"
            told.append(f"{duration(abs(part.seconds))}{way}: {_what(part)}")
        return f"{duration(abs(seconds))} {_direction(seconds)}, {'; '.join(told)}" if told else ""

    @property
    def rows(self) -> list[tuple[float, Row]]:
        """Seconds and row of each part that is named or not tiny; then one row for all other parts."""
        least = SHOWN * max(self.found.a_s, self.found.b_s)
        shown = [part for part in self.found.parts if part.named or abs(part.seconds) >= least]
        rest = [part for part in self.found.parts if part not in shown]
        rows = [(part.seconds, self._row(part)) for part in shown]
        if rest:
            seconds, thread_s = (sum(getattr(part, name) for part in rest) for name in ("seconds", "thread_s"))
            few = self.amounts(_signed, seconds, thread_s, self._money(thread_s))
            rows.append((seconds, Row((*few, "", f"{len(rest):,} smaller", ""), Tone.FAINT)))
        if self.prices[0] != self.prices[1]:
            found = self.found
            money = (self.prices[1] - self.prices[0]) * (found.a_thread_s + found.b_thread_s) / 2
            rows.append((0.0, Row((*self.amounts(_signed, 0.0, 0.0, money), "", "price of a worker-hour", ""))))
        return rows

    def _row(self, part: DifferencePart) -> Row:
        interval = "" if part.low is None or part.high is None else f"{_signed(part.low)} to {_signed(part.high)}"
        what = cut(", ".join(filter(None, (part.name, _detail(part)))), NAME)
        tone = Tone.FAINT if not part.named else Tone.BAD if part.seconds > 0 else Tone.GOOD
        amounts = self.amounts(_signed, part.seconds, part.thread_s, self._money(part.thread_s))
        return Row((*amounts, interval, PARTS[part.kind][0], what), tone)

    def _money(self, thread_s: float) -> float:
        """A part's share of the difference in cost, at the mean price; the effect of unequal prices has its own row."""
        return thread_s * sum(self.prices) / 2

    def amounts(self, form: Callable[[float], str], seconds: float, thread_s: float, money: float) -> tuple[str, ...]:
        """The cells of a row that hold numbers; the cost is left out if prices are unknown."""
        return tuple(map(form, (seconds, thread_s, *((money,) if self.currency else ()))))

    @property
    def money(self) -> tuple[float, float]:
        """Cost of A and of B, on average over trials; 0 if a price is unknown."""
        return self.prices[0] * self.found.a_thread_s, self.prices[1] * self.found.b_thread_s

    def table(self) -> ReportTable:
        found, (before, after) = self.found, self.money
        total = self.amounts(_signed, found.seconds, found.b_thread_s - found.a_thread_s, after - before)
        heads = ("seconds", "thread-s", *filter(None, (self.currency,)), "interval, s", "part", "of")
        rows = (*(row for _, row in self.rows), Row((*total, "", "B - A", "")))
        return ReportTable("Seconds that B took longer than A", heads, rows, frozenset(range(len(total))))

    def notes(self) -> list[str]:
        found = [f"A: {self.a}", f"B: {self.b}"]
        found += [f"Differs: {each}" for each in self.culprits]
        for each in self.found.matches:
            sides = " + ".join(each.a), " + ".join(each.b)
            if each.how:
                found.append(f"Treated as the same tasks, by their {_HOW[each.how]}: {sides[0]} in A, {sides[1]} in B")
            else:
                found.append(f"Only in {'A' if each.a else 'B'}: {sides[0] or sides[1]}")
        trials = " and ".join(f"{count:,}" for count in self.found.trials)
        named = "faint parts may be chance" if min(self.found.trials) > 1 else "with one trial, a part may be chance"
        found.append(f"From {trials} trials of A and B; {named} (bootstrap, seed {self.found.seed})")
        return found

    def to_mapping(self) -> dict[str, Any]:
        return {
            "line": self.line,
            "reason": self.brief,
            "a": self.a,
            "b": self.b,
            **asdict(self.found),
            "seconds": self.found.seconds,
            "culprits": [asdict(each) for each in self.culprits],
            "money": dict(zip("ab", self.money, strict=True)) | {"currency": self.currency} if self.currency else None,
            "cause": None if self.cause is None else self.cause.to_mapping(),
        }

    def to_markdown(self) -> str:
        """The difference as Markdown, for an issue."""
        return f"{markdown_text(self.line)}\n\n{to_markdown(self.table())}\n\n{markdown_list('', self.notes())}\n"


_HOW = {"fused": "names", "renamed": "number and line"}


def of_runs(a: SweepRun, b: SweepRun, *, point: str = "") -> RunDifference:
    """The difference of two runs at one point: the one given, else the shared one whose seconds differ most.

    Raises:
        UsageError: There is no such point, or no records of it.
    """
    chosen = [_Side.of(run, point) for run in (a, b)]
    shared = [key for key in chosen[0].points if key in chosen[1].points]
    if not shared and all(len(side.points) == 1 for side in chosen):
        keys = tuple(next(iter(side.points)) for side in chosen)  # each run has one point: compare these
    elif shared:
        keys = (max(shared, key=lambda key: abs(chosen[1].elapsed(key) - chosen[0].elapsed(key))),) * 2
    else:
        raise UsageError(
            f"Runs {a.id} and {b.id} have no point in common",
            next_step=f"Choose with --point, such as workers=4. A has: {chosen[0].names}. B has: {chosen[1].names}.",
        )
    trials = [side.points[key] for side, key in zip(chosen, keys, strict=True)]
    labels = [
        f"run {side.run.id}, {side.run.sweep.workload}, {label(own[0].point)}"
        for side, own in zip(chosen, trials, strict=True)
    ]
    return of_trials(*trials, labels=(labels[0], labels[1]))


def of_trials(a: Sequence[Trial], b: Sequence[Trial], *, labels: tuple[str, str]) -> RunDifference:
    """The difference of two groups of trials; each group is of one point.

    Raises:
        UsageError: A group has no trial with records of tasks that ended.
    """
    read = [[(trial, each) for trial in side[-MOST_TRIALS:] if (each := _account(trial))] for side in (a, b)]
    for side, own, text in zip("AB", read, labels, strict=True):
        if not own:
            raise UsageError(f"{side} has no records of tasks that ended: {text}", next_step="Run it again.")
    return of_accounts(*read, labels=labels)


def of_accounts(
    a: Sequence[tuple[Trial, Account]], b: Sequence[tuple[Trial, Account]], *, labels: tuple[str, str]
) -> RunDifference:
    """The difference of two groups of trials whose accounts are known; each group has at least one trial."""
    accounts = [[each for _, each in side] for side in (a, b)]
    left, right = a[-1][0], b[-1][0]
    facts = differing(left, right)
    found = difference(*accounts, virtual=left.virtual and right.virtual, other_host=other_host(facts))
    slower, faster = (right, left) if found.seconds > 0 else (left, right)
    usual = _usual(a, found.a_s), _usual(b, found.b_s)
    prices, currency = _prices(left, right)
    likely, cause = culprits(facts, found.parts), _cause(slower, faster)
    return RunDifference(*labels, found, likely, usual, cause, prices, currency)


def _prices(a: Trial, b: Trial) -> tuple[tuple[float, float], str]:
    """Prices of a thread-second of A and B, and their currency; 0 and empty if they are unknown or not comparable."""
    known = [trial.facts.get("price") or {} for trial in (a, b)]
    currencies = {str(price.get("currency", "")) for price in known}
    if len(currencies) > 1 or not all(known):
        return (0.0, 0.0), ""
    of_a, of_b = (
        price["worker_hour"] / 3600 / trial.point.threads_per_worker for price, trial in zip(known, (a, b), strict=True)
    )
    return (of_a, of_b), currencies.pop()


def _usual(read: Sequence[tuple[Trial, Account]], seconds: float) -> Trial:
    return min(read, key=lambda each: abs(each[1].elapsed_s - seconds))[0]


def _cause(slower: Trial, faster: Trial) -> Finding | None:
    others = {each.code for each in faster.findings}
    faults = (Severity.HIGH, Severity.MEDIUM)
    found = [each for each in slower.findings if each.severity in faults and not each.limits_trust]
    return next((each for each in found if each.code not in others), None)


def explained(a: Sequence[Trial], b: Sequence[Trial], *, labels: tuple[str, str]) -> RunDifference | None:
    """The difference of two groups of trials; None if records are missing, or no part is larger than chance."""
    try:
        found = of_trials(a, b, labels=labels)
    except (UsageError, StoreError):
        return None
    return found if found.found.named else None


def _account(trial: Trial) -> Account | None:
    seen = observed(trial)
    return None if seen is None or seen.attempts is None else account(seen)


def observed(trial: Trial) -> Observation | None:
    """What was recorded of a trial; None if nothing was."""
    if not trial.records:
        return None
    present = records.names(trial.records)
    return Observation.of(trial, {name: records.read(trial.records, name) for name in _READ if name in present})


@dataclass(frozen=True)
class _Side:
    run: SweepRun
    points: Mapping[tuple[object, ...], list[Trial]]  # trials by a key that is equal for the same point in both runs

    @classmethod
    def of(cls, run: SweepRun, point: str) -> _Side:
        kept = [trial for trial in run.trials if trial.records and trial.metrics and is_meant(trial.point, point)]
        kept = [trial for trial in kept if trial.counts] or [trial for trial in kept if not trial.warmup]
        names = varied(trial.point for trial in kept)
        found: dict[tuple[object, ...], list[Trial]] = {}
        for trial in kept:
            found.setdefault(run_tables.key(trial.point, names), []).append(trial)
        if not found:
            asked = f" at {point!r}" if point else ""
            raise UsageError(
                f"Run {run.id} has no trial with records{asked}", next_step="`scalescope show` lists its points."
            )
        return cls(run, found)

    def elapsed(self, key: tuple[object, ...]) -> float:
        """Seconds of the call, on average over trials."""
        known = [
            sum(trial.metrics.worker_time_s.values()) / trial.point.threads
            for trial in self.points[key]
            if trial.metrics
        ]
        return sum(known) / len(known)

    @property
    def names(self) -> str:
        return "; ".join(label(trials[0].point) for trials in self.points.values())


# ------------------------------------------------------------------ in words


def _amount(seconds: float) -> str:
    return duration(abs(seconds)) if seconds >= 0 else f"-{duration(-seconds)}"


def _direction(seconds: float) -> str:
    return "more" if seconds >= 0 else "less"


def _signed(seconds: float) -> str:
    shown = round(abs(seconds), 4)
    return f"{'+' if seconds >= 0 else '-'}{number(shown)}" if shown else "0"


def _detail(part: DifferencePart) -> str:
    """Numbers of tasks, or seconds per task, of A and of B; empty for parts that these do not explain."""
    if part.tasks is None or part.per_task_s is None:
        return ""
    a, b = part.tasks
    tasks = f"{number(b)} instead of {number(a)} tasks"
    each = f"{duration(part.per_task_s[1])} instead of {duration(part.per_task_s[0])} each"
    if not a or not b:
        return f"{number(b)} new tasks" if b else f"{number(a)} tasks fewer"
    if part.kind is PartKind.CHUNKS:
        return f"{tasks}, {each}"
    return {PartKind.GRAPH: tasks, PartKind.SLOWER: each}.get(part.kind, "")


def _what(part: DifferencePart) -> str:
    where = f" at {part.where}" if part.where and " at " not in part.where else f" ({part.where})" if part.where else ""
    if part.tasks is not None:
        detail = _detail(part)
        head = {PartKind.WAITING: "threads that waited for "}.get(part.kind, "")
        return f"{head}`{cut(part.name, NAME)}`{where}" + (f": {detail}" if detail else "")
    if part.kind is PartKind.CLIENT:
        return f"the client, {cut(part.name, NAME)}" if part.name else "the client"
    return cut(part.name, NAME) or PARTS[part.kind][0]
