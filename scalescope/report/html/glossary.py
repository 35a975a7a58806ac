"""The terms of the report, in the order in which they appear in it."""

from __future__ import annotations

TERMS: tuple[tuple[str, str], ...] = (
    ("Point, trial", "A point is one combination of settings; a trial is one measured run of it."),
    (
        "Makespan",
        "From the moment at which the scheduler knows the first task to the end of the last computation (“time s”).",
    ),
    ("Work, T1", "The durations of all tasks together: the makespan on a single thread that never waits."),
    ("Span, T∞", "The longest path of tasks that depend on each other: no number of workers makes it shorter."),
    (
        "Ideal",
        "max(T1 / P, T∞) on P threads: no schedule of this graph is shorter (Brent, 1974). The graph itself may "
        "still be the fault.",
    ),
    ("Parallelism, T1/T∞", "How many threads the graph can keep busy on average, however many there are."),
    ("Partitions", "Tasks of the widest stage: the partitions of a bag, an array or a Beam pipeline."),
    ("Runnable", "Tasks whose inputs are in memory: they run, or wait for a thread."),
    (
        "Speed-up, knee",
        "Throughput in units of one thread that is always busy; the ideal on P threads is P. The knee is where it "
        "stops growing, with its 95 % interval from a bootstrap.",
    ),
    ("Worker time", "P × makespan: what was paid for. It is divided without remainder into the parts below."),
)

PARTS: dict[str, str] = {
    "busy": "computing a task whose result was used",
    "transfer": "idle while its worker fetched a task’s inputs",
    "serialisation": "idle while its worker deserialised a task",
    "spill": "idle while its worker read or wrote spilled data",
    "paused": "idle because its worker was paused, mostly because its memory was almost full",
    "no_runnable_task": "idle, and no task was there to run: the graph offered fewer tasks than threads",
    "not_assigned": "idle although a task was runnable: the price of scheduling and communication",
    "late_start": "not there yet: its worker had not joined, or never did",
    "lost": "computing what failed or had to be repeated, or gone with its worker",
    "tail": "idle since its last task, while the last tasks of the trial still ran",
}
"""What a thread was doing, by part of worker time."""
