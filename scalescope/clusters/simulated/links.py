"""Links between the hosts of a simulated cluster, over which data takes virtual time.

Each host has a link in and a link out; all workers' links have the same bandwidth. A transfer is a sequence: the sender
packs, the latency passes, the bytes pass the sender's link out and the receiver's link in, the receiver unpacks.
Simultaneous transfers share links in max-min fairness, by weights from 0.5 to 1.5. As with TCP, transfers that begin
together do not end together, and the first receivers can send data on. A host packs and unpacks one transfer at a time,
and a worker's event loop also spends time on each. The first transfer between two hosts opens a connection: it doubles
the latency and the event loop's time. (Over TLS, small transfers took 84 ms at first and 42 ms later: medians of 77
trials.)
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable

GOLDEN = (math.sqrt(5) - 1) / 2  # multiples of this, modulo 1, are spread evenly from 0 to 1
ROUNDING = 1e-9  # rates count as equal within this share, and ends of transfers within this many seconds
SMALL = 0.1  # transfers that would alone take less than this share of the latency take no bandwidth from others


class Link:
    """One direction of a host's connection."""

    __slots__ = ("capacity", "changed", "flows", "level")

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity  # bytes a second
        self.flows: dict[Flow, Link] = {}  # each flow on this link, and its other link; in order of arrival
        self.level = math.inf  # bytes a second that this link allows each of its flows of weight 1
        self.changed = False  # True if the level has to be computed again


class Flow:
    """Bytes on their way over two links."""

    __slots__ = ("end", "left", "links", "passed", "rate", "share", "since", "weight")

    def __init__(
        self,
        out: Link,
        into: Link,
        nbytes: float = 0.0,
        passed: Callable[[float], object] = lambda now: None,
        weight: float = 1.0,
    ) -> None:
        self.weight = weight  # weight of the flow in the shares of its links
        self.links = (out, into)
        self.share = 0.0  # bytes a second, set by `FairShares`
        # Bytes left at the time `since`, bytes a second from then on, and time of the end; times in virtual seconds.
        self.left, self.rate, self.since, self.end = nbytes, 0.0, 0.0, math.inf
        self.passed = passed  # called with the time at which all bytes have passed


class FairShares:
    """Max-min fair shares of flows over links, by the weights of the flows.

    A flow gets the lower of its two links' levels, times its weight. A link's level is the rate that it leaves to each
    flow of weight 1 whose other link does not limit it. If a flow comes or goes, new levels spread only to links of
    flows whose share changed.
    """

    def __init__(self) -> None:
        self._changed: deque[Link] = deque()

    def add(self, flow: Flow) -> None:
        out, into = flow.links
        out.flows[flow], into.flows[flow] = into, out
        self._change(out)
        self._change(into)

    def remove(self, flow: Flow) -> None:
        for link in flow.links:
            del link.flows[flow]
            self._change(link)

    def settle(self) -> list[Flow]:
        """Bring all shares up to date; returns the flows whose share changed."""
        touched: dict[Flow, None] = {}
        while self._changed:
            link = self._changed.popleft()
            link.changed = False
            link.level = level = self._level(link)
            for flow, other in link.flows.items():
                share = flow.weight * min(level, other.level)
                if not math.isclose(share, flow.share, rel_tol=ROUNDING):
                    flow.share = share
                    touched[flow] = None
                    self._change(other)
        return list(touched)

    def _change(self, link: Link) -> None:
        if not link.changed:
            link.changed = True
            self._changed.append(link)

    def _level(self, link: Link) -> float:
        left, count = link.capacity, math.fsum(flow.weight for flow in link.flows)
        for level, weight in sorted((other.level, flow.weight) for flow, other in link.flows.items()):
            if level * count >= left:
                return left / count
            left -= level * weight
            count -= weight
        return math.inf


class Host:
    """The links of one host, and its CPU."""

    __slots__ = ("busy_until", "cpu_s", "into", "out")

    def __init__(self, capacity: float) -> None:
        self.out, self.into = Link(capacity), Link(capacity)
        self.cpu_s = 0.0  # CPU seconds used until `busy_until`
        self.busy_until = 0.0

    def compute(self, now: float, seconds: float) -> float:
        """Use the CPU for `seconds`, from now or once it is free; return the end."""
        self.cpu_s += seconds
        self.busy_until = max(now, self.busy_until) + seconds
        return self.busy_until


