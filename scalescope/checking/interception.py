"""Collects the graphs that a program sends to Dask, and stops the program where it first needs a value of a result."""

from __future__ import annotations

import math
import sys
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from inspect import isfunction, signature
from typing import Any, NoReturn

import dask
import dask.base
import distributed
import distributed.client
from dask._task_spec import DataNode, Dict, List, Task, TaskRef, Tuple
from dask.base import tokenize
from dask.core import flatten
from dask.utils import funcname, parse_bytes
from distributed.deploy import cluster as of_clusters
from distributed.deploy.local import LocalCluster
from distributed.deploy.spec import SpecCluster

from scalescope.capture.partition_calls import noted
from scalescope.capture.user_code import line_of_user
from scalescope.checking.graph import Planned, planned
from scalescope.clusters.kubernetes.quantity import amount
from scalescope.model.partition_calls import PartitionCall

ADDRESS = "tcp://not-started:0"
# Methods of clients and clusters that do nothing during a check
_PASSED = frozenset(
    [
        "close",
        "shutdown",
        "restart",
        "wait_for_workers",
        "register_plugin",
        "unregister_worker_plugin",
        "register_worker_plugin",
        "register_scheduler_plugin",
        "upload_file",
        "forward_logging",
        "log_event",
        "subscribe_topic",
        "unsubscribe_topic",
        "cancel",
        "retry",
        "set_metadata",
        "publish_dataset",
        "rebalance",
        "replicate",
        "write_scheduler_file",
        "adapt",
        "sync",
    ]
)
_SAME = ("__enter__", "__aenter__")
_ENDS = ("__exit__", "__aexit__", "__del__")


class NeedsValue(BaseException):
    """Raised where the program needs a value; a `BaseException`, so that no `except Exception` catches it."""


@dataclass
class Seen:
    """What a program did until it needed a value."""

    graphs: list[Planned] = field(default_factory=list)
    chunks: dict[str, Any] = field(default_factory=dict)  # chunks and dtypes of arrays, by name
    lines: dict[str, str] = field(default_factory=dict)  # lines of the user's code that made collections, by name
    noted: list[Sequence[PartitionCall]] = field(default_factory=list)  # calls that made partitions
    notes: list[str] = field(default_factory=list)
    workers: int = 0  # number of workers that the program asked for; 0: it asked for none
    threads: int = 1
    memory: float = 0.0  # memory of each worker, in bytes; 0: unknown
    processes: int = 1  # workers in each job of a batch system's cluster
    stopped_at: str = ""
    stopped_by: str = ""

    @property
    def calls(self) -> list[PartitionCall]:
        return [call for notes in self.noted for call in notes]

    def stop(self, by: str, depth: int = 2) -> NoReturn:
        if not self.stopped_by:
            self.stopped_at, self.stopped_by = line_of_user(sys._getframe(depth)), by
        raise NeedsValue

    def asked(self, given: dict[str, Any]) -> None:
        """Note the size of a cluster that these options ask for."""
        self.processes = int(given.get("processes") or self.processes) if "cores" in given else self.processes
        resources = given.get("resources") or {}
        limits = {**resources.get("requests", {}), **resources.get("limits", {})}
        self.workers = int(given.get("n_workers") or self.workers or 0)
        cores = int(given.get("cores") or amount(str(limits.get("cpu") or 0)))
        threads = given.get("threads_per_worker") or given.get("nthreads") or cores // self.processes
        self.threads = int(threads or self.threads)
        limit = given.get("memory_limit") or given.get("memory") or limits.get("memory")
        if isinstance(limit, str | int) and limit != "auto":
            self.memory = float(parse_bytes(limit)) / self.processes

    def made(self, name: Any, chunks: Any = None, dtype: Any = None) -> None:
        if chunks is not None:
            self.chunks.setdefault(name, (chunks, dtype))
        if name not in self.lines and (line := line_of_user(sys._getframe(3))):
            self.lines[name] = line


