"""Dask's connections over the loopback device, between processes of one user; other users of the machine are refused.

Whoever reaches a scheduler or a worker can run code as its user, and every user of the machine reaches its loopback
device. The kernel says whose a connection is before a byte of it is read, so that nothing has to be kept secret, a
client needs no more than the address, and no message costs anything.
"""

from __future__ import annotations

import functools
import ipaddress
import logging
import os
import socket
import struct
from typing import Any

from distributed.comm import CommClosedError
from distributed.comm.registry import backends
from distributed.comm.tcp import TCPBackend, TCPConnector, TCPListener

_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _ALL_STATES = 4, 20, 1, 0xFFFFFFFF
_ESTABLISHED, _LISTEN = 1, 10
_REQUEST = struct.Struct("=IHHII BBBBI 2s2s16s16sI8s")
"""`nlmsghdr` and `inet_diag_req_v2`: see sock_diag(7)."""
_ANSWER = struct.Struct("=IHHII BBBB48s III II")
"""`nlmsghdr` and `inet_diag_msg`; the last two are user and inode."""

_logger = logging.getLogger(__name__)


@functools.cache
def install() -> bool:
    """Refuse other users from now on in this process; to be called before anything listens.

    Returns:
        Whether this system says whose a connection is. Where it does not, nobody is refused, and the log says so.
    """
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as mine:
        theirs, _ = server.accept()
        with theirs:
            known = _ours(theirs, _ESTABLISHED) and _ours(mine, _LISTEN)
    if known:
        backends["tcp"] = _Backend()
    else:
        _logger.warning("other users of this machine can reach this cluster: the system does not say whose is what")
    return known


def words() -> str:
    """Who can connect, for the facts of a cluster."""
    return "other users refused" if install() else "open to other users of the machine"


def _ours(connection: socket.socket, state: int) -> bool:
    """Whether a loopback connection leads to a process of this user.

    Args:
        connection: Not read from yet.
        state: What is asked for at its other end: the connection (`_ESTABLISHED`), or the socket that listens there
            (`_LISTEN`), for a connection that nobody has accepted yet is nobody's.
    """
    try:
        here, there = connection.getsockname()[:2], connection.getpeername()[:2]
        if not any(ipaddress.ip_address(host).is_loopback for host, _ in (here, there)):
            return True
        owner = _owner(connection.family, there, here if state == _ESTABLISHED else ("", 0), state)
        # Were it closed by now, another could have taken its place meanwhile.
        still = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED
    except (OSError, AttributeError, ValueError):  # closed; or not Linux, or a kernel or sandbox without sock_diag(7)
        return False
    return still and owner == os.geteuid()


def _owner(family: int, end: tuple[str, int], other: tuple[str, int], state: int) -> int | None:
    """The user of a TCP socket of this machine, if it is there and in this state."""
    host, to = (socket.inet_pton(family, name) if name else b"" for name, _ in (end, other))
    ports = [struct.pack(">H", port) for _, port in (end, other)]
    header = (_REQUEST.size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0)
    query = (family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES, *ports, host, to, 0, b"\xff" * 8)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.send(_REQUEST.pack(*header, *query))
        answer = kernel.recv(4096)
    _, kind, _, _, _, *said = _ANSWER.unpack_from(answer.ljust(_ANSWER.size, b"\0"))
    found, user, inode = said[1], *said[-2:]
    return user if kind == _SOCK_DIAG_BY_FAMILY and found == state and inode else None


class _Connector(TCPConnector):  # type: ignore[misc]
    async def connect(self, address: str, *args: Any, **kwargs: Any) -> Any:
        comm = await super().connect(address, *args, **kwargs)
        if not _ours(comm.stream.socket, _LISTEN):
            comm.abort()
            raise CommClosedError(f"{address} is not listened on by a process of this user")
        return comm


class _Listener(TCPListener):  # type: ignore[misc]
    async def _prepare_stream(self, stream: Any, address: str) -> Any:
        if _ours(stream.socket, _ESTABLISHED):
            return stream
        _logger.warning("refused a connection from %s: it is not of a process of this user, or closed", address)
        stream.close()
        return None


class _Backend(TCPBackend):  # type: ignore[misc]
    _connector_class = _Connector
    _listener_class = _Listener
