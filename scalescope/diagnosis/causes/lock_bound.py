"""Tasks wait inside for a lock that Dask does not know."""

from __future__ import annotations

from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.evidence.inside_tasks import AFTER, LOCK, Spent, waits
from scalescope.diagnosis.evidence.task_table import of_prefix
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.model.finding import Evidence, Finding, Place
from scalescope.model.words import percent

FROM_ARRAY = "dask.array.core.getter"  # frame that reads a chunk of the source of `from_array`
# Remedies by `FROM_ARRAY`, or by the last name of the call that waits.
REMEDIES = {
    "flock": "use one lock file per guarded resource, or let each task write a file of its own",
    "lockf": "use one lock file per guarded resource, or let each task write a file of its own",
    "execute": "keep transactions short (compute first, then write and commit), write in one task at the end, or use a "
    "database that takes several writers",
    "commit": "write in one task at the end, or use a database that takes several writers",
    FROM_ARRAY: "pass `lock=False` to `from_array`, if several threads may read its source at once (Zarr, memory maps, "
    "NumPy); else use processes with one thread (`threads_per_worker=1`): each process has its own lock",
    "get": "make the pool as large as the number of threads",
}
OTHERWISE = (
    "guard only the lines that need it, use one lock (or one library handle) per file or thread, or use processes "
    "(`threads_per_worker=1`) if the lock belongs to the process"
)

TURNS = (
    "find what serves only one task at a time at that line (a lock file, a server with one thread, a limit on calls), "
    "and let it serve more, or ask for more per call; more threads or workers would only wait, too"
)

LOCK_BOUND = TrialCause(
    code="lock-bound",
    title="Tasks wait for one lock",
    needs="For at least 10 % of the worker time, threads of tasks did not run (table inside) during one of these: a "
    "call that takes a lock (`acquire`, `with lock`, `flock`, or `sleep` after a file or lock was taken); a call of a "
    "database or a pool, by tasks that ran at once and never ended together; or any other call that waits, if the "
    "shortest task also took far less time than most, as if no other task was ahead in a queue.",
    ruled_out_by="Locks of `distributed` (waiting-tasks). Tasks that wait for a network, a program or a rate limit "
    "(undersubscribed-threads). Threads at the interpreter lock, which are not in such a call (gil-bound).",
    remedy="Hold the lock for a shorter time, or use several locks: more threads would only wait, too",
    link="https://docs.python.org/3/library/threading.html#lock-objects",
    parts=("busy",),
    changes=(Term.WORK, Term.SPAN),
    rules_out=(
        *("undersubscribed-threads", "gil-bound", "work-inflation", "straggler", "skewed-tasks", "slow-worker"),
        *("sequential-graph", "uneven-waves"),
    ),
    premise="Samples show the lock: more threads would wait for it as well.",
    told_by="the same trial with a single thread",
)


@LOCK_BOUND.finds
def lock_bound(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds for which tasks waited for locks."""
    spent = waits(observation).get(LOCK)
    if spent is None or (share := observation.share_of(spent.seconds)) < NOTEWORTHY:
        return None
    name = spent.path[-1].removesuffix("()").rpartition(".")[2]
    name = "get" if "queue.get" in spent.path else FROM_ARRAY if FROM_ARRAY in spent.path else name
    remedy = REMEDIES.get(name, OTHERWISE)
    turns = remedy == OTHERWISE and not spent.takes_a_lock
    what, call = "its turn" if turns else "a lock", AFTER.sub("", spent.function)
    return LOCK_BOUND.finding(
        observation,
        spent.seconds,
        f"`{spent.prefix}` spends {percent(spent.share)} of its time waiting for {what} in `{call}`{spent.at}: "
        f"{percent(share)} of the worker time.",
        Remedy(TURNS if turns else remedy, saved_s=_saved_s(observation, spent, turns=turns)),
        Evidence("thread-seconds waited for locks", round(spent.seconds, 3), "table inside"),
        Evidence("share of the time of the prefix's tasks", round(spent.share, 3), f"prefix {spent.prefix}"),
        Evidence("where", " > ".join(spent.path[-4:]), "table inside, column stack"),
        confidence=0.7 if turns else 0.85,
        place=Place.of(spent.line),
    )


def _saved_s(observation: Observation, spent: Spent, *, turns: bool) -> float:
    """Seconds by which the call gets shorter if no task waits for another: each then takes as long as the shortest.

    0 where a writer or server does one task's work at a time: that work stays.
    """
    if turns or spent.in_database:
        return 0.0
    attempts = observation.measured
    durations = (attempts.stop - attempts.start)[of_prefix(observation, spent.prefix)]
    waited_s = min(spent.seconds, float((durations - durations.min()).sum()))
    return observation.saved_s(waited_s, LOCK_BOUND.parts)
