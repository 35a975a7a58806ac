"""Makes distributed wait for the simulated links wherever it moves data.

- `Worker.get_data` sends results to another worker, and to a client directly or through the scheduler.
- The remote calls in `CALLS` send scattered data and shards of peer-to-peer shuffles; `replay` sends shards by `echo`.
- A client sends graphs to the scheduler, in its stream of messages.

All clients share a host. Other messages, and data inside tasks from the scheduler to workers, take no time.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import distributed.worker
from distributed.core import PooledRPCCall, Status
from distributed.protocol.serialize import Serialize
from distributed.sizeof import sizeof

from scalescope.clusters import light_workers
from scalescope.clusters.simulated.links import Links
from scalescope.model.large_part import graph_bytes

CLIENT = "client"
CALLS = ("scatter", "update_data", "shuffle_receive", "echo")


class _Comm:
    """A connection that waits for the links before it writes or after it reads."""

    def __init__(self, comm: Any, carry: Callable[..., Awaitable[None]]) -> None:
        self._comm, self._carry = comm, carry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)


class _Sending(_Comm):
    peer_address = "tcp://elsewhere:0"  # a foreign host: distributed allows twice as many transfers on one host

    async def write(self, message: Any, *args: Any, **kwargs: Any) -> Any:
        await self._carry(message)
        return await self._comm.write(message, *args, **kwargs)


class _Receiving(_Comm):
    async def read(self, *args: Any, **kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        asked = loop.time()
        message = await self._comm.read(*args, **kwargs)
        await self._carry(message, follows=loop.time() == asked)
        return message


class _Handover:
    """Used in place of a connection between workers of one process; keeps what was written as `message`."""

    message: Any = None

    async def write(self, message: Any, *args: Any, **kwargs: Any) -> None:
        self.message = {**message, "data": {key: _unwrapped(value) for key, value in message["data"].items()}}

    async def read(self, *args: Any, **kwargs: Any) -> str:
        return "OK"


class LinkedWorker(light_workers.LightWorker):
    """A worker whose results take time to arrive, and count as outgoing until then."""

    links: Links | None = None

    async def get_data(self, comm: Any, keys: Collection[Any], who: str | None = None, **kwargs: Any) -> Any:
        links = self.links

        async def carry(message: Any) -> None:
            assert links is not None
            sizes = [self.state.tasks[key].nbytes or 0 for key in message["data"]]
            await links.transfer(self.address, who or CLIENT, sum(sizes))

        return await super().get_data(comm if links is None else _Sending(comm, carry), keys, who=who, **kwargs)


class LinkedScheduler(light_workers.LightScheduler):
    """A scheduler for which incoming graphs and outgoing results take time."""

    links: Links | None = None

    async def add_client(self, comm: Any, client: str, versions: dict[str, Any]) -> None:
        links = self.links

        async def carry(messages: Any, *, follows: bool) -> None:
            assert links is not None
            sent = messages if isinstance(messages, list | tuple) else ()
            graphs = [message for message in sent if type(message) is dict and message.get("op") == "update-graph"]
            if graphs:
                await links.transfer(CLIENT, self.address, sum(map(graph_bytes, graphs)), follows=follows)

        await super().add_client(comm if links is None else _Receiving(comm, carry), client, versions)

    async def gather(self, keys: Collection[Any], serializers: list[str] | None = None) -> dict[Any, Any]:
        keys = list(keys)
        answer: dict[Any, Any] = await super().gather(keys, serializers)
        if self.links is not None and answer["status"] == "OK":
            tasks = [task for task in map(self.tasks.get, keys) if task is not None]
            await self.links.transfer(self.address, CLIENT, sum(task.get_nbytes() for task in tasks))
        return answer


@contextmanager
def linked(links: Links, workers: Mapping[str, LinkedWorker]) -> Iterator[None]:
    """Make workers know who asks for their results, and make remote calls with data wait for the links.

    The workers (by address) hand over their results without a connection, because to open one and pass four messages
    would take more CPU than all other steps of a transfer here.
    """
    ask, remote = distributed.worker.get_data_from_worker, PooledRPCCall.__getattr__

    async def asking(rpc: Any, keys: Any, worker: str, *, who: str | None = None, **kwargs: Any) -> Any:
        who, peer = who or _owner(rpc), workers.get(worker)
        if peer is None or peer.status is not Status.running:
            return await ask(rpc, keys, worker, who=who, **kwargs)
        handover = _Handover()
        # In a new context, so that times measured by the sending worker are not counted for the requesting worker.
        asked = contextvars.Context().run(asyncio.ensure_future, peer.get_data(handover, keys, who=who))
        answer = await asked
        return answer if isinstance(answer, dict) else handover.message  # "busy" is returned, not written

    def remote_call(self: Any, name: str) -> Any:
        call = remote(self, name)
        if name not in CALLS:
            return call

        async def carrying(**kwargs: Any) -> Any:
            if "data" in kwargs:
                await links.transfer(_owner(self.pool), self.addr, _data_bytes(kwargs["data"]))
            return await call(**kwargs)

        return carrying

    distributed.worker.get_data_from_worker = asking
    PooledRPCCall.__getattr__ = remote_call
    try:
        yield
    finally:
        distributed.worker.get_data_from_worker = ask
        PooledRPCCall.__getattr__ = remote


def _owner(rpc: Any) -> str:
    """Address of the worker or scheduler that owns a pool of connections; `CLIENT` if a client owns it."""
    server = None if rpc.server is None else rpc.server()  # a client has no server
    return str(getattr(server, "address", CLIENT))


def _data_bytes(data: Any) -> int:
    """Size in bytes of scattered values by key, of numbered shards, or of one packed value."""
    data = _unwrapped(data)
    parts = data.values() if isinstance(data, dict) else [part for _, part in data] if type(data) is list else [data]
    return sum(sizeof(_unwrapped(part)) for part in parts)


def _unwrapped(value: Any) -> Any:
    return value.data if isinstance(value, Serialize) else value
