"""The raw records of a trial: tables, their columns, and what the columns mean.

All times are seconds since the epoch on the cluster's clock (virtual on the simulated cluster), aligned to the
scheduler's. A table travels as columns: `array.array` for numbers, a list for text.
"""

from __future__ import annotations

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
}

WORKERS: dict[str, str] = {
    "worker": "str",  # address
    "name": "str",
    "host": "str",
    "nthreads": "i",
    "joined": "d",
    "left": "d",  # 0 while it is there
    "reason": "str",  # why it left
}

MEMORY: dict[str, str] = {"worker": "str", "time": "d", "rss": "q", "managed": "q", "spilled": "q"}
"""Bytes. `worker` is an address, or `scheduler`."""

LAG: dict[str, str] = {"process": "str", "time": "d", "seconds": "f"}
"""The longest stall of an event loop within about a second; `process` is `scheduler` or a worker's address."""

EVENTS: dict[str, str] = {"time": "d", "topic": "str", "message": "str"}
"""Structured events; the message is JSON."""

LOGS: dict[str, str] = {"worker": "str", "time": "d", "level": "str", "text": "str"}
"""Log records, of workers that died too."""

TABLES: dict[str, dict[str, str]] = {
    "tasks": TASKS,
    "workers": WORKERS,
    "memory": MEMORY,
    "lag": LAG,
    "events": EVENTS,
    "logs": LOGS,
}
"""Columns per table; a type is an `array.array` type code, or `str`."""

STATUS_FINISHED, STATUS_ERRED, STATUS_LOST = 0, 1, 2
