"""What experiments rule out, by comparing points that differ in one thing."""

from __future__ import annotations

from operator import itemgetter

from scalescope.analysis.summary import PointSummary
from scalescope.diagnosis.sweep_case import Measured, SweepCase, SweepCause
from scalescope.model.fields import Scalar
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.partition_calls import NPARTITIONS
from scalescope.model.sweep import CLUSTER, DEFAULT_CLUSTER, WORKERS, ZERO_LENGTH
from scalescope.model.words import number, percent, plural

EMPTY = f"{DEFAULT_CLUSTER}, tasks of zero length"
# Simulated time / real time: from `NEARLY_ALL`, the simulation explains the time; up to `TOO_LITTLE`, it does not.
NEARLY_ALL, TOO_LITTLE = 0.85, 0.6
HARDLY = 1.1  # largest ratio of two times that count as equal
PARTITIONS = ("npartitions", NPARTITIONS)
DECISIVE = (CLUSTER, *PARTITIONS)
Rest = frozenset[tuple[str, Scalar]]

EXPERIMENTS = SweepCause(
    code="experiments",
    title="What experiments rule out",
    needs="Two points differ in one thing only: one ran on the simulated cluster, has another number of partitions, or "
    "has tasks of zero length.",
    ruled_out_by="Points that differ in more than one thing.",
    remedy="Look at the causes that remain",
    premise="The effect of each compared change was measured.",
)


@EXPERIMENTS.finds
def experiments(case: SweepCase) -> Finding | None:
    """Compare a point with points that differ from it in the cluster, the partitions or the workers alone."""
    beside = _NeighbourPoints(case)
    for summary, metrics in sorted(case.measured, key=lambda item: -item[0].point.threads):
        if not beside.of(summary, *DECISIVE):
            continue
        others = beside.of(summary, *DECISIVE, WORKERS)
        said = [text for name, other in others if (text := _said(name, summary, other, metrics.elapsed_s))]
        if said:
            return EXPERIMENTS.finding(
                Severity.INFO,
                f"Compared with {case.label(summary)} ({number(metrics.elapsed_s)} s): {'; '.join(said)}.",
                "",
                *(
                    Evidence(f"seconds with {name} = {beside.value(other[0], name)}", other[1].elapsed_s, "its trials")
                    for name, other in others
                ),
                points=[summary, *(other[0] for _, other in others)],
            )
    return None


class _NeighbourPoints:
    """Finds points that differ in one value, without comparing all pairs."""

    def __init__(self, case: SweepCase) -> None:
        self._kind = case.sweep.cluster.kind
        self._alike: dict[tuple[str, Rest], list[tuple[int, Measured]]] = {}
        for place, measured in enumerate(case.experiments):
            for name in (*DECISIVE, WORKERS):
                self._alike.setdefault((name, self._rest(measured[0], name)), []).append((place, measured))

    def of(self, summary: PointSummary, *names: str) -> list[tuple[str, Measured]]:
        """Pairs of a name and a point that differs in that value alone; points on other clusters only if simulated."""
        own = self._values(summary)
        found = [
            (place, name, other)
            for name in names
            for place, other in self._alike[name, self._rest(summary, name)]
            if (value := self._values(other[0]).get(name)) != own.get(name)
            and (name != CLUSTER or value in (DEFAULT_CLUSTER, EMPTY))
        ]
        return [(name, other) for _, name, other in sorted(found, key=itemgetter(0))]

    def value(self, summary: PointSummary, name: str) -> Scalar:
        return self._values(summary).get(name, "")

    def _rest(self, summary: PointSummary, name: str) -> Rest:
        return frozenset(item for item in self._values(summary).items() if item[0] != name)

    def _values(self, summary: PointSummary) -> dict[str, Scalar]:
        values = {**summary.point.values, CLUSTER: summary.point.cluster or self._kind}
        return {**values, CLUSTER: EMPTY} if values.pop(ZERO_LENGTH, False) else values


def _said(name: str, summary: PointSummary, other: Measured, now_s: float) -> str:
    there, metrics = other
    took, times = number(metrics.elapsed_s), metrics.elapsed_s / now_s
    same = 1 / HARDLY <= times <= HARDLY
    if name == CLUSTER and there.point.has_zero_length_tasks:
        why = (
            "shorter tasks change nothing"
            if times >= NEARLY_ALL
            else "the rest goes to the tasks, and to threads that are idle while others run tasks"
        )
        return f"with tasks of zero length the run took {took} s, {percent(times)} of the time: {why}"
    if name == CLUSTER:
        if times >= NEARLY_ALL:
            why = "graph, client, scheduler and links of usual speed explain the time, and the machine does not"
        elif times <= TOO_LITTLE:
            why = f"{percent(1 - times)} goes to what is not simulated: slow links, memory limits, the interpreter lock"
        else:
            why = f"{percent(1 - times)} goes to the machine (links, memory, locks), the rest to graph and client"
        return f"the simulated cluster took {took} s, so {why}"
    before, after = summary.point.values.get(name), there.point.values.get(name)
    if name in PARTITIONS:
        made = there.partitions
        why = "their number changes nothing" if same else "that is faster" if times < 1 else "that is slower"
        return f"{made:,} partitions instead of {summary.partitions:,} took {took} s: {why}"
    if name == WORKERS and isinstance(before, int) and isinstance(after, int) and after < before:
        why = (
            "the number of workers does not limit the speed"
            if same
            else "fewer workers are faster, so more of them get in each other's way"
            if times < 1
            else f"{before / after:.3g} times the workers bring {times:.2f} times the speed"
        )
        return f"{plural(after, 'worker')} took {took} s: {why}"
    return ""
