"""Measurements of a trial; each is declared once, as an annotated field of `Metrics`, and used everywhere.

To add a number, declare it after the others as `float | None = None` and compute it in `scalescope.analysis.measure`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, get_type_hints

from scalescope.model.mapping import Mapped


class Combine(StrEnum):
    """How the values of repeats become one value."""

    MEDIAN = "median"
    LOWER_MEDIAN = "lower median"  # median of counts, always a measured number
    MEAN = "mean"


class Unit(StrEnum):
    """Unit of a number, and its written form."""

    SECONDS = "s"
    SHARE = "share"
    BYTES = "bytes"
    TASKS = "tasks"
    WORKERS = "workers"
    THREADS = "threads"
    CORES = "cores"


@dataclass(frozen=True)
class Metric:
    """Declares a number that is measured."""

    help: str
    unit: Unit
    title: str  # heading in tables
    short: str = ""  # heading in a narrow terminal; empty: the title
    legend: str = ""  # explains the title below a table
    rank: int | None = None  # rank in the table of points; None: not shown. A narrow table drops high ranks first
    combine: Combine = Combine.MEDIAN
    interval: bool = False  # True if the mean is shown with a 95 % interval
    larger_is_better: bool = False  # True if a larger value is better, for `compare`
    term: str = ""  # entry in the glossary of a report; empty: none
    name: str = ""  # the name of the field


@dataclass(frozen=True)
class WorkerTimePart:
    """A part of worker time: a state of a thread."""

    title: str  # heading in reports
    help: str  # description of the state of the thread


# Parts in the order of display. They add up to the time of the workload's call × the requested threads.
PARTS: Mapping[str, WorkerTimePart] = {
    "busy": WorkerTimePart("busy", "computing a task whose result was used"),
    "actors": WorkerTimePart("actors", "idle while its worker ran a method of an actor in another thread"),
    "transfer": WorkerTimePart("transfer", "idle while its worker fetched a task’s inputs"),
    "serialisation": WorkerTimePart("serialisation", "idle while its worker deserialised a task"),
    "spill": WorkerTimePart("spill to disk", "idle while its worker read or wrote spilled data"),
    "paused": WorkerTimePart("paused", "idle because its worker was paused, mostly for lack of memory"),
    "no_runnable_task": WorkerTimePart(
        "no runnable task", "idle, and no task was there to run: the graph offered fewer tasks than threads"
    ),
    "client": WorkerTimePart("client", "idle while the client had sent no task, or all tasks sent had ended"),
    "other_cluster": WorkerTimePart("another cluster", "idle while the script waited for another cluster"),
    "not_assigned": WorkerTimePart(
        "runnable, not assigned", "idle although a task was ready to run: the cost of scheduling and communication"
    ),
    "late_start": WorkerTimePart("late start", "not there yet: its worker had not joined, or never did"),
    "lost": WorkerTimePart("lost", "computing a task that failed or was repeated, or missing after its worker died"),
    "tail": WorkerTimePart("tail", "idle since its last task, while the last tasks of the trial still ran"),
}

WORKER_TIME = tuple(PARTS)
OTHER_CLUSTER = "other_cluster"  # the part of worker time that no cause explains
WORKING = ("busy", "actors")  # parts in which a worker did what the user wanted


# States of busy threads, as seen from the GPUs. These parts add up to the part `busy`.
GPU_PARTS: Mapping[str, WorkerTimePart] = {
    "computing": WorkerTimePart("GPU computes", "a kernel ran on the worker’s GPU"),
    "loading": WorkerTimePart("loading, decoding", "GPU idle while the task read or decoded"),
    "python": WorkerTimePart("Python", "GPU idle while the task computed on a core"),
    "copying": WorkerTimePart("copying", "GPU idle while the task copied data to or from the GPU, or waited for it"),
    "waiting": WorkerTimePart("waiting", "GPU idle while the task waited: for another machine, a lock or a core"),
    "unseen": WorkerTimePart("not sampled", "tasks too short to be sampled"),
    "no_gpu": WorkerTimePart("no GPU", "on a worker without a GPU"),
}
GPU_TIME = tuple(GPU_PARTS)
GPU_IDLE = ("loading", "python", "copying", "waiting")


# States of busy threads inside tasks. These parts add up to the part `busy`.
BUSY_PARTS: Mapping[str, WorkerTimePart] = {
    "computing": WorkerTimePart("computing", "the task’s thread was on a core"),
    "for_core": WorkerTimePart("waiting for a core", "the thread was ready to run, but no core was free (Linux only)"),
    "waiting": WorkerTimePart(
        "waiting inside tasks", "the thread waited for another machine, another program, a lock or the interpreter lock"
    ),
    "unknown": WorkerTimePart("not known", "not recorded: the worker left, or the task failed"),
}
BUSY_TIME = tuple(BUSY_PARTS)


@dataclass(frozen=True)
class PrefixBusy:
    """Time of threads inside the tasks of one prefix."""

    seconds: Mapping[str, float]  # busy thread-seconds by part of `BUSY_PARTS`
    where: str = ""  # the line of the user's code at which the threads were most often, as `my_job.py:61 load`
    what: str = ""  # function called at that line, as `time.sleep`; empty for the code itself
    share: float = 0.0  # share of the prefix's samples that were at that line, from 0 to 1


@dataclass(frozen=True)
class PrefixGpu:
    """The GPU while tasks of one prefix ran."""

    utilisation: float  # share of the time in which a kernel ran, from 0 to 1
    memory_peak: int  # most bytes in use on a card, by any process
    seconds: Mapping[str, float]  # busy thread-seconds by part of `GPU_PARTS`


@dataclass(frozen=True)
class PrefixWork:
    """The work of the tasks of one prefix."""

    tasks: int
    work_s: float  # sum of the tasks' durations, in thread-seconds
    median_s: float  # median of the tasks' durations, in seconds


@dataclass(frozen=True)
class Metrics(Mapped):
    """Measurements of one trial; P is the number of requested threads."""

    tasks: Annotated[int, Metric("Tasks that ran.", Unit.TASKS, "tasks", rank=2, combine=Combine.LOWER_MEDIAN)]
    widest_stage: Annotated[
        int,
        Metric(
            "Tasks of the largest task group: the partitions of a bag, an array or a Beam pipeline; the calls of "
            "`client.map`.",
            Unit.TASKS,
            "partitions",
            short="parts",
            legend="tasks of the widest stage",
            rank=0,
            combine=Combine.LOWER_MEDIAN,
            term="Partitions",
        ),
    ]
    workers_used: Annotated[
        int,
        Metric(
            "Workers on which at least one task of the workload ran.",
            Unit.WORKERS,
            "workers used",
            short="used",
            rank=0,
            combine=Combine.LOWER_MEDIAN,
            larger_is_better=True,
        ),
    ]
    peak_parallelism: Annotated[
        int,
        Metric(
            "Most tasks running at one instant.",
            Unit.TASKS,
            "peak tasks",
            short="peak",
            rank=3,
            combine=Combine.LOWER_MEDIAN,
        ),
    ]
    mean_parallelism: Annotated[
        float,
        Metric("Tasks running at once, on average: T1 / makespan.", Unit.TASKS, "mean tasks", larger_is_better=True),
    ]
    peak_runnable: Annotated[
        int,
        Metric(
            "Tasks running or ready to run: at least this many during 5 % of the makespan.",
            Unit.TASKS,
            "runnable tasks",
            combine=Combine.LOWER_MEDIAN,
            term="Runnable",
        ),
    ]
    makespan_s: Annotated[
        float,
        Metric(
            "From when the scheduler knows the first task to the end of the last computation.",
            Unit.SECONDS,
            "time s",
            rank=0,
            term="Makespan",
        ),
    ]
    elapsed_s: Annotated[
        float,
        Metric(
            "Duration of the workload's call, on the clock of the cluster.",
            Unit.SECONDS,
            "call of the workload s",
        ),
    ]
    work_s: Annotated[
        float,
        Metric(
            "The durations of all tasks together: the makespan on a single thread that never waits.",
            Unit.SECONDS,
            "work s",
            term="Work, T1",
        ),
    ]
    span_s: Annotated[
        float,
        Metric(
            "The longest path of tasks that depend on each other; more workers do not make it shorter.",
            Unit.SECONDS,
            "span s",
            term="Span, T∞",
        ),
    ]
    ideal_s: Annotated[
        float,
        Metric(
            "max(T1 / P, T∞) on P threads: no schedule of this graph is shorter (Brent, 1974).",
            Unit.SECONDS,
            "best possible s",
            short="best s",
            legend="max(T1/P, T∞)",
            rank=1,
            term="Best possible time",
        ),
    ]
    efficiency: Annotated[
        float,
        Metric(
            "T1 / (P × makespan): the share of the threads' time in which they computed. Low where the graph has too "
            "few tasks for the threads, and where tasks wait. Methods of actors count too.",
            Unit.SHARE,
            "efficiency",
            legend="T1 / (P × time)",
            rank=0,
            interval=True,
            larger_is_better=True,
            term="Efficiency",
        ),
    ]
    schedule_quality: Annotated[
        float,
        Metric(
            "The best possible time / makespan. At 1, the graph cannot run faster on this many threads.",
            Unit.SHARE,
            "schedule quality",
            legend="best possible time / time",
            larger_is_better=True,
            term="Schedule quality",
        ),
    ]
    parallelism: Annotated[
        float,
        Metric(
            "How many threads the graph can keep busy on average, however many there are.",
            Unit.THREADS,
            "T1/T∞",
            legend="parallelism of the graph",
            larger_is_better=True,
            term="Parallelism, T1/T∞",
        ),
    ]
    # P × the time of the workload's call divided into `PARTS`, in thread-seconds
    worker_time_s: Mapping[str, float] = field(default_factory=dict)
    longest_task_s: Annotated[float | None, Metric("The longest task.", Unit.SECONDS, "longest task s")] = None
    path_s: Annotated[
        float | None,
        Metric(
            "The longest path of tasks that had to run one after another, with the time to fetch their inputs and to "
            "hand the tasks to threads.",
            Unit.SECONDS,
            "longest path s",
            term="Longest path",
        ),
    ] = None
    # the prefixes with most work; for several repeats, those of the trial with median work
    work_by_prefix: Mapping[str, PrefixWork] | None = None
    erred_tasks: Annotated[
        float | None, Metric("Computations of tasks that raised an error.", Unit.TASKS, "erred tasks")
    ] = None
    recomputed_tasks: Annotated[
        float | None,
        Metric(
            "Computations that were lost with their worker, or repeated because their result was lost.",
            Unit.TASKS,
            "recomputed tasks",
        ),
    ] = None
    peak_memory_bytes: Annotated[
        float | None, Metric("Most resident memory of one worker process.", Unit.BYTES, "peak memory")
    ] = None
    mean_memory_bytes: Annotated[
        float | None,
        Metric("Resident memory of a worker process, on average over workers and time.", Unit.BYTES, "mean memory"),
    ] = None
    spilled_bytes: Annotated[
        float | None,
        Metric("Most bytes that each worker had spilled to disk, summed over workers.", Unit.BYTES, "spilled"),
    ] = None
    transferred_bytes: Annotated[
        float | None,
        Metric(
            "Bytes of results that a worker needed and another worker had computed, counted once for each worker that "
            "needed them. Data that tasks exchange directly (p2p shuffles) is not counted.",
            Unit.BYTES,
            "transferred",
        ),
    ] = None
    scheduler_cpu: Annotated[
        float | None, Metric("Cores that the scheduler's process kept busy, on average.", Unit.CORES, "scheduler cores")
    ] = None
    scheduler_memory_bytes: Annotated[
        float | None, Metric("Most resident memory of the scheduler's process.", Unit.BYTES, "scheduler memory")
    ] = None
    recovery_s: Annotated[
        float | None,
        Metric(
            "Time from an injected fault (the axis `fault`) until threads are 90 % as busy as before; 0 if they always "
            "were, none if they never were again.",
            Unit.SECONDS,
            "recovery s",
        ),
    ] = None
    gpu_busy: Annotated[
        float | None,
        Metric(
            "The share of the call in which a kernel ran on a GPU of the workers, on average over the GPUs (NVML).",
            Unit.SHARE,
            "GPU busy",
            legend="share of the time in which a kernel ran",
            rank=1,
            larger_is_better=True,
        ),
    ] = None
    gpu_memory_bytes: Annotated[
        float | None, Metric("Most memory in use on one GPU, by any process.", Unit.BYTES, "GPU memory")
    ] = None
    gpus: Annotated[
        float | None, Metric("Different GPUs of the workers.", Unit.WORKERS, "GPUs", combine=Combine.LOWER_MEDIAN)
    ] = None
    # the part `busy` divided into `GPU_PARTS`, in thread-seconds; None without GPUs
    gpu_time_s: Mapping[str, float] | None = None
    gpu_by_prefix: Mapping[str, PrefixGpu] | None = None
    # the part `busy` divided into `BUSY_PARTS`, in thread-seconds; None if workers did not report them
    busy_time_s: Mapping[str, float] | None = None
    busy_by_prefix: Mapping[str, PrefixBusy] | None = None  # the prefixes with most busy time


# Metrics by name; a trial has a number for each, or None if it could not be measured.
METRICS: Mapping[str, Metric] = {
    name: replace(note, name=name)
    for name, hint in get_type_hints(Metrics, include_extras=True).items()
    for note in getattr(hint, "__metadata__", ())
    if isinstance(note, Metric)
}


def numbers(metrics: Metrics) -> dict[str, float | None]:
    return {name: getattr(metrics, name) for name in METRICS}
