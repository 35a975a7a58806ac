"""What the catalogue says of the codes that only a sweep can show; `scalescope.diagnosis.verdict` finds them."""

from __future__ import annotations

from scalescope.diagnosis.causes.base import Entry

ENTRIES = (
    Entry(
        code="nothing-measured",
        title="No trial is a measurement",
        needs="Not one trial of the sweep is valid.",
        ruled_out_by="One valid trial; warm-ups do not count.",
        remedy="Remove the reason named in the finding, then run the same sweep again",
        link="",
    ),
    Entry(
        code="failed-trials",
        title="The workload raised",
        needs="Trials in the state failed: the workload raised, or its answer was wrong.",
        ruled_out_by="A machine that misbehaved (invalid-trials).",
        remedy="Run that point alone and mend the workload",
        link="",
    ),
    Entry(
        code="invalid-trials",
        title="The machine misbehaved",
        needs="Trials in the state invalid: workers missing or lost, capture incomplete, host overloaded, timed out.",
        ruled_out_by="A workload that raised (failed-trials).",
        remedy="Run the same sweep again; on an overloaded host with fewer workers, or on the simulated cluster",
        link="",
    ),
    Entry(
        code="too-few-partitions",
        title="Fewer partitions than threads",
        needs="A tenth of the worker time has no task to run; never as many tasks are runnable at once, and no stage "
        "has as many, as there are threads (or items, where there are fewer).",
        ruled_out_by="Fewer items than threads (fewer-items-than-workers); tasks enough that depend on each other "
        "(sequential-graph); idle threads that findings of the records explain, such as results-awaited-in-loop.",
        remedy="Set the partitions: Beam `--dask_npartitions`, bag `npartitions=`, more files or smaller chunks. A "
        "library's default is named where it predicts every count that was measured",
        link="https://github.com/dask/dask/issues/10291",
    ),
    Entry(
        code="fewer-items-than-workers",
        title="Not enough to do",
        needs="The point has fewer items than threads, and never as many tasks were runnable at once as there are.",
        ruled_out_by="Items enough that were put into few partitions (too-few-partitions).",
        remedy="Ask for no more workers than there are items, or for more items",
        link="",
    ),
    Entry(
        code="sequential-graph",
        title="Tasks depend on each other",
        needs="There are as many tasks as threads or more, but work by longest dependency path (T1/T∞) is below half "
        "of the threads, and a tenth of the worker time has no task to run.",
        ruled_out_by="Independent tasks that are sent one by one (results-awaited-in-loop, slow-submission).",
        remedy="Ask for about T1/T∞ threads, or shorten the longest dependency path",
        link="https://docs.dask.org/en/stable/phases-of-computation.html",
    ),
    Entry(
        code="uneven-waves",
        title="The last wave is not full",
        needs="More tasks than threads, and the idle time is within 5 % of what equal tasks leave in their last wave.",
        ruled_out_by="Long tasks (straggler, skewed-tasks).",
        remedy="Make the number of tasks a multiple of the threads, or the tasks smaller",
        link="",
    ),
    Entry(
        code="idle-workers-cause-unknown",
        title="Idle, and nothing shows why",
        needs="30 % of the worker time is not busy, the structure does not show why, and the findings of the records "
        "explain less than half of it.",
        ruled_out_by="Any cause above or below that explains most of it.",
        remedy="The next experiment, which the finding names by the largest part of the lost time",
        link="",
    ),
    Entry(
        code="healthy",
        title="No fault found",
        needs="Points were measured, and no finding is worse than information.",
        ruled_out_by="Any finding of severity low or worse.",
        remedy="",
        link="",
    ),
)
"""In the order in which the verdict looks for them."""
