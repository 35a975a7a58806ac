"""The simulated cluster."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import distributed
from dask.utils import key_split
from distributed import worker, worker_state_machine
from distributed.comm import inproc
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import IOLoop

from scalescope.clusters import light_workers
from scalescope.clusters.base import Cluster
from scalescope.clusters.simulated import patches
from scalescope.clusters.simulated.bookkeeping import (
    RestingBalancer,
    SimulatedWorker,
    calm_scheduler,
    patient_iteration,
    phase,
    send_heartbeats,
    timed_batches,
)
from scalescope.clusters.simulated.calibration import Calibration
from scalescope.clusters.simulated.clock import CLOCK, EPOCH
from scalescope.clusters.simulated.executor import VirtualThreadPoolExecutor
from scalescope.clusters.simulated.links import Links
from scalescope.clusters.simulated.locks import loop_locks
from scalescope.clusters.simulated.loops import KernelLoop
from scalescope.clusters.simulated.spec import SimulatedSpec, bytes_per_second, durations_on
from scalescope.clusters.simulated.transfers import CLIENT, LinkedScheduler, linked
from scalescope.errors import ClusterError, WorkersMissing

if TYPE_CHECKING:
    from scalescope.model.sweep import Point
    from scalescope.model.workload import Workload

# Errors measured against real-time clusters by `python -m evidence simulated`.
VALIDATED = (
    "makespans 0.05 to 0.5 s (1 to 10 %) below real time on 20 to 300 emulated workers, with little data sent; see "
    "docs/accuracy.md"
)

SHORTEST_TASK_S = 1e-6  # virtual seconds; not 0, as distributed's work stealing asserts that tasks take some time
SHORTEST_DELAY_S = 1e-4  # virtual seconds; tasks do not wait for shorter packing delays, which saves real time


class SimulatedCluster(Cluster[SimulatedSpec]):
    """The real scheduler, workers and clients on one event loop whose clock jumps to the next event.

    Every trial gets a new scheduler and new workers, so it does not depend on earlier trials.
    """

    shows: ClassVar[str] = "how the real scheduler, client and workers divide work over time"
    cannot_show: ClassVar[str] = "contention between processes, memory pressure, spilling, the interpreter lock"

    def __init__(self, spec: SimulatedSpec, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self._calibration = Calibration.choose(spec)
        rate = bytes_per_second("cluster.bandwidth", spec.bandwidth)
        others = bytes_per_second("cluster.client_bandwidth", spec.client_bandwidth) if spec.client_bandwidth else None
        links = Links(rate, spec.latency_ms / 1e3, spec.cpu_ms_per_mb / 1e9, spec.message_ms / 1e3, others)
        self._links = links if math.isfinite(rate) else None
        self._charging = False
        self._repeats = False  # True if the last trial's makespan is reproducible, because no CPU time was charged
        self._stack = ExitStack()
        self._scheduler: distributed.Scheduler | None = None
        self._balancer: RestingBalancer | None = None
        self._workers: dict[str, SimulatedWorker] = {}  # workers by address
        self._heartbeats: asyncio.Future[None] | None = None
        self._io: IOLoop | None = None
        self._thread: threading.Thread | None = None
        self._foreign = VirtualThreadPoolExecutor(CLOCK, 64)

    # ---------------------------------------------------------------- life

    def open(self) -> None:
        """Start the clock's event loop and a scheduler on it."""
        if not patches.installed():
            raise ClusterError(
                "the virtual clock was not installed when this process started",
                where="simulated cluster",
                cause="this process was not started as a driver with SCALESCOPE_CLOCK=virtual",
                next_step="open simulated clusters through scalescope.driver",
            )
        light_workers.apply()
        light_workers.slow_heartbeats()
        self._stack.enter_context(patient_iteration())
        self._stack.enter_context(timed_batches())
        self._stack.enter_context(loop_locks())
        if self._links is not None:
            self._stack.enter_context(linked(self._links, self._workers))
        started = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, args=(started,), name="virtual-clock", daemon=True)
        self._thread.start()
        started.wait()
        self._stack.enter_context(CLOCK.engage())
        self._stack.callback(self._stop_dask)
        self._start_scheduler()

    def close(self) -> None:
        self._stack.close()
        if self._io is not None and self._thread is not None:
            self._io.add_callback(self._io.stop)
            self._thread.join(10)
            self._io = self._thread = None
        CLOCK.stop_threads()

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Stop the time while the driver waits for a request."""
        with CLOCK.disengage():
            yield

    def scale(self, workers: int, threads_per_worker: int) -> None:
        """Start a new scheduler with exactly these workers."""
        self._stop_dask()
        self._sync(self._forget_timers)
        light_workers.freeze_garbage_collector()
        CLOCK.restart()
        if self._links is not None:
            self._links.restart()
        self._start_scheduler()
        self._sync(self._start_workers, workers, threads_per_worker)
        assert self._scheduler is not None
        arrived = len(self._scheduler.workers)
        if arrived != workers:
            raise WorkersMissing(f"{arrived} of {workers} simulated workers registered", where=self._scheduler.address)

    def client(self) -> distributed.Client:
        assert self._scheduler is not None
        return distributed.Client(self._scheduler.address, loop=self._io, set_as_default=False)

    @contextmanager
    def running(self, workload: Workload, point: Point) -> Iterator[None]:
        """Charge the cost of this workload's tasks, and make random numbers and identifiers repeat."""
        actor = CLOCK.actor()
        assert actor is not None
        cost = self.spec.task_cost
        self._charging = cost == "cpu" or (cost == "auto" and not workload.modelled)
        self._repeats = not self._charging
        self._repeat("trial")
        if self._balancer is not None:
            draw = point.params.get("draw", 0) if workload.modelled else 0  # a parameter of the workload `replay`
            self._sync(self._balancer.rest, phase(self.seed + (draw if isinstance(draw, int) else 0)))
        with task_durations(
            durations_on(self.spec.durations or {}, point.workers),
            timeless=point.has_zero_length_tasks,
            links=self._links,
            cpu_share=0.0 if workload.modelled else 1.0,
        ):
            actor.pause()
            actor.charging = self._charging
            actor.resume()
            try:
                yield
            finally:
                actor.pause()
                actor.charging = self._charging = False

    @contextmanager
    def watched(self, passed: Callable[[], object]) -> Iterator[bool]:
        actor = CLOCK.actor()
        assert actor is not None
        actor.passed = passed
        try:
            yield True
        finally:
            actor.passed = None

    def time(self) -> float:
        member = CLOCK.member()
        return EPOCH + (CLOCK.now if member is None else member.time())

    def facts(self) -> dict[str, Any]:
        spec = self.spec
        links = f"links of {spec.bandwidth} and {spec.latency_ms:g} ms" if self._links else "links that take no time"
        return {
            **super().facts(),
            "shows": f"{self.shows}, with {links}" + ", exactly repeatable" * self._repeats,
            "task_cost": spec.task_cost,
            "bandwidth": spec.bandwidth,
            "latency_ms": spec.latency_ms,
            "cpu_ms_per_mb": spec.cpu_ms_per_mb,
            "message_ms": spec.message_ms,
            **self._calibration.to_mapping(),
            "blocked_outside_clock": CLOCK.outside,
            "validated": VALIDATED,
        }

    # ---------------------------------------------------------------- parts

    def _run_loop(self, started: threading.Event) -> None:
        loop = KernelLoop(CLOCK, offload=lambda: self._foreign)
        asyncio.set_event_loop(loop)

        async def begin() -> None:
            self._io = IOLoop.current()
            started.set()

        with CLOCK.kernel(loop.wake):
            loop.run_until_complete(begin())
            loop.run_forever()
        loop.close()

    def _repeat(self, phase: str) -> None:
        """Reset everything that would make two equal runs differ: random numbers, identifiers, counters."""
        patches.seed(self.seed, phase)
        if hasattr(distributed.Future, "_counter"):  # since 2024, part of a future's token and so of task keys
            distributed.Future._counter = itertools.count()

    def _sync(self, function: Any, *args: Any) -> Any:
        return distributed.utils.sync(self._io, function, *args)

    async def _forget_timers(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, KernelLoop)
        loop.forget_timers()

    def _start_scheduler(self) -> None:
        manager = inproc.global_manager
        manager.__class__ = _StableAddresses
        manager._ip = "127.0.0.1"
        worker_state_machine.TaskState.__hash__ = _hash_by_key  # else sets of tasks iterate differently in each run
        if distributed.Future.__hash__ is object.__hash__:  # as in distributed 2024.8
            distributed.Future.__hash__ = _hash_by_key
        manager.addr_suffixes = itertools.count(1)
        self._repeat("start")

        async def start() -> distributed.Scheduler:
            scheduler = await LinkedScheduler(protocol="inproc://", dashboard=False, port=0)
            if self._links is not None:
                scheduler.links, self._links.others = self._links, (CLIENT, scheduler.address)
            calm_scheduler(scheduler)
            self._balancer = RestingBalancer(scheduler)
            scheduler.add_plugin(_ChargeTransitions(self._calibration.scheduler_us / 1e6, self._balancer))
            return scheduler

        with light_workers.cheap_start():
            self._scheduler = self._sync(start)

    async def _start_workers(self, count: int, nthreads: int) -> None:
        assert self._scheduler is not None
        address, links, task_s = self._scheduler.address, self._links, self._calibration.worker_us / 1e6

        def start(index: int) -> SimulatedWorker:
            def delay() -> float:
                return task_s if links is None else links.hold(worker.address, CLOCK.now, task_s)

            pools = {
                "default": VirtualThreadPoolExecutor(CLOCK, nthreads, delay=delay, charging=lambda: self._charging),
                "actor": VirtualThreadPoolExecutor(CLOCK, 1, charging=lambda: self._charging),
            }
            worker = SimulatedWorker(address, name=index, nthreads=nthreads, memory_limit=0, executor=pools)
            worker.links = self._links
            return worker

        with light_workers.cheap_start():
            workers: list[SimulatedWorker] = await asyncio.gather(*[start(index) for index in range(count)])
        self._workers.update((worker.address, worker) for worker in workers)
        self._heartbeats = asyncio.ensure_future(send_heartbeats(self._scheduler, workers))

    def _stop_dask(self) -> None:
        if self._scheduler is None:
            return
        scheduler, workers = self._scheduler, list(self._workers.values())
        self._scheduler = None
        self._workers.clear()

        async def stop() -> None:
            if self._heartbeats is not None:
                self._heartbeats.cancel()
            await asyncio.gather(*[worker.close(timeout=1, nanny=False) for worker in workers])
            await scheduler.close()  # without `reason`, which 2023.5 does not accept

        self._sync(stop)