class Kept:
    """Stands for a result that the cluster would hold in memory."""


class Promise(distributed.Future):  # type: ignore[misc]
    """A future that never ends; asking for its value stops the program."""

    def __init__(self, key: Any, seen: Seen) -> None:
        self._key, self._seen = key, seen

    key = property(lambda self: self._key)
    status = property(lambda self: "pending")
    type = property(lambda self: None)

    def done(self) -> bool:
        return False

    def result(self, *_: Any, **named: Any) -> Any:
        self._seen.stop("Future.result")

    exception = traceback = result

    def __await__(self) -> Any:
        self._seen.stop("await")

    def add_done_callback(self, *_: Any) -> None: ...

    cancel = retry = release = add_done_callback

    def __del__(self) -> None: ...

    def __repr__(self) -> str:
        return f"<promise of {self._key}>"

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __reduce__(self) -> Any:
        return Kept, ()

    def __dask_tokenize__(self) -> Any:
        return self._key


@contextmanager
def intercepted(seen: Seen, modules: Collection[str] = ()) -> Iterator[None]:
    """Note what the body sends to Dask, and raise `NeedsValue` where it needs a value."""
    with ExitStack() as stack:
        seen.noted.append(stack.enter_context(noted(modules)))
        for owner, name, value in [*_of_dask(seen), *_of_client(seen), *_of_cluster(seen), *_of_collections(seen)]:
            stack.callback(_put, owner, name, vars(owner).get(name, _put))
            setattr(owner, name, value)
        yield


def _put(owner: Any, name: str, value: Any) -> None:
    if value is _put:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


Patch = tuple[Any, str, Any]


def _of_dask(seen: Seen) -> Iterator[Patch]:
    def get_scheduler(*_: Any, **named: Any) -> Callable[..., Any]:
        began = time.perf_counter()

        def schedule(graph: Any, keys: Any, **options: Any) -> NoReturn:
            if not seen.stopped_by:
                seen.graphs.append(planned(graph, keys, time.perf_counter() - began))
            seen.stop("compute")

        return schedule

    def persist(*collections: Any, **named: Any) -> tuple[Any, ...]:
        return tuple(_persisted(seen, list(collections)))

    for module in (dask, dask.base):
        yield module, "persist", persist
    yield dask.base, "get_scheduler", get_scheduler
    for each in ("dask.array.core", "dask.bag.core", "dask.delayed", "dask.dataframe.dask_expr._collection"):
        for name, value in (("persist", persist), ("get_scheduler", get_scheduler)):
            if hasattr(sys.modules.get(each), name):
                yield sys.modules[each], name, value


def _persisted(seen: Seen, collections: list[Any]) -> list[Any]:
    seen.graphs.append(planned(collections))
    found = []
    for each in collections:
        rebuild, state = each.__dask_postpersist__()
        keys = flatten(each.__dask_keys__())
        found.append(rebuild({key: DataNode(key, Kept()) for key in keys}, *state))
    return found


