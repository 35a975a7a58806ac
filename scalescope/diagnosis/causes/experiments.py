"""What experiments say: a point beside others that differ from it in one thing alone."""

from __future__ import annotations

from collections.abc import Iterator

from scalescope.analysis.summary import PointSummary, percent, plural
from scalescope.diagnosis.sweep_case import Measured, SweepCase, SweepCause
from scalescope.model.asked import NPARTITIONS
from scalescope.model.fields import Scalar
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.sweep import CLUSTER, WORKERS
from scalescope.model.words import number

SIMULATED = "simulated"
MOST, LITTLE = 0.85, 0.6
"""Shares of a real cluster's time: from the first on the simulated one explains it, up to the second it does not."""
HARDLY = 1.1
"""Times as long or as fast as which two points take about the same."""
PARTITIONS = ("npartitions", NPARTITIONS)

EXPERIMENTS = SweepCause(
    code="experiments",
    title="What experiments rule out",
    needs="Two points that differ only in the cluster, one of them simulated, or only in the number of partitions.",
    ruled_out_by="Points that differ in more than one thing.",
    remedy="Look at the causes that are left",
)


@EXPERIMENTS.finds
def experiments(case: SweepCase) -> Finding | None:
    """What a point says beside those that differ from it in the cluster, the partitions or the workers alone.

    The time of the simulated cluster is that of graph, client and scheduler: it has no transfers, memory limits,
    interpreter lock or neighbours. Workers of which half do the same in the same time do not limit it.
    """
    for summary, metrics in sorted(case.measured, key=lambda item: -item[0].point.threads):
        others = list(_beside(case, summary))
        if not any(name == CLUSTER or name in PARTITIONS for name, _ in others):
            continue
        said = [text for name, other in others if (text := _said(name, summary, other, metrics.elapsed_s))]
        if said:
            return EXPERIMENTS.finding(
                Severity.INFO,
                f"Beside {case.label(summary)} ({number(metrics.elapsed_s)} s): {'; '.join(said)}.",
                "",
                *(
                    Evidence(
                        f"seconds with {name} = {other[0].point.values.get(name)}", other[1].elapsed_s, "its trials"
                    )
                    for name, other in others
                ),
                points=[summary, *(other[0] for _, other in others)],
            )
    return None


def _beside(case: SweepCase, summary: PointSummary) -> Iterator[tuple[str, Measured]]:
    """Points that differ from one in one value, and which that is."""
    own = _values(case, summary)
    for other in case.measured:
        values = _values(case, other[0])
        different = [name for name in own.keys() | values.keys() if own.get(name) != values.get(name)]
        if len(different) == 1 and (different[0] != CLUSTER or values[CLUSTER] == SIMULATED):
            yield different[0], other


def _values(case: SweepCase, summary: PointSummary) -> dict[str, Scalar]:
    return {**summary.point.values, CLUSTER: summary.point.cluster or case.sweep.cluster.kind}


def _said(name: str, summary: PointSummary, other: Measured, now_s: float) -> str:
    """What one comparison says; empty where nothing."""
    there, metrics = other
    took, times = number(metrics.elapsed_s), metrics.elapsed_s / now_s
    same = 1 / HARDLY <= times <= HARDLY
    if name == CLUSTER:
        if times >= MOST:
            why = "graph, client and scheduler explain the time, and the machine does not"
        elif times <= LITTLE:
            why = (
                f"{percent(1 - times)} goes to what only machines have: transfers, memory, the interpreter lock, others"
            )
        else:
            why = f"{percent(1 - times)} goes to the machine (transfers, memory, locks), the rest to graph and client"
        return f"the simulated cluster took {took} s, so {why}"
    before, after = summary.point.values.get(name), there.point.values.get(name)
    if name in PARTITIONS:
        made = there.partitions
        why = "more partitions change nothing" if same else "their number decides" if times < 1 else "that is too many"
        return f"{made:,} partitions instead of {summary.partitions:,} took {took} s: {why}"
    if name == WORKERS and isinstance(before, int) and isinstance(after, int) and after < before:
        why = (
            "their number limits nothing"
            if same
            else "fewer are faster, so they are in each other's way"
            if times < 1
            else f"{before / after:.3g} times the workers bring {times:.2f} times the speed"
        )
        return f"{plural(after, 'worker')} took {took} s: {why}"
    return ""
