"""A forwarded port outlives the credentials with which it was opened, and requests new ones."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import tornado.httpserver
import tornado.netutil
import tornado.web
import tornado.websocket

from scalescope.clusters.kubernetes.port_forward import forwarded

VALID: set[str] = set()


class Forward(tornado.websocket.WebSocketHandler):
    """Answers as the API server does: the port's number on each channel, then what it was sent."""

    def prepare(self) -> None:
        if self.request.headers.get("Authorization") not in VALID:
            raise tornado.web.HTTPError(401)

    def open(self, *args: str, **kwargs: str) -> None:
        for channel in (b"\0", b"\1"):
            self.write_message(channel + b"\x22\x52", binary=True)

    def on_message(self, message: str | bytes) -> None:
        self.write_message(message, binary=True)


class Auth:
    """Credentials of kr8s, from an exec plugin that gives another token each time."""

    token, tls_server_name, proxy = "1", None, None

    def __init__(self, server: str) -> None:
        self.server = server

    async def ssl_context(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    async def reauthenticate(self) -> None:
        self.token = str(int(self.token) + 1)


async def echo(port: int, text: bytes) -> tuple[bytes, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    return await asyncio.wait_for(reader.read(len(text)), 20), (reader, writer)


def test_expired_tokens_of_a_port_forward_are_renewed_and_open_connections_stay() -> None:
    async def main() -> None:
        server = tornado.httpserver.HTTPServer(tornado.web.Application([("/.*", Forward)]))
        (socket,) = tornado.netutil.bind_sockets(0, "127.0.0.1")
        server.add_socket(socket)
        api = type("Api", (), {"auth": Auth(f"http://127.0.0.1:{socket.getsockname()[1]}")})()
        VALID.add("Bearer 2")
        async with forwarded(api, "team", "pod", 8786, 60.0) as port:
            said, (reader, writer) = await echo(port, b"first")
            assert (said, api.auth.token) == (b"first", "2")
            VALID.clear()
            VALID.add("Bearer 3")
            said, (_, other) = await echo(port, b"second")
            assert (said, api.auth.token) == (b"second", "3")
            writer.write(b"still")  # the first token has ended
            assert await asyncio.wait_for(reader.read(5), 20) == b"still"
            VALID.clear()
            said, (_, last) = await echo(port, b"x")
            assert said == b""  # refused twice: the connection ends
            for each in (writer, other, last):
                each.close()
        server.stop()

    asyncio.run(main())
