"""Heartbeats sent by a memory sample, on releases whose spans collect their digests in different ways."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from scalescope.capture.process_samples import beat


class Spans:
    def __init__(self) -> None:
        self.digests_total_since_heartbeat = {("execute", "waiting"): 1.0}  # a heartbeat with it is on its way


class Spans2023(Spans):
    def collect_digests(self) -> None:
        assert not self.digests_total_since_heartbeat
        self.digests_total_since_heartbeat = {("execute", "new"): 2.0}


class Spans2024(Spans):
    def collect_digests(self, digests: dict[Any, float]) -> None:
        assert not self.digests_total_since_heartbeat
        self.digests_total_since_heartbeat = dict(digests)


@pytest.mark.parametrize(("spans", "given"), [(Spans2023(), ()), (Spans2024(), ({("execute", "new"): 2.0},))])
def test_an_extra_heartbeat_loses_no_digest_that_waits_for_the_next_one(spans: Any, given: tuple[Any, ...]) -> None:
    async def heartbeat() -> None:
        spans.collect_digests(*given)

    monitored = {"monitor": SimpleNamespace(callback_time=500.0)}
    worker = SimpleNamespace(periodic_callbacks=monitored, extensions={"spans": spans}, heartbeat=heartbeat)
    asyncio.run(beat(worker))
    assert spans.digests_total_since_heartbeat == {("execute", "waiting"): 1.0, ("execute", "new"): 2.0}