def _of_client(seen: Seen) -> Iterator[Patch]:
    kind = distributed.Client

    def begin(client: Any, address: Any = None, *others: Any, **named: Any) -> None:
        client.status, client.id, client.name, client.cluster = "running", "Client-check", "check", address
        client.scheduler = client._loop_runner = None
        client.futures, client.refcount, client.extensions = {}, {}, {}
        seen.asked(named)
        if named.get("set_as_default", True):
            distributed.client._set_global_client(client)

    def promise(graph: dict[Any, Any], key: Any) -> Promise:
        seen.graphs.append(Planned(None, graph, frozenset([key]), 0.0, 0.0, 0.0, 0))
        seen.lines.setdefault(key, line_of_user(sys._getframe(2)))
        return Promise(key, seen)

    def submit(client: Any, function: Any, *given: Any, **named: Any) -> Promise:
        own = {name: value for name, value in named.items() if name not in _OF_SUBMIT}
        pure = named.get("pure", True)
        key = (
            named.get("key") or f"{funcname(function)}-{tokenize(function, own, *given) if pure else uuid.uuid4().hex}"
        )
        task = Task(key, function, *map(_reference, given), **{name: _reference(value) for name, value in own.items()})
        return promise({key: task}, key)

    def each(client: Any, function: Any, *iterables: Any, **named: Any) -> list[Promise]:
        key = named.pop("key", None)
        keys = key if isinstance(key, list) else None
        calls = list(zip(*iterables, strict=False))
        return [
            submit(client, function, *given, **named, **({"key": keys[place]} if keys else {}))
            for place, given in enumerate(calls)
        ]

    def scatter(client: Any, data: Any, *_: Any, **named: Any) -> Any:
        if isinstance(data, dict):
            return {name: promise({name: DataNode(name, value)}, name) for name, value in data.items()}
        many = isinstance(data, list | tuple | set)
        keys = [f"scattered-{uuid.uuid4().hex}" for _ in (data if many else [0])]
        made = [promise({k: DataNode(k, v)}, k) for k, v in zip(keys, data if many else [data], strict=True)]
        return made if many else made[0]

    def compute(client: Any, collections: Any, sync: bool = False, **named: Any) -> Any:
        many = isinstance(collections, list | tuple | set | frozenset)
        wanted = [each for each in (collections if many else [collections]) if dask.is_dask_collection(each)]
        for one in wanted:
            seen.graphs.append(planned([one]))
        if sync:
            seen.stop("Client.compute")
        made = [Promise(next(iter(flatten(one.__dask_keys__()))), seen) for one in wanted]
        return made if many else made[0]

    def persist(client: Any, collections: Any, **named: Any) -> Any:
        many = isinstance(collections, list | tuple | set)
        found = _persisted(seen, list(collections) if many else [collections])
        return found if many else found[0]

    def get(client: Any, graph: Any, keys: Any, *_: Any, sync: bool = True, **named: Any) -> Any:
        seen.graphs.append(planned(graph, keys, 0.0))
        if sync:
            seen.stop("Client.get")
        return [Promise(key, seen) for key in keys] if isinstance(keys, list) else Promise(keys, seen)

    def workers(client: Any = None, *_: Any, **named: Any) -> dict[str, int]:
        return {f"{ADDRESS}/{number}": seen.threads for number in range(seen.workers)}

    def info(client: Any, *_: Any, **named: Any) -> dict[str, Any]:
        told = {"nthreads": seen.threads, "memory_limit": int(seen.memory)}
        return {"workers": dict.fromkeys(workers(), told), "address": ADDRESS, "services": {}}

    own = {
        "__init__": begin,
        "submit": submit,
        "map": each,
        "scatter": scatter,
        "compute": compute,
        "persist": persist,
        "get": get,
        "nthreads": workers,
        "ncores": workers,
        "scheduler_info": info,
        "dashboard_link": property(lambda self: ""),
        "asynchronous": property(lambda self: False),
        "__repr__": lambda self: "<Client of a check>",
    }
    yield from ((kind, name, value) for name, value in own.items())
    yield from ((kind, *patch) for patch in _passed(kind, seen, {*own, "as_current", "current"}))
    for module in filter(None, (distributed, distributed.client, sys.modules.get("dask.distributed"))):
        for name in ("wait", "as_completed", "progress", "fire_and_forget"):
            if name in vars(module):
                yield module, name, _skip if name == "fire_and_forget" else partial(_stop, seen, name)


# Options of `submit` and `map` themselves, which are not passed to the user's function
_OF_SUBMIT = frozenset(
    name
    for method in (distributed.Client.submit, distributed.Client.map)
    for name, parameter in signature(method).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
)


def _skip(*_: Any, **named: Any) -> None: ...


def _stop(seen: Seen, name: str, *_: Any, **named: Any) -> NoReturn:
    seen.stop(name)