class _StableAddresses(inproc.Manager):  # type: ignore[misc]
    """Addresses that are the same in every run, because distributed orders and hashes workers by them."""

    def new_address(self) -> str:
        return f"{self.ip}/0/{next(self.addr_suffixes):06d}"

    def validate_address(self, addr: str) -> None:
        ip, _, suffix = addr.split("/")
        if ip != self.ip or not suffix.isdigit():
            raise ValueError(f"inproc address {addr!r} is not one of the simulated cluster")


def _hash_by_key(task: worker_state_machine.TaskState | distributed.Future) -> int:
    return hash(task.key)


class _ChargeTransitions(SchedulerPlugin):  # type: ignore[misc]
    """Charges virtual time for the scheduler's own work."""

    name = "scalescope-charge"

    def __init__(self, seconds: float, balancing: RestingBalancer) -> None:
        self._seconds = seconds
        self._balancing = balancing

    def transition(self, *args: Any, **kwargs: Any) -> None:
        CLOCK.charge(self._seconds)
        self._balancing.wake()


@contextmanager
def task_durations(
    durations: Mapping[str, float], *, timeless: bool = False, links: Links | None = None, cpu_share: float = 0.0
) -> Iterator[None]:
    """Make tasks take the virtual seconds in `durations` (by key prefix), at least `SHORTEST_TASK_S`.

    While a worker packs and unpacks data for `links`, its tasks get longer. Each gets the CPU seconds of packing,
    divided by the worker's threads, times `cpu_share`: the share of its time in which the task uses a core. A task may
    set its share as `thread_state.cpu_share`.
    With `timeless`, tasks return their results but take no time (a sleep takes a thousandth of its time).
    """
    name = next(name for name in ("_run_task_simple", "apply_function_simple") if hasattr(worker, name))
    original = getattr(worker, name)

    def charged(*args: Any, **kwargs: Any) -> Any:
        state = worker.thread_state
        state.cpu_share = cpu_share
        packed_s = 0.0 if links is None else links.cpu_s(state.execution_state["worker"].address, CLOCK.now)
        message = original(*args, **kwargs)
        least = max(durations.get(key_split(state.key), 0.0) if durations else 0.0, SHORTEST_TASK_S)
        missing = least - (message["stop"] - message["start"])
        if missing > 0:
            CLOCK.sleep(missing)
            message["stop"] += missing
        if links is not None and state.cpu_share > 0:
            message["stop"] += _packing_delay(links, packed_s)
        return message

    def in_no_time(*args: Any, **kwargs: Any) -> Any:
        actor = CLOCK.actor()
        assert actor is not None
        began, actor.timeless = actor.time(), True
        try:
            message = original(*args, **kwargs)
        finally:
            actor.timeless = False
            actor.forget(CLOCK.now)
        CLOCK.sleep(SHORTEST_TASK_S)
        message["stop"] = message["start"] + actor.time() - began
        return message

    setattr(worker, name, in_no_time if timeless else charged)
    try:
        yield
    finally:
        setattr(worker, name, original)


def _packing_delay(links: Links, before_s: float) -> float:
    """Prolong the calling task for its worker's packing since the task began; return the delay in seconds.

    `before_s`: CPU seconds that the worker had spent when the task began.
    """
    state, delay = worker.thread_state, 0.0
    this = state.execution_state["worker"]
    share = state.cpu_share / this.state.nthreads
    CLOCK.settle()
    while (debt := (links.cpu_s(this.address, CLOCK.now) - before_s) * share - delay) > SHORTEST_DELAY_S:
        CLOCK.sleep(debt)
        delay += debt
    return delay
