"""Overhead around the work of tasks: imports, pickles, a framework."""

from __future__ import annotations

from scalescope.analysis.inside_tasks import is_users
from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.evidence.inside_tasks import (
    BY_DATES,
    BY_ROWS,
    DATES,
    IMPORT,
    PICKLE,
    ROWS,
    SameCall,
    Spent,
    inside,
    overheads,
    same_call,
)
from scalescope.diagnosis.evidence.task_batches import first_tasks_s
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Place, Severity
from scalescope.model.words import percent

# Remedies by kind of overhead: `IMPORT`, `PICKLE`, `ROWS`, `DATES`, or a library.
REMEDIES = {
    IMPORT: "import it when workers start: `dask worker --preload MODULE`, `distributed.worker.preload` in Dask's "
    "configuration, or `client.run(__import__, 'MODULE')` before the first task",
    PICKLE: "load the object once in each process, in a function under `functools.cache`, or send it to the workers by "
    "`client.scatter(..., broadcast=True)` and pass the future",
    ROWS: "compute with whole columns (`numpy.where`, arithmetic of columns); where that is impossible, loop over the "
    "values of columns (`[f(a, b) for a, b in zip(df.a, df.b)]`)",
    DATES: "pass the dates' own `format=` to `to_datetime` or `read_csv` (`date_format=`), such as `'%d.%m.%Y'`, which "
    "reads all dates of a column at once",
    "boto3": "make the client once in each process, in a function under `functools.cache`",
    "botocore": "make the client once in each process, in a function under `functools.cache`",
    "numba": "keep compiled functions (`numba.njit(cache=True)`) in a module that workers import, or compile them when "
    "workers start",
    **dict.fromkeys(
        ("gzip", "bz2", "lzma"),
        "compress less (`compresslevel=1`, `preset=0`; the default of gzip is 9), or not at all",
    ),
}
SAVES = {DATES: 0.9}  # share of the overhead that the remedy saves; 1 for other kinds
IN_BEAM = "in `setup` of the `DoFn`"
KEPT = "in a function under `functools.cache`, or in `setup` of a `WorkerPlugin`"
KEEP_WORKERS = "keep one cluster for all runs, so that its workers import only once"
MOSTLY = 0.5  # least share of the imports in first tasks of workers, for each worker to count as importing once
ALSO = 0.8  # least ratio of a repeated call to the largest other overhead, for the call to be named
OTHERWISE = "do this work once in each process (a function under `functools.cache`), or give each task more to do"

TASK_OVERHEAD = TrialCause(
    code="task-overhead",
    title="Overhead inside tasks costs too much",
    needs="At least 10 % of the worker time passed inside tasks in imports, in loading or dumping pickles, in "
    "compressing files, while pandas made an object of each row (`apply(..., axis=1)`, `iterrows`) or guessed the "
    "format of each date, in a call that reads something and that each task makes with equal arguments (events of "
    "topic same-call), or in a framework around the user's function and not in that function (table inside).",
    ruled_out_by="Library functions that the user's code calls to compute: they are the work. Loading in only the "
    "first tasks of a thread; imports once in each worker that the script starts are information. Deserialising what "
    "Dask sends (serialisation-bound). Prefect's engine, which is measured apart (prefect-overhead).",
    remedy="Do that work once in each process, or before the first task",
    link="https://docs.dask.org/en/stable/how-to/customize-initialization.html",
    parts=("busy",),
    by_times=True,
    changes=(Term.WORK, Term.SPAN),
    rules_out=("undersubscribed-threads", "work-inflation", "straggler", "skewed-tasks", "slow-worker", "uneven-waves"),
    premise="Samples show what tasks do around their function.",
)


