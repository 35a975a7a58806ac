"""Protects the processes of a cluster on this machine: other users cannot connect, and children end with their parent.

Whoever can connect to a scheduler or a worker can run code as its user, and every user of the machine can connect over
the loopback device. The kernel tells the user of a connection before its first byte is read, so no secret is needed.
"""

from __future__ import annotations

import ctypes
import functools
import ipaddress
import logging
import os
import signal
import socket
import struct
import sys
from typing import Any

from distributed.comm import CommClosedError
from distributed.comm.registry import backends
from distributed.comm.tcp import TCPBackend, TCPConnector, TCPListener

_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _ALL_STATES = 4, 20, 1, 0xFFFFFFFF
_ESTABLISHED, _LISTEN = 1, 10
_REQUEST = struct.Struct("=IHHII BBBBI 2s2s16s16sI8s")  # `nlmsghdr` and `inet_diag_req_v2`: see sock_diag(7)
_ANSWER = struct.Struct("=IHHII BBBB48s III II")  # `nlmsghdr` and `inet_diag_msg`; the last two are user and inode
_PR_SET_PDEATHSIG = 1

_logger = logging.getLogger(__name__)


def end_with_parent() -> None:
    """Make the kernel kill this process when its parent dies (Linux only; see prctl(2)).

    distributed watches the nanny from a thread, which cannot run while a task holds the interpreter lock.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")


@functools.cache
def refuse_other_users() -> bool:
    """Refuse connections from other users in this process; call this before anything listens.

    Returns False, and refuses nobody, if the system does not tell the user of a connection.
    """
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as mine:
        theirs, _ = server.accept()
        with theirs:
            known = _ours(theirs, _ESTABLISHED) and _ours(mine, _LISTEN)
    if known:
        backends["tcp"] = _Backend()
    else:
        _logger.warning("other users of this machine can use this cluster: the system does not say who connects")
    return known


def words() -> str:
    """Sentence part for the facts of a cluster: whether other users are refused."""
    return "other users refused" if refuse_other_users() else "open to other users of the machine"


def _ours(connection: socket.socket, state: int) -> bool:
    """Whether a connection is allowed: its other end is a process of this user, or it is not over loopback.

    `state`: `_ESTABLISHED` asks for the owner of the other end; `_LISTEN` for the owner of the listening socket,
    because a connection that is not yet accepted has no owner.
    """
    try:
        here, there = connection.getsockname()[:2], connection.getpeername()[:2]
        if not any(ipaddress.ip_address(host).is_loopback for host, _ in (here, there)):
            return True
        owner = _owner(connection.family, there, here if state == _ESTABLISHED else ("", 0), state)
        # If the connection has closed, another connection may have taken its ports.
        still = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED
    except (OSError, AttributeError, ValueError):  # closed; or not Linux, or a kernel or sandbox without sock_diag(7)
        return False
    return still and owner == os.geteuid()


def _owner(family: int, end: tuple[str, int], other: tuple[str, int], state: int) -> int | None:
    """Id of the user of a TCP socket of this machine; None if there is no such socket in this state."""
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
            raise CommClosedError(f"no process of this user listens on {address}")
        return comm


class _Listener(TCPListener):  # type: ignore[misc]
    async def _prepare_stream(self, stream: Any, address: str) -> Any:
        if _ours(stream.socket, _ESTABLISHED):
            return stream
        _logger.warning("refused a connection from %s: it belongs to another user, or is closed", address)
        stream.close()
        return None


class _Backend(TCPBackend):  # type: ignore[misc]
    _connector_class = _Connector
    _listener_class = _Listener