class Links:
    """The hosts of a cluster and the transfers between them, on the event loop of the virtual clock."""

    def __init__(
        self,
        bytes_per_s: float,
        latency_s: float,
        cpu_s_per_byte: float,
        message_s: float = 0.0,
        others_bytes_per_s: float | None = None,
    ) -> None:
        self._bytes_per_s, self._latency_s, self._cpu_s_per_byte = bytes_per_s, latency_s, cpu_s_per_byte
        # Bandwidth of hosts other than workers; if given, it includes the time for packing.
        self._others_bytes_per_s = bytes_per_s if others_bytes_per_s is None else others_bytes_per_s
        self._others_cpu_s_per_byte = cpu_s_per_byte if others_bytes_per_s is None else 0.0
        self._message_s = message_s  # seconds of a worker's event loop for each transfer
        self.others: tuple[str, ...] = ()  # addresses of hosts other than workers
        self.restart()

    def restart(self) -> None:
        """Forget all hosts, because the time begins at 0 again."""
        self._hosts: dict[str, Host] = {}
        self._connected: set[tuple[str, str]] = set()
        self._shares = FairShares()
        self._weight = 0.0
        self._ends: list[tuple[float, int, Flow]] = []  # heap of ends of flows; outdated ends stay in it
        self._serial = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._settling = False

    def cpu_s(self, address: str, now: float) -> float:
        """CPU seconds that the host at this address has spent so far."""
        host = self._hosts.get(address)
        return 0.0 if host is None else host.cpu_s - max(host.busy_until - now, 0.0)

    def hold(self, address: str, now: float, seconds: float) -> float:
        """Occupy this host's CPU for `seconds`; return the seconds from now until that is done."""
        return self._host(address).compute(now, seconds) - now

    async def transfer(self, source: str, target: str, nbytes: int, *, follows: bool = False) -> None:
        """Return when the bytes have arrived; no latency is charged if they follow others in one stream."""
        if source == target:
            return
        sender, receiver = self._host(source), self._host(target)
        loop = asyncio.get_running_loop()
        now, alone_s = loop.time(), nbytes / min(sender.out.capacity, receiver.into.capacity)
        times = 2 if not follows and self._connects(source, target) else 1
        packing_s, unpacking_s = (
            nbytes * self._others_cpu_s_per_byte
            if host in self.others
            else nbytes * self._cpu_s_per_byte + times * self._message_s
            for host in (source, target)
        )
        sent = sender.compute(now, packing_s) + (0.0 if follows else times * self._latency_s)
        if alone_s < SMALL * self._latency_s:
            await asyncio.sleep(max(sent + alone_s + unpacking_s, receiver.compute(now, unpacking_s)) - now)
            return
        arrived: asyncio.Future[None] = loop.create_future()  # one per transfer: resuming coroutines is costly

        def unpack(passed: float) -> None:
            loop.call_at(receiver.compute(passed, unpacking_s), _arrive, arrived)

        self._weight = (self._weight + GOLDEN) % 1
        flow = Flow(sender.out, receiver.into, nbytes, unpack, 0.5 + self._weight)
        begins = loop.call_at(sent, self._begin, flow, loop)
        try:
            await arrived
        except asyncio.CancelledError:
            begins.cancel()
            if flow in sender.out.flows:
                self._end(flow)
                self._settle_soon(loop)
            raise

    def _connects(self, source: str, target: str) -> bool:
        """Note a connection; return whether it is new. Clients always have one to the scheduler."""
        if (source, target) in self._connected or (source in self.others and target in self.others):
            return False
        self._connected.add((source, target))
        return True

    def _host(self, address: str) -> Host:
        host = self._hosts.get(address)
        if host is None:
            host = self._hosts[address] = Host(
                self._others_bytes_per_s if address in self.others else self._bytes_per_s
            )
        return host

    def _begin(self, flow: Flow, loop: asyncio.AbstractEventLoop) -> None:
        flow.since = loop.time()
        self._shares.add(flow)
        self._settle_soon(loop)

    def _end(self, flow: Flow) -> None:
        flow.end = math.nan
        self._shares.remove(flow)

    def _settle_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Settle once for all flows that come or go at one instant."""
        if not self._settling:
            self._settling = True
            loop.call_soon(self._settle, loop)

    def _settle(self, loop: asyncio.AbstractEventLoop) -> None:
        self._settling, now = False, loop.time()
        while self._ends and (self._ends[0][0] <= now + ROUNDING or self._ends[0][0] != self._ends[0][2].end):
            end, _, flow = heapq.heappop(self._ends)
            if end == flow.end:
                self._end(flow)
                flow.passed(now)
        for flow in self._shares.settle():
            flow.left = max(flow.left - flow.rate * (now - flow.since), 0.0)
            flow.rate, flow.since = flow.share, now
            flow.end = now + flow.left / flow.rate
            heapq.heappush(self._ends, (flow.end, next(self._serial), flow))
        if self._ends and (self._timer is None or self._timer.when() > self._ends[0][0]):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(self._ends[0][0], self._due, loop)

    def _due(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None  # the loop may call this a nanosecond early
        self._settle(loop)


def _arrive(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():  # the future may have been cancelled
        arrived.set_result(None)
