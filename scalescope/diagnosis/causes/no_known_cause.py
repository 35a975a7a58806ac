"""Verdicts without a cause: healthy, too short to judge, or idle for an unknown reason."""

from __future__ import annotations

from scalescope.analysis.summary import PointSummary
from scalescope.diagnosis.cause import LAST
from scalescope.diagnosis.evidence.graph_structure import points_of, put_down_to, sound, structure_evidence
from scalescope.diagnosis.sweep_case import SweepCase, SweepCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.metrics import OTHER_CLUSTER, PARTS, WORKER_TIME, WORKING, Metrics
from scalescope.model.words import percent, plural

HEALTHY = SweepCause(
    code="healthy",
    title="No fault found",
    needs="Points were measured, and no finding is worse than information.",
    ruled_out_by="Any finding of low severity or worse.",
    remedy="",
    precedence=60,
    premise="There is no remedy.",
)


@HEALTHY.finds
def healthy(case: SweepCase) -> Finding:
    """No fault was found; `diagnose` decides whether there is any other finding."""
    good = sound(case)
    points = plural(len(case.measured), "point")
    where = f"all {points}" if len(good) > 1 else "the one point measured"
    evidence: tuple[Evidence, ...] = ()
    rest = ""
    if len(good) < len(case.measured):
        where = f"{len(good):,} of {points}"
        rest = "; at the other points, too few tasks can run at once to use more threads"
    if good:
        lowest = min(good, key=lambda summary: summary.share_here(*WORKING))
        share = lowest.share_here(*WORKING)
        evidence = (Evidence("lowest share of worker time busy", round(share, 4), case.label(lowest)),)
        where += f" (at least {percent(share)} of the worker time busy{_left_out(lowest)})"
    summary = f"No fault found: workers are used well at {where}{rest}."
    if case.ran and good:
        busy = percent(good[0].share_here(*WORKING))
        summary = f"No fault found: {busy} of the worker time was busy{_left_out(good[0])}."
    elif case.measured and not good:
        summary = "No fault found: too few tasks can run at once to use more threads."
    return HEALTHY.finding(Severity.INFO, summary, "", *evidence, points=points_of(case.measured))


def _left_out(summary: PointSummary) -> str:
    elsewhere = summary.share(OTHER_CLUSTER)
    said = f", leaving out the {percent(elsewhere)} in which the script waited for another cluster"
    return said if elsewhere > 0 else ""


# Seconds of a call, and thread-seconds of all its tasks; below both, the call is too short for a fault to be found
SHORT_CALL_S, SHORT_WORK_S = 2.0, 0.5


def is_trifle(metrics: Metrics) -> bool:
    return metrics.elapsed_s < SHORT_CALL_S and metrics.work_s < SHORT_WORK_S


TOO_SHORT = SweepCause(
    code="too-short",
    title="Too short to judge",
    needs="Measured in real time, every call took less than 2 s, and the tasks of each call less than 0.5 s together.",
    ruled_out_by="A longer call, or more work. Simulated time, which has no noise.",
    remedy="Give the workload more to do, then measure again",
    precedence=55,
    premise="The remedy is a longer measurement, which promises no gain.",
)


@TOO_SHORT.finds
def too_short(case: SweepCase) -> Finding | None:
    """Find that all calls are too short to judge; other losses then are information, or are left out."""
    found = [metrics for _, metrics in case.measured]
    if not found or not all(map(is_trifle, found)) or not case.sweep.cluster.real_time:
        return None
    longest = max(found, key=lambda metrics: metrics.elapsed_s)
    work, call = words.duration(longest.work_s), words.duration(longest.elapsed_s)
    return TOO_SHORT.finding(
        Severity.INFO,
        f"Too little work to judge: the tasks took {work}, in a call of {call}; give the workload more to do.",
        "",
        Evidence("seconds of the call", round(longest.elapsed_s, 3), "the longest call"),
        Evidence("thread-seconds in tasks", round(longest.work_s, 3), "table tasks"),
        points=points_of(case.measured),
    )


