"""The raw records of a trial: tables, their columns, and what the columns mean.

All times are seconds since the epoch on the scheduler's clock (virtual on the simulated cluster). A column that was not
recorded is zeros or empty texts.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

Columns: TypeAlias = dict[str, Any]  # an `array.array` of numbers or a list of text, by name

TASKS: dict[str, str] = {
    "key": "str",  # the task's key, as text
    "prefix": "str",  # task prefix (`inc`), by dask's own rule
    "group": "str",  # task group (`inc-1234`), by dask's own rule
    "worker": "str",  # address of the worker that ran this attempt; empty when no worker did
    "thread": "q",  # thread identifier on that worker; 0 when unknown
    "assigned": "d",  # time at which the task was assigned to a worker; 0 if it never was
    "start": "d",  # time at which its computation began; 0 if it never began
    "stop": "d",  # time at which its computation ended
    "done": "d",  # time at which the scheduler learnt of the end
    "transfer": "f",  # seconds spent fetching inputs, on that worker, for this task
    "deserialize": "f",  # seconds spent deserialising the task
    "disk_read": "f",  # seconds spent reading spilled inputs
    "disk_write": "f",  # seconds spent spilling
    "nbytes": "q",  # size of the result in bytes
    "span": "d",  # longest dependency path that ends with this task, by computation, in seconds
    "runnable": "d",  # time at which all its dependencies were in memory
    "status": "b",  # 0 finished, 1 erred, 2 attempt lost (worker died or task was released)
    "retries": "b",  # earlier attempts that ended with an error or a dead worker
    "allowed": "i",  # number of workers to which a restriction confines the task; 0 when every worker may run it
    "graph": "q",  # number of the row in `graphs` with which it came, from 1; 0 when unknown
}

# One row per dependency: the row in `tasks` of an attempt that ended, and the row of the finished attempt whose result
# it needed. Results from before the trial have no row.
DEPENDENCIES: dict[str, str] = {"task": "i", "needs": "i"}

# Submissions of clients: one row per `submit`, `map` or `compute`.
GRAPHS: dict[str, str] = {
    "time": "d",  # time at which the scheduler received the graph
    "seconds": "d",  # seconds that the scheduler needed to take in the graph
    "client": "str",  # id of the client that sent the graph; begins with `NESTED` inside a task
    "task": "str",  # key of the task that sent the graph; empty when no task did
    "tasks": "q",  # tasks in the graph
    "nbytes": "q",  # bytes of the graph as it was sent; 0 when unknown
}

WORKERS: dict[str, str] = {
    "worker": "str",  # address
    "name": "str",
    "host": "str",
    "nthreads": "i",
    "memory_limit": "q",  # bytes; 0: no limit
    "cores": "i",  # cores that the worker's process may use; 0: unknown
    "process_threads": "i",  # threads of the worker's process when the trial had ended, including those of libraries
    "pool_threads": "i",  # threads that a library (BLAS, OpenMP) starts there for one call; 0: unknown
    "core_wait_s": "f",  # seconds for which the worker's threads of tasks waited for a core; 0: none, or unknown
    "joined": "d",
    "left": "d",  # time at which the worker left; 0: it has not left
    "reason": "str",  # reason why the worker left
}

# Memory of processes in bytes; since the last sample, busy cores and seconds of full garbage collections. `worker` is
# an address or `scheduler`; if workers share a process, only the first one has rows.
MEMORY: dict[str, str] = {
    "worker": "str",
    "time": "d",
    "rss": "q",
    "managed": "q",
    "spilled": "q",
    "cpu": "f",
    "collecting": "f",
}
# distributed's own metrics over the trial: sums in the workers' heartbeats at the end, minus those at the beginning.
FINE_METRICS: dict[str, str] = {
    "context": "str",  # `execute`, `gather-dep`, `get-data`, `memory-monitor` or `p2p`
    "prefix": "str",  # task prefix, of `execute` alone
    "activity": "str",  # name of the activity, such as `thread-cpu` or `disk-write`
    "unit": "str",  # `seconds`, `bytes` or `count`
    "value": "d",
}
# The GPU of a worker at an instant: a row for each task that ran, or one without a prefix.
GPU: dict[str, str] = {
    "worker": "str",
    "gpu": "str",  # identity of the card, which workers may share
    "time": "d",
    "utilisation": "f",  # share of NVML's last sampling period in which a kernel ran, from 0 to 1
    "memory": "q",  # bytes in use on the card, by any process
    "prefix": "str",  # prefix of the task that ran; empty if none ran
    "doing": "str",  # state of its thread, by its stack: `copying`, `loading`, or empty
    "cpu": "f",  # share of the time since the last sample in which the thread was on a core
}
# Samples of tasks by the workers' profilers (every 10 ms), by prefix. Rare stacks lack their innermost frames; the row
# without a stack counts samples of unknown stack. A stack is its frames, the outermost first, joined by `;`:
# `my_job.py:61 load` in the user's code, `json.decoder.decode` in a library's, and last a function that is not written
# in Python, as `time.sleep()`. The first is `event-loop` where a coroutine function kept the worker's event loop.
INSIDE: dict[str, str] = {"prefix": "str", "stack": "str", "samples": "q"}
# The longest stall of an event loop within about a second; `process` is `scheduler` or an address.
LAG: dict[str, str] = {"time": "d", "process": "str", "seconds": "f"}
# Structured events; the message is JSON. Among them, by topic:
# - a worker's address: `{"action": "worker-status-change", "prev-status": "running", "status": "paused"}` or similar
# - `task-erred`: `{"key", "worker", "exception", "call"}`; `call` as `load(7)`, empty where it is not known
# - `restriction`: `{"prefix", "workers", "hosts", "resources"}`, once per task prefix that has one
# - `waits`: `{"prefix", "what", "where", "tasks", "seconds"}`: tasks that held their thread while they waited, such as
#   in `Semaphore.acquire`, and at which line
#   A `what` of Prefect's own is no wait: see `scalescope.capture.waits`
# - `unfinished`: `{"left", "cancelled"}`, at the end: tasks by prefix that had not ended, and tasks that were released
#   before their end, for example because their futures were dropped
# - `again`: `{"prefix", "step", "first", "tasks", "seconds", "calls"}`: tasks of `prefix` (50 ms or
#   longer) that repeated work. Either Dask fused into them a `step` that tasks of the prefix `first` had already done
#   (`calls` is 0); or they have random keys, and repeat calls of a function `step` (`calls` different ones)
# - `same-call`: `{"prefix", "call", "arguments", "where", "samples", "reading", "tasks", "processes", "seen"}`: a call
#   with equal arguments in `tasks` of the `seen` tasks of a prefix, at a line of the user's code; the number of samples
#   of the workers' profilers in it (`reading`: in which it read something), and the number of workers
# - `scattered`: `{"number", "nbytes", "workers", "first", "rows"}`: one piece of scattered data: how many workers had
#   it at first, one of them (none if it was there before the trial), and the rows of `tasks` that needed it. Many rows
#   take several events of the same number
# - `task-waits`: `{"row", "waits"}`: begin and end of each wait of this task after it sent tasks or gave up its thread,
#   and whether the task held its thread
# - `scalescope-actor-calls`: `{"worker", "end", "seconds", "methods"}`: methods of actors that a worker ran one after
#   another, with calls and seconds of each: `{"Counter.add": [12, 0.4]}`
# - `stealing`, and whatever the workload logs
EVENTS: dict[str, str] = {"time": "d", "topic": "str", "message": "str"}
ACTOR_CALLS = "scalescope-actor-calls"
TASK_WAITS = "task-waits"
KUBERNETES = "Kubernetes: "  # begins lines of logs that are not from a worker itself
# Log records, also of workers that died. On Kubernetes also all other lines of all pods, without a level,
# and events; `worker` may be `scheduler`, or the name of a pod without a Dask worker.
LOGS: dict[str, str] = {"worker": "str", "time": "d", "level": "str", "text": "str"}

# The thread that ran the workload, by samples of its stack, without a gap from the call to its return.
CLIENT: dict[str, str] = {
    "time": "d",  # time at which the row begins
    "seconds": "d",  # seconds until the next row, or until the workload returned
    "where": "str",  # innermost line of the user's own code, `my_job.py:61 prepare`; empty when unknown
    "what": "str",  # function called at that line, `time.sleep`; empty for the code itself
    "waits": "b",  # 1 while the client only waited for the cluster, or for another cluster
}

NESTED = "Client-worker-"  # start of the id of a client that runs inside a task
LONGEST = "longest"  # topic of events: the function and arguments of the longest task of a prefix
SCATTERED = "scattered"  # topic of events: data that is no task's result, and the tasks that needed it
SAME_CALL = "same-call"  # topic of events: a call that tasks make with equal arguments, and that reads something
OVER_MEMORY = "worker-restart-memory"  # topic of events: a nanny ended its worker's process, which used too much memory
AGAIN = "again"  # topic of events: work that a task with another key had already done
SENDING = ("compute", "map", "persist", "submit")  # last names in the column `what` of calls that send a graph
IMPORT = "import"  # value of the column `what`: modules were imported
FLOW = "prefect.flow"  # value of the column `what`: Prefect began or ended a flow around the user's function
META = "dask.meta"  # value of the column `what`: Dask called a function of tasks in the client for its meta
TRAVERSED = "dask.delayed"  # value of the column `what`: a call of a delayed function searched its arguments
HASHED = "dask.tokenize "  # begins values of the column `what`: Dask hashed the data that the call got, to name it
# Calls that hash their data, by last name, and the argument that makes Dask use a random name instead
NOT_HASHED = {"scatter": "hash=False", "from_array": "name=False", "submit": "pure=False", "map": "pure=False"}
LOCAL = "dask.local"  # value of the column `what`: one of Dask's own schedulers computed in the client's process
JOBLIB = "joblib"  # value of the column `what`: joblib computed without the cluster
PAST_THE_CLUSTER = (LOCAL, JOBLIB)
OTHER_CLUSTER = "other-cluster"  # value of the column `what`: a wait or call for another cluster
ONCE = (IMPORT, FLOW)  # values of the column `what` that cost the same for any amount of work
# Faults on purpose: kind (`scalescope.model.fault`), address of the worker if any, begin and end.
FAULTS: dict[str, str] = {"kind": "str", "worker": "str", "begin": "d", "end": "d"}

# Columns per table; a type is an `array.array` type code, or `str`.
TABLES: dict[str, dict[str, str]] = {
    "tasks": TASKS,
    "dependencies": DEPENDENCIES,
    "graphs": GRAPHS,
    "workers": WORKERS,
    "memory": MEMORY,
    "fine_metrics": FINE_METRICS,
    "gpu": GPU,
    "inside": INSIDE,
    "lag": LAG,
    "events": EVENTS,
    "logs": LOGS,
    "client": CLIENT,
    "faults": FAULTS,
}

STATUS_FINISHED, STATUS_ERRED, STATUS_LOST = 0, 1, 2


def empty(table: str) -> Columns:
    return complete(table, {}, 0)


def from_rows(table: str, rows: Iterable[Mapping[str, Any]]) -> Columns:
    """Columns from rows; where a row lacks a column, the column has 0 or an empty text."""
    rows = list(rows)
    return {
        name: [row.get(name, "") for row in rows] if kind == "str" else array(kind, [row.get(name, 0) for row in rows])
        for name, kind in TABLES[table].items()
    }


def complete(table: str, columns: Mapping[str, Any], rows: int) -> Columns:
    """All columns that the table declares, in its order; missing ones are zeros or empty texts."""
    return {name: columns[name] if name in columns else _zeros(kind, rows) for name, kind in TABLES[table].items()}


def _zeros(kind: str, rows: int) -> list[str] | array[Any]:
    return [""] * rows if kind == "str" else array(kind, bytes(array(kind).itemsize * rows))
