"""Calls functions on a scheduler, and on workers through it: directly, or by an existing client.

No new client is made: it could talk only to schedulers of nearly its own release, and would appear in their records.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self

from distributed import Client
from distributed.core import clean_exception, rpc
from distributed.protocol.pickle import dumps
from distributed.security import Security

from scalescope.capture.shipping import Shipment

CONNECT_S = 8.0  # longest wait for a connection, in seconds


class DirectCalls:
    """A connection to a scheduler; to be used in one thread, without a running event loop.

    `scheduler_file` was written by `dask scheduler --scheduler-file`; without `security`, Dask's configuration counts.
    """

    def __init__(self, address: str, scheduler_file: str = "", security: Security | None = None) -> None:
        if scheduler_file:
            with open(scheduler_file, encoding="utf-8") as stream:
                address = str(json.load(stream).get("address", ""))
        self.address = address
        self._arguments = (security or Security()).get_connection_args("client")
        self._runner = asyncio.Runner()
        self._scheduler: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._scheduler is not None:
            self._runner.run(self._scheduler.close_rpc())
        self._runner.close()

    def scheduler(self, shipment: Shipment, *arguments: Any, limit_s: float) -> Any:
        """Call a function that takes `dask_scheduler` on the scheduler; returns its result, or raises its error."""
        call = {"function": dumps(shipment), "args": dumps(arguments), "kwargs": dumps({}), "wait": True}
        return _result(self._runner.run(asyncio.wait_for(self._call("run_function", **call), limit_s)))

    def worker(self, worker: str, shipment: Shipment, *arguments: Any, limit_s: float) -> Any:
        """Call a function that takes `dask_worker` on a worker, through the scheduler; returns its result."""
        call = {"function": dumps(shipment), "args": dumps(arguments), "kwargs": dumps({}), "wait": True}
        asked = self._call("broadcast", msg={"op": "run", **call}, workers=[worker], on_error="raise")
        return _result(self._runner.run(asyncio.wait_for(asked, limit_s))[worker])

    async def _call(self, operation: str, **arguments: Any) -> Any:
        if self._scheduler is None:
            self._scheduler = rpc(self.address, timeout=CONNECT_S, connection_args=self._arguments)
        return await getattr(self._scheduler, operation)(**arguments)


class ClientCalls:
    """Calls by a client, from any thread except that of the client's event loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.address = str(client.scheduler.address)

    def scheduler(self, shipment: Shipment, *arguments: Any, limit_s: float) -> Any:
        return self._client.run_on_scheduler(shipment, *arguments, callback_timeout=limit_s)

    def worker(self, worker: str, shipment: Shipment, *arguments: Any, limit_s: float) -> Any:
        return self._client.run(shipment, *arguments, workers=[worker], callback_timeout=limit_s)[worker]


def _result(response: Any) -> Any:
    if response["status"] == "error":
        _, error, trace = clean_exception(**response)
        raise (error or RuntimeError("the function raised an error that could not be sent back")).with_traceback(trace)
    return response["result"]
