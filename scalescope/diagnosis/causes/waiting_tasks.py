"""Tasks wait in calls of distributed and hold their threads."""

from __future__ import annotations

from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.evidence.client_time import asked_at
from scalescope.diagnosis.evidence.waits_in_tasks import waited_for, waits_for_others
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model.finding import Evidence, Finding, Place
from scalescope.model.standstill import RESULTS
from scalescope.model.words import percent, plural

# Remedies by the class that was waited for.
REMEDIES = {
    "Semaphore": "set `max_leases` of the semaphore to what the guarded service can bear; if that is less than the "
    "threads, use `resources=` with as many units instead: tasks that wait for resources hold no thread",
    "Lock": "lock less: guard only the lines that need it, with one lock per file or row, or return the values and "
    "combine them in one task",
    "MultiLock": "lock less: guard only the lines that need it, or lock fewer names at once",
    "Queue": "let the client submit one task per item, instead of tasks that wait for items",
    "Event": "pass the future of the task that sets the event as an argument: the waiting task then begins when that "
    "task is done",
    "Variable": "pass the future of the task that sets the variable as an argument: the waiting task then begins when "
    "that task is done",
    "ActorFuture": "share the work among several actors, call the actor less often, or return the values and combine "
    "them in one task",
    "Future": "pass futures on as arguments: the task then begins when their results are there",
    "Client": "pass futures on as arguments: the task then begins when their results are there",
    "concurrency": "raise the limit to what the service can bear (`prefect gcl update NAME --limit N`; for a tag: "
    "`prefect concurrency-limit create TAG N`), or start fewer workers: tasks that wait for a slot hold their threads",
    "rate_limit": "raise the rate to what the service can bear (`prefect gcl update NAME --slot-decay-per-second N`), "
    "or start fewer workers: tasks that wait for a slot hold their threads",
}

STORING = "load_store_chunk"  # the function of `dask.array.store` that takes its lock
UNLOCKED = (
    "pass `lock=False` to `store`, if the target allows several writers (memory maps; Zarr with the chunks of the "
    "array); else use fewer and larger chunks, or a target that allows several writers"
)
OTHERWISE = "start the task only when what it waits for is ready, or call `distributed.secede()` in it before the wait"

WAITING_TASKS = TrialCause(
    code="waiting-tasks",
    title="Tasks wait and hold their threads",
    needs="For at least 10 % of the worker time, tasks held their thread while they waited in a call of "
    "`distributed`: for a lock, semaphore, queue, event, variable, actor or future; or for a concurrency or rate limit "
    "of Prefect. Or nothing moved when the trial was stopped, and most tasks that held a thread were in such a call.",
    ruled_out_by="Tasks that wait for graphs they sent (nested-client). Tasks that had seceded. Waits elsewhere, "
    "such as for a file lock or a database (lock-bound, undersubscribed-threads).",
    remedy="Start the task only when what it waits for is ready, or raise the limit",
    link="https://distributed.dask.org/en/stable/task-launch.html",
    parts=("busy",),
    changes=(Term.WORK, Term.SPAN),
    rules_out=("straggler", "skewed-tasks", "slow-worker", "sequential-graph", "uneven-waves"),
    without_attempts=True,
    premise="Samples show what tasks wait for.",
)


@WAITING_TASKS.finds
def waiting_tasks(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds of waits in calls of `distributed` or Prefect; all time if the trial stood still."""
    if stopped := _stopped(observation):
        return stopped
    found = waits_for_others(observation)
    lost_s = sum(float(wait["seconds"]) for wait in found)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    worst = max(found, key=lambda wait: float(wait["seconds"]))
    where = f" at {worst['where']}" if worst["where"] else ""
    storing = str(worst["where"]).endswith(STORING)
    if storing:
        where = " of `store`, which writes one chunk at a time"
    tasks = sum(int(wait["tasks"]) for wait in found)
    return WAITING_TASKS.finding(
        observation,
        lost_s,
        f"`{worst['prefix']}` waited in `{worst['what'].replace('.__enter__', '')}`{where}: {percent(share)} of the "
        f"worker time passed in {plural(tasks, 'task')} that held a thread and waited.",
        UNLOCKED if storing else REMEDIES.get(waited_for(worst), OTHERWISE),
        Evidence("thread-seconds waited", round(lost_s, 3), "table events, topic waits"),
        Evidence("seconds at the worst line", round(float(worst["seconds"]), 3), worst["where"] or worst["what"]),
        Evidence("tasks that waited at the worst line", int(worst["tasks"]), f"prefix {worst['prefix']}"),
        confidence=0.9,
        place=asked_at(observation) if storing else Place.of(str(worst["where"])),
    )


def _stopped(observation: Observation) -> Finding | None:
    found = observation.standstill
    holding = found.holding if found else ()
    waiting = [each for each in holding if each.waits_for and each.waits_for not in RESULTS]
    tasks = sum(each.tasks for each in waiting)
    if found is None or not waiting or 2 * tasks <= sum(each.tasks for each in holding):
        return None
    worst = waiting[0]
    return WAITING_TASKS.standing(
        observation,
        f"{plural(tasks, 'task')} (`{worst.prefix}`) held {tasks:,} of {plural(found.threads, 'thread')} and waited "
        f"for `{worst.waits_for}` at {worst.where}.",
        "make sure that what they wait for is released or set even after an error (`with`, or `try` and `finally`), "
        "and give the wait a `timeout=`, so that it fails instead of hanging",
        Evidence("tasks that held a thread and waited", tasks, "facts standstill"),
        confidence=0.9,
    )