def _passed(kind: type, seen: Seen, own: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Replacements for the methods of a client or cluster: some do nothing, all others raise `NeedsValue`."""
    for name, value in vars(kind).items():
        if name in own:
            continue
        if name in _PASSED or name in _ENDS:
            yield name, _skip
        elif name in _SAME:
            yield name, lambda self: self
        elif isfunction(value) and not name.startswith("_"):
            yield name, _needs(seen, f"{kind.__name__}.{name}")


def _needs(seen: Seen, what: str) -> Callable[..., NoReturn]:
    def method(*_: Any, **named: Any) -> NoReturn:
        seen.stop(what)

    return method


class _Loop:
    """Stands for the event loop of a cluster that is not started."""

    loop = None

    def start(self) -> None: ...


def _of_cluster(seen: Seen) -> Iterator[Patch]:
    def begin(cluster: Any, *_: Any, **named: Any) -> None:
        cluster.status, cluster._name, cluster.worker_spec = of_clusters.Status.running, "check", {}
        cluster.new_spec, cluster._loop_runner = named.get("worker") or {}, _Loop()
        cluster.scale, cluster.sync = partial(scale, cluster), _skip  # on the object: subclasses override the methods
        for options in (vars(cluster), named, named.get("options") or {}, cluster.new_spec.get("options") or {}):
            seen.asked(dict(options))

    def scale(cluster: Any, n: int = 0, jobs: int = 0, *_: Any, cores: int = 0, **named: Any) -> None:
        seen.workers = int(n or jobs * seen.processes or math.ceil(cores / seen.threads) or seen.workers)

    for kind in (of_clusters.Cluster, SpecCluster, LocalCluster):
        own = {
            "__init__": begin,
            "scale": scale,
            "get_client": lambda self: distributed.Client(self),
            "scheduler_address": property(lambda self: ADDRESS),
            "dashboard_link": property(lambda self: ""),
            "__repr__": lambda self: "<cluster of a check>",
        }
        yield from ((kind, name, value) for name, value in own.items())
        for name, value in _passed(kind, seen, own):
            if name in (*_PASSED, *_SAME, *_ENDS):
                yield kind, name, value


def _of_collections(seen: Seen) -> Iterator[Patch]:
    """Patches that note chunks and dtypes of new collections, and the lines that make them."""
    if "dask.array" in sys.modules:
        from dask.array import Array

        new = Array.__new__

        def array(kind: Any, *given: Any, **named: Any) -> Any:
            made = new(kind, *given, **named)
            seen.made(made.name, made.chunks, made.dtype)
            return made

        yield Array, "__new__", staticmethod(array)
    for module, (name, named) in _NAMED.items():
        if kind := getattr(sys.modules.get(module), name, None):
            yield kind, "__init__", _noting(seen, kind.__init__, named)


# Classes of collections by module, and a function that gives the name in their task keys
_NAMED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "dask.bag": ("Bag", lambda made: made.name),
    "dask.delayed": ("Delayed", lambda made: made._key),
    "dask.dataframe.dask_expr._collection": ("FrameBase", lambda made: made.expr._name),
}


def _noting(seen: Seen, begin: Callable[..., None], named: Callable[[Any], Any]) -> Callable[..., None]:
    def init(self: Any, *given: Any, **others: Any) -> None:
        begin(self, *given, **others)
        seen.made(named(self))

    return init


def _reference(value: Any) -> Any:
    """The value with futures replaced by references to their tasks."""
    if isinstance(value, distributed.Future):
        return TaskRef(value.key)
    if type(value) in _NESTED and _has_future(value):
        if isinstance(value, dict):
            return Dict({name: _reference(each) for name, each in value.items()})
        return _NESTED[type(value)](*map(_reference, value))
    return value


_NESTED: dict[type, Any] = {list: List, tuple: Tuple, dict: Dict}


def _has_future(value: Any) -> bool:
    parts: Sequence[Any] = list(value.values()) if isinstance(value, dict) else value
    return any(isinstance(each, distributed.Future) or (type(each) in _NESTED and _has_future(each)) for each in parts)
