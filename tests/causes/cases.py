"""Labelled cases: what runs where, and what a fair expert would say of it.

A positive case loses at least a third of its worker time (or of the caller's time) to its cause; a healthy one loses
little, or has nothing that anybody could change. Where several answers are defensible, `also` has the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("workloads.py")

HEALTHY = "healthy"


@dataclass(frozen=True)
class Case:
    """One sweep whose verdict is known."""

    name: str  # unique; begins with the code that is expected
    expect: str  # code of the finding that must come first
    workload: str  # function of `workloads.py`, or a built-in workload's name
    workers: tuple[int, ...]  # workers of each point
    threads: int = 1  # threads of each worker
    params: Mapping[str, Any] = field(default_factory=dict)  # of the workload; a tuple has one value per point
    config: Mapping[str, Any] = field(default_factory=dict)  # dask configuration
    cluster: Mapping[str, Any] = field(default_factory=lambda: {"kind": "simulated"})  # specification of the cluster
    also: tuple[str, ...] = ()  # codes that may come first as well
    seed: int = 0  # of the durations, where the workload has a parameter of that name
    timeout_s: float = 120.0  # real seconds until the trial is stopped
    # why worker time does not show the loss, or shows one that nobody can change; empty where it does
    quiet_loss: str = ""

    @property
    def real(self) -> bool:
        """Whether it needs real processes."""
        return self.cluster["kind"] != "simulated"

    def sweep(self) -> dict[str, Any]:
        """As a user would write it."""
        reference = self.workload if "-" in self.workload else f"{FILE}:{self.workload}"
        points = []
        for i, workers in enumerate(self.workers):
            point: dict[str, Any] = {"workers": workers, "threads_per_worker": self.threads, **self.config}
            for name, value in self.params.items():
                point[name] = value[i] if isinstance(value, tuple) else value
            if self.seed:
                point["seed"] = self.seed
            points.append(point)
        return {
            "workload": reference,
            "cluster": dict(self.cluster),
            "points": points,
            "seed": self.seed,
            "trial_timeout_s": self.timeout_s,
        }


def _case(
    expect: str, name: str, workload: str, workers: int | tuple[int, ...], *, also: tuple[str, ...] = (), **rest: Any
) -> Case:
    known = {"threads", "config", "cluster", "seed", "timeout_s", "quiet_loss"}
    options = {key: rest.pop(key) for key in list(rest) if key in known}
    sizes = (workers,) if isinstance(workers, int) else workers
    return Case(f"{expect}/{name}", expect, workload, sizes, params=rest, also=also, **options)


def _healthy() -> Iterator[Case]:
    def case(name: str, workload: str, workers: int | tuple[int, ...], **rest: Any) -> Case:
        return _case(HEALTHY, name, workload, workers, **rest)

    for workers, waves, seconds in (
        (4, 1, 1.0),
        (4, 3, 0.5),
        (10, 2, 2.0),
        (40, 1, 5.0),
        (100, 3, 1.0),
        (300, 1, 10.0),
    ):
        yield case(f"map-{workers}x{waves}", "futures-map", workers, items=workers * waves, seconds=seconds)
    for workers, waves, amount, seed in (
        (4, 8, 0.2, 1),
        (8, 5, 0.15, 2),
        (16, 4, 0.1, 3),
        (50, 3, 0.1, 4),
        (100, 6, 0.12, 5),
        (200, 1, 0.05, 6),
    ):
        yield case(
            f"varied-{workers}x{waves}",
            "stages",
            workers,
            items=workers * waves,
            profile="jitter",
            amount=amount,
            seed=seed,
        )
    for shape, workers, waves in (("delayed", 12, 4), ("bag", 30, 2), ("array", 20, 12), ("delayed", 120, 2)):
        yield case(
            f"{shape}-{workers}",
            "stages",
            workers,
            items=workers * waves,
            seconds=2.0,
            profile="jitter",
            amount=0.08,
            shape=shape,
            seed=workers,
        )
    for workers, count, link in (
        (10, 3, "chain"),
        (40, 5, "chain"),
        (20, 2, "barrier"),
        (60, 2, "barrier"),
        (16, 3, "client"),
    ):
        yield case(
            f"stages-{link}-{workers}",
            "stages",
            workers,
            items=workers * (5 if link == "barrier" else 2),
            seconds=1.0,
            profile="jitter",
            amount=0.05,
            stages=count,
            link=link,
            seed=3,
        )
    yield case("stages-shorter-and-shorter", "stages", 24, items=96, seconds=4.0, stages=4, shrink=0.5)
    yield case("bag-default-100", "bag", 50, items=100, seconds=2.0, jitter=0.05)
    yield case("bag-default-300-items-10-workers", "bag", 10, items=300, seconds=0.5, jitter=0.1)
    yield case("bag-many-partitions", "bag", 40, items=800, seconds=0.5, npartitions=400, jitter=0.2)
    yield case("bag-built-in", "bag-map", 64, items=64, seconds=3.0, stages=2, npartitions="items")
    yield case("array-sum", "chunks", 10, length=4000, chunk=16, seconds=0.5)
    yield case("array-map-only", "chunks", 50, length=1000, chunk=10, seconds=3.0, reduce=False)
    yield case("data-frame", "frame", 10, partitions=40, seconds=1.5)
    yield case("data-frame-wide", "frame", 60, partitions=120, seconds=3.0, steps=1)
    yield case("tree-wide", "tree", 16, leaves=256, seconds=1.0, reduce_seconds=0.05)
    yield case("tree-delayed", "tree", 32, leaves=512, seconds=1.0, reduce_seconds=0.05, shape="delayed")
    yield case("tree-built-in", "tree-reduce", 8, items=128, seconds=1.0, reduce_seconds=0.05)
    yield case("beam-one-partition-each", "beam-pardo", 40, items=40, seconds=2.0, stages=2, npartitions="items")
    yield case("beam-two-waves", "beam-pardo", 20, items=40, seconds=1.0, stages=3, npartitions=40)
    yield case("beam-many", "beam-pardo", 100, items=100, seconds=5.0, stages=1, npartitions="items")
    yield case("pipeline", "pipeline", 12, items=120, seed=4)
    yield case("pipeline-wide", "pipeline", 40, items=480, load=0.3, work=2.0, save=0.3, seed=5)
    yield case("chains-for-all", "chain", 6, length=6, chains=12, seconds=0.5)
    yield case("one-worker-chain", "chain", 1, length=12, seconds=0.5)
    yield case("threads-4x4", "stages", 4, threads=4, items=192, profile="jitter", amount=0.1, seed=6)
    yield case("threads-20x8", "stages", 20, threads=8, items=1600, seconds=3.0, profile="jitter", amount=0.1, seed=7)
    yield case("window-busy", "windowed", 20, items=300, window=40, seed=1)
    yield case("window-busy-wide", "windowed", 60, items=600, window=150, seconds=2.0, seed=2)
    yield case("sent-quickly", "slowly_sent", 10, items=300, seconds=1.0, pause=0.002, seed=1)
    yield case(
        "sent-quickly-long-tasks", "slowly_sent", 40, items=160, seconds=8.0, pause=0.005, form="compute", seed=2
    )
    yield case("sent-faster-than-done", "slowly_sent", 4, items=60, seconds=2.0, pause=0.02, seed=3)
    yield case("awaited-but-wide", "awaited", 8, steps=4, width=64, seconds=0.5, form="map", jitter=0.08, seed=4)
    yield case("epochs-of-delayed", "awaited", 20, steps=5, width=100, seconds=0.6, form="delayed", jitter=0.1, seed=5)
    yield case("two-maps-little-thinking", "thinking", 10, items=50, seconds=2.0, think=0.5)
    yield case("little-thinking-first", "thinking", 10, items=50, seconds=2.0, think=0.5, when="before")
    yield case("priorities", "prioritised", 10, items=80, how="priority", seed=1)
    yield case("retries-annotated", "prioritised", 16, items=128, how="retries", seed=2)
    yield case("delayed-annotated", "prioritised", 30, items=150, how="annotated", seed=3)
    yield case("restricted-to-all", "restricted", 10, items=80, allowed=10, seed=1)
    yield case("restricted-to-the-host", "restricted", 20, items=100, how="host", seed=2)
    yield case("restricted-loosely", "restricted", 8, items=80, allowed=8, how="loose", seed=3)
    yield case("few-restricted", "restricted", 10, items=100, allowed=2, share=0.08, seed=4)
    yield case("resource-everywhere", "restricted", 12, items=96, allowed=12, how="resources", seed=5)
    yield case("straggler-in-many-waves", "stages", 10, items=300, late=1, factor=3.0, where="first", seed=8)
    yield case("slightly-slow-worker", "slow_workers", 10, items=80, stages=3, factor=1.1, seed=1)
    yield case("skew-in-many-small-tasks", "stages", 10, items=1000, seconds=0.2, profile="uniform", amount=3.0, seed=9)
    yield case("outer-task-of-a-wide-map", "nested", 8, outer=1, inner=64, seconds=1.0, form="worker_client")
    yield case("outer-tasks-secede", "nested", 6, outer=6, inner=20, seconds=1.0, form="worker_client")
    yield case("persisted", "again", 20, items=80, load=1.0, use=0.4, rounds=3, form="persisted")
    yield case("in-one-go", "one_go", 20, items=80, load=1.0, use=0.4, rounds=3)
    yield case("data-broadcast", "near_data", 10, items=100, nbytes=10**9, broadcast=True)
    yield case("data-small", "near_data", 10, items=100, nbytes=1000)
    yield case("data-on-each", "near_data", 10, items=100, nbytes=10**9, holders=10)
    yield case("large-results-in-place", "stages", 12, items=48, stages=3, nbytes=500_000_000)
    yield case("retried-errors", "raises", 10, items=200, bad=50, how="retried", seconds=0.5)
    yield case("enough-leases", "semaphore", 10, items=60, leases=20)
    yield case("short-tasks-few-workers", "tiny", 4, items=600, seconds=0.1)
    yield case("short-tasks-beside-long", "tiny", 10, items=100, seconds=0.02, big=100)
    yield case(
        "no-stealing",
        "stages",
        10,
        items=80,
        profile="jitter",
        amount=0.1,
        seed=10,
        config={"distributed.scheduler.work-stealing": False},
    )
    yield case("sweep-map", "futures-map", (1, 2, 4, 8, 16), items=(16, 32, 64, 128, 256), seconds=0.5)
    yield case("sweep-same-items", "stages", (2, 4, 8, 16), items=96, profile="jitter", amount=0.1, seed=11)
    yield case("sweep-beam", "beam-pardo", (5, 10, 20, 40), items=(10, 20, 40, 80), seconds=1.0, npartitions="items")
    yield case("sweep-nothing-shared", "shared", (1, 2, 4, 8), items=64, serves=8, jitter=0.1)
    yield case("sweep-weak-scaling", "bag", (10, 25, 50), items=(20, 50, 100), seconds=2.0, jitter=0.05)


def _structure() -> Iterator[Case]:
    yield from _sweep_level()
    code = "straggler"
    for i, (workers, waves, late, factor, where, seconds) in enumerate(
        (
            (4, 3, 1, 12.0, "last", 1.0),
            (10, 2, 1, 10.0, "random", 1.0),
            (20, 3, 2, 15.0, "random", 0.5),
            (50, 1, 1, 6.0, "random", 4.0),
            (100, 4, 3, 20.0, "last", 0.5),
            (300, 1, 2, 8.0, "random", 2.0),
        )
    ):
        yield _case(
            code,
            f"map-{workers}",
            "stages",
            workers,
            items=workers * waves,
            seconds=seconds,
            profile="jitter",
            amount=0.1,
            late=late,
            factor=factor,
            where=where,
            seed=i + 1,
        )
    for shape, workers, seed in (("delayed", 16, 7), ("bag", 40, 8), ("array", 30, 9)):
        yield _case(
            code,
            f"{shape}-{workers}",
            "stages",
            workers,
            items=workers * 2,
            profile="jitter",
            amount=0.05,
            late=1,
            factor=9.0,
            shape=shape,
            seed=seed,
        )
    for link, workers, seed in (("barrier", 20, 10), ("client", 12, 11)):
        yield _case(
            code,
            f"stages-{link}-{workers}",
            "stages",
            workers,
            items=workers * 2,
            profile="jitter",
            amount=0.1,
            late=1,
            factor=10.0,
            stages=3,
            link=link,
            seed=seed,
        )
    yield _case(code, "threads-5x4", "stages", 5, threads=4, items=60, late=1, factor=12.0, where="last", seed=12)

    code = "skewed-tasks"
    for i, (workers, waves, profile, amount, link, shape) in enumerate(
        (
            (8, 1, "ramp", 12.0, "chain", "futures"),
            (20, 1, "uniform", 20.0, "chain", "delayed"),
            (40, 1, "ramp", 30.0, "chain", "bag"),
            (100, 1, "uniform", 30.0, "chain", "futures"),
            (30, 1, "bimodal", 9.0, "chain", "futures"),
            (16, 1, "uniform", 15.0, "barrier", "futures"),
            (12, 1, "ramp", 10.0, "client", "array"),
            (250, 1, "uniform", 12.0, "chain", "futures"),
        )
    ):
        yield _case(
            code,
            f"{profile}-{workers}",
            "stages",
            workers,
            items=workers * waves,
            seconds=3.0 if link == "barrier" else 0.3,
            profile=profile,
            amount=amount,
            link=link,
            shape=shape,
            stages=1 if link == "chain" else 3,
            seed=i + 1,
        )
    for workers, seed in ((25, 3), (60, 4)):
        yield _case(
            code,
            f"lognormal-{workers}",
            "stages",
            workers,
            items=workers,
            profile="lognormal",
            amount=1.0,
            seed=seed,
            also=("straggler",),
        )
    yield _case(
        code, "sizes-40", "stages", 40, items=40, seconds=0.5, profile="uniform", amount=20.0, nbytes=1_000_000, seed=5
    )

    code = "slow-worker"
    for i, (workers, slow, factor, seconds, stages) in enumerate(
        (
            (4, 1, 5.0, 4.0, 3),
            (8, 1, 4.0, 3.0, 4),
            (20, 1, 4.0, 5.0, 3),
            (50, 3, 5.0, 4.0, 2),
            (100, 2, 3.0, 6.0, 5),
            (200, 1, 6.0, 3.0, 2),
        )
    ):
        yield _case(
            code,
            f"{slow}-of-{workers}",
            "slow_workers",
            workers,
            items=workers,
            seconds=seconds,
            stages=stages,
            slow=slow,
            factor=factor,
            seed=i + 1,
        )
    yield _case(
        code, "1-of-10-two-waves", "slow_workers", 10, items=20, seconds=3.0, slow=1, factor=6.0, stages=4, seed=7
    )

    code = "tiny-tasks"
    for workers, items, seconds, shape in (
        (20, 1500, 0.001, "futures"),
        (50, 1500, 0.002, "delayed"),
        (100, 2000, 0.001, "futures"),
        (40, 1500, 0.0005, "bag"),
        (60, 1200, 0.005, "futures"),
        (200, 1500, 0.002, "delayed"),
        (100, 1200, 0.001, "array"),
    ):
        yield _case(
            code, f"{shape}-{workers}x{seconds * 1000:g}ms", "tiny", workers, items=items, seconds=seconds, shape=shape
        )


def _sweep_level() -> Iterator[Case]:
    code = "too-few-partitions"
    few = ("fewer-items-than-workers",)
    for workers, items in ((100, 101), (250, 260), (200, 220), (300, 401)):
        yield _case(code, f"bag-default-{items}-on-{workers}", "bag", workers, items=items, seconds=1.0)
    yield _case(code, "bag-8-on-40", "bag", 40, items=400, seconds=0.5, npartitions=8)
    yield _case(code, "bag-map-built-in", "bag-map", 300, items=330, seconds=1.0)
    yield _case(code, "beam-default-100", "beam-pardo", 100, items=100, seconds=0.5, stages=2)
    yield _case(code, "beam-default-1000", "beam-pardo", 40, items=1000, seconds=0.2, stages=1)
    yield _case(code, "beam-npartitions-10", "beam-pardo", 60, items=240, seconds=0.5, npartitions=10)
    yield _case(code, "beam-sweep", "beam-pardo", (10, 50, 100), items=(10, 50, 100), seconds=1.0, stages=3)
    yield _case(code, "bag-sweep", "bag", (50, 100, 200), items=(50, 100, 200), seconds=1.0)
    yield _case(code, "array-4-chunks", "chunks", 40, length=1000, chunk=250, seconds=3.0, also=few)
    yield _case(code, "array-30-chunks", "chunks", 100, length=3000, chunk=100, seconds=1.0, also=few)
    yield _case(code, "frame-5-partitions", "frame", 30, partitions=5, seconds=3.0, also=few)
    yield _case(code, "frame-40-on-200", "frame", 200, partitions=40, seconds=3.0, also=few)

    code = "fewer-items-than-workers"
    for workers, items, seconds in ((8, 3, 2.0), (40, 10, 1.0), (100, 60, 1.0), (300, 120, 4.0)):
        yield _case(code, f"{items}-on-{workers}", "futures-map", workers, items=items, seconds=seconds)
    yield _case(code, "beam-20-on-50", "beam-pardo", 50, items=20, seconds=1.0, npartitions="items")
    yield _case(code, "bag-16-on-64", "bag", 64, items=16, seconds=2.0)

    code = "sequential-graph"
    for workers, length, chains, shape in (
        (4, 12, 1, "futures"),
        (20, 20, 1, "delayed"),
        (10, 15, 2, "futures"),
        (100, 30, 3, "delayed"),
        (200, 10, 1, "futures"),
    ):
        yield _case(
            code,
            f"{chains}-of-{length}-on-{workers}",
            "chain",
            workers,
            length=length,
            chains=chains,
            shape=shape,
            seconds=0.5,
        )
    yield _case(
        code,
        "tree-with-a-slow-trunk",
        "tree",
        30,
        leaves=60,
        seconds=0.5,
        fan_in=2,
        reduce_seconds=2.0,
        shape="delayed",
    )

    code = "uneven-waves"
    for workers, items, seconds in (
        (10, 12, 1.0),
        (20, 22, 2.0),
        (40, 44, 0.5),
        (100, 110, 1.0),
        (300, 310, 3.0),
        (16, 18, 1.0),
    ):
        yield _case(code, f"{items}-on-{workers}", "futures-map", workers, items=items, seconds=seconds)
    yield _case(code, "bag-36-on-30", "bag", 30, items=36, seconds=2.0)

    code = "narrow-stage"
    for workers, few, rounds in ((8, 1, 1), (20, 3, 1), (100, 10, 1), (16, 1, 5)):
        yield _case(
            code, f"{few}-of-{workers}-{rounds}", "narrowing", workers, items=2 * workers, few=few, rounds=rounds
        )

    code = "work-inflation"
    shared = {"quiet_loss": "a task that waits for something outside Dask counts as busy"}
    yield _case(code, "two-served", "shared", (1, 2, 4, 8), items=64, jitter=0.1, **shared)
    yield _case(code, "eight-served", "shared", (4, 16, 64), items=256, serves=8, jitter=0.2, **shared)
    yield _case(code, "items-for-each", "shared", (2, 8, 32), items=(8, 32, 128), serves=6, jitter=0.1, **shared)
    yield _case(code, "each-starts-up", "shared", (1, 4, 16), items=64, serves=16, start_up=4.0, **shared)

    code = "client-busy"
    yield _case(code, "between-20", "thinking", 20, items=60, seconds=1.0, think=8.0)
    yield _case(code, "between-80", "thinking", 80, items=160, rounds=3, think=6.0)
    yield _case(code, "before-10", "thinking", 10, items=40, rounds=1, think=6.0, when="before")
    yield _case(code, "after-300", "thinking", 300, items=300, rounds=1, seconds=4.0, think=5.0, when="after")

    code = "client-waits"
    for workers, arrays, mebibytes in ((2, 8, 64), (2, 32, 24), (4, 4, 200)):
        name = f"gathers-{arrays}x{mebibytes}MiB"
        yield _case(code, name, "gathering", workers, arrays=arrays, mebibytes=mebibytes, cluster={"kind": "local"})


def _submission() -> Iterator[Case]:
    code = "results-awaited-in-loop"
    for i, (workers, width, steps, form) in enumerate(
        (
            (4, 1, 25, "result"),
            (10, 1, 30, "delayed"),
            (40, 1, 40, "result"),
            (100, 1, 30, "wait"),
            (20, 3, 25, "map"),
            (60, 4, 20, "result"),
            (12, 2, 30, "as_completed"),
            (300, 5, 20, "delayed"),
        )
    ):
        yield _case(
            code, f"{form}-{width}-on-{workers}", "awaited", workers, steps=steps, width=width, form=form, seed=i + 1
        )
    yield _case(code, "short-queries", "awaited", 16, steps=60, width=1, seconds=0.05, seed=9)

    code = "slow-submission"
    for i, (workers, pause, seconds, items, form) in enumerate(
        (
            (10, 0.5, 1.0, 40, "submit"),
            (20, 0.2, 1.0, 80, "compute"),
            (50, 0.1, 1.0, 150, "submit"),
            (100, 0.05, 1.0, 200, "compute"),
            (40, 0.1, 0.5, 120, "pairs"),
            (8, 0.4, 0.8, 40, "submit"),
            (200, 0.1, 3.0, 150, "submit"),
        )
    ):
        yield _case(
            code,
            f"{form}-{workers}",
            "slowly_sent",
            workers,
            items=items,
            seconds=seconds,
            pause=pause,
            form=form,
            seed=i + 1,
        )

    code = "few-tasks-in-flight"
    for workers, in_flight in ((8, 2), (20, 5), (100, 30)):
        yield _case(code, f"{in_flight}-on-{workers}", "window", workers, items=20 * in_flight, in_flight=in_flight)

    code = "waiting-tasks"
    for workers, leases, items in ((8, 1, 40), (20, 4, 120), (100, 30, 400)):
        yield _case(
            code,
            f"{leases}-leases-on-{workers}",
            "semaphore",
            workers,
            items=items,
            leases=leases,
            quiet_loss="a thread that waits inside a task counts as busy",
        )

    code = "nested-client"
    for workers, outer, inner, seconds in ((16, 12, 4, 1.0), (8, 6, 4, 0.5), (40, 30, 3, 1.0), (100, 80, 2, 2.0)):
        yield _case(
            code,
            f"blocking-{outer}-on-{workers}",
            "nested",
            workers,
            outer=outer,
            inner=inner,
            seconds=seconds,
            form="blocking",
            quiet_loss="a thread that waits inside a task counts as busy",
        )
    for workers, outer, inner in ((20, 4, 12), (40, 6, 15)):
        yield _case(
            code,
            f"one-by-one-{outer}-on-{workers}",
            "nested",
            workers,
            outer=outer,
            inner=inner,
            seconds=0.5,
            form="one_by_one",
            also=("results-awaited-in-loop",),
        )


def _placement() -> Iterator[Case]:
    code = "worker-restriction"
    for i, (workers, allowed, how, items, share) in enumerate(
        (
            (4, 1, "workers", 24, 1.0),
            (10, 1, "workers", 40, 1.0),
            (20, 2, "annotate", 60, 1.0),
            (50, 5, "workers", 100, 1.0),
            (100, 10, "name", 200, 1.0),
            (12, 3, "resources", 48, 1.0),
            (40, 4, "resources", 120, 1.0),
            (200, 20, "workers", 300, 1.0),
            (10, 1, "workers", 60, 0.5),
            (30, 2, "resources", 90, 0.5),
        )
    ):
        yield _case(
            code,
            f"{how}-{allowed}-of-{workers}-{share:g}",
            "restricted",
            workers,
            allowed=allowed,
            how=how,
            items=items,
            share=share,
            seed=i + 1,
        )

    code = "data-locality"
    off = {"distributed.scheduler.work-stealing": False}
    for workers, holders, how, items, config in (
        (10, 1, "scatter", 20, {}),
        (20, 2, "scatter", 40, {}),
        (50, 3, "results", 90, {}),
        (100, 8, "scatter", 200, off),
        (8, 1, "results", 14, off),
        (40, 4, "results", 80, {}),
    ):
        yield _case(
            code,
            f"{how}-{holders}-of-{workers}",
            "near_data",
            workers,
            holders=holders,
            how=how,
            items=items,
            config=config,
        )


def _again() -> Iterator[Case]:
    code = "recomputation"
    for workers, items, load, use, rounds, form in (
        (10, 20, 1.0, 0.2, 4, "delayed"),
        (20, 40, 2.0, 0.5, 3, "delayed"),
        (50, 50, 3.0, 0.3, 4, "bag"),
        (100, 200, 1.0, 0.2, 3, "delayed"),
        (8, 32, 0.8, 0.2, 5, "bag"),
        (30, 60, 2.0, 0.2, 6, "delayed"),
    ):
        yield _case(
            code,
            f"{form}-{rounds}-times-on-{workers}",
            "again",
            workers,
            items=items,
            load=load,
            use=use,
            rounds=rounds,
            form=form,
            quiet_loss="work done again counts as busy",
        )


def _failures() -> Iterator[Case]:
    quiet = "a failed trial has no complete measurement"
    for workers, items, how in ((4, 12, "task"), (20, 60, "task"), (100, 200, "task"), (10, 30, "client")):
        yield _case(
            "failed-trials",
            f"{how}-{workers}",
            "raises",
            workers,
            items=items,
            how=how,
            quiet_loss=quiet,
            also=("nothing-measured",),
        )
    for workers, items, bad in ((8, 40, 1), (30, 120, 1), (100, 300, 1)):
        yield _case("retried-tasks", f"{workers}", "raises", workers, items=items, bad=bad, how="retried")
    for sizes, items, bad in (((4, 20), (12, 60), (99, 7)), ((10, 20, 40), (30, 60, 120), (500, 500, 3))):
        yield _case(
            "failed-trials", f"last-of-{len(sizes)}-points", "raises", sizes, items=items, bad=bad, quiet_loss=quiet
        )
    for workers in (2, 20):
        yield _case(
            "nothing-measured",
            f"no-task-on-{workers}",
            "nothing",
            workers,
            also=("invalid-trials",),
            quiet_loss="nothing was measured",
        )
    for workers, leave, items, graceful, back in (
        (10, 5, 60, False, -1.0),
        (40, 20, 200, False, -1.0),
        (100, 70, 400, False, 6.0),
        (20, 12, 100, False, -1.0),
    ):
        yield _case(
            "worker-died",
            f"{leave}-of-{workers}{'-back' if back >= 0 else ''}",
            "workers_leave",
            workers,
            leave=leave,
            items=items,
            graceful=graceful,
            back=back,
            also=("workers-missing",),
        )
    for workers, leave, items in ((10, 6, 60), (60, 40, 240)):
        yield _case(
            "workers-missing",
            f"retired-{leave}-of-{workers}",
            "workers_leave",
            workers,
            leave=leave,
            items=items,
            graceful=True,
            also=("worker-died",),
        )


def _local() -> Iterator[Case]:
    def local(limit: int = 0, start_timeout_s: float = 60.0) -> dict[str, Any]:
        return {"kind": "local", "memory_limit_mb": limit, "start_timeout_s": start_timeout_s}

    plain = local()
    yield _case(HEALTHY, "local-numpy", "computing", 2, items=10, seconds=0.3, cluster=plain)
    yield _case(HEALTHY, "local-python", "computing", 2, items=12, seconds=0.4, how="python", cluster=plain)
    yield _case(
        HEALTHY,
        "local-own-arrays",
        "exchange",
        2,
        items=4,
        mebibytes=8,
        seconds=0.4,
        rounds=3,
        across=False,
        cluster=plain,
    )
    yield _case(
        HEALTHY, "local-little-exchange", "exchange", 2, items=4, mebibytes=1, seconds=0.4, rounds=3, cluster=plain
    )
    yield _case(HEALTHY, "local-threads-numpy", "computing", 1, threads=2, items=8, seconds=0.4, cluster=plain)

    for threads, items in ((4, 12), (3, 9)):
        yield _case(
            "gil-bound",
            f"python-1x{threads}",
            "computing",
            1,
            threads=threads,
            items=items,
            seconds=0.25,
            how="python",
            cluster=plain,
            quiet_loss="a thread that waits for the interpreter lock counts as busy",
        )
    yield _case(
        "transfer-bound", "2-workers", "exchange", 2, items=4, mebibytes=160, rounds=2, seconds=0.0, cluster=plain
    )
    yield _case(
        "transfer-bound", "4-workers", "exchange", 4, items=4, mebibytes=80, rounds=2, seconds=0.0, cluster=plain
    )
    yield _case(
        "serialisation-bound",
        "2-workers",
        "with_parcels",
        2,
        items=10,
        objects=25_000,
        cluster=plain,
        also=("large-graph",),
    )
    yield _case(
        "serialisation-bound",
        "3-workers",
        "with_parcels",
        3,
        items=15,
        objects=20_000,
        cluster=plain,
        also=("large-graph",),
    )
    yield _case(
        "serialisation-bound",
        "results",
        "exchanged_parcels",
        3,
        objects=25_000,
        rounds=2,
        cluster=plain,
        also=("transfer-bound",),
    )
    outside = "the graph travels before the scheduler knows a task"
    yield _case(
        "large-graph",
        "objects",
        "large_graph",
        2,
        how="objects",
        tasks=8,
        mebibytes=16,
        cluster=plain,
        quiet_loss=outside,
        also=("serialisation-bound",),
    )
    yield _case(
        "large-graph",
        "constants",
        "large_graph",
        2,
        tasks=8,
        mebibytes=60,
        seconds=0.02,
        cluster=plain,
        quiet_loss=outside,
        also=("serialisation-bound",),
    )
    yield _case(
        "large-graph",
        "objects-in-rounds",
        "large_graph",
        2,
        how="objects",
        tasks=4,
        mebibytes=32,
        rounds=3,
        cluster=plain,
        quiet_loss=outside,
        also=("serialisation-bound",),
    )
    yield _case("event-loop-blocked", "scheduler", "blocked_loops", 2, items=40, stalls=4, stall=1.0, cluster=plain)
    yield _case(
        "event-loop-blocked",
        "workers",
        "blocked_loops",
        2,
        items=40,
        stalls=4,
        stall=1.0,
        where="workers",
        cluster=plain,
    )
    yield _case(
        "host-overloaded",
        "8-others",
        "beside_others",
        2,
        others=8,
        items=10,
        last=5.0,
        cluster=plain,
        quiet_loss="the tasks themselves take longer",
    )
    dies = "the trial fails"
    quick = {"distributed.scheduler.allowed-failures": 1}
    for how, workers in (("exit", 2), ("segv", 3), ("kill", 2)):
        yield _case(
            "worker-killing-task",
            f"{how}-{workers}",
            "worker_killing",
            workers,
            how=how,
            config=quick,
            cluster=plain,
            quiet_loss=dies,
        )
    yield _case(
        "worker-died", "killed-1-of-3", "killed_workers", 3, cluster=plain, quiet_loss=dies, also=("workers-missing",)
    )
    yield _case(
        "workers-missing",
        "too-late-to-register",
        "computing",
        8,
        cluster=local(start_timeout_s=1.0),
        quiet_loss="nothing ran",
    )
    yield _case(
        "invalid-trials",
        "timed-out",
        "lasting",
        2,
        seconds=30.0,
        timeout_s=2.0,
        cluster=plain,
        quiet_loss="it never ended",
        also=("nothing-measured",),
    )
    yield _case(
        "invalid-trials",
        "one-timed-out",
        "lasting",
        (1, 1),
        seconds=(0.3, 30.0),
        timeout_s=3.0,
        cluster=plain,
        quiet_loss="it never ended",
    )
    for outer, inner, form in ((3, 4, "blocking"), (2, 6, "one_by_one")):
        yield _case(
            "nested-client",
            f"local-{form}",
            "nested",
            4,
            outer=outer,
            inner=inner,
            seconds=0.3,
            form=form,
            cluster=plain,
            quiet_loss="a thread that waits inside a task counts as busy",
            also=("results-awaited-in-loop",),
        )
    spill = local(limit=400)
    yield _case("memory-spill", "720-of-400-MiB", "memory", 1, items=24, mebibytes=30, cluster=spill)
    yield _case("memory-spill", "two-workers", "memory", 2, items=36, mebibytes=30, cluster=spill)
    yield _case(
        HEALTHY, "local-memory-suffices", "memory", 2, items=10, mebibytes=10, seconds=0.5, passes=1, cluster=spill
    )
    yield _case("memory-paused", "one-worker", "hoarding", 1, items=20, mebibytes=260, cluster=spill)
    yield _case("memory-paused", "two-workers", "hoarding", 2, items=40, mebibytes=260, cluster=spill)


def all_cases() -> tuple[Case, ...]:
    """Every case, the simulated ones first, so ordered that clusters and drivers can be shared."""
    cases = [*_healthy(), *_structure(), *_submission(), *_placement(), *_again(), *_failures(), *_local()]
    names = [case.name for case in cases]
    if len(set(names)) != len(names):
        raise ValueError(f"names are not unique: {sorted(name for name in names if names.count(name) > 1)}")
    return tuple(cases)
