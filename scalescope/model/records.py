"""The raw records of a trial: tables, their columns, and what the columns mean.

All times are seconds since the epoch on the scheduler's clock (virtual on the simulated cluster). A column that was not
recorded is zeros or empty texts.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

Columns: TypeAlias = dict[str, Any]
"""Columns of a table by name: an `array.array` of numbers, or a list of text."""

TASKS: dict[str, str] = {
    "key": "str",  # the task's key, as text
    "prefix": "str",  # its task prefix (`inc`), by dask's own rule
    "group": "str",  # its task group (`inc-1234`), by dask's own rule
    "worker": "str",  # address of the worker that ran this attempt; empty when no worker did
    "thread": "q",  # thread identifier on that worker; 0 when unknown
    "assigned": "d",  # when the scheduler gave it to a worker; 0 when it never did
    "start": "d",  # when its computation began; 0 when it never did
    "stop": "d",  # when its computation ended
    "done": "d",  # when the scheduler learnt of the end
    "transfer": "f",  # seconds spent fetching its inputs, on that worker, for this task
    "deserialize": "f",  # seconds spent deserialising it
    "disk_read": "f",  # seconds spent reading spilled inputs
    "disk_write": "f",  # seconds spent spilling
    "nbytes": "q",  # size of the result in bytes
    "span": "d",  # longest dependency path that ends with this task, by computation, in seconds
    "runnable": "d",  # when all its dependencies were in memory
    "status": "b",  # 0 finished, 1 erred, 2 attempt lost (worker died or task was released)
    "retries": "b",  # how often it had been tried before on a worker that died or with an error
    "allowed": "i",  # workers to which a restriction confines it; 0 when every worker may run it
}

DEPENDENCIES: dict[str, str] = {"task": "i", "needs": "i"}
"""One row per dependency between recorded tasks: the row in `tasks` of the attempt that ended, and the row of the
finished attempt whose result it needed. Results that were there before the trial have no row."""

GRAPHS: dict[str, str] = {
    "time": "d",  # when the scheduler received it
    "seconds": "d",  # what the scheduler needed to take it in
    "client": "str",  # who sent it; one that runs inside a task begins with `Client-worker-`
    "tasks": "q",  # tasks in it
    "nbytes": "q",  # its size as it was sent; 0 when unknown
}
"""What clients submitted: one row per `submit`, `map` or `compute`."""

WORKERS: dict[str, str] = {
    "worker": "str",  # address
    "name": "str",
    "host": "str",
    "nthreads": "i",
    "joined": "d",
    "left": "d",  # 0 while it is there
    "reason": "str",  # why it left
}

MEMORY: dict[str, str] = {"worker": "str", "time": "d", "rss": "q", "managed": "q", "spilled": "q", "cpu": "f"}
"""Bytes, and the cores that its process kept busy since the sample before (1.0 is one core). `worker` is an address, or
`scheduler`; of workers that share a process only the first has rows."""

LAG: dict[str, str] = {"time": "d", "process": "str", "seconds": "f"}
"""The longest stall of an event loop within about a second; `process` is `scheduler` or a worker's address."""

EVENTS: dict[str, str] = {"time": "d", "topic": "str", "message": "str"}
"""Structured events; the message is JSON. Among them, by topic:

- a worker's address: `{"action": "worker-status-change", "prev-status": "running", "status": "paused"}` and the like;
- `task-erred`: `{"key", "worker", "exception"}`;
- `restriction`: `{"prefix", "workers", "hosts", "resources"}`, once per task prefix that has one;
- `waits`: `{"prefix", "what", "where", "tasks", "seconds"}`: tasks that held their thread while they waited, such as
  in `Semaphore.acquire`, and at which line;
- `scalescope-actor-calls`: `{"worker", "end", "seconds", "methods"}`: methods of actors that a worker ran one after
  another, until `end` and for so many seconds; of each its number of calls and seconds, `{"Counter.add": [12, 0.4]}`;
- `stealing`, and whatever the workload logs.
"""

ACTOR_CALLS = "scalescope-actor-calls"

KUBERNETES = "Kubernetes: "
"""So begin lines of logs that are no worker's own."""

LOGS: dict[str, str] = {"worker": "str", "time": "d", "level": "str", "text": "str"}
"""Log records, of workers that died too. On Kubernetes all lines of all pods (those that are no records have no level),
and what Kubernetes said of them; `worker` may be `scheduler`, or the name of a pod that has no Dask worker."""

CLIENT: dict[str, str] = {
    "time": "d",  # when it began
    "seconds": "d",  # until the next row, or the return
    "where": "str",  # innermost line of the user's own code, `my_job.py:61 prepare`; empty when unknown
    "what": "str",  # what was called there, `time.sleep`; empty where it is that code itself
    "waits": "b",  # 1 while it only waited for the cluster
}
"""What the thread did that ran the workload, without a gap from the call to its return, by samples of its stack."""

IMPORT = "import"
"""In the column `what`: modules were imported."""

FAULTS: dict[str, str] = {"kind": "str", "worker": "str", "begin": "d", "end": "d"}
"""What was broken on purpose: a kind of `scalescope.model.fault`, and the address of the worker where it was one."""

TABLES: dict[str, dict[str, str]] = {
    "tasks": TASKS,
    "dependencies": DEPENDENCIES,
    "graphs": GRAPHS,
    "workers": WORKERS,
    "memory": MEMORY,
    "lag": LAG,
    "events": EVENTS,
    "logs": LOGS,
    "client": CLIENT,
    "faults": FAULTS,
}
"""Columns per table; a type is an `array.array` type code, or `str`."""

STATUS_FINISHED, STATUS_ERRED, STATUS_LOST = 0, 1, 2


def empty(table: str) -> Columns:
    """The columns of a table, without rows."""
    return complete(table, {}, 0)


def from_rows(table: str, rows: Iterable[Mapping[str, Any]]) -> Columns:
    """Columns from rows, which may lack some."""
    rows = list(rows)
    return {
        name: [row.get(name, "") for row in rows] if kind == "str" else array(kind, [row.get(name, 0) for row in rows])
        for name, kind in TABLES[table].items()
    }


def complete(table: str, columns: Mapping[str, Any], rows: int) -> Columns:
    """All columns that the table declares, in that order; those that are missing are zeros or empty texts."""
    return {name: columns[name] if name in columns else _zeros(kind, rows) for name, kind in TABLES[table].items()}


def _zeros(kind: str, rows: int) -> list[str] | array[Any]:
    return [""] * rows if kind == "str" else array(kind, bytes(array(kind).itemsize * rows))