@TASK_OVERHEAD.finds
def task_overhead(observation: Observation) -> Finding | None:
    """`lost_s`: busy thread-seconds in the largest overhead around the work, or in a call that each task repeats."""
    found = {kind: spent for kind, spent in overheads(observation).items() if kind != "prefect"}  # see prefect-overhead
    most_s = max((spent.seconds for spent in found.values()), default=0.0)
    if (same := same_call(observation)) is not None and same.seconds >= ALSO * most_s:
        return _loaded_again(observation, same)
    if not found:
        return None
    kind, spent = max(found.items(), key=lambda item: item[1].seconds)
    if (share := observation.share_of(spent.seconds)) < NOTEWORTHY:
        return None
    what, frames = _what(kind, spent)
    line = next((frame for frame in reversed(frames) if is_users(frame)), "")
    module = what.partition("`")[2].partition("`")[0]
    once = kind == IMPORT and first_tasks_s(observation, spent.prefix) >= MOSTLY * spent.seconds
    remedy = REMEDIES.get(kind, OTHERWISE).replace("MODULE", module or "MODULE")
    saves = 0.0 if "iterrows" in what else SAVES.get(kind, 1.0)  # `iterrows` also takes values out of rows
    moves = once and observation.made_at is not None  # workers that the script starts would import as long, earlier
    return TASK_OVERHEAD.finding(
        observation,
        spent.seconds,
        f"`{spent.prefix}` spends {percent(spent.share)} of its time {what}"
        f"{f', called from {line}' if line else ''}: {percent(share)} of the worker time"
        f"{', but only once in each process' if once else ''}.",
        f"nothing has to be done: a longer run pays this time only once; for many short runs, {KEEP_WORKERS}"
        if moves
        else Remedy(remedy, saved_s=observation.saved_s(saves * spent.seconds, TASK_OVERHEAD.parts)),
        Evidence("thread-seconds of the overhead", round(spent.seconds, 3), "table inside"),
        Evidence("share of the time of the prefix's tasks", round(spent.share, 3), f"prefix {spent.prefix}"),
        Evidence("where", " > ".join(spent.path[-4:]), "table inside, column stack"),
        confidence=0.85,
        severity=Severity.INFO if moves else None,
        place=Place.of(line),
    )


def _loaded_again(observation: Observation, same: SameCall) -> Finding | None:
    if (share := observation.share_of(same.seconds)) < NOTEWORTHY:
        return None
    call = f"{same.function}({words.cut(same.arguments)})"
    stacks = inside(observation)[same.prefix].stacks
    once = IN_BEAM if any(frame.startswith("apache_beam.") for stack in stacks for frame in stack.frames) else KEPT
    return TASK_OVERHEAD.finding(
        observation,
        same.seconds,
        f"`{same.prefix}` spends {percent(same.share)} of its time in `{call}`, called from {same.where}: each task "
        f"repeats this call, which takes {percent(share)} of the worker time.",
        f"call `{same.function}` once in each process, and keep its result: {once}",
        Evidence("thread-seconds of the call", round(same.seconds, 3), "tables inside and events, topic same-call"),
        Evidence("share of the time of the prefix's tasks", round(same.share, 3), f"prefix {same.prefix}"),
        Evidence("tasks that made this call with equal arguments", same.tasks, "table events, topic same-call"),
        confidence=0.75,
        place=Place.of(same.where),
    )


def _what(kind: str, spent: Spent) -> tuple[str, tuple[str, ...]]:
    """Overhead in words, such as importing a module, and the frames above it."""
    path = spent.path
    if kind == IMPORT:
        at = next((i for i, frame in enumerate(path) if frame.startswith("importlib.")), len(path))
        modules = [frame for frame in path[at:] if frame.endswith("<module>")]
        name = modules[0].removesuffix("<module>").strip(" .").partition(".py:")[0] if modules else ""
        return f"importing `{name}`" if name else "importing modules", path[:at]
    if kind == PICKLE:
        at = next((i for i, frame in enumerate(path) if "pickle" in frame and not is_users(frame)), len(path) - 1)
        return f"in `{path[at].removesuffix('()')}`" if path else "in pickles", path[: max(at, 0)]
    if kind == DATES:
        return "guessing the format of each date in pandas", path[: path.index(BY_DATES)]
    if kind == ROWS:
        at = next(i for i, frame in enumerate(path) if frame in BY_ROWS)
        call = path[at].rpartition(".")[2] if path[at] == BY_ROWS[1] else "apply(..., axis=1)"
        # With `apply` of Dask's DataFrame, only the function of a row is the user's.
        above = path[:at] if any(map(is_users, path[:at])) else path
        return f"making an object of each row in pandas (`{call}`)", above
    own = [i for i, frame in enumerate(path) if frame.startswith(kind)]
    if not own:
        return f"in {kind}", path
    names = path[own[-1]].split(".")
    return f"in `{'.'.join(names[-2:] if len(names) > 2 else names[-1:])}` ({kind})", path[: own[-1]]
