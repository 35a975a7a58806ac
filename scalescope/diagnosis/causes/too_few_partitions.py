"""Fewer partitions than threads, and who chose their number."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scalescope.analysis.summary import PointSummary
from scalescope.diagnosis.cause import WITHOUT_TASKS, Premise, Term
from scalescope.diagnosis.evidence.graph_structure import (
    asked_and_used,
    idle_seconds,
    in_rounds,
    points_of,
    put_down_to,
    structure_evidence,
)
from scalescope.diagnosis.partitions import (
    ARRAY,
    BAG_OPTION,
    BEAM_128,
    BEAM_OPTION,
    PartitionRule,
    block,
    matching,
    more,
)
from scalescope.diagnosis.sweep_case import Measured, SweepCase, SweepCause
from scalescope.model.fields import Scalar
from scalescope.model.finding import BLOCK, Evidence, Finding, Gain, Place, Severity
from scalescope.model.metrics import Metrics
from scalescope.model.partition_calls import BAG, CREATE, DIVIDED, NPARTITIONS
from scalescope.model.words import plural

MINOR = 0.20  # share of worker time; a cause that costs less is of low severity
ABOUT_HALF = 0.45  # least share of worker time for high severity; 51 partitions on 100 workers reach it
# Options that make more partitions, where the call is not known.
PARTS = ": smaller `chunks=` of an array, a smaller `blocksize=` of a reader, `npartitions=`, or more calls"

TOO_FEW_PARTITIONS = SweepCause(
    code="too-few-partitions",
    title="Fewer partitions than threads",
    needs="At least 10 % of the worker time had no task to run. At no time were as many tasks ready, and no stage had "
    "as many tasks, as there are threads (or items, if fewer).",
    ruled_out_by="Fewer items than threads (fewer-items-than-workers). Enough tasks that depend on each other "
    "(sequential-graph). Idle threads that other findings explain, such as results-awaited-in-loop.",
    remedy="Make more partitions: Beam `--dask_npartitions`, bag `npartitions=`, more files, or smaller chunks. The "
    "finding names a library's default if this explains every measured count",
    link="https://github.com/dask/dask/issues/10291",
    parts=WITHOUT_TASKS,
    changes=(Term.SPAN,),
    workers_unused=True,
    premise=Premise(
        "The input can be cut into more partitions.",
        lambda worst: (
            worst.metrics is None or in_rounds(worst.metrics, worst.point.threads) or _enough(worst) > worst.partitions
        ),
    ),
)


@TOO_FEW_PARTITIONS.finds
def too_few_partitions(case: SweepCase) -> Finding | None:
    """The graph never has as many tasks at once as there are threads, although there are enough items."""
    found = put_down_to(case, TOO_FEW_PARTITIONS)
    if not found:
        return None
    worst, metrics = found[0]
    alike = [item for item in found if item[0].point.environment == worst.point.environment]  # same library versions
    rule, confidence = (None, 0.9) if _partitions_asked(worst) else _rule_of(case, alike)
    idle = case.idle(worst)
    severity = Severity.LOW if idle < MINOR else Severity.MEDIUM if idle < ABOUT_HALF else Severity.HIGH
    if worst.items is None and worst.origin is None:
        severity, confidence = Severity.MEDIUM, 0.6
    return TOO_FEW_PARTITIONS.finding(
        severity,
        f"{asked_and_used(worst, metrics)}: {_partition_cause(case, worst, metrics, rule)}.",
        _partition_remedy(case, worst, rule),
        *structure_evidence(worst, metrics),
        *_prediction(rule, alike),
        *_block(worst),
        confidence=confidence,
        link=rule.link if rule else "",
        points=points_of(found),
        lost_s=idle_seconds(case, found),
        gain=_gain(case, worst, metrics),
        place=Place.of(worst.origin.where) if worst.origin else None,
    )


def _partitions_asked(summary: PointSummary) -> str:
    """The parameter by which the point sets its partitions itself, or an empty string."""
    names = ("npartitions", "partition_size", NPARTITIONS)
    return next((name for name in names if summary.point.values.get(name) is not None), "")


def _by_default(found: Sequence[Measured]) -> set[tuple[int, int]]:
    """(items, tasks of the widest stage) of points whose number of partitions a library chose."""
    return {
        (summary.items, summary.partitions)
        for summary, _ in found
        if summary.items is not None and not _partitions_asked(summary)
    }


def _rule_of(case: SweepCase, found: Sequence[Measured]) -> tuple[PartitionRule | None, float]:
    counts = _by_default(found)
    rule = matching(counts)
    calls = {summary.origin.call for summary, _ in found if summary.origin is not None}
    is_bag = case.sweep.workload.startswith("bag-") or calls == {BAG}
    if rule is not None and (_is_beam(case, found[0][0]) or (is_bag and rule is not BEAM_128)):
        return rule, 1.0
    if calls:
        return None, 0.9
    # Without a known call of the workload, only the numbers count: two different ones must fit the rule.
    several = len({partitions for _, partitions in counts}) > 1
    return (rule, 0.7) if rule is not None and several else (None, 0.9)


def _is_beam(case: SweepCase, summary: PointSummary) -> bool:
    return case.sweep.workload.startswith("beam-") or _own_beam(case, summary)


def _own_beam(case: SweepCase, summary: PointSummary) -> bool:
    """Whether Beam made the partitions of the user's own workload (if no call is known: whether it was imported)."""
    if summary.origin is not None:
        return summary.origin.call == CREATE
    return any(name.partition(".")[0] == "apache_beam" for name in case.imports)


