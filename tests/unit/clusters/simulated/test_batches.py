"""Batches of messages sent by timers leave as those of distributed do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from distributed.batched import BatchedSend
from distributed.comm import CommClosedError, connect, listen

from scalescope.clusters.simulated.bookkeeping import TimedBatches

INTERVAL_S = 0.05


async def sent(kind: type[BatchedSend]) -> list[list[int]]:
    """The batches in which six messages arrive: two sent at once, two within the interval, one after it, one last."""
    arrived: list[list[int]] = []

    async def note(comm: Any) -> None:
        while True:
            try:
                arrived.append(await comm.read())
            except CommClosedError:
                return

    async def arrive(count: int) -> None:
        async with asyncio.timeout(10):
            while len(arrived) < count:
                await asyncio.sleep(0.001)

    listener = await listen("inproc://", note, deserialize=False)
    batches = kind(interval=INTERVAL_S * 1e3)
    batches.send(1)
    batches.start(await connect(listener.contact_address))
    batches.send(2)
    await arrive(1)
    batches.send(3)
    batches.send(4)
    await asyncio.sleep(3 * INTERVAL_S)
    batches.send(5)
    await arrive(3)
    batches.send(6)
    await batches.close()
    await arrive(4)
    with pytest.raises(CommClosedError):
        batches.send(7)
    listener.stop()
    return arrived


@pytest.mark.parametrize("kind", [BatchedSend, TimedBatches])
def test_batched_messages_wait_for_the_end_of_an_interval(kind: type[BatchedSend]) -> None:
    assert asyncio.run(sent(kind)) == [[1, 2], [3, 4], [5], [6]]