IDLE_PARTS = tuple(part for part in WORKER_TIME if part not in (*WORKING, OTHER_CLUSTER))
MOSTLY = 0.5  # share of the idle worker time that known causes must explain; if they explain less, the cause is unknown

UNKNOWN = SweepCause(
    code="idle-workers-cause-unknown",
    title="Workers idle, and nothing shows why",
    needs="At least 30 % of the worker time was not busy (not counting time in which the script waited for another "
    "cluster). The structure of the graph does not show why, and other findings explain less than half of it.",
    ruled_out_by="Any other cause that explains most of it.",
    remedy="Run the experiment that the finding names: it tests the largest part of the lost time",
    precedence=LAST + 1,
    premise="The remedy is an experiment, which promises no gain.",
)


@UNKNOWN.finds
def idle_workers_cause_unknown(case: SweepCase) -> Finding | None:
    """Much worker time is not busy, and neither the structure nor the trials show why."""
    found = [
        (summary, metrics)
        for summary, metrics in put_down_to(case, UNKNOWN)
        if case.explained_s(summary) < MOSTLY * sum(metrics.worker_time_s.get(part, 0.0) for part in IDLE_PARTS)
    ]
    if not found:
        return None
    worst, metrics = max(found, key=lambda item: 1 - item[0].share_here(*WORKING))
    part = max(IDLE_PARTS, key=worst.share)
    idle = percent(1 - worst.share_here(*WORKING))
    said = f"{idle} of the worker time is not busy at {case.label(worst)}, the largest part `{PARTS[part].title}` "
    said += f"({percent(worst.share_here(part))}){_left_out(worst)}; nothing recorded shows why."
    remedy = (OF_A_SCRIPT if case.ran else {}).get(part) or NEXT_EXPERIMENT[part]
    if 0 < worst.cores < worst.point.threads:
        workers, cores = plural(worst.point.workers, "worker"), plural(worst.cores, "core")
        said = f"{workers} on {cores}: {said[:-1]} (perhaps tasks compute and share the cores)."
        remedy = f"ask for at most {plural(worst.cores, 'thread')} on this host if tasks compute; else {remedy}"
    return UNKNOWN.finding(
        Severity.MEDIUM,
        said,
        remedy,
        *structure_evidence(worst, metrics),
        confidence=0.2,
        points=points_of(found),
        lost_s=sum(summary.seconds(*IDLE_PARTS) for summary, _ in found),
    )


# What to try next with a script or block, by the part of worker time that was lost.
OF_A_SCRIPT = {
    "no_runnable_task": "next, divide the input into twice as many partitions: if the time falls, there were too few",
    "not_assigned": "next, give each task more to do: if the idle time goes, the scheduler was the limit",
}
# What to try next with a sweep, which can vary more than a script or block.
NEXT_EXPERIMENT: dict[str, str] = {
    "transfer": "next, run with larger inputs per task or fewer workers: transfer should shrink",
    "serialisation": "next, look for large objects in the arguments of tasks, scatter them, and run again",
    "spill": "next, run with more memory per worker or smaller partitions: spilling should end",
    "paused": "next, run with more memory per worker or smaller partitions: workers should no longer pause",
    "no_runnable_task": "next, double the partitions (or items) at this point: if that is faster, there were too few",
    "client": "next, see what the client does at the lines in table `client`, and move it into tasks",
    "not_assigned": "next, run this point with `-c simulated --cluster-option scheduler_us=0`: if the idle time goes, "
    "the scheduler is the limit, and tasks should be longer",
    "late_start": "next, check when workers joined (table `workers`), and start the workload after the last one",
    "lost": "next, read the logs of the workers that died (table `logs`)",
    "tail": "next, compare the longest task of the last stage with the median one: split it, or start it first",
}
