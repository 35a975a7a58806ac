"""Records every task attempt of a trial on the scheduler.

The source text of this module is sent to the scheduler (`scalescope.capture.shipping`): it imports only the standard
library and `distributed`, and runs on all releases of `distributed` since 2023.5. The scheduler calls hooks by keyword,
so their argument names are upstream's.

How an attempt gets into the record:

    transition()       appends entries to the flat list `held`: about six calls a task, the only hot path
    close_batch()      puts a full list into `batches`
    pack()             turns the oldest batch into `rows` of 88 bytes, when `drain` or `finish` is called
    take()             cuts columns out of `rows` and compresses them, as `scalescope.model.spool` describes

An entry of `held` is three values and the details of its kind, one after another (dictionaries or a tuple for each task
miss the cache and are much slower). `transition()` writes it and `pack()` reads it by `_ENTRIES`:

    key | time | WorkerState                                      assigned to that worker
    key | time | _Stolen                                          stolen by another worker
    key | time | RUNNABLE                                         waits for a worker
    key | 0.0  | UNQUEUED                                         released while it waited for a worker or for inputs
    key | 0.0  | FORGOTTEN
    key | time | DONE or _Ending | group | needs | worker | thread | nbytes | begin | end
    key | 0.0  | UNASSIGNED                                       no worker can run it; an _Ending entry follows
    row | time | SENT | keys                                      graph received; `row` is its number in `graphs`

`needs` are the keys of dependencies; `begin` and `end` are seconds since the epoch. If a task did more than compute,
`begin` is the list of its steps (`startstops`), and `end` is 0.0.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import json
import re
import reprlib
import struct
import sys
import time
import uuid
import zlib
from array import array
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

import dask
from dask.utils import key_split, parse_timedelta
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol.pickle import loads

PROTOCOL = 3

# How many rows and entries are held until the client fetches them; further ones are only counted, as dropped.
HELD_ROWS = 5_000_000
HELD_EDGES = 50_000_000
HELD_EVENTS = 100_000
HELD_OTHERS = 1_000_000  # rows of each of the tables `members`, `lag`, `memory` and `graphs`
HELD_WAITS = 10_000
CHUNK_ROWS = 200_000  # rows of one answer to `drain`
BATCH = 20_000  # values in a batch (about a thousand tasks), which `pack` turns into rows in about 3 ms
HELD_BATCHES = 100  # about 40 MB; beyond that, each new batch makes us pack the oldest
HELD_BACK_S = 30.0  # seconds until a batch is packed: at most these records are lost if a scheduler dies

LAG_INTERVAL_S = 0.05
WORKER_LAG_S = 0.1  # shortest stall of a worker's event loop, in seconds, that is recorded
ALONE_S = 60.0  # seconds without its client after which the recorder removes itself
UNDRAINED_S = 1800.0  # seconds without a call of `drain` after which the recorder removes itself
HEARTBEATS_S = 1.0  # longest wait for the last metrics of workers, in seconds
STRAGGLERS_S = 0.1  # seconds to wait for more events of actors' calls; twice their interval
EVENT_CHARACTERS = 4_000
EXCEPTION_CHARACTERS = 2_000
HELD_CALLS, CALL_CHARACTERS = 20, 200  # failed tasks whose call (function and arguments) is kept; characters per call
LONG_S, HELD_LONGEST = 0.05, 200  # shortest task in seconds whose call is kept as longest of a prefix; most prefixes
HELD_SCATTERED, HELD_USES = 10_000, 1_000_000  # most pieces of scattered data; most uses by tasks in total
SCATTERED_ROWS, TASK_WAITS = 400, 50  # largest numbers of rows and of waits in one event
HELD_SENT = 500_000  # most tasks whose graph is remembered
HELD_STEPS = 20_000  # most steps of fused tasks that are remembered, from tasks longer than `LONG_S`

_UNFINISHED = ("waiting", "no-worker", "queued", "processing")  # states of tasks that have not ended
OURS = "scalescope-"  # prefix of the names of all our plugins
WORKER_CLIENT = "Client-worker-"  # prefix of the id of a client inside a task
WAIT = "scalescope-wait "  # prefix of the actions that `scalescope.capture.waits` adds to `startstops`
HELD, SECEDED = "scalescope-held", "scalescope-seceded"  # actions: waits of tasks with, and without, their thread
ACTOR_CALLS = "scalescope-actor-calls"  # topic of events that `scalescope.capture.actors` sends

FINISHED, ERRED, LOST = 0, 1, 2
_FINISHED = FINISHED, 0, 0  # status, retries and allowed workers of a normal attempt

# Kinds of entries of `held`
RUNNABLE, UNQUEUED, FORGOTTEN, UNASSIGNED, DONE = "runnable", "unqueued", "forgotten", "unassigned", "done"
SENT = "sent"

# Columns of the table `tasks`, in the order of a row of 88 bytes, and their types:
#
#     byte 0       4       8      12      13       14       16      24      32  40  48  56  64  72  80
#          worker  prefix  group  status  retries  allowed  thread  nbytes  six times in seconds   graph
#
# Each column is aligned to its size, so that a column can be sliced out of many rows at once.
_FIELDS = {
    "worker": "i",
    "prefix": "i",
    "group": "i",  # -1 if the group's name equals the key
    "status": "b",
    "retries": "b",
    "allowed": "h",
    "thread": "q",
    "nbytes": "q",
    "runnable": "d",
    "assigned": "d",
    "start": "d",
    "stop": "d",
    "done": "d",
    "span": "d",
    "graph": "q",
}
_ROW = struct.Struct("<" + "".join(_FIELDS.values()))

# Steps of a task (actions of `startstops`) with their own column of seconds
_STEPS = {"transfer": 0, "deserialize": 1, "disk-read": 2, "disk-write": 3}


class Recorder(SchedulerPlugin):  # type: ignore[misc]
    """Records from `begin` to `finish`; `drain` returns the records in numbered chunks.

    These and `uninstall` are remote calls of the scheduler, named `scalescope_begin` and so on. A chunk is kept and
    sent again until it is acknowledged. If the client (`owner`) is gone for `ALONE_S`, or `drain` is not called for
    `undrained_s`, the recorder removes itself and our other plugins. If `lag_interval_s` is None, the event loop is not
    watched.
    """

    name = "scalescope-recorder"
    idempotent = False

    def __init__(
        self,
        *,
        held_rows: int = HELD_ROWS,
        held_events: int = HELD_EVENTS,
        lag_interval_s: float | None = LAG_INTERVAL_S,
        owner: str = "",
        undrained_s: float | None = UNDRAINED_S,
        held_back_s: float = HELD_BACK_S,
    ) -> None:
        self.held_back_s = held_back_s
        self.owner = owner
        self.alone_s = ALONE_S
        self.undrained_s = undrained_s
        self.held_rows = held_rows
        self.held_events = held_events
        self.lag_interval_s = lag_interval_s
        self.scheduler: Any = None
        self.recording = ""
        self.active = False
        self.attempts: _Attempts | None = None
        self.events: list[tuple[float, str, str]] = []
        self.members: list[tuple[Any, ...]] = []
        self.lag: list[tuple[float, str, float]] = []
        self.graphs: list[tuple[float, float, str, str, int, int]] = []
        self.memory: list[tuple[float, str, int, int]] = []
        self.collections: deque[tuple[float, float]] = deque(maxlen=HELD_WAITS)  # start and end of full collections
        self.full: dict[str, int] = {}
        self.metrics_before: dict[Any, float] = {}
        self.ended = 0.0  # time at which recording ended
        self.sequence = 0
        self.sent: dict[str, Any] | None = None
        self.summary: dict[str, Any] | None = None
        self._managed: dict[str, tuple[int, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._leaving: asyncio.Future[None] | None = None
        self._undrained: asyncio.TimerHandle | None = None
        self._worst = 0.0
        self._since = 0.0
        self._collecting = 0.0
        self._replaced: list[tuple[dict[str, Any], str, Any, Any]] = []  # table of handlers, message, old handler, ours
        self._graph_tasks: Any = ()  # tasks of the graph that is being received
        self._called = float("-inf")  # event-loop time of the last event of actors' calls
        self._tick_s = parse_timedelta(dask.config.get("distributed.admin.tick.interval"))

    # ---------------------------------------------------------------- the scheduler's hooks

    async def start(self, scheduler: Any) -> None:
        """Install this recorder; one that an earlier client left is removed."""
        earlier = scheduler.plugins.get(self.name)
        if earlier is not None and earlier is not self:
            earlier.uninstall()
        self.scheduler = scheduler
        for command in (self.begin, self.drain, self.finish, self.fine_metrics, self.uninstall):
            scheduler.handlers[f"scalescope_{command.__name__}"] = command
        # Only these handlers see the error of a task that will be retried, and the size of a graph.
        arounds = {
            "task-finished": self._around_task_finished,
            "task-erred": self._around_task_erred,
            "update-graph": self._around_update_graph,
        }
        for message in arounds.keys() & set(scheduler.stream_handlers):
            self._replace(scheduler.stream_handlers, message, arounds[message])
        for message in {"scatter", "update_data"} & set(scheduler.handlers):  # data that clients scatter
            self._replace(scheduler.handlers, message, self._around_scatter)

    async def close(self) -> None:
        self._stop()
        self._expect_drain(None)
        if self._leaving is not None:
            self._leaving.cancel()

    def restart(self, scheduler: Any) -> None:
        if self.attempts is not None:
            self.attempts.restarted = True

    def add_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        if self.active:
            self._keep("members", self._arrival(worker))
        if self.attempts is not None:
            self.attempts.present.add(worker)

    def remove_worker(self, scheduler: Any, worker: str, *, stimulus_id: str = "", **kwargs: Any) -> None:
        self._managed.pop(worker, None)
        if self.attempts is not None:
            self.attempts.present.discard(worker)
        if self.active:
            self._keep("members", (time.time(), "left", worker, stimulus_id))

    def remove_client(self, scheduler: Any, client: str) -> None:
        if client == self.owner:  # nobody will fetch the records
            self._leaving = asyncio.ensure_future(self._leave_alone())

    def log_event(self, topic: str, msg: Any) -> None:
        if not self.active or self.attempts is None:
            return
        if type(msg) is dict and msg.get("action") == "update-graph":  # already in the table `graphs`
            return
        if topic == "stealing":
            self.attempts.stolen(msg)
        elif topic == ACTOR_CALLS:
            self._called = asyncio.get_running_loop().time()
        self._event(topic, msg)

    def update_graph(self, scheduler: Any, *, tasks: Any = (), **kwargs: Any) -> None:
        self._graph_tasks = tasks

    # ---------------------------------------------------------------- remote calls

    def begin(self) -> dict[str, Any]:
        """Start a new recording, and discard the rest of an earlier one."""
        self._stop()
        self.recording = uuid.uuid4().hex
        self.sequence, self.sent, self.summary = 0, None, None
        self.events, self.lag, self.memory, self.graphs = [], [], [], []
        self.full, self._managed, self._called = {}, {}, float("-inf")
        self.metrics_before = self._metrics()
        self.collections.clear()
        gc.callbacks.append(self._note_collection)
        self.members = [self._arrival(address) for address in self.scheduler.workers]
        self.attempts = _Attempts(self.scheduler, self.held_rows, self._event)
        self.transition = self.attempts.hook()  # an instance attribute: no method is bound at each call
        self.active = True
        self._expect_drain(self.undrained_s)
        if self.lag_interval_s is not None:
            self._worst, self._since = 0.0, asyncio.get_running_loop().time()
            self._watch(self.lag_interval_s, self._since)
        return {"protocol": PROTOCOL, "recording": self.recording, "time": time.time()}

    async def drain(self, recording: str, ack: int = 0) -> dict[str, Any]:
        """The chunk after the acknowledged one."""
        attempts = self._current(recording)
        if self.active:
            due = time.time() - self.held_back_s
            while attempts.pack(due):
                await asyncio.sleep(0)
            self._current(recording)  # raises if another client has begun meanwhile
        if self.sent is None or ack == self.sent["seq"]:
            self.sequence += 1
            self.sent = {
                "seq": self.sequence,
                **attempts.take(CHUNK_ROWS),
                "events": self.events,
                "members": self.members,
                "lag": self.lag,
                "memory": self.memory,
                "graphs": self.graphs,
            }
            self.sent["last"] = not self.active and not attempts.keys and not attempts.holds
            self.events, self.members, self.lag, self.memory, self.graphs = [], [], [], [], []
        self._expect_drain(None if self.sent["last"] else self.undrained_s)
        return self.sent

    async def finish(self, recording: str, settle_s: float = 5.0) -> dict[str, Any]:
        """Wait until no task is running, at most `settle_s`; stop recording and return the totals."""
        attempts = self._current(recording)
        if self.summary is None:
            ended = time.time()
            loop = asyncio.get_running_loop()
            deadline = loop.time() + settle_s
            await attempts.pack_all()
            while (attempts.running or loop.time() < self._called + STRAGGLERS_S) and loop.time() < deadline:
                await asyncio.sleep(0.02)
                await attempts.pack_all()
            self._stop()
            self.ended = time.time()
            assigned = attempts.assigned()  # before the rest is packed: tasks may start meanwhile
            await attempts.pack_all()
            if attempts.waits_dropped:
                self.full["waits"] = attempts.waits_dropped
            attempts.tell_waits()
            attempts.tell_longest()
            attempts.tell_again()
            attempts.tell_scattered()
            attempts.tell_unfinished()
            self.summary = {"time": ended, "full": self.full, "assigned": assigned, **attempts.totals()}
        return self.summary

    async def fine_metrics(self, recording: str, wait_s: float = HEARTBEATS_S) -> list[tuple[Any, ...]]:
        """Rows of the table `fine_metrics`, once each worker has sent a heartbeat since `finish`, or after `wait_s`."""
        self._current(recording)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while loop.time() < deadline and any(each.last_seen < self.ended for each in self.scheduler.workers.values()):
            await asyncio.sleep(0.02)
        rows: list[tuple[Any, ...]] = []
        for name, value in self._metrics().items():
            more = value - self.metrics_before.get(name, 0)
            if more and len(rows) < HELD_OTHERS:
                context, *activity, unit = map(str, name)
                prefix = activity.pop(0) if context == "execute" and len(activity) > 1 else ""
                rows.append((context, prefix, " ".join(activity), unit, float(more)))
        return rows

    def uninstall(self) -> None:
        self._stop()
        self._expect_drain(None)
        self.attempts = None
        self.events, self.members, self.lag, self.memory, self.graphs, self.sent = [], [], [], [], [], None
        scheduler = self.scheduler
        for command in ("begin", "drain", "finish", "fine_metrics", "uninstall"):
            scheduler.handlers.pop(f"scalescope_{command}", None)
        for handlers, message, before, ours in self._replaced:
            if handlers.get(message) is ours:
                handlers[message] = before
        if scheduler.plugins.get(self.name) is self:
            scheduler.remove_plugin(name=self.name)

    def taken(self, since: float) -> list[tuple[float, float]]:
        """Begin and end of the scheduler's full garbage collections since a time."""
        return [(begin, end) for begin, end in self.collections if end >= since]

    # ---------------------------------------------------------------- inside

    def _replace(self, handlers: dict[str, Any], message: str, around: Callable[..., Any]) -> None:
        before = handlers[message]
        handlers[message] = ours = around(before)
        self._replaced.append((handlers, message, before, ours))

    def _note_collection(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] == 2:  # a full collection; those of younger generations are too short to matter
            if phase == "start":
                self._collecting = time.time()
            else:
                self.collections.append((self._collecting, time.time()))

    def _expect_drain(self, limit_s: float | None) -> None:
        if self._undrained is not None:
            self._undrained.cancel()
            self._undrained = None
        if limit_s is not None:
            self._undrained = asyncio.get_running_loop().call_later(limit_s, self._give_up)

    def _give_up(self) -> None:
        self._leaving = asyncio.ensure_future(self._leave())

    async def _leave_alone(self) -> None:
        await asyncio.sleep(self.alone_s)
        if self.owner not in self.scheduler.clients:
            await self._leave()

    async def _leave(self) -> None:
        scheduler = self.scheduler
        if scheduler.plugins.get(self.name) is not self:
            return
        self.uninstall()
        for plugins, unregister in (
            (scheduler.worker_plugins, scheduler.unregister_worker_plugin),
            (scheduler.nanny_plugins, scheduler.unregister_nanny_plugin),
        ):
            for name in [name for name in plugins if name.startswith(OURS)]:
                await unregister(None, name)

    def _current(self, recording: str) -> _Attempts:
        if self.attempts is None or recording != self.recording:
            raise RuntimeError("another client has begun to record on this scheduler")
        return self.attempts

    def _stop(self) -> None:
        self.active = False
        if self._note_collection in gc.callbacks:
            gc.callbacks.remove(self._note_collection)
        self.__dict__.pop("transition", None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._note_lag()

    def _metrics(self) -> dict[Any, float]:
        known = getattr(self.scheduler, "cumulative_worker_metrics", {})
        return {name: value for name, value in known.items() if isinstance(name, tuple)}

    def _arrival(self, address: str) -> tuple[Any, ...]:
        state = self.scheduler.workers[address]
        known = str(state.name), state.host, state.nthreads, int(state.memory_limit or 0)
        return time.time(), "joined", address, *known

    def _around_task_finished(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        def task_finished(**message: Any) -> None:
            if len(message.get("startstops") or ()) > 1:
                self._take_own_steps(message)
            handler(**message)

        return task_finished

    def _around_task_erred(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        def task_erred(**message: Any) -> None:
            attempts = self.attempts
            self._take_own_steps(message)
            if attempts is not None:
                attempts.erring = message
            try:
                handler(**message)
            finally:
                if attempts is not None:
                    attempts.erring = None

        return task_erred

    def _take_own_steps(self, message: dict[str, Any]) -> None:
        """Remove the steps of our plugins from a message, since Dask's dashboard and reports do not know them."""
        steps = message.get("startstops") or ()
        own = [each for each in steps if each["action"].startswith(OURS)]
        if own:
            message["startstops"] = [each for each in steps if not each["action"].startswith(OURS)]
            if self.attempts is not None:
                self.attempts.own_steps = message["key"], own

    def _around_scatter(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(handler)
        async def scattered(*args: Any, **message: Any) -> Any:
            result = handler(*args, **message)
            if inspect.isawaitable(result):
                result = await result
            if self.attempts is not None and self.active:
                for key in message.get("who_has") or message.get("data") or ():
                    self.attempts.piece(key, new=True)
            return result

        return scattered

    def _around_update_graph(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.iscoroutinefunction(handler):  # distributed before 2023.7

            def received(*args: Any, **message: Any) -> Any:
                began, self._graph_tasks = time.time(), ()
                result = handler(*args, **message)
                self._note_graph(began, message)
                return result

            return received

        async def update_graph(*args: Any, **message: Any) -> Any:
            began = time.time()
            result = await handler(*args, **message)  # calls our `update_graph` last, with no `await` after it
            self._note_graph(began, message)
            return result

        return update_graph

    def _note_graph(self, began: float, message: dict[str, Any]) -> None:
        tasks, self._graph_tasks = self._graph_tasks, ()
        if self.active and self.attempts is not None:
            client, sender = str(message.get("client", "")), message.get("submitting_task")
            if sender is not None and not client.startswith(WORKER_CLIENT):
                client = WORKER_CLIENT + client  # workers in the driver's process: their tasks share its client
            by = "" if sender is None else str(sender)
            self._keep("graphs", (began, time.time() - began, client, by, len(tasks), sent_bytes(message)))
            self.attempts.graph_sent(tasks)

    def _event(self, topic: str, message: Any, when: float | None = None) -> None:
        if len(self.events) >= self.held_events:
            self.full["events"] = self.full.get("events", 0) + 1
        else:
            self.events.append((time.time() if when is None else when, str(topic), as_json(message)))

    def _keep(self, table: str, row: tuple[Any, ...]) -> None:
        rows = getattr(self, table)
        if len(rows) >= HELD_OTHERS:
            self.full[table] = self.full.get(table, 0) + 1
        else:
            rows.append(row)

    def _watch(self, interval_s: float, due: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time()
        self._worst = max(self._worst, at - due)
        if at - self._since >= 1.0:
            self._note_lag()
            self._sample_memory(time.time())
            self._since = at
        self._timer = loop.call_later(interval_s, self._watch, interval_s, at + interval_s)

    def _note_lag(self) -> None:
        self._keep("lag", (time.time(), "scheduler", self._worst))
        self._worst = 0.0

    def _sample_memory(self, now: float) -> None:
        for address, state in self.scheduler.workers.items():
            lag_s = state.metrics.get("event_loop_interval", 0.0) - self._tick_s
            if lag_s > WORKER_LAG_S and self._tick_s < 1:  # ticks are off if many workers share a process
                self._keep("lag", (now, address, lag_s))
            spilled = state.metrics.get("spilled_bytes")
            on_disk = int(spilled.get("disk", 0)) if isinstance(spilled, dict) else 0
            sample = (int(state.nbytes), on_disk)
            if self._managed.get(address) != sample:
                self._managed[address] = sample
                self._keep("memory", (now, address, *sample))


class _Numbers(dict):  # type: ignore[type-arg]
    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


class _Ending(NamedTuple):
    """The end of an attempt that did not finish, or whose task may run only on some workers."""

    status: int
    allowed: int  # number of workers that may run the task; 0: any
    leaving: tuple[str, ...]  # workers that are being removed
    error: str | None  # text of the exception
    call: str  # call of a task that raised, as `load(7)`; may be empty
    refused: bool  # True if the scheduler failed the task, because no worker has memory for its inputs


class _Stolen(NamedTuple):
    """Work stealing moved a task to the worker `thief`."""

    thief: str


class _Scattered:
    """Data that a client scattered, or (not `new`) that existed before the recording."""

    def __init__(self, state: Any, new: bool) -> None:
        self.nbytes, self.rows = int(getattr(state, "nbytes", 0)), array("i")
        self.workers = sorted(each.address for each in state.who_has or ()) if new else []  # empty if not new


class _Attempts:
    """Task attempts of one recording."""

    def __init__(self, scheduler: Any, held_rows: int, event: Callable[..., None]) -> None:
        self.scheduler = scheduler
        self.held_rows = held_rows
        self.event = event
        self.held: list[Any] = []  # entries, flat (see the docstring of this module)
        self.opened = time.time()  # time at which `held` was started
        self.batches: deque[tuple[float, list[Any]]] = deque()  # `opened` and `held` of full batches, oldest first
        self.running: dict[Any, tuple[str, float]] = {}  # worker and time of assignment, by key of unfinished attempts
        self.ready: dict[Any, float] = {}  # time at which a task that had to wait for a worker became runnable, by key
        self.row_of: dict[Any, tuple[int, float]] = {}  # row and longest path in seconds, by key of finished tasks
        self.told = 0  # number of failed tasks whose call was kept (at most `HELD_CALLS`)
        self.tried: dict[Any, int] = {}  # number of attempts, by key of tasks that erred or whose worker died
        self.present = set(scheduler.workers)  # addresses of workers, including one that is being removed
        self.erring: dict[str, Any] | None = None  # message of the error that the scheduler is handling
        self.own_steps: tuple[Any, list[Any]] | None = None  # key, and our steps, of the task that is ending
        self.confined: set[str] = set()  # prefixes whose restrictions have been logged as an event
        self.waits: dict[tuple[str, str], tuple[int, float]] = {}  # number of waits and seconds, by prefix and action
        self.longest: dict[str, tuple[float, Any, str]] = {}  # longest task: seconds, key, call; by prefix
        # By step (one that Dask fused into tasks, or a call under a random key): key and prefix of its first task
        self.steps: dict[Any, tuple[Any, str]] = {}
        # Tasks that repeated a step, and their seconds; by their prefix, the step, and the prefix of its first task
        self.again: dict[tuple[str, str, str], tuple[int, float]] = {}
        self.scattered: dict[Any, _Scattered] = {}  # data that clients scattered, by key
        self.uses = 0  # number of uses of `scattered` data by tasks
        self.sent: dict[Any, int] = {}  # number of the graph (from 1) that brought a task, by key
        self.graphs = 0  # graphs received
        self.released: set[Any] = set()  # keys of tasks that were released unfinished and have not begun again
        self.cancelled: Counter[str] = Counter()  # number of released tasks that were forgotten, by prefix
        self.restarted = False
        self.assigned_before = _entered_processing(scheduler)
        self.foreign = 0  # attempts that ended in the recording but began before it
        self.dropped = 0  # attempts that were not kept, because `held_rows` was reached
        self.edges_dropped = 0
        self.waits_dropped = 0
        self.unassigned = 0  # rows of tasks that failed before they were assigned to a worker

        # Packed rows, not taken yet: packing a row costs a third of the time of appending to a list per column.
        self.taken = 0
        self.keys: list[Any] = []
        self.rows = bytearray()
        self.workers, self.prefixes, self.groups = _Numbers(), _Numbers(), _Numbers()
        self.names: dict[Any, tuple[int, int]] = {}  # numbers of prefix and group name, by task group
        self.seconds: list[tuple[float, ...]] = []  # (row, seconds of each of `_STEPS`) for rows that have such steps
        # rows that have dependencies, how many each has, and the rows of all these dependencies
        self.dependents, self.counts, self.needs = array("i"), array("i"), array("i")

    def hook(self) -> Callable[..., None]:
        """The function that the scheduler calls on every transition: a closure over local names, for speed.

        Every statement costs time per task. `self.held` is looked up at each call, because a new list may replace it.
        """
        tasks, now = self.scheduler.tasks, time.time

        # All arguments that workers send with a finished task are named: to collect them in `**others` would take a
        # quarter more time.
        def transition(
            key: Any,
            start: str,
            finish: str,
            /,
            stimulus_id: Any = None,
            worker: Any = None,
            metadata: Any = None,
            nbytes: Any = None,
            type: Any = None,
            typename: Any = None,
            thread: Any = None,
            startstops: Any = None,
            status: Any = None,
            **others: Any,
        ) -> None:
            if finish == "processing":
                if start != "processing":  # it may go from processing to processing if its worker has left
                    self.held.extend((key, now(), tasks[key].processing_on))
            elif start == "processing":
                task = tasks[key]
                what: Any = DONE
                if (
                    finish != "memory"
                    or task.worker_restrictions
                    or task.host_restrictions
                    or task.resource_restrictions
                ):
                    what, erred = self._ending(task, finish, others)
                    if erred is not None:
                        told = ("worker", "thread", "nbytes", "startstops")
                        worker, thread, nbytes, startstops = map(erred.get, told)  # a lambda would make `erred` a cell
                needs = [each.key for each in task.dependencies] if task.dependencies else ()
                begin: Any = startstops or ()
                end = 0.0
                if self.own_steps is not None:
                    begin = self._with_own_steps(key, begin)
                if len(begin) == 1 and (step := begin[0])["action"] == "compute":
                    begin, end = step["start"], step["stop"]
                    if end - begin > LONG_S:
                        self.note_long(task, end - begin)
                elif begin:
                    self._note_steps(task, begin)
                self.held.extend((task.key, now(), what, task.group, needs, worker, thread, nbytes, begin, end))
                if len(self.held) > BATCH:
                    self.close_batch()
            elif finish == "forgotten":
                self.held.extend((key, 0.0, FORGOTTEN))
            elif start == "waiting":
                if finish == "queued" or finish == "no-worker":
                    self.held.extend((key, now(), RUNNABLE))
                elif finish == "released":
                    self.held.extend((key, 0.0, UNQUEUED))
            elif start == "queued" or start == "no-worker":
                self._leave_queue(key, finish, others)

        return transition

    def _with_own_steps(self, key: Any, steps: Any) -> Any:
        assert self.own_steps is not None
        (whose, own), self.own_steps = self.own_steps, None
        return [*steps, *own] if whose == key else steps  # else these steps belong to a task that has ended

    def _note_steps(self, task: Any, steps: Any) -> None:
        seconds = sum([each["stop"] - each["start"] for each in steps if each["action"] == "compute"])
        if seconds > LONG_S:
            self.note_long(task, seconds)

    def _leave_queue(self, key: Any, finish: str, details: dict[str, Any]) -> None:
        if finish == "erred" and details.get("cause") == key:  # no worker could run it
            task = self.scheduler.tasks[key]
            what, _ = self._ending(task, finish, details)
            self.held.extend((key, 0.0, UNASSIGNED))
            self.held.extend((key, time.time(), what, task.group, (), "", 0, 0, (), 0.0))
        elif finish != "queued" and finish != "no-worker":
            self.held.extend((key, 0.0, UNQUEUED))

    def _ending(self, task: Any, finish: str, details: dict[str, Any]) -> tuple[_Ending, dict[str, Any] | None]:
        erred = None
        if finish == "memory":
            status = FINISHED
        elif finish == "erred":
            status = ERRED
        elif self.erring is not None and self.erring["key"] == task.key:  # the task will be retried
            status, details = ERRED, (erred := self.erring)
        else:
            status = LOST
        allowed = 0
        if task.worker_restrictions or task.host_restrictions or task.resource_restrictions:
            allowed = self._allowed(task)
        leaving = tuple(self.present.difference(self.scheduler.workers)) if status == LOST else ()
        call = ""
        if status == ERRED and self.told < HELD_CALLS:
            self.told += 1
            call = call_of(task.run_spec)
        error = details.get("exception_text")
        refused = "" if error or status != ERRED else _refusal(details.get("exception"))
        return _Ending(status, allowed, leaving, error or refused or None, call, bool(refused)), erred

    def graph_sent(self, tasks: Any) -> None:
        self.graphs += 1
        self.held.extend((self.graphs, time.time(), SENT, tasks))

    @property
    def holds(self) -> bool:
        return bool(self.held or self.batches)

    def close_batch(self) -> None:
        # a new list: copying and clearing the old one would read all its entries again
        self.batches.append((self.opened, self.held))
        self.held = []
        self.opened = time.time()
        if len(self.batches) > HELD_BATCHES:
            self.pack()

    async def pack_all(self) -> None:
        """Pack all entries held now, and let the scheduler work between batches."""
        if self.held:
            self.close_batch()
        for _ in range(len(self.batches)):
            self.pack()
            await asyncio.sleep(0)

    def pack(self, until: float = float("inf")) -> bool:
        """Make rows of the oldest batch, if it began before `until`. Returns whether there was such a batch."""
        if not self.batches and self.held and self.opened <= until:
            self.close_batch()
        if not self.batches or self.batches[0][0] > until:
            return False
        self._replay(self.batches.popleft()[1])
        return True

    def _replay(self, held: list[Any]) -> None:
        values, find, running, released = iter(held), _ENTRIES.get, self.running, self.released
        for key, when, what in zip(values, values, values, strict=True):
            if (entry := find(what if type(what) is str else type(what))) is None:  # `what` is a WorkerState
                running[key] = (what.address, when)
                if released:
                    released.discard(key)
            else:
                read, details = entry
                read(self, key, when, what, islice(values, details) if details else ())

    def _read_stolen(self, key: Any, when: float, stolen: _Stolen, details: Iterable[Any]) -> None:
        if key in self.running:
            self.ready.setdefault(key, self.running[key][1])
            self.running[key] = (stolen.thief, when)

    def _read_runnable(self, key: Any, when: float, what: str, details: Iterable[Any]) -> None:
        self.ready[key] = when

    def _read_unqueued(self, key: Any, when: float, what: str, details: Iterable[Any]) -> None:
        self.ready.pop(key, None)
        self.released.add(key)

    def _read_forgotten(self, key: Any, when: float, what: str, details: Iterable[Any]) -> None:
        self.row_of.pop(key, None)
        self.sent.pop(key, None)
        if self.tried:
            self.tried.pop(key, None)
        if key in self.released:
            self.released.discard(key)
            self.cancelled[key_split(key)] += 1

    def _read_unassigned(self, key: Any, when: float, what: str, details: Iterable[Any]) -> None:
        self.unassigned += 1
        self.running[key] = ("", 0.0)

    def _read_sent(self, graph: int, when: float, what: str, details: Iterable[Any]) -> None:
        (tasks,) = details
        if len(self.sent) + len(tasks) <= HELD_SENT:
            for key in tasks:
                if key not in self.row_of:  # not an older task that this graph depends on
                    self.sent.setdefault(key, graph)

    def _read_ended(self, key: Any, done: float, what: Any, details: Iterable[Any]) -> None:
        group, needs, worker, thread, nbytes, begin, end = details
        attempt = self.running.pop(key, None)
        ending: _Ending | None = None
        if what is not DONE:
            ending = what
            if what.status == LOST:
                self.released.add(key)
            if attempt is None and what.refused:  # a refused task was never assigned
                attempt = worker, done
        if attempt is None:
            self.foreign += 1
            return
        given_to, assigned = attempt
        runnable = self.ready.pop(key, 0.0)
        worker = worker or given_to
        status, retries, allowed = _FINISHED
        if ending is not None or self.tried:
            status, retries, allowed = self._outcome(key, worker, done, ending)
        keys = self.keys
        if len(keys) >= self.held_rows:
            self.dropped += 1
            return
        if end == 0.0 and isinstance(begin, (list, tuple)):
            begin, end = self._add_steps(group.prefix.name, begin)
        span = end - begin if end > begin else 0.0
        number = self.taken + len(keys)
        if needs:
            span += self._add_needs(number, needs)
        numbers = self.names.get(group) or self._name(key, group)
        self.rows += _ROW.pack(
            self.workers[worker],
            numbers[0],
            numbers[1],
            status,
            retries,
            allowed,
            thread or 0,
            nbytes or 0,
            runnable or assigned,
            assigned,
            begin,
            end,
            done,
            span,
            self.sent.get(key, 0),
        )
        keys.append(key)
        if status == FINISHED:
            self.row_of[key] = (number, span)

    def _outcome(self, key: Any, worker: str, done: float, ending: _Ending | None) -> tuple[int, int, int]:
        """Status, retries, and number of workers that may run the task (0: any)."""
        retries = self.tried.get(key, 0)
        if ending is None:
            return FINISHED, retries, 0
        if ending.status == ERRED or worker in ending.leaving:
            self.tried[key] = min(retries + 1, 127)
        if ending.status == ERRED:
            self.event("task-erred", describe_error(key, worker, ending.error, ending.call), done)
        return ending.status, retries, ending.allowed

    def _add_steps(self, prefix: str, steps: Any) -> tuple[float, float]:
        begin = end = 0.0
        waits: list[tuple[float, float, bool]] = []
        for entry in steps:
            action = entry["action"]
            if action == "compute":
                begin = entry["start"]
                end = entry["stop"]
            elif action in _STEPS:
                self._add_seconds(action, entry["stop"] - entry["start"])
            elif action.startswith(WAIT):
                self._add_wait(prefix, action, entry["stop"] - entry["start"])
            elif action in (HELD, SECEDED):
                waits.append((entry["start"], entry["stop"], action == HELD))
        row = self.taken + len(self.keys)
        for place in range(0, len(waits), TASK_WAITS):
            self.event("task-waits", {"row": row, "waits": waits[place : place + TASK_WAITS]})
        return begin, end

    def _add_seconds(self, action: str, seconds: float) -> None:
        row = len(self.keys)
        if not self.seconds or self.seconds[-1][0] != row:
            self.seconds.append((row, 0.0, 0.0, 0.0, 0.0))
        values = list(self.seconds[-1])
        values[1 + _STEPS[action]] += seconds
        self.seconds[-1] = tuple(values)

    def _add_wait(self, prefix: str, action: str, seconds: float) -> None:
        if len(self.waits) >= HELD_WAITS and (prefix, action) not in self.waits:
            self.waits_dropped += 1
            return
        tasks, sum_s = self.waits.get((prefix, action), (0, 0.0))
        self.waits[prefix, action] = (tasks + 1, sum_s + seconds)

    def note_long(self, task: Any, seconds: float) -> None:
        """Keep what the scheduler will forget: the call of each prefix's longest task, and the steps of long tasks."""
        prefix, spec = task.group.prefix.name, task.run_spec
        before = self.longest.get(prefix)
        if len(self.longest) < HELD_LONGEST if before is None else seconds > 1.1 * before[0]:
            self.longest[prefix] = (seconds, task.key, call_of(spec))
        fused = fused_steps(task.key, spec)
        for step in fused or equal_call(task.key, spec):
            if step not in self.steps:
                if len(self.steps) < HELD_STEPS:
                    self.steps[step] = task.key, prefix
            elif (first := self.steps[step])[0] != task.key:
                what = prefix, key_split(step) if fused else step[0], first[1]
                tasks, sum_s = self.again.get(what, (0, 0.0))
                self.again[what] = tasks + 1, sum_s + seconds
                break

    def tell_longest(self) -> None:
        for _, key, call in self.longest.values():
            if call:
                self.event("longest", {"key": str(key), "call": call})
        self.longest.clear()

    def tell_again(self) -> None:
        """Log events for prefixes whose tasks repeated work that tasks with other keys had already done."""
        for (prefix, step, first), (tasks, seconds) in self.again.items():
            told = {"prefix": prefix, "step": step, "first": first, "tasks": tasks, "seconds": seconds}
            self.event("again", {**told, "calls": sum(each[0] == step for each in self.steps)})
        self.again.clear()

    def piece(self, key: Any, *, new: bool = False) -> _Scattered | None:
        state = self.scheduler.tasks.get(key)
        if key not in self.scattered and state is not None and len(self.scattered) < HELD_SCATTERED:
            self.scattered[key] = _Scattered(state, new)
        return self.scattered.get(key)

    def tell_scattered(self) -> None:
        """Log events on scattered data: its bytes, its first workers, and the rows of tasks that used it."""
        for number, each in enumerate(self.scattered.values()):
            told = {"number": number, "nbytes": each.nbytes, "workers": len(each.workers), "first": each.workers[:1]}
            for place in range(0, len(each.rows), SCATTERED_ROWS):
                self.event("scattered", {**told, "rows": each.rows[place : place + SCATTERED_ROWS].tolist()})
        self.scattered.clear()

    def tell_waits(self) -> None:
        """Log an event per prefix, line, and function in which tasks waited."""
        for (prefix, action), (tasks, seconds) in self.waits.items():
            what, _, where = action[len(WAIT) :].partition("\t")
            message = {"prefix": prefix, "what": what, "where": where, "tasks": tasks, "seconds": seconds}
            self.event("waits", message)
        self.waits.clear()

    def tell_unfinished(self) -> None:
        """Log how many tasks of each prefix had not ended, and how many were cancelled before their end."""
        left = {
            name: count
            for name, prefix in self.scheduler.task_prefixes.items()
            if (count := sum(prefix.states.get(state, 0) for state in _UNFINISHED))
        }
        if left or self.cancelled:
            self.event("unfinished", {"left": left, "cancelled": dict(self.cancelled)})

    def _add_needs(self, row: int, needs: list[Any]) -> float:
        needed = [self.row_of[key] for key in needs if key in self.row_of]
        if len(needed) < len(needs) and self.uses < HELD_USES:
            for key in needs:
                if key not in self.row_of and (piece := self.piece(key)) is not None:
                    piece.rows.append(row)
                    self.uses += 1
        if not needed:
            return 0.0
        if len(self.needs) + len(needed) > HELD_EDGES:
            self.edges_dropped += len(needed)
        else:
            self.dependents.append(row)
            self.counts.append(len(needed))
            self.needs.extend([number for number, _ in needed])
        return max([span for _, span in needed])

    def _name(self, key: Any, group: Any) -> tuple[int, int]:
        number = self.prefixes[group.prefix.name]
        if group.name == key:
            return number, -1
        numbers = self.names[group] = (number, self.groups[str(group.name)])  # nested keys: a tuple
        return numbers

    def _allowed(self, task: Any) -> int:
        scheduler, prefix = self.scheduler, task.prefix.name
        restrictions = {
            "workers": task.worker_restrictions,
            "hosts": task.host_restrictions,
            "resources": task.resource_restrictions,
        }
        if prefix not in self.confined and len(self.confined) < HELD_EVENTS:
            self.confined.add(prefix)
            shown = {kind: _some(names) for kind, names in restrictions.items()}
            self.event("restriction", {"prefix": prefix, **shown, "loose": bool(task.loose_restrictions)})
        allowed = scheduler.valid_workers(task)
        return min(len(scheduler.workers if allowed is None else allowed), 0x7FFF)

    def stolen(self, message: Any) -> None:
        # work stealing reassigns a task without a transition
        if not isinstance(message, (tuple, list)) or len(message) < 5 or message[0] != "confirm":
            return
        self.held.extend((message[1], time.time(), _Stolen(message[4])))

    def take(self, limit: int) -> dict[str, Any]:
        """Remove at most `limit` rows; returns packed chunks of the tables `tasks` and `dependencies`."""
        count = min(len(self.keys), limit)
        if len(self.rows) != len(self.keys) * _ROW.size:
            raise RuntimeError(f"the recorder holds {len(self.rows)} bytes for {len(self.keys)} keys")
        taken = {"tasks": self._take_tasks(count), "dependencies": self._take_dependencies(self.taken + count)}
        self.taken += count
        if not self.keys:
            for numbers in (self.workers, self.prefixes, self.groups, self.names):
                numbers.clear()
        return taken

    def _take_tasks(self, count: int) -> dict[str, Any]:
        keys, raw = [str(key) for key in self.keys[:count]], bytes(self.rows[: count * _ROW.size])
        columns = {"key": ["str", packed_texts(keys)], **_columns(raw)}
        for name, numbers in {"worker": self.workers, "prefix": self.prefixes, "group": self.groups}.items():
            columns[name] = ["str", packed_texts(list(numbers)), columns[name][1]]
        first_left = bisect_left(self.seconds, (count,))
        for name, place in _STEPS.items() if first_left else ():
            column = array("f", bytes(4 * count))
            for entry in self.seconds[:first_left]:
                column[int(entry[0])] = entry[1 + place]
            columns[name.replace("-", "_")] = packed_numbers(column)
        del self.keys[:count]
        del self.rows[: count * _ROW.size]
        self.seconds[:] = [(entry[0] - count, *entry[1:]) for entry in self.seconds[first_left:]]
        return {"table": "tasks", "rows": count, "columns": columns}

    def _take_dependencies(self, before_row: int) -> dict[str, Any]:
        rows = bisect_left(self.dependents, before_row)
        edges = sum(self.counts[:rows])
        runs = packed_numbers(self.counts[:rows])[1]
        columns = {"task": [*packed_numbers(self.dependents[:rows]), runs], "needs": packed_numbers(self.needs[:edges])}
        del self.dependents[:rows], self.counts[:rows], self.needs[:edges]
        return {"table": "dependencies", "rows": edges, "columns": columns}

    def totals(self) -> dict[str, Any]:
        return {
            "rows": self.taken + len(self.keys),
            "unassigned": self.unassigned,
            "dropped": self.dropped,
            "edges_dropped": self.edges_dropped,
            "foreign": self.foreign,
            "unfinished": len(self.running),
            "unfinished_keys": [str(key) for key in list(self.running)[:5]],
            "restarted": self.restarted,
        }

    def assigned(self) -> int | None:
        """Number of assigned attempts by the scheduler's own counter; None without a counter or after a restart."""
        after = _entered_processing(self.scheduler)
        if after is None or self.assigned_before is None or self.restarted:
            return None
        return after - self.assigned_before


# By kind of entry: the method that reads it, and the number of details after key, time and kind.
_ENTRIES: dict[Any, tuple[Callable[..., None], int]] = {
    _Stolen: (_Attempts._read_stolen, 0),
    RUNNABLE: (_Attempts._read_runnable, 0),
    UNQUEUED: (_Attempts._read_unqueued, 0),
    FORGOTTEN: (_Attempts._read_forgotten, 0),
    DONE: (_Attempts._read_ended, 7),
    _Ending: (_Attempts._read_ended, 7),
    UNASSIGNED: (_Attempts._read_unassigned, 0),
    SENT: (_Attempts._read_sent, 1),
}


def _some(names: Any) -> Any:
    return names if isinstance(names, dict) else sorted(names)[:5] if names else []


def packed_texts(texts: list[str]) -> bytes:
    """Texts in the format of `scalescope.model.spool`."""
    joined = "\0".join(texts)
    if joined.count("\0") >= len(texts) > 0:
        joined = "\0".join([text.replace("\0", "\\x00") for text in texts])
    return zlib.compress(joined.encode("utf-8", "backslashreplace"), 1)


def packed_numbers(numbers: array[Any]) -> list[Any]:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return [numbers.typecode, zlib.compress(numbers.tobytes(), 1)]


def _columns(raw: bytes) -> dict[str, list[Any]]:
    columns, view, offset = {}, memoryview(raw), 0
    for name, kind in _FIELDS.items():
        items: Any = view.cast(kind)  # type: ignore[call-overload]
        column = items[offset // items.itemsize :: _ROW.size // items.itemsize]
        columns[name] = [kind, zlib.compress(column.tobytes(), 1)]
        offset += items.itemsize
    return columns


def _entered_processing(scheduler: Any) -> int | None:
    try:
        return sum(int(prefix.state_counts["processing"]) for prefix in scheduler.task_prefixes.values())
    except AttributeError:
        return None


def sent_bytes(message: Any) -> int:
    """Bytes of the graph in a message to the scheduler (in `graph_frames` until distributed 2024.8)."""
    frames = [frame for value in message.values() for frame in getattr(value, "frames", ())]
    return sum(memoryview(frame).nbytes for frame in (*frames, *message.get("graph_frames", ())))


def call_of(spec: Any) -> str:
    """Function and arguments of a task, shortened; empty for functions of Dask, or if the scheduler cannot see them."""
    function, given = getattr(spec, "func", None), getattr(spec, "args", None)
    if given is None or str(getattr(function, "__module__", "")).partition(".")[0] in ("dask", "distributed"):
        return ""
    shown, options = reprlib.Repr(), getattr(spec, "kwargs", None) or {}
    shown.maxother = shown.maxstring = 40
    try:
        if "task_run_id" in options and "parameters" in options:  # Prefect wraps the user's arguments
            options = options["parameters"]
        each = [str(value.key) if type(value).__name__ == "TaskRef" else shown.repr(value) for value in given]
        each += [f"{name}={shown.repr(value)}" for name, value in options.items()]
    except Exception:  # noqa: BLE001 - the user's own `__repr__`
        each = ["..."]
    return f"{getattr(function, '__name__', 'a task')}({', '.join(each)})"[:CALL_CHARACTERS]


def fused_steps(key: Any, spec: Any) -> list[Any]:
    """Names of the steps that Dask fused into a task, the last step first; empty for any other task."""
    if getattr(getattr(spec, "func", None), "__name__", "") != "_execute_subgraph":
        return []
    part = key[1:] if isinstance(key, tuple) else ()  # the steps' keys in fused arrays lack the chunk's index
    tasks = spec.args[0]  # for arrays, the last step comes first; for bags, the first step
    begins = not next(iter(tasks.values())).dependencies & tasks.keys()
    ordered = reversed(tasks) if begins else tasks
    steps = (step if isinstance(step, tuple) else (str(step).partition("_.")[0], *part) for step in ordered)
    return [step for step in steps if step != key]


# If a function uses one of these names, equal calls may have different results
DRAWS = {
    *("random", "rand", "randn", "randint", "normal", "uniform", "choice", "shuffle", "sample", "urandom", "uuid4"),
    *("now", "today", "perf_counter", "monotonic", "time_ns", "getpid", "get_worker", "urlopen", "connect", "write"),
}
# If a function uses one of these names, its random numbers are the same each time
SEEDED = {"default_rng", "RandomState", "Generator", "seed", "Random"}
RANDOM_KEY = re.compile(r".+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # key of a call that is not declared pure


def equal_call(key: Any, spec: Any) -> list[Any]:
    """Function and arguments of a task with a random key, if equal calls seem to have equal results; else empty."""
    function, given = getattr(spec, "func", None), getattr(spec, "args", None)
    if given is None or not isinstance(key, str) or not RANDOM_KEY.fullmatch(key):
        return []
    values = (*given, *(getattr(spec, "kwargs", None) or {}).items())
    names = _names_in(function) if _is_plain(values) else DRAWS
    if names & DRAWS and not names & SEEDED:
        return []
    call = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}", repr(values)
    return [call] if len(call[1]) <= CALL_CHARACTERS else []


def _is_plain(value: Any) -> bool:
    """Whether the text of a value is short and identifies the value."""
    if type(value) is tuple:
        return len(value) < CALL_CHARACTERS and all(map(_is_plain, value))
    return type(value) in (bool, int, float, type(None)) or (
        type(value) in (str, bytes) and len(value) < CALL_CHARACTERS
    )


def _names_in(function: Any, depth: int = 2) -> set[str]:
    """Names used by a function, and by functions of its own module that it calls; `DRAWS` if unknown."""
    code = getattr(function, "__code__", None)
    if code is None:
        return {*DRAWS}
    codes = [code, *(each for each in code.co_consts if hasattr(each, "co_names"))]
    names = {name for each in codes for name in each.co_names}
    known = getattr(function, "__globals__", {}) if depth else {}
    called = [known.get(name) for name in names]
    return names.union(*(_names_in(each, depth - 1) for each in called if hasattr(each, "__code__")))


def _refusal(packed: Any) -> str:
    """The scheduler's own error for a task whose inputs need more memory than a worker has; empty for others."""
    return repr(loads(packed)) if isinstance(packed, bytes) and b"MemoryError" in packed else ""


def describe_error(key: Any, worker: str, exception_text: str | None, call: str = "") -> dict[str, str]:
    text = exception_text or "KilledWorker: the workers that ran the task died, or no worker could run it"
    return {"key": str(key), "worker": worker, "exception": text[:EXCEPTION_CHARACTERS], "call": call}


def as_json(message: Any) -> str:
    """JSON of anything; if too long: `{"truncated": its length, "text": its start}`."""
    try:
        text = json.dumps(message, default=_plain)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps({"text": repr(message)})
    if len(text) > EVENT_CHARACTERS:
        text = json.dumps({"truncated": len(text), "text": text[:EVENT_CHARACTERS]})
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    return repr(value)[:EVENT_CHARACTERS]
