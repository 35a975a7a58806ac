"""Causes that lie in the data: moving it, unpacking it, keeping it, and computing it again."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import compress

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints
from scalescope.diagnosis import levels
from scalescope.diagnosis.causes.failures import MORE_MEMORY, deaths
from scalescope.diagnosis.causes.submission import (
    HEAVY_GRAPH,
    LARGE_BYTES,
    SCATTER,
    heavy,
    large,
    loop,
    packing,
    submissions,
)
from scalescope.diagnosis.observation import Observation, TrialCause, once
from scalescope.diagnosis.registry import NOTEWORTHY, severity_of
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.records import STATUS_FINISHED
from scalescope.model.words import percent, plural

FELT_S = 0.01
"""Mean seconds of a fetch or of unpacking below which it is the price of a message, and not of data."""
LARGE = 1_000_000
"""Mean bytes fetched for a task from which on data is the matter, however fast it came."""
SHARED = 0.5
"""Share of the bytes moved that one result must have to be worth sending to all workers at once."""
ONE_OFF = 0.7
"""Share of the unpacking done for the first task of each worker, from which on it is the import of modules."""
HEAVY_TASK_S = 0.02
"""Mean seconds of handing over a task from which on it is its content, and not the handling that every task costs."""

IMPORT_S = 0.25
"""Mean seconds of handing over the first task of a thread from which on it is an import."""
IMPORTS = 0.2
"""Share of the worker time from which on imports at the first tasks are worth a word."""
PRELOAD = (
    "import the modules of the tasks when workers start (`distributed.worker.preload`, `--preload MODULE`), or measure "
    "with `warmups: 1`"
)

MEMORY_LINK = "https://distributed.dask.org/en/stable/worker-memory.html"


# ------------------------------------------------------------------ transfer


@dataclass(frozen=True)
class _MovedResults:
    """Results that went from one worker to another.

    Attributes:
        nbytes: All together; each counted once for each worker that it went to.
        most: Row in `tasks` of the result of which most bytes went.
        most_nbytes: How many.
        readers: Workers that it went to.
    """

    nbytes: float
    most: int
    most_nbytes: float
    readers: int


TRANSFER_BOUND = TrialCause(
    code="transfer-bound",
    title="Threads wait for their inputs",
    needs="At least 10 % of the worker time in the part `transfer`, by 10 ms or 1 MB for each task that fetches.",
    ruled_out_by="Fetching while the thread computes another task costs nothing and is not in that part; many fetches "
    "of a few milliseconds are the price of tiny tasks.",
    remedy="Keep data that is used together on one worker: fewer, larger workers, fewer and larger steps; send what "
    "all need to all workers once.",
    link="https://distributed.dask.org/en/stable/locality.html",
    parts=("transfer",),
)


@TRANSFER_BOUND.finds
def transfer_bound(observation: Observation) -> Finding | None:
    """Threads wait while their worker fetches the inputs of their next task.

    Worker time lost: the part `transfer`, in which nothing was computed meanwhile; fetching that computation hides
    costs nothing.
    """
    if (share := observation.share("transfer")) < NOTEWORTHY:
        return None
    attempts = observation.measured
    fetching = attempts.transfer > 0
    moved, tasks = _moved(observation), int(fetching.sum())
    each = float(attempts.transfer[fetching].mean())
    if each < FELT_S and (moved is None or moved.nbytes / tasks < LARGE):
        return None
    prefix, part = _largest(attempts.transfer, observation)
    amount = "" if moved is None else f", {words.size(moved.nbytes)} in all"
    remedy = (
        "keep data that is used together on one worker: fewer, larger workers (threads of one process share their "
        f"data), or one task instead of several from `{prefix}` on (`map_partitions`, `map_blocks`, larger chunks)"
    )
    evidence = [
        Evidence("thread-seconds waiting for inputs", round(observation.seconds("transfer"), 3), "worker time"),
        Evidence("tasks that fetched inputs", tasks, "table tasks, column transfer"),
        Evidence("seconds for each of them", round(each, 4), "table tasks, column transfer"),
        Evidence(f"share of `{prefix}` in the seconds", round(part, 3), "table tasks"),
    ]
    if moved is not None:
        evidence.append(Evidence("bytes moved", int(moved.nbytes), "tables dependencies and tasks"))
        if moved.readers > 2 and moved.most_nbytes >= SHARED * moved.nbytes:
            key = words.middle_cut(str(observation.column("tasks", "key")[moved.most]))
            remedy = (
                f"send `{key}` to all workers once, before the tasks that need it: `client.scatter([value], "
                "broadcast=True)` or `client.replicate([future])`"
            )
            evidence.append(Evidence(f"bytes of `{key}`", int(moved.most_nbytes), f"went to {moved.readers} workers"))
    return TRANSFER_BOUND.finding(
        observation,
        observation.seconds("transfer"),
        f"{percent(share)} of the worker time was spent fetching inputs, {percent(part)} of it for `{prefix}`: "
        f"{words.duration(each)} for each of {plural(tasks, 'task')}{amount}.",
        remedy,
        *evidence,
        confidence=0.9,
    )


def _moved(observation: Observation) -> _MovedResults | None:
    """What tasks needed from other workers; None where dependencies were not recorded."""
    task = np.asarray(observation.column("dependencies", "task"), dtype=np.int64)
    needs = np.asarray(observation.column("dependencies", "needs"), dtype=np.int64)
    if not len(task):
        return None
    attempts, nbytes = observation.measured, observation.numbers("tasks", "nbytes")
    worker = np.full(len(nbytes), -1, np.int64)
    worker[attempts.row] = attempts.worker
    away = (worker[task] >= 0) & (worker[needs] >= 0) & (worker[task] != worker[needs])
    went = np.unique(needs[away] * len(attempts.addresses) + worker[task[away]])  # once to each worker
    if not len(went):
        return None
    source, count = np.unique(went // len(attempts.addresses), return_counts=True)
    sizes = nbytes[source] * count
    most = int(sizes.argmax())
    return _MovedResults(float(sizes.sum()), int(source[most]), float(sizes[most]), int(count[most]))


def _largest(seconds: Floats, observation: Observation) -> tuple[str, float]:
    """The task prefix with most of these seconds, and its share of them."""
    names, code = levels.prefixes(observation)
    sums = np.bincount(code, weights=seconds, minlength=len(names))
    first = int(sums.argmax())
    return names[first], float(sums[first] / max(sums.sum(), 1e-12))


SERIALISATION_BOUND = TrialCause(
    code="serialisation-bound",
    title="Tasks carry large objects",
    needs="At least 10 % of the worker time in the part `serialisation`, or, where distributed does not report it, "
    "idle while the client packs calls that carry 100 kB or more each, and between hand-over and start of tasks, 20 ms "
    "each, while a graph has 100 kB or more.",
    ruled_out_by="Time for the first tasks of each worker only is the import of modules, and low; a light graph whose "
    "tasks start late points to blocked event loops or tiny tasks.",
    remedy="Load the objects inside tasks, or scatter them once and pass the future.",
    link="https://docs.dask.org/en/stable/best-practices.html#load-data-with-dask",
    parts=("serialisation", "not_assigned", "no_runnable_task", "client"),
    rules_out=("event-loop-blocked",),
)


@SERIALISATION_BOUND.finds
def serialisation_bound(observation: Observation) -> Finding | None:
    """Threads wait while their worker unpacks tasks that carry data within them.

    Worker time lost: the part `serialisation`, which older releases of distributed report; newer ones do not, and there
    it is the time for which threads were idle although their next task had been handed to their worker
    already, at most the part `not_assigned`, and that in which the client packed what tasks carry.
    """
    if observation.noteworthy("serialisation"):
        return _unpacking(observation)
    return _heavy_tasks(observation) or _first_tasks(observation)


def _unpacking(observation: Observation) -> Finding | None:
    attempts, share = observation.measured, observation.share("serialisation")
    unpacking = attempts.deserialize > 0
    each, tasks = float(attempts.deserialize[unpacking].mean()), int(unpacking.sum())
    if each < FELT_S:
        return None
    prefix, part = _largest(attempts.deserialize, observation)
    once = float(attempts.deserialize[_first_on_worker(observation)].sum() / attempts.deserialize.sum())
    imports = once >= ONE_OFF and tasks > len(np.unique(attempts.worker[unpacking]))
    remedy = PRELOAD if imports else _heavy_remedy(prefix)
    what = (
        "most of it for the first task of each worker, which imports its modules"
        if imports
        else (f"{percent(part)} of it for `{prefix}`")
    )
    return SERIALISATION_BOUND.finding(
        observation,
        observation.seconds("serialisation"),
        f"{percent(share)} of the worker time was spent unpacking tasks, {what}: {words.duration(each)} for each of "
        f"{plural(tasks, 'task')}.",
        remedy,
        Evidence("thread-seconds of unpacking", round(observation.seconds("serialisation"), 3), "worker time"),
        Evidence("seconds for each task", round(each, 4), "table tasks, column deserialize"),
        Evidence("share of the first task of each worker", round(once, 3), "table tasks"),
        confidence=0.9,
        severity=Severity.LOW if imports else severity_of(share),
    )


def _first_on_worker(observation: Observation) -> Ints:
    """The attempt that each worker began first."""
    attempts = observation.measured
    order = np.lexsort((attempts.start, attempts.worker))
    first: Ints = order[np.flatnonzero(np.diff(attempts.worker[order], prepend=-1))]
    return first


def _heavy_tasks(observation: Observation) -> Finding | None:
    """By what a worker had been handed and could not start, where the graph is heavy."""
    nbytes = observation.numbers("graphs", "nbytes")
    heaviest = float(nbytes.max(initial=0.0))
    packed_s = _packed_s(observation)
    if heaviest < HEAVY_GRAPH or not (packed_s or observation.noteworthy("not_assigned")):
        return None
    waited = handed_over(observation)
    lost_s = packed_s + min(float(waited.sum()), observation.seconds("not_assigned"))
    each = (packed_s + float(waited.sum())) / len(waited)
    share = observation.share_of(lost_s)
    if share < NOTEWORTHY or each < HEAVY_TASK_S:
        return None
    prefix, part = _largest(waited, observation)
    stall = observation.numbers("lag", "seconds")
    return SERIALISATION_BOUND.finding(
        observation,
        lost_s,
        f"{percent(share)} of the worker time passes "
        + ("while the client packs calls and " if packed_s else "")
        + "between handing a task to a worker and its start, "
        f"{words.duration(each)} for each of {plural(len(waited), 'task')}, mostly `{prefix}`: their content is packed "
        f"and unpacked each time (graph of {words.size(heaviest)}).",
        _heavy_remedy(prefix),
        Evidence("thread-seconds from hand-over to start", round(lost_s, 3), "table tasks, assigned to start"),
        Evidence("seconds for each task", round(each, 4), "table tasks"),
        Evidence(f"share of `{prefix}`", round(part, 3), "table tasks"),
        Evidence("bytes of the largest graph", int(heaviest), "table graphs"),
        Evidence("longest stall of an event loop, s", round(float(stall.max(initial=0.0)), 3), "table lag"),
        confidence=0.7,
    )


def _first_tasks(observation: Observation) -> Finding | None:
    """By what only the first task of each thread waited for on its worker: modules are imported as it is unpacked."""
    if observation.share("not_assigned") < IMPORTS:
        return None
    waited, (order, again) = handed_over(observation), _by_thread(observation)
    first = order[~again]
    once_s = float(waited[first].sum())
    lost_s = min(once_s, observation.seconds("not_assigned"))
    stall = observation.numbers("lag", "seconds")
    stall = stall[(levels.worker_of_rows(observation, "lag", "process") == -1) & (stall >= IMPORT_S)]
    if (
        (share := observation.share_of(lost_s)) < IMPORTS
        or (each := once_s / len(first)) < max(IMPORT_S, 2 * stall.sum())
        or once_s < ONE_OFF * waited.sum()
        or len(waited) == len(first)
    ):
        return None
    return SERIALISATION_BOUND.finding(
        observation,
        lost_s,
        f"{percent(share)} of the worker time passed before the first task of each thread began, "
        f"{words.duration(each)} after its worker had it; later ones began at once: the worker imports what they need.",
        PRELOAD,
        Evidence("thread-seconds from hand-over to start of first tasks", round(once_s, 3), "table tasks"),
        Evidence("seconds for each thread", round(each, 4), "table tasks, assigned to start"),
        Evidence("seconds of all later tasks", round(float(waited.sum()) - once_s, 3), "table tasks"),
        confidence=0.7,
        severity=Severity.LOW,
    )


def _packed_s(observation: Observation) -> float:
    """Thread-seconds idle while the client packs calls that carry data, but are no large graphs."""
    sent, packed = submissions(observation), packing(observation)
    in_loop = packed.idle_s if packed is not None and packed.nbytes < LARGE_BYTES else 0.0
    if not (heavy(sent) & ~large(sent)).any():
        return in_loop
    free = levels.unoccupied(observation)
    phases = [levels.BEFORE] if loop(observation) else [levels.BEFORE, levels.BETWEEN]
    return in_loop + float(free.seconds[free.sends & ~free.waits][:, phases].sum())


def _heavy_remedy(prefix: str) -> str:
    return (
        f"keep large objects out of the calls of `{prefix}`: load them inside a task (`dask.delayed(load)(path)`), or "
        + SCATTER
    )


@once
def _by_thread(observation: Observation) -> tuple[Ints, Bools]:
    """Attempts in the order in which each thread ran them, and which of these are not the first of their thread."""
    attempts = observation.measured
    order = np.lexsort((attempts.start, attempts.thread, attempts.worker))
    again = np.zeros(len(order), dtype=np.bool_)
    again[1:] = (np.diff(attempts.worker[order]) == 0) & (np.diff(attempts.thread[order]) == 0)
    return order, again


@once
def handed_over(observation: Observation) -> Floats:
    """Seconds of each attempt for which its thread was free and its worker had it, and did nothing else for it."""
    attempts = observation.measured
    assigned = np.maximum(levels.column(observation, "assigned") - attempts.epoch, 0.0)
    # The thread was free once the attempt before it on that thread had ended.
    order, again = _by_thread(observation)
    free = np.zeros(len(order))
    free[order[1:]] = np.where(again[1:], attempts.stop[order[:-1]], 0.0)
    joined = np.zeros(len(attempts.addresses))
    joined[attempts.members.worker] = attempts.members.joined
    since = np.maximum(np.maximum(assigned, free), joined[attempts.worker])
    done: Floats = np.maximum(levels.occupied_from(observation) - since, 0.0)
    return done


MEMORY_SPILL = TrialCause(
    code="memory-spill",
    title="Results do not fit into memory",
    needs="At least 10 % of the worker time in the part `spill`.",
    ruled_out_by="Spilling while the threads compute costs nothing and is not in that part.",
    remedy="More memory for each worker, fewer threads, smaller partitions, or release results earlier.",
    link=f"{MEMORY_LINK}#spilling-based-on-managed-memory",
    parts=("spill",),
)


@MEMORY_SPILL.finds
def memory_spill(observation: Observation) -> Finding | None:
    """Threads wait while their worker writes results to disk or reads them back.

    Worker time lost: the part `spill`. What a worker writes because of its memory as a whole, and not for a task,
    blocks it without being in the record.
    """
    if (share := observation.share("spill")) < NOTEWORTHY:
        return None
    attempts = observation.measured
    read, written = float(attempts.disk_read.sum()), float(attempts.disk_write.sum())
    prefix, part = _largest(attempts.disk_read + attempts.disk_write, observation)
    spilled = _peaks(observation, "spilled")
    amount = f" ({words.size(spilled)} were on disk)" if spilled else ""
    return MEMORY_SPILL.finding(
        observation,
        observation.seconds("spill"),
        f"{percent(share)} of the worker time was spent writing results to disk and reading them back, {percent(part)} "
        f"of it for `{prefix}`{amount}: the results do not fit into the memory of the workers{_limit(observation)}.",
        f"{MORE_MEMORY}; release results that are no longer needed, or use more workers",
        Evidence("thread-seconds of disk access", round(observation.seconds("spill"), 3), "worker time"),
        Evidence("seconds reading", round(read, 3), "table tasks, column disk_read"),
        Evidence("seconds writing", round(written, 3), "table tasks, column disk_write"),
        Evidence("most bytes on disk, all workers", int(spilled), "table memory, column spilled"),
        confidence=0.95 if spilled else 0.85,
    )


MEMORY_PAUSED = TrialCause(
    code="memory-paused",
    title="Workers paused for their memory",
    needs="Changes of status to `paused` (events worker-status-change), and at least 10 % of the worker time idle in "
    "such pauses while tasks waited.",
    ruled_out_by="No task waited for a thread meanwhile.",
    remedy="More memory for each worker, fewer threads, smaller partitions; where Dask knows of little of it, find "
    "what the tasks keep.",
    link=f"{MEMORY_LINK}#pause-worker",
    parts=("paused",),
)


@MEMORY_PAUSED.finds
def memory_paused(observation: Observation) -> Finding | None:
    """Workers took no more tasks because their memory was almost full.

    Worker time lost: idle threads of paused workers (the part `paused`), by the share of the pauses in which tasks
    waited for a thread.
    """
    attempts, pauses = observation.measured, observation.measured.pauses
    if not len(pauses.worker):
        return None
    line = levels.timeline(observation)
    inside = line.between((line.waiting > 0.5).astype(np.float64), pauses.begin, pauses.end)
    length = float((pauses.end - pauses.begin).sum())
    lost_s = observation.seconds("paused") * float(inside.sum()) / length if length > 0 else 0.0
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    workers = np.unique(pauses.worker)
    resident, managed = _while_paused(observation)
    unmanaged = resident > 0 and managed < 0.5 * resident
    held = (
        f"; of {words.size(resident)} in the worst process only {words.size(managed)} are results that Dask knows"
        if unmanaged
        else ""
    )
    return MEMORY_PAUSED.finding(
        observation,
        lost_s,
        f"{percent(share)} of the worker time was lost while {plural(len(workers), 'worker')} of "
        f"{len(attempts.addresses):,} took no new tasks because {'its' if len(workers) == 1 else 'their'} memory was "
        f"almost full{_limit(observation)}{held}.",
        "find what the tasks keep besides their results (caches, globals, leaks), run fewer at once "
        "(`threads_per_worker`), or give each worker more memory (`memory_limit=`, `--memory-limit`)"
        if unmanaged
        else MORE_MEMORY,
        Evidence("pauses", len(pauses.worker), "events worker-status-change"),
        Evidence("seconds paused, all workers", round(length, 3), "events worker-status-change"),
        Evidence("such as worker", attempts.addresses[int(pauses.worker[0])], "events worker-status-change"),
        Evidence("most resident bytes while paused", int(resident), "table memory, column rss"),
        Evidence("managed bytes then", int(managed), "table memory, column managed"),
        confidence=0.95,
    )


def _limit(observation: Observation) -> str:
    cluster = observation.trial.facts.get("cluster") or {}
    limit = cluster.get("memory_limit_mb")
    return f" (limit {limit:,} MiB each)" if limit else ""


def _peaks(observation: Observation, column: str) -> float:
    """The sum over workers of the most that each had."""
    most: dict[str, int] = {}
    for worker, value in zip(observation.column("memory", "worker"), observation.column("memory", column), strict=True):
        if worker != "scheduler":
            most[worker] = max(value, most.get(worker, 0))
    return float(sum(most.values()))


def _while_paused(observation: Observation) -> tuple[float, float]:
    """Resident and managed bytes of the sample with most resident bytes, of workers that were paused then."""
    attempts = observation.measured
    worker = levels.worker_of_rows(observation, "memory")
    time, rss, managed = (observation.numbers("memory", name) for name in ("time", "rss", "managed"))
    then = np.zeros(len(worker), dtype=bool)
    pauses = attempts.pauses
    for i, begin, end in zip(pauses.worker.tolist(), pauses.begin, pauses.end, strict=True):
        then |= (worker == i) & (time - attempts.epoch >= begin) & (time - attempts.epoch <= end)
    if not then.any():
        return 0.0, 0.0
    worst = int(np.flatnonzero(then)[rss[then].argmax()])
    return float(rss[worst]), float(managed[worst])


TOKEN = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""What Dask puts into a key that it makes from function and arguments, or at random."""

