"""Workers on the scheduler's host report times without a correction."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from distributed import Client

from scalescope.capture import clock
from scalescope.capture.clock import SameHostClock, this_kernel
from scalescope.capture.shipping import Shipment, register


class Worker:
    """A worker with nothing but the correction of its clock."""

    def __init__(self) -> None:
        self.scheduler_delay = 0.03


def test_clocks_on_the_schedulers_host_are_never_corrected_by_heartbeats() -> None:
    worker, plugin, another = Worker(), SameHostClock(this_kernel()), Worker()
    plugin.setup(worker)
    SameHostClock(this_kernel()).setup(another)
    assert type(worker) is type(another)  # one class for all workers of a process
    assert worker.scheduler_delay == 0.0
    worker.scheduler_delay = 0.066  # a heartbeat
    assert worker.scheduler_delay == 0.0
    assert isinstance(worker, Worker)
    plugin.teardown(worker)
    assert type(worker) is Worker
    worker.scheduler_delay = 0.01
    assert worker.scheduler_delay == 0.01


def test_clocks_on_another_host_keep_the_estimated_correction() -> None:
    worker, plugin = Worker(), SameHostClock("another kernel")
    plugin.setup(worker)
    assert worker.scheduler_delay == 0.03
    plugin.teardown(worker)
    assert type(worker) is Worker


@pytest.mark.parametrize("boot_id", [True, False])
def test_the_identity_of_a_kernel_is_stable_even_without_a_boot_id(
    boot_id: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> NoReturn:
        raise FileNotFoundError(name)

    if not boot_id:
        monkeypatch.setattr(clock, "open", missing, raising=False)  # other threads of this process open files
    assert this_kernel()
    assert this_kernel() == this_kernel()


def test_the_clock_of_a_real_worker_stays_uncorrected_through_heartbeats(client: Client) -> None:
    async def beat(dask_worker: Any) -> tuple[float, float]:
        dask_worker.scheduler_delay = 1.0
        before = dask_worker.scheduler_delay
        await dask_worker.heartbeat()
        return before, dask_worker.scheduler_delay

    register(client, clock, "SameHostClock", kernel=client.run_on_scheduler(Shipment(clock, "this_kernel")))
    try:
        assert set(client.run(beat).values()) == {(0.0, 0.0)}
    finally:
        client.unregister_worker_plugin(SameHostClock.name)
    assert {before for before, _ in client.run(beat).values()} == {1.0}