def _partition_cause(case: SweepCase, worst: PointSummary, metrics: Metrics, rule: PartitionRule | None) -> str:
    point, items, origin, asked = worst.point, worst.items, worst.origin, _partitions_asked(worst)
    if in_rounds(metrics, point.threads):
        tasks, rounds = plural(metrics.widest_stage, "task"), f"rounds of at most {metrics.peak_runnable:,}"
        return f"the {tasks} of the widest stage come in {rounds}, for {plural(point.threads, 'thread')}"
    at = "" if origin is None else f" (`{origin.call}` at {origin.where})"
    if rule is not None and items is not None:
        by_bag = f"Apache Beam leaves the partitions to {rule.library}, which"
        by = by_bag if _is_beam(case, worst) and rule is not BEAM_128 else rule.library
        become = "becomes" if items == 1 else "become"
        return f"{by} {rule.text}, so {plural(items, 'item')} {become} {plural(worst.partitions, 'partition')}{at}"
    tasks = plural(metrics.widest_stage, "task")
    if asked:
        return f"{asked}={point.values[asked]} was asked for, so the widest stage has {tasks}"
    if origin is not None:
        of = "" if items is None else f" out of {plural(items, 'item')}"
        part = "chunk" if origin.call.startswith(ARRAY) else "partition"
        return f"`{origin.call}` at {origin.where} makes {plural(origin.partitions, part)}{of}"
    given = "" if items is None else f" and {plural(items, 'item')}"
    return f"the widest stage of the graph has {tasks} for {plural(point.threads, 'thread')}{given}"


def _partition_remedy(case: SweepCase, worst: PointSummary, rule: PartitionRule | None) -> str:
    point, items, origin, asked = worst.point, worst.items, worst.origin, _partitions_asked(worst)
    enough = _enough(worst)
    if worst.metrics is not None and in_rounds(worst.metrics, point.threads):
        return f"give each round at least {enough:,} tasks; if no round needs the previous one, send all rounds at once"
    here = " (in a sweep: params: {npartitions: items})" if "npartitions" in point.params else ""
    if asked in ("npartitions", NPARTITIONS):
        return f"set {asked} to at least {enough:,}{here}"
    if asked == "partition_size":
        return f"set partition_size to at most {max(1, (items or 1) // enough):,}"
    if rule is None and _own_beam(case, worst):
        return f"pass Beam --dask_npartitions={enough:,} or more{here}"
    if rule is None and origin is not None:
        return more(origin, enough)
    if rule is None:
        return f"divide the input into at least {enough:,} partitions{here or PARTS}"
    if rule is BEAM_128:
        return BEAM_OPTION + here
    return (f"upgrade Apache Beam to 2.63 or later and {BEAM_OPTION}" if _is_beam(case, worst) else BAG_OPTION) + here


def _block(worst: PointSummary) -> tuple[Evidence, ...]:
    origin = worst.origin
    size = None if origin is None else 0 if origin.nbytes == 0 else block(origin, _enough(worst))  # 0: can't be cut
    return () if size is None else (Evidence(BLOCK, size, "sizes of the files"),)


def _enough(summary: PointSummary) -> int:
    threads, items = summary.point.threads, summary.items
    return threads if items is None else max(1, min(threads, items))


def _gain(case: SweepCase, worst: PointSummary, metrics: Metrics) -> Gain | None:
    """Gain if each thread (or item) has a partition: the makespan is at least ceil(items / threads) × T1 / items."""
    point, items, enough = worst.point, worst.items, _enough(worst)
    makespan_s = (point.threads * metrics.makespan_s - case.idle_s(worst) / worst.valid) / enough
    if items:
        makespan_s = max(makespan_s, math.ceil(items / enough) * metrics.work_s / items)
    change: dict[str, Scalar] = {}
    if "npartitions" in point.params:
        change = {"npartitions": items or enough}
    elif "partition_size" in point.params:
        change = {"partition_size": max(1, (items or 1) // enough)}
    elif worst.origin is not None and worst.origin.call in DIVIDED:
        change = {NPARTITIONS: enough}
    return TOO_FEW_PARTITIONS.gain(metrics, point.threads, metrics.makespan_s - makespan_s, change=change)


def _prediction(rule: PartitionRule | None, found: Sequence[Measured]) -> tuple[Evidence, ...]:
    items = found[0][0].items
    if rule is None or items is None:
        return ()
    return (
        Evidence("partitions that this default predicts", rule.partitions(items), rule.formula),
        Evidence("pairs of items and partitions that the default predicts", len(_by_default(found)), "different pairs"),
    )
