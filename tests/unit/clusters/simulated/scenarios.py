"""Scenarios on the virtual clock: `python scenarios.py NAME...` prints a JSON line for each."""

from __future__ import annotations

from scalescope.clusters.simulated import patches

patches.install()

import asyncio  # noqa: E402
import json  # noqa: E402
import logging  # noqa: E402
import queue  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from concurrent.futures import ThreadPoolExecutor  # noqa: E402
from time import monotonic, sleep  # noqa: E402
from typing import Any, ClassVar  # noqa: E402

import dask  # noqa: E402
import distributed  # noqa: E402

from scalescope.clusters import light_workers  # noqa: E402
from scalescope.clusters.simulated.clock import real_monotonic  # noqa: E402
from scalescope.clusters.simulated.cluster import SimulatedCluster  # noqa: E402
from scalescope.clusters.simulated.spec import SimulatedSpec  # noqa: E402
from scalescope.model.sweep import ZERO_LENGTH, Point  # noqa: E402
from scalescope.model.workload import Workload  # noqa: E402

LOCK = threading.Lock()
FREE = {"scheduler_us": 0.0, "worker_us": 0.0}


def run(
    body: Any,
    workers: int = 4,
    threads: int = 1,
    seed: int = 0,
    modelled: bool = True,
    config: dict[str, Any] | None = None,
    params: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Run `body(client)` on a fresh simulated cluster; returns its result, with virtual and real seconds."""
    cluster = SimulatedCluster(SimulatedSpec(**{**FREE, **spec}), seed=seed)
    cluster.open()
    try:
        cluster.scale(workers, threads)
        client = cluster.client()
        point = Point(workers, threads, params or {}, config or {})
        with cluster.running(Workload("test", 1, "", print, modelled=modelled), point):
            began, real = cluster.time(), real_monotonic()
            result = body(client)
            elapsed, real = cluster.time() - began, real_monotonic() - real
        client.close()
        return {"result": result, "elapsed": elapsed, "real": real, **cluster.facts()}
    finally:
        cluster.close()


def nap(seconds: float, *_: Any) -> float:
    began = time.time()
    time.sleep(seconds)
    return time.time() - began


def nap_imported(seconds: float) -> float:
    began = monotonic()
    sleep(seconds)
    return monotonic() - began


def spin(seconds: float) -> int:
    end, count = time.thread_time() + seconds, 0
    while time.thread_time() < end:
        count += 1
    return count


# ------------------------------------------------------------------ scenarios


def sleeps() -> Any:
    return run(lambda client: client.gather(client.map(nap, [10.0] * 12, pure=False)))


def sleep_imported_by_name() -> Any:
    return run(lambda client: client.gather(client.map(nap_imported, [10.0, 20.0])))


def chained() -> Any:
    def body(client: Any) -> Any:
        first = client.map(nap, [3.0] * 4, pure=False)
        second = [client.submit(nap, 2.0, future) for future in first]
        return client.gather(second)

    return run(body)


def scheduler_cost() -> Any:
    body = lambda client: len(client.gather(client.map(nap, [1.0] * 100, pure=False)))  # noqa: E731
    return {"free": run(body, 100)["elapsed"], "charged": run(body, 100, scheduler_us=1000.0)["elapsed"]}


def worker_cost() -> Any:
    return run(lambda client: client.gather(client.map(nap, [1.0] * 4, pure=False)), 1, worker_us=250_000.0)


def threads_per_worker() -> Any:
    return run(lambda client: client.gather(client.map(nap, [10.0] * 12, pure=False)), 2, 3)


def computing_is_charged() -> Any:
    return run(
        lambda client: len(client.gather([client.submit(spin, 0.3, key=f"s{i}") for i in range(4)])), 4, modelled=False
    )


def computing_is_free_when_modelled() -> Any:
    return run(lambda client: len(client.gather([client.submit(spin, 0.2, key=f"s{i}") for i in range(2)])))


def recorded() -> Any:
    def body(client: Any) -> Any:
        return client.gather(client.map(str, range(8), key="convert"))

    return run(body, 2, task_cost="recorded", durations={"convert": 5.0})


def zero_length_tasks() -> Any:
    """Four tasks that sleep, compute and sleep, then four that wait for a time; the client's own second stays."""

    def poll(seconds: float) -> int:
        end, asked = time.time() + seconds, 0
        while time.time() < end:
            asked += 1
            sleep(0.1)
        return asked

    def mixed(number: int) -> int:
        sleep(1.0)
        spin(0.2)
        sleep(1.0)
        return number * number

    def body(client: Any) -> Any:
        sleep(1.0)
        squares = client.gather(client.map(mixed, range(4)))
        return [squares, min(client.gather(client.map(poll, [1.0] * 4, pure=False)))]

    return run(body, 2, modelled=False, config={ZERO_LENGTH: True})


def client_computing_is_charged() -> Any:
    def body(client: Any) -> Any:
        spin(0.2)
        return client.submit(nap, 1.0).result()

    return run(body, 1, modelled=False)


def async_tasks() -> Any:
    async def wait(seconds: float, number: int) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(seconds)
        return loop.time() - began

    return run(lambda client: client.gather(client.map(wait, [7.0] * 4, range(4))))


def event_loop_inside_task() -> Any:
    def task(seconds: float) -> float:
        async def main() -> float:
            began = time.monotonic()
            await asyncio.gather(asyncio.sleep(seconds), asyncio.sleep(seconds / 2))
            return time.monotonic() - began

        return asyncio.run(main())

    return run(lambda client: client.submit(task, 60.0).result())


def threads_inside_task() -> Any:
    def task() -> list[float]:
        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(nap, [5.0, 5.0, 5.0, 5.0]))

    return run(lambda client: client.submit(task).result())


