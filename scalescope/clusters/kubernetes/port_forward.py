"""Reaches a port of a pod from outside Kubernetes, through a websocket of the API server.

kr8s 0.20 can do this, too, but has two faults: if the pod is gone, it reconnects forever without a pause; after an
answer 401 or 403, it closes its HTTP session and so all its websockets. Here each connection has its own session, so an
open connection outlasts the credentials that opened it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import httpx_ws

_BLOCK = 2**20  # bytes read at a time
_REFUSED = (401, 403)  # HTTP statuses of refused credentials
_ERRORS = 1  # channel of errors; data have channel 0

_logger = logging.getLogger(__name__)


@asynccontextmanager
async def forwarded(api: Any, namespace: str, pod: str, port: int, patience_s: float) -> AsyncIterator[int]:
    """A port on this machine's loopback device that leads to a port of a pod; `api` is a kr8s API on this event loop.

    Connections survive a silence of the API server of up to `patience_s` seconds.
    """

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with _opened(
                api, f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward", port, patience_s
            ) as socket:
                ways = [asyncio.ensure_future(way) for way in (_send(reader, socket), _receive(socket, writer))]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
                for end in await asyncio.gather(*ways, return_exceptions=True):
                    _logger.debug("a connection to %s ends: %r", pod, end)
        except (OSError, httpx.HTTPError, httpx_ws.HTTPXWSException) as error:
            _logger.debug("no connection to %s: %r", pod, error)
        except asyncio.CancelledError:  # the event loop ends; asyncio would log an error
            return
        finally:
            writer.close()

    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def _opened(api: Any, url: str, port: int, patience_s: float) -> AsyncIterator[Any]:
    """A websocket in its own HTTP session; fetches new credentials if the server refuses the current ones."""
    for is_last in (False, True):
        auth = api.auth
        headers = {"Authorization": f"Bearer {auth.token}"} if auth.token else {}
        options: dict[str, Any] = {"params": {"ports": str(port)}, "keepalive_ping_timeout_seconds": patience_s}
        if auth.tls_server_name:
            options["extensions"] = {"sni_hostname": auth.tls_server_name}
        async with AsyncExitStack() as stack:
            client = httpx.AsyncClient(
                base_url=auth.server, headers=headers, verify=await auth.ssl_context(), proxy=auth.proxy
            )
            await stack.enter_async_context(client)
            try:
                socket = await stack.enter_async_context(httpx_ws.aconnect_ws(url, client, **options))
            except httpx_ws.WebSocketUpgradeError as error:
                if is_last or error.response.status_code not in _REFUSED:
                    raise
                await auth.reauthenticate()
                continue
            yield socket
            return


async def _send(reader: asyncio.StreamReader, socket: Any) -> None:
    while data := await reader.read(_BLOCK):
        await socket.send_bytes(b"\0" + data)


async def _receive(socket: Any, writer: asyncio.StreamWriter) -> None:
    opened: set[int] = set()
    while True:
        message = await socket.receive_bytes()
        channel = message[0]
        if channel not in opened:  # the first message of a channel is the port's number
            opened.add(channel)
        elif channel == _ERRORS:
            raise ConnectionError(message[1:].decode(errors="replace"))
        else:
            writer.write(message[1:])
            await writer.drain()
