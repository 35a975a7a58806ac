"""Runs labelled cases through the whole chain, and counts what came first in each verdict."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from cases import HEALTHY, Case
from support.requests import asked

from scalescope.diagnosis.verdict import diagnose
from scalescope.model.finding import Severity, Verdict
from scalescope.model.trial import Trial
from scalescope.run.drivers import Drivers
from scalescope.run.trials import measure

# Share of the host used by others from which `host-overloaded` may come before the cause, with real processes
BUSY_HOST = 0.1

LITTLE, MUCH = 0.10, 0.35  # shares of worker time that a healthy case may lose, and that a positive one must


@dataclass(frozen=True)
class Result:
    case: Case  # the case
    trials: tuple[Trial, ...]  # its trials, with metrics and findings
    verdict: Verdict  # verdict on its sweep
    tables: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)  # the records of each trial
    real_s: float = 0.0  # real seconds that it took

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(finding.code for finding in self.verdict.findings) or (HEALTHY,)

    @property
    def named(self) -> str:
        """The code that comes first: the expected one where it stands above the verdict, as a limit of trust."""
        if self.case.expect in {finding.code for finding in self.verdict.trust} - {"host-overloaded"}:
            return self.case.expect
        said = [
            finding.code
            for finding in self.verdict.findings
            if not self.host_was_busy or (finding.code != "host-overloaded" and finding.severity is not Severity.INFO)
        ]
        return said[0] if said else HEALTHY

    @property
    def host_was_busy(self) -> bool:
        """Whether others used so much of the host that a case with real processes may be told so first."""
        return self.case.real and self.others > BUSY_HOST and self.case.expect != "host-overloaded"

    @property
    def spoilt(self) -> bool:
        """Whether only the busy host was named, which is true but says nothing about the rules."""
        return self.host_was_busy and self.codes == ("host-overloaded",)

    @property
    def right(self) -> bool:
        return self.named in (self.case.expect, *self.case.also)

    @property
    def lost(self) -> float:
        """The largest share of worker time over the trials that no useful task used; 0 without a measurement."""
        shares = [
            1 - trial.metrics.worker_time_s["busy"] / sum(trial.metrics.worker_time_s.values())
            for trial in self.trials
            if trial.metrics is not None
        ]
        return max(shares, default=0.0)

    @property
    def others(self) -> float:
        """The largest share of the host that other processes used during a trial."""
        loads = [trial.facts.get("host", {}).get("load") or {} for trial in self.trials]
        return max((load.get("others", 0.0) + load.get("stolen", 0.0) for load in loads), default=0.0)


class _Kept:
    def __init__(self) -> None:
        self.tables: list[Mapping[str, Any]] = []

    def save(self, run_id: str, trial: Trial, tables: Mapping[str, Any]) -> Trial:
        self.tables.append(tables)
        return trial


def run(
    cases: Iterable[Case], *, at_once: int = 1, finished: Callable[[Result], None] = lambda result: None
) -> list[Result]:
    """Run cases, those with the same cluster on one driver, as the flows do but for store and orchestrator.

    Args:
        cases: The cases.
        at_once: Drivers side by side, for those in virtual time.
        finished: Called with each result.
    """
    cases = _in_order(cases)
    virtual = [case for case in cases if not case.real]
    shares = [share for share in (virtual[i::at_once] for i in range(at_once)) if share]
    results: list[Result] = []
    with ThreadPoolExecutor(at_once) as pool:
        for share in pool.map(lambda share: _run_group(share, finished), shares):
            results += share
    for _, group in itertools.groupby((case for case in cases if case.real), key=_cluster_of):
        results += _run_group(list(group), finished)
    return results


def _cluster_of(case: Case) -> tuple[Any, ...]:
    return tuple(sorted(case.cluster.items()))


def _in_order(cases: Iterable[Case]) -> list[Case]:
    """Simulated cases first; the real ones in an order in which clusters are rarely opened or scaled anew."""
    return sorted(
        cases,
        key=lambda case: (
            case.real,
            repr(_cluster_of(case)),
            repr(sorted(case.config.items())),
            case.real and (case.threads, case.workers),
        ),
    )


def _run_group(cases: Sequence[Case], finished: Callable[[Result], None]) -> list[Result]:
    """Run cases one after another on the same drivers; a driver that ended is replaced."""
    session: Drivers | None = None
    results = []
    try:
        for case in cases:
            began, kept, trials = time.monotonic(), _Kept(), []
            request = asked(case.sweep())
            session = session or Drivers(request, "cases", kept)  # type: ignore[arg-type]
            session.request, session.store = request, kept  # type: ignore[assignment]
            for planned in request.plan:
                if session.driver(planned.point) is None:
                    session.open(planned.point)
                trials.append(measure(session, planned))
            verdict = diagnose(request.sweep, trials)
            result = Result(case, tuple(trials), verdict, tuple(kept.tables), time.monotonic() - began)
            finished(result)
            results.append(result)
    finally:
        if session is not None:
            session.close()
    return results


@dataclass(frozen=True)
class Rates:
    recall: Mapping[str, tuple[int, int]]  # per expected code: cases, and how many were named first
    healthy: int  # healthy cases
    accused: int  # healthy cases with a fault named
    spoilt: int  # cases left out, since nothing but the busy host was named
    confusions: Mapping[tuple[str, str], int]  # (expected, named first) to their number, without those that were right

    @property
    def overall(self) -> float:
        total = sum(count for count, _ in self.recall.values())
        return sum(right for _, right in self.recall.values()) / total if total else 1.0

    @property
    def false_alarms(self) -> float:
        return self.accused / self.healthy if self.healthy else 0.0


def count(results: Iterable[Result]) -> Rates:
    everything = list(results)
    results = [result for result in everything if not result.spoilt]
    positive = [result for result in results if result.case.expect != HEALTHY]
    sound = [result for result in results if result.case.expect == HEALTHY]
    cases, right = Counter(r.case.expect for r in positive), Counter(r.case.expect for r in positive if r.right)
    return Rates(
        recall={code: (cases[code], right[code]) for code in sorted(cases)},
        healthy=len(sound),
        accused=sum(not result.right for result in sound),
        spoilt=len(everything) - len(results),
        confusions=Counter((r.case.expect, r.named) for r in results if not r.right),
    )


def shows_its_label(result: Result) -> bool:
    """Whether the worker time of a case is lost, or not, as its label says; real time on a busy host shows nothing."""
    if result.case.quiet_loss or result.host_was_busy:
        return True
    return result.lost <= LITTLE if result.case.expect == HEALTHY else result.lost >= MUCH


def stratified(cases: Iterable[Case], *, per_code: int, healthy: int, real: Sequence[str] = ()) -> list[Case]:
    """A fixed part of the cases: a few simulated ones of every code, and the real ones named in `real`."""
    cases = list(cases)
    chosen: list[Case] = [case for case in cases if case.name in real]
    simulated = [case for case in cases if not case.real]
    for code in dict.fromkeys(case.expect for case in simulated):
        of_code = [case for case in simulated if case.expect == code]
        wanted = min(healthy if code == HEALTHY else per_code, len(of_code))
        chosen += [of_code[(2 * i + 1) * len(of_code) // (2 * wanted)] for i in range(wanted)]
    return chosen
