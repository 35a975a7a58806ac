"""Fair shares of links, and bandwidths as people write them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.worker import thread_state
from hypothesis import given
from hypothesis import strategies as st

from scalescope.clusters.simulated import cluster
from scalescope.clusters.simulated.links import FairShares, Flow, Link, Links
from scalescope.clusters.simulated.spec import SimulatedSpec, bytes_per_second
from scalescope.errors import InvalidField

CAPACITY = 100.0
NEARLY = 1 + 1e-6
PAIRS = st.tuples(st.integers(0, 6), st.integers(0, 6))


class Network:
    """Flows between seven hosts."""

    def __init__(self) -> None:
        self.out, self.into = [Link(CAPACITY) for _ in range(7)], [Link(CAPACITY) for _ in range(7)]
        self.shares, self.flows = FairShares(), list[Flow]()

    def add(self, *pairs: tuple[int, int]) -> None:
        for source, target in pairs:
            self.flows.append(Flow(self.out[source], self.into[target]))
            self.shares.add(self.flows[-1])

    def remove(self, place: int) -> None:
        self.shares.remove(self.flows.pop(place % len(self.flows)))

    def settled(self) -> list[float]:
        self.shares.settle()
        return [flow.share for flow in self.flows]


@pytest.mark.parametrize(
    ("pairs", "shares"),
    [
        ([(0, 1)], [100]),
        ([(0, 1), (1, 0)], [100, 100]),  # each way has its own link
        ([(0, 1), (0, 2)], [50, 50]),
        ([(1, 0), (2, 0), (3, 0), (4, 0)], [25, 25, 25, 25]),
        ([(0, 1), (0, 2), (3, 2), (4, 2), (5, 2)], [75, 25, 25, 25, 25]),  # what one link refuses, the other gives away
    ],
)
def test_concurrent_flows_share_their_links_fairly(pairs: Sequence[tuple[int, int]], shares: list[float]) -> None:
    network = Network()
    network.add(*pairs)
    assert network.settled() == pytest.approx(shares)


def test_a_flow_of_three_times_the_weight_gets_three_times_the_share() -> None:
    network = Network()
    flows = [Flow(network.out[0], network.into[i], weight=weight) for i, weight in ((1, 0.5), (2, 1.5))]
    for flow in flows:
        network.shares.add(flow)
    network.shares.settle()
    assert [flow.share for flow in flows] == pytest.approx([25, 75])


def test_the_share_of_a_finished_flow_goes_to_the_others() -> None:
    network = Network()
    network.add((0, 1), (0, 2))
    assert network.settled() == [50, 50]
    network.remove(0)
    assert network.settled() == [100]


@given(st.lists(st.one_of(st.lists(PAIRS, min_size=1, max_size=8), st.integers(0, 100)), max_size=20))
def test_shares_stay_max_min_fair_when_flows_come_and_go(changes: list[list[tuple[int, int]] | int]) -> None:
    """No link exceeds its capacity, and each flow has a full link on which no other flow has a larger share."""
    network = Network()
    for change in changes:
        if isinstance(change, list):
            network.add(*change)
        elif network.flows:
            network.remove(change)
        network.settled()
        used = {link: sum(flow.share for flow in link.flows) for link in (*network.out, *network.into)}
        assert max(used.values()) <= CAPACITY * NEARLY
        for flow in network.flows:
            assert any(
                used[link] * NEARLY >= CAPACITY and flow.share * NEARLY >= max(other.share for other in link.flows)
                for link in flow.links
            )


@given(st.lists(PAIRS, min_size=1, max_size=20), st.randoms())
def test_shares_do_not_depend_on_the_order_in_which_flows_came(pairs: list[tuple[int, int]], random: Any) -> None:
    first, second = Network(), Network()
    first.add(*pairs)
    first.settled()
    shuffled = random.sample(pairs, len(pairs))
    for pair in shuffled:
        second.add(pair)
        second.settled()
    assert sorted(first.settled()) == pytest.approx(sorted(second.settled()))


def test_a_cancelled_transfer_frees_its_links() -> None:
    async def main() -> list[int]:
        links = Links(1e6, 0.0, 0.0)
        transfer = asyncio.create_task(links.transfer("a", "b", 100_000_000))
        await asyncio.sleep(0.01)
        used = [len(links._host("a").out.flows)]
        transfer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await transfer
        return [*used, len(links._host("a").out.flows), len(links._host("b").into.flows)]

    assert asyncio.run(main()) == [1, 0, 0]


@pytest.mark.parametrize(("others", "seconds"), [(None, 0.1), (4e6, 0.05), (1e6, 0.2), (math.inf, 0.05)])
def test_clients_have_a_link_of_their_own_beside_those_of_workers(others: float | None, seconds: float) -> None:
    """Two workers of 2 MB/s send 100 kB each to a client at once."""

    async def main() -> float:
        links = Links(2e6, 0.0, 0.0, others_bytes_per_s=others)
        links.others = ("client",)
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*[links.transfer(worker, "client", 100_000) for worker in "ab"])
        return asyncio.get_running_loop().time() - began

    assert seconds - 0.002 <= asyncio.run(main()) < seconds + 1  # as long as the loop of a busy host may take


def test_a_workers_event_loop_takes_one_transfer_after_another() -> None:
    async def main() -> tuple[list[float], float]:
        links = Links(1e12, 0.001, 0.0, 0.002)
        links.others = ("client",)
        began, ended = asyncio.get_running_loop().time(), []

        async def transfer(source: str, target: str) -> None:
            await links.transfer(source, target, 1)
            ended.append(asyncio.get_running_loop().time() - began)

        await asyncio.gather(transfer("w1", "client"), *[transfer(f"w{i}", "w0") for i in range(1, 5)])
        now = asyncio.get_running_loop().time()
        return ended, links.cpu_s("client", now) + links.cpu_s("w0", now)

    ended, charged_s = asyncio.run(main())
    assert ended[-1] >= 4 * 2 * 0.002  # twice each: these are their first ones
    assert charged_s == pytest.approx(4 * 2 * 0.002)


def test_a_connection_is_made_once_for_each_direction() -> None:
    async def main() -> list[float]:
        links, used = Links(1e12, 0.0, 0.0, 0.001), []
        links.others = ("client", "scheduler")
        for source, target in ("ab", "ab", "ba", ("scheduler", "b"), ("scheduler", "b")):
            await links.transfer(source, target, 1)
            used.append(round(1e3 * links._host("b").cpu_s))
        return used

    assert asyncio.run(main()) == [2, 3, 5, 7, 8]


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("25Gbit", 25e9 / 8),
        ("200Mbit", 25e6),
        ("200 Mbit/s", 25e6),
        ("1.2GB", 1.2e9),
        ("500MiB", 500 * 2**20),
        ("8bit", 1.0),
        ("64KiB", 65536.0),
        ("inf", math.inf),
    ],
)
def test_bandwidths_are_read_with_their_units(text: str, rate: float) -> None:
    assert bytes_per_second("cluster.bandwidth", text) == pytest.approx(rate)
    assert SimulatedSpec(bandwidth=text).bandwidth == text


@pytest.mark.parametrize("text", ["", "fast", "10", "10Gb", "0Mbit", "-1GB", "1e3MB", "nan", 1e9, math.inf, None])
def test_an_invalid_bandwidth_is_refused(text: object) -> None:
    with pytest.raises(InvalidField) as caught:
        SimulatedSpec(bandwidth=text)  # type: ignore[arg-type]
    assert caught.value.field == "cluster.bandwidth"


def test_a_task_waits_for_packing_in_few_steps_even_if_each_step_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, clock = list[float](), SimpleNamespace(now=0.2, settle=lambda: None)

    def sleep(seconds: float) -> None:
        steps.append(seconds)
        assert len(steps) < 50
        clock.now += seconds + 2e-5

    clock.sleep = sleep
    monkeypatch.setattr(cluster, "CLOCK", clock)
    state = SimpleNamespace(address="one", state=SimpleNamespace(nthreads=2))
    monkeypatch.setattr(thread_state, "execution_state", {"worker": state}, raising=False)
    monkeypatch.setattr(thread_state, "cpu_share", 1.0, raising=False)
    packing: Any = SimpleNamespace(cpu_s=lambda address, now: now)  # the worker packs all the time
    assert cluster._packing_delay(packing, 0.0) == pytest.approx(0.2, abs=1e-3)
