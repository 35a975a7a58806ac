"""Where distributed moves data: each place waits for the links.

- Results go from worker to worker, and to a client through the scheduler or directly, by `Worker.get_data`.
- Scattered data, and shards of peer-to-peer shuffles, go by the remote calls in `CALLS`; those of `replay` by `echo`.
- Graphs go from a client to the scheduler, in its stream of messages.

All clients share a host. Other messages, and what tasks carry from the scheduler to workers, take no time.
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
    peer_address = (
        "tcp://elsewhere:0"  # by its own address it is on the same host, which may ask twice as often at once
    )

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
    """In place of a connection, as workers of one process can do without: what is written is there to be taken."""

    message: Any = None

    async def write(self, message: Any, *args: Any, **kwargs: Any) -> None:
        self.message = {**message, "data": {key: _unwrapped(value) for key, value in message["data"].items()}}

    async def read(self, *args: Any, **kwargs: Any) -> str:
        return "OK"


class LinkedWorker(light_workers.LightWorker):
    """A worker whose results take time to arrive, while they count as outgoing."""

    links: Links | None = None

    async def get_data(self, comm: Any, keys: Collection[Any], who: str | None = None, **kwargs: Any) -> Any:
        links = self.links

        async def carry(message: Any) -> None:
            assert links is not None
            sizes = [self.state.tasks[key].nbytes or 0 for key in message["data"]]
            await links.transfer(self.address, who or CLIENT, sum(sizes))

        return await super().get_data(comm if links is None else _Sending(comm, carry), keys, who=who, **kwargs)


class LinkedScheduler(light_workers.LightScheduler):
    """A scheduler to which graphs, and from which results, take time to travel."""

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
    """Let workers know who asks for their results, and let remote calls with data wait for the links.

    The workers, by address, hand their results over without a connection: to make one, and to pass four messages on it,
    takes longer than all else that a transfer does here.
    """
    ask, remote = distributed.worker.get_data_from_worker, PooledRPCCall.__getattr__

    async def asking(rpc: Any, keys: Any, worker: str, *, who: str | None = None, **kwargs: Any) -> Any:
        who, peer = who or _owner(rpc), workers.get(worker)
        if peer is None or peer.status is not Status.running:
            return await ask(rpc, keys, worker, who=who, **kwargs)
        handover = _Handover()
        # A worker that is asked measures what it does, and the one that asks does not count that as its own.
        asked = contextvars.Context().run(asyncio.ensure_future, peer.get_data(handover, keys, who=who))
        answer = await asked
        return answer if isinstance(answer, dict) else handover.message  # it returns what it does not write: "busy"

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
    """The host of a pool of connections: that of its worker or scheduler, else the clients'."""
    server = None if rpc.server is None else rpc.server()  # or a client, which has no address
    return str(getattr(server, "address", CLIENT))


def _data_bytes(data: Any) -> int:
    """Bytes of scattered values by key, or of numbered shards, or of one packed value."""
    data = _unwrapped(data)
    parts = data.values() if isinstance(data, dict) else [part for _, part in data] if type(data) is list else [data]
    return sum(sizeof(_unwrapped(part)) for part in parts)


def _unwrapped(value: Any) -> Any:
    return value.data if isinstance(value, Serialize) else value