def thread_join_and_queue() -> Any:
    def task() -> list[float]:
        inbox: queue.Queue[float] = queue.Queue()
        thread = threading.Thread(target=lambda: (time.sleep(4), inbox.put(time.time()), time.sleep(4)))
        began = time.time()
        thread.start()
        arrived = inbox.get() - began
        thread.join()
        return [arrived, time.time() - began]

    return run(lambda client: client.submit(task).result())


def wait_with_timeout() -> Any:
    def task() -> list[Any]:
        began = time.time()
        answer = threading.Event().wait(30)
        return [answer, time.time() - began]

    return run(lambda client: client.submit(task).result())


def contended_lock() -> Any:
    def task(number: int) -> int:
        with sys.modules["__main__"].LOCK:  # type: ignore[attr-defined]
            time.sleep(5)
        return number

    return run(lambda client: client.gather(client.map(task, range(3))))


def worker_client() -> Any:
    def task() -> list[float]:
        with distributed.worker_client() as inner:
            return inner.gather(inner.map(nap, [10.0] * 4, pure=False))

    return run(lambda client: client.submit(task).result(), 2)


def client_of_its_own() -> Any:
    def body(client: Any) -> Any:
        with distributed.Client(client.scheduler.address) as other:
            return other.gather(other.map(nap, [10.0] * 8, pure=False))

    return run(body)


def result_timeout() -> Any:
    def body(client: Any) -> Any:
        future = client.submit(nap, 100.0)
        try:
            return future.result(timeout=10)
        except (distributed.TimeoutError, TimeoutError):
            return "timed out"

    return run(body)


def as_completed() -> Any:
    def body(client: Any) -> Any:
        futures = client.map(nap, [30.0, 10.0, 20.0])
        return [round(future.result()) for future in distributed.as_completed(futures, loop=client.loop)]

    return run(body)


def locks_of_the_client() -> Any:
    """A client that computes while it holds a lock that the event loop takes, for futures that are done or dropped."""

    def body(client: Any) -> Any:
        kept = [client.submit(nap, 1.0, number, pure=False) for number in range(60)][::3]
        done = client.map(abs, range(300), pure=False)
        client.gather(done)
        return len(kept), len(list(distributed.as_completed(done, loop=client.loop)))

    return run(body, modelled=False)


def work_stealing(draw: int = 0, seed: int = 0, pause_s: float | None = None) -> Any:
    """Seconds until the first look; with a pause after balanced work, seconds between two first looks."""

    def body(client: Any) -> Any:
        first = next(iter(client.scheduler_info(n_workers=-1)["workers"]))
        client.gather(client.map(nap, [1.0] * 4, pure=False))  # so that durations are known
        began = [time.time()]
        client.gather(client.map(nap, [1.0] * 40, pure=False, workers=[first], allow_other_workers=True))
        looks = [client.get_events("stealing")[0][0]]
        if pause_s is None:
            return looks[0] - began[0]
        time.sleep(pause_s)
        began.append(time.time())
        client.gather(client.map(nap, [1.0] * 40, pure=False, workers=[first], allow_other_workers=True))
        return next(at for at, _ in client.get_events("stealing") if at > began[1]) - looks[0]

    return run(body, 4, seed=seed, params={"draw": draw})


def work_stealing_of_draws() -> Any:
    return {
        "first looks": [work_stealing(draw)["result"] for draw in range(3)],
        "of another seed": work_stealing(seed=1)["result"],
        "between looks": work_stealing(pause_s=3.3)["result"],
    }


def worker_ttl() -> Any:
    """A worker that stops its heartbeats is removed after the scheduler's time limit, in virtual time."""

    def body(client: Any) -> Any:
        def mute(dask_worker: Any) -> None:
            dask_worker.beating = False

        victim = next(iter(client.scheduler_info(n_workers=-1)["workers"]))
        client.run(mute, workers=[victim])
        time.sleep(200)
        before = len(client.scheduler_info(n_workers=-1)["workers"])
        time.sleep(600)
        return [before, victim in client.scheduler_info(n_workers=-1)["workers"]]

    with dask.config.set({"distributed.scheduler.worker-ttl": "300s"}):
        return run(body, 3)


def task_that_fails() -> Any:
    def body(client: Any) -> Any:
        return repr(client.submit(lambda: 1 / 0).exception())

    return run(body)