RECOMPUTATION = TrialCause(
    code="recomputation",
    title="Results computed again",
    needs="The same key finished more than once, and at least 10 % of the worker time went to all but the last.",
    ruled_out_by="An attempt that erred or was lost before the task finished once is a retry; results lost with a "
    "worker that died belong to worker-died or worker-killing-task; a key that the user chose may stand for other work "
    "each time.",
    remedy="Persist what is used again, or compute everything in one call.",
    link="https://docs.dask.org/en/stable/best-practices.html#avoid-calling-compute-repeatedly",
    parts=("busy", "lost"),
)


@RECOMPUTATION.finds
def recomputation(observation: Observation) -> Finding | None:
    """The same task was computed more than once.

    Worker time lost: the durations of every computation of a task but the last; not where the worker that had the
    result died, for that is the loss of `worker-died` or `worker-killing-task`.
    """
    attempts, again = observation.measured, _computed_again(observation)
    if again is None:
        return None
    durations = attempts.stop - attempts.start
    lost_s = float(durations[again].sum())
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    prefix, part = _largest(np.where(again, durations, 0.0), observation)
    keys = Counter(compress(attempts.key, again.tolist()))
    most = max(keys.values()) + 1
    left = bool((~attempts.useful[again]).mean() > 0.5)
    why = "because workers left with them" if left else "because nothing kept them between one computation and the next"
    return RECOMPUTATION.finding(
        observation,
        lost_s,
        f"{percent(share)} of the worker time went to computing {plural(len(keys), 'task')} again, up to {most:,} "
        f"times each, {percent(part)} of it `{prefix}`: their results were gone {why}.",
        "let workers leave by `client.retire_workers(...)`, which moves their results first, or keep them until the end"
        if left
        else f"keep `{prefix}` after it was computed once (`x = x.persist()`, or hold its futures), or ask for all "
        "results together (`dask.compute(a, b)`)",
        Evidence("tasks computed more than once", len(keys), "table tasks, by key"),
        Evidence("repeated computations", int(again.sum()), "table tasks, by key"),
        Evidence("thread-seconds in them", round(lost_s, 3), "table tasks"),
        Evidence("such as key", next(iter(keys)), "table tasks"),
        Evidence("graphs sent", len(observation.column("graphs", "time")), "table graphs"),
        confidence=0.8,
    )


