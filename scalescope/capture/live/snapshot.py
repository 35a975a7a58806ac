"""Tells the present state of a scheduler, and tasks that stand still on its workers. Nothing is installed or changed.

This source text is sent to the scheduler and to workers: it imports only the standard library and `distributed` (2023.5
or later). A snapshot reads workers and groups of tasks, but never all tasks.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import islice
from typing import Any

import distributed

LEFT = ("waiting", "no-worker", "queued", "processing")  # states of tasks that have not ended
SAMPLE, MOST_TASKS, MOST_WORKERS = 200, 200, 200
MOST_ROWS, MOST_HELD = 12, 10_000  # most rows of a group or worker, and most results that are counted
LATE_EVENTS = 1_000  # number of the scheduler's latest events that `_retired` searches


def snapshot(dask_scheduler: Any) -> dict[str, Any]:
    """The threads, with reasons for those that are idle; the work in progress; memory.

    Times are seconds since the epoch; `moved_at` is the time at which a task last began or ended, if known; `seconds`
    is the duration of this call; `idle` counts threads by reason; `memory` and `limit` are bytes; `fullest` is a worker
    and the used share of its limit; `left` counts tasks that have not ended, by state; `groups` are (name, done, total)
    of the 20 groups with most such tasks.
    """
    started = time.perf_counter()
    working = paused = excess = restricted = sampled = memory = limit = 0
    fullest = ("", 0.0)
    for address, state in dask_scheduler.workers.items():
        tasks = len(state.processing) - len(state.long_running)
        busy = max(min(state.nthreads, tasks), 0)
        working += busy
        if state.status.name != "running":
            paused += state.nthreads - busy
        if tasks > state.nthreads:
            excess += tasks - state.nthreads
            for task in islice(state.processing, max(SAMPLE - sampled, 0)):
                sampled += 1
                restricted += _is_restricted(task)
        used = state.metrics.get("memory", 0)
        memory += used
        limit += state.memory_limit or 0
        if state.memory_limit and used / state.memory_limit > fullest[1]:
            fullest = (address, used / state.memory_limit)
    left, groups = _groups(dask_scheduler)
    threads = sum(state.nthreads for state in dask_scheduler.workers.values())
    kept = round(excess * restricted / sampled) if sampled else 0
    could = {
        "paused": paused,
        "not_started": excess - kept + len(dask_scheduler.queued),
        "restricted": kept + len(dask_scheduler.unrunnable),
        "nothing_runnable": threads if any(left.values()) else 0,
        "client": threads,
    }
    idle, rest = {}, threads - working
    for reason, most in could.items():
        idle[reason] = min(rest, most)
        rest -= idle[reason]
    counts = [prefix.state_counts for prefix in dask_scheduler.task_prefixes.values()]
    return {
        "version": distributed.__version__,
        "retired": _retired(dask_scheduler),
        "time": time.time(),
        "moved_at": _moved_at(dask_scheduler),
        "workers": list(dask_scheduler.workers),
        "threads": threads,
        "working": working,
        "idle": idle,
        "memory": memory,
        "limit": limit,
        "fullest": fullest,
        "began": sum(count["processing"] for count in counts),
        "ended": sum(count["memory"] + count["erred"] for count in counts),
        "left": dict(left),
        "groups": groups,
        "seconds": time.perf_counter() - started,
    }


def workers(dask_scheduler: Any) -> list[dict[str, Any]]:
    """Each worker: its name, address, threads, tasks given to it, used memory in bytes, and status."""
    return [
        {
            "name": str(state.name),
            "address": address,
            "threads": state.nthreads,
            "tasks": len(state.processing),
            "memory": state.metrics.get("memory", 0),
            "status": state.status.name,
        }
        for address, state in dask_scheduler.workers.items()
    ]


def inside(kind: str, name: str, dask_scheduler: Any) -> list[tuple[str, int]]:
    """Tasks of a group or prefix (`kind`: `group`) by state and worker, or tasks and results of a worker by prefix.

    Returns (words, number) for each count; nothing if the group or worker is gone.
    """
    if kind == "worker":
        state = dask_scheduler.workers.get(name)
        if state is None:
            return []
        given = Counter(f"given: {task.prefix.name}" for task in state.processing)
        held = Counter(f"holds results of: {task.prefix.name}" for task in islice(state.has_what, MOST_HELD))
        return given.most_common(MOST_ROWS) + held.most_common(MOST_ROWS)
    groups = [each for each in dask_scheduler.task_groups.values() if name in (str(each.name), each.prefix.name)]
    states = sum((Counter(each.states) for each in groups), Counter())
    given = Counter(
        f"on {address}"
        for address, state in dask_scheduler.workers.items()
        for task in islice(state.processing, SAMPLE)
        if task.group in groups
    )
    return [(word, number) for word, number in states.items() if number] + given.most_common(MOST_ROWS)


async def standing_tasks(timeout_s: float, dask_scheduler: Any) -> dict[str, Any]:
    """The tasks that workers have, and call stacks of running tasks. A worker has `timeout_s` to answer.

    Returns `tasks`: at most `MOST_TASKS` that a worker has or that no worker may run; `beyond`: number of further
    ones; `stacks` by worker and key, None for a silent worker; `workers`: threads, cores in use and time of the
    last message, by address; `memory`: bytes of the process and of results of paused workers; `held`: names of locks
    and semaphores with leases; `time` and `moved_at` as in `snapshot`; `taken`: threads that tasks hold; `left`: tasks
    that have not ended; `ready`: tasks that only lack a thread.
    """
    scheduler = dask_scheduler
    given = [(task, state) for state in scheduler.workers.values() for task in state.processing]
    shown = [*((task, "") for task in islice(scheduler.unrunnable, MOST_TASKS // 4)), *given][:MOST_TASKS]
    keys, since = {task.key for task, _ in shown}, {}
    for entry in scheduler.transition_log:
        if entry[2] in ("processing", "no-worker") and entry[0] in keys:
            since[entry[0]] = entry[5]
    asked = [state.address for state in scheduler.workers.values() if state.processing][:MOST_WORKERS]

    async def ask(address: str) -> Any:
        try:
            return await asyncio.wait_for(scheduler.rpc(address).call_stack(keys=None), timeout_s)
        except (OSError, asyncio.TimeoutError):  # noqa: UP041  # Python 3.10
            return None

    stacks = await asyncio.gather(*map(ask, asked))
    semaphores = scheduler.extensions.get("semaphores")
    loads = [(len(state.processing) - len(state.long_running), state.nthreads) for state in scheduler.workers.values()]
    return {
        "time": time.time(),
        "moved_at": _moved_at(scheduler),
        "taken": sum(max(min(tasks, threads), 0) for tasks, threads in loads),
        "left": sum(_groups(scheduler)[0].values()),
        "ready": len(scheduler.queued) + sum(max(tasks - threads, 0) for tasks, threads in loads),
        "tasks": [
            {
                "key": str(task.key),
                "state": task.state,
                "worker": state.address if state else "",
                "seceded": bool(state) and task in state.long_running,
                "paused": state.status.name == "paused" if state else bool(scheduler.workers) and not scheduler.running,
                "since": since.get(task.key),
                "asks": _asks(task),
            }
            for task, state in shown
        ],
        "beyond": len(given) + len(scheduler.unrunnable) - len(shown),
        "stacks": {
            address: stack and {str(key): frames for key, frames in stack.items()}
            for address, stack in zip(asked, stacks, strict=True)
        },
        "workers": {
            state.address: (state.nthreads, state.metrics.get("cpu", 0.0) / 100, state.last_seen)
            for state in scheduler.workers.values()
        },
        "memory": {
            state.address: (state.metrics.get("memory", 0), state.memory.managed)
            for state in scheduler.workers.values()
            if state.status.name == "paused"
        },
        "held": [str(name) for name, leases in getattr(semaphores, "leases", {}).items() if leases],
    }


def task_states(keys: list[str], dask_worker: Any) -> dict[str, str]:
    """The states of these tasks on a worker, except for those that it does not know."""
    wanted = set(keys)
    return {str(key): task.state for key, task in dask_worker.state.tasks.items() if str(key) in wanted}


def _retired(scheduler: Any) -> list[str]:
    """Workers that left by request, from the latest events; empty before distributed 2024, which does not tell."""
    events = scheduler.events.get("all", ()) if hasattr(scheduler, "events") else scheduler.get_events("all")
    told = (event for _, event in islice(reversed(events), LATE_EVENTS) if isinstance(event, dict))
    return [event["worker"] for event in told if event.get("action") == "remove-worker" and event.get("expected")]


def _is_restricted(task: Any) -> bool:
    named = task.worker_restrictions or task.host_restrictions or task.resource_restrictions
    return bool(named) and not task.loose_restrictions


def _groups(scheduler: Any) -> tuple[Counter[str], list[tuple[str, int, int]]]:
    left: Counter[str] = Counter()
    sizes: dict[str, list[int]] = {}
    for group in scheduler.task_groups.values():
        states, total = group.states, len(group)
        rest = 0
        for state in LEFT:
            if number := states[state]:
                left[state] += number
                rest += number
        size = sizes.setdefault(group.prefix.name if total == 1 else str(group.name), [0, 0])
        size[0] += total - rest
        size[1] += total
    groups = [(name, done, total) for name, (done, total) in sizes.items() if done < total]
    groups.sort(key=lambda group: group[1] - group[2])
    return left, groups[:20]


def _asks(task: Any) -> str:
    resources = ", ".join(f"{name}={amount:g}" for name, amount in (task.resource_restrictions or {}).items())
    asked = {
        "resources": resources,
        "workers": ", ".join(sorted(task.worker_restrictions or ())),
        "hosts": ", ".join(sorted(task.host_restrictions or ())),
    }
    return " and ".join(f"{what} {names[:100]}" for what, names in asked.items() if names)


def _moved_at(scheduler: Any) -> float | None:
    log = scheduler.transition_log
    for entry in reversed(log):
        if entry[1] == "processing" or entry[2] in ("processing", "no-worker"):
            return float(entry[5])
    return float(log[0][5]) if log and len(log) == log.maxlen else None