def retries() -> Any:
    seen: list[int] = []

    def body(client: Any) -> Any:
        return client.submit(flaky, retries=3).result()

    def flaky() -> int:
        marker = distributed.get_worker().__dict__.setdefault("tries", seen)
        marker.append(1)
        time.sleep(2)
        if len(marker) < 3:
            raise RuntimeError("not yet")
        return len(marker)

    return run(body, 1)


def outside_process() -> Any:
    """Tasks start programs of half a second each, two on each worker, wait for them, and read their output."""

    def task(number: int) -> int:
        program = [sys.executable, "-S", "-c", "import time; time.sleep(0.5)"]
        return len(subprocess.run(program, check=True, capture_output=bool(number % 2)).args) - 4

    return run(lambda client: sum(client.gather(client.map(task, range(4)))), 2)


def bystanders_see_real_time() -> Any:
    """A thread outside the simulation does not use the virtual clock."""
    seen: list[float] = []

    def bystander() -> None:
        began = time.monotonic()
        time.sleep(0.2)
        seen.append(time.monotonic() - began)

    thread = threading.Thread(target=bystander)
    thread.start()
    sleeps()
    thread.join()
    return {"result": seen}


LINKS = {"bandwidth": "100MB", "latency_ms": 10.0, "cpu_ms_per_mb": 2.0}


def transfers() -> Any:
    """50 MB from the first of two workers to the second, while the first has a task that is on a core half the time."""

    def half_on_a_core(seconds: float) -> float:
        distributed.worker.thread_state.cpu_share = 0.5
        time.sleep(seconds)
        return time.time()

    def body(client: Any) -> Any:
        first, second = sorted(client.scheduler_info(n_workers=-1)["workers"])
        began = time.time()
        times = {}

        def done(name: str, *futures: Any) -> None:
            with client.as_current():
                distributed.wait(futures)
            times[name] = time.time() - began

        data = client.submit(bytes, 50_000_000, workers=first)
        done("made", data)
        other, size = client.submit(half_on_a_core, 2.0, workers=first), client.submit(len, data, workers=second)
        done("taken", size)
        done("slowed", other)
        client.gather(data)
        done("gathered", data)
        client.scatter(bytes(50_000_000), workers=[first], hash=False)
        done("scattered", data)
        client.submit(len, bytes(50_000_000), pure=False).result()
        done("graph", data)
        return times

    return {"linked": run(body, 2, **LINKS)["result"], "free": run(body, 2, bandwidth="inf")["result"]}


def asked_by_many() -> Any:
    """Three workers ask a fourth, which answers one at a time, for 10 MB; who was busy, and who is connected after."""

    def after(dask_worker: Any) -> Any:
        peers = [address for address in dask_worker.rpc.available if address != dask_worker.scheduler.address]
        busy = [line for line in dask_worker.state.log if line[0] == "gather-dep-busy"]
        return len(busy), len(peers), dask_worker.transfer_outgoing_count_total

    def body(client: Any) -> Any:
        first, *others = sorted(client.scheduler_info(n_workers=-1)["workers"])
        data = client.submit(bytes, 10_000_000, workers=first)
        with client.as_current():
            distributed.wait(data)
        sizes = client.gather([client.submit(len, data, workers=other, pure=False) for other in others])
        busy, connections, answers = (sum(counts) for counts in zip(*client.run(after).values(), strict=True))
        return {"sizes": sizes, "busy": busy, "connections": connections, "answers": answers}

    with dask.config.set({"distributed.worker.connections.incoming": 1}):
        return run(body, 4, **LINKS)["result"]


def many_workers() -> Any:
    return run(lambda client: len(client.gather(client.map(nap, [10.0] * 600, pure=False))), 300)


def load(seconds: float, nbytes: int) -> bytes:
    time.sleep(seconds)
    return bytes(nbytes)


def size(seconds: float, *parts: bytes) -> int:
    time.sleep(seconds)
    return sum(map(len, parts))


def trace(seed: int) -> list[Any]:
    """The worker and the times of every task of an irregular run."""

    class Trace(distributed.diagnostics.plugin.SchedulerPlugin):  # type: ignore[misc,name-defined]
        rows: ClassVar[list[Any]] = []

        def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
            self.rows.append((str(key), start, finish, str(kwargs.get("worker")), repr(kwargs.get("startstops"))))

    def body(client: Any) -> Any:
        client.register_plugin(Trace(), name="trace")
        leaves = client.map(load, [(i * 7919 % 13) / 3 for i in range(60)], [i * 10**6 for i in range(60)], pure=False)
        sums = [client.submit(size, 0.5, *leaves[i : i + 6]) for i in range(0, 60, 6)]
        client.gather(sums)
        return None

    Trace.rows = []
    run(body, 7, 2, seed=seed, scheduler_us=100.0, worker_us=1000.0)
    return Trace.rows


def fingerprint() -> Any:
    from scalescope.model.sweep import digest

    first = trace(1)
    return {"rows": len(first), "first": digest(first), "again": digest(trace(1))}


def main(names: list[str]) -> None:
    logging.disable(logging.CRITICAL)
    dask.config.set(light_workers.CONFIG)
    for name in names:
        print(json.dumps({"name": name, **globals()[name]()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