def _computed_again(observation: Observation) -> Bools | None:
    """Finished attempts of which a later one finished again; None where there are none.

    A key that the user chose says nothing of the work: it counts where the result was lost with its worker alone.
    """
    attempts = observation.measured
    finished = levels.column(observation, "status") == STATUS_FINISHED
    keys = attempts.key if bool(finished.all()) else list(compress(attempts.key, finished.tolist()))
    if len(set(keys)) == len(keys):
        return None
    repeated = {key for key, count in Counter(keys).items() if count > 1}
    rows = np.flatnonzero(finished)
    rows = rows[np.fromiter(map(repeated.__contains__, keys), np.bool_, len(keys))]
    rows = rows[np.argsort(attempts.stop[rows], kind="stable")]
    last = {attempts.key[row]: row for row in rows.tolist()}
    again = np.zeros(len(finished), dtype=bool)
    again[rows] = True
    again[list(last.values())] = False
    dead = {death.worker for death in deaths(observation)}
    on_dead = np.array([address in dead for address in attempts.addresses], dtype=bool)
    again &= attempts.useful | ~on_dead[attempts.worker]
    for row in np.flatnonzero(again & attempts.useful).tolist():
        again[row] = bool(TOKEN.search(attempts.key[row]))
    return again if bool(again.any()) else None
