"""Labelled cases: what runs where, and what a fair expert would say of it.

A positive case loses at least a third of its worker time (or of the caller's time) to its cause; a healthy one loses
little, or has nothing that anybody could change. Where several answers are defensible, `also` has the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("workloads.py")
HEALTHY = "healthy"

# Why worker time does not show the loss, or shows one that nobody can change.
OUTSIDE = "a task that waits for something outside Dask counts as busy"
WAITS = "a thread that waits inside a task counts as busy"
AGAIN = "work done again counts as busy"
FAILED = "a failed trial has no complete measurement"
NONE = "nothing was measured"
LOCK = "a thread that waits for the interpreter lock counts as busy"
TRAVELS = "the graph travels before the scheduler knows a task"
LONGER = "the tasks themselves take longer"
DIES = "the trial fails"
NOTHING = "nothing ran"
ENDED = "it never ended"

AWAITED = "results-awaited-in-loop"
FEWER = "fewer-items-than-workers"
SERIAL = "serialisation-bound"
UNMEASURED = "nothing-measured"

NO_STEALING = {"distributed.scheduler.work-stealing": False}
NO_LINKS = {
    "kind": "simulated",
    "bandwidth": "inf",
}  # no link takes time, as if the scattered gigabytes were there already
GIVEN_UP_SOON = {"distributed.scheduler.allowed-failures": 1}


@dataclass(frozen=True)
class Case:
    """One sweep whose verdict is known."""

    name: str  # unique; begins with the code that is expected
    expect: str  # code of the finding that must come first
    workload: str  # function of `workloads.py`, or a built-in workload's name
    workers: tuple[int, ...]  # workers of each point
    threads: int = 1  # threads of each worker
    params: Mapping[str, Any] = field(default_factory=dict)  # of the workload; a tuple: one for each point
    config: Mapping[str, Any] = field(default_factory=dict)  # dask configuration
    cluster: Mapping[str, Any] = field(default_factory=lambda: {"kind": "simulated"})  # specification of the cluster
    also: tuple[str, ...] = ()  # codes that may come first as well
    seed: int = 0  # seed of the durations, where the workload has a parameter `seed`; 0 for none
    timeout_s: float = 120.0  # real seconds until the trial is stopped
    quiet_loss: str = ""  # why worker time does not show the loss; empty where it does

    @property
    def real(self) -> bool:
        """Whether it needs real processes."""
        return self.cluster["kind"] != "simulated"

    def sweep(self) -> dict[str, Any]:
        """The sweep as a user would write it."""
        reference = self.workload if {"-", ":"} & {*self.workload} else f"{FILE}:{self.workload}"
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


def case(
    name: str, workload: str, workers: int | tuple[int, ...], *, also: str = "", quiet: str = "", **rest: Any
) -> Case:
    """One case; arguments that are no fields of `Case` are parameters of the workload."""
    options = {key: rest.pop(key) for key in ("threads", "config", "cluster", "seed", "timeout_s") if key in rest}
    sizes = (workers,) if isinstance(workers, int) else workers
    expect = name.partition("/")[0]
    return Case(name, expect, workload, sizes, params=rest, also=tuple(also.split()), quiet_loss=quiet, **options)


def local(*known: Any, limit_mb: int = 0, start_timeout_s: float = 60.0, **rest: Any) -> Case:
    """One case on real processes of this host."""
    cluster = {"kind": "local", "memory_limit_mb": limit_mb, "start_timeout_s": start_timeout_s}
    return case(*known, cluster=cluster, **rest)


CASES = (
    case("healthy/map-4x1", "futures-map", 4, items=4, seconds=1.0),
    case("healthy/varied-4x8", "stages", 4, items=32, amount=0.2, seed=1),
    case("healthy/delayed-12", "stages", 12, items=48, seconds=2.0, amount=0.08, shape="delayed", seed=12),
    case("healthy/bag-30", "stages", 30, items=60, seconds=2.0, amount=0.08, shape="bag", seed=30),
    case("healthy/array-20", "stages", 20, items=240, seconds=2.0, amount=0.08, shape="array", seed=20),
    case("healthy/stages-chain-10", "stages", 10, items=20, amount=0.05, stages=3, seed=3),
    case("healthy/stages-barrier-20", "stages", 20, items=100, amount=0.05, stages=2, link="barrier", seed=3),
    case("healthy/stages-client-16", "stages", 16, items=32, amount=0.05, stages=3, link="client", seed=3),
    case("healthy/stages-shorter-and-shorter", "stages", 24, items=96, seconds=4.0, stages=4, shrink=0.5),
    case("healthy/bag-default-100", "bag", 50, items=100, seconds=2.0, jitter=0.05),
    case("healthy/bag-many-partitions", "bag", 40, items=800, seconds=0.5, npartitions=400, jitter=0.2),
    case("healthy/bag-built-in", "bag-map", 64, items=64, seconds=3.0, stages=2, npartitions="items"),
    case("healthy/array-sum", "chunks", 10, length=4000, chunk=16, seconds=0.5),
    case("healthy/array-map-only", "chunks", 50, seconds=3.0, reduce=False),
    case("healthy/data-frame", "frame", 10, partitions=40, seconds=1.5),
    case("healthy/tree-wide", "tree", 16, leaves=256, reduce_seconds=0.05),
    case("healthy/tree-delayed", "tree", 32, leaves=512, reduce_seconds=0.05, shape="delayed"),
    case("healthy/tree-built-in", "tree-reduce", 8, items=128, seconds=1.0, reduce_seconds=0.05),
    case("healthy/beam-one-partition-each", "beam-pardo", 40, items=40, seconds=2.0, stages=2, npartitions="items"),
    case("healthy/beam-two-waves", "beam-pardo", 20, items=40, seconds=1.0, stages=3, npartitions=40),
    case("healthy/pipeline", "pipeline", 12, items=120, seed=4),
    case("healthy/chains-for-all", "chain", 6, length=6, chains=12, seconds=0.5),
    case("healthy/threads-4x4", "stages", 4, threads=4, items=192, amount=0.1, seed=6),
    case("healthy/window-busy", "windowed", 20, items=300, seed=1),
    case("healthy/window-busy-wide", "windowed", 60, items=600, window=150, seconds=2.0, seed=2),
    case("healthy/sent-quickly", "slowly_sent", 10, items=300, pause=0.002, seed=1),
    case("healthy/long-sent-quickly", "slowly_sent", 40, items=160, seconds=8.0, pause=0.005, form="compute", seed=2),
    case("healthy/awaited-but-wide", "awaited", 8, steps=4, width=64, form="map", jitter=0.08, seed=4),
    case("healthy/epochs-of-delayed", "awaited", 20, steps=5, width=100, seconds=0.6, form="delayed", seed=5),
    case("healthy/two-maps-little-thinking", "thinking", 10, items=50, seconds=2.0, think=0.5),
    case("healthy/little-thinking-first", "thinking", 10, items=50, seconds=2.0, think=0.5, when="before"),
    case("healthy/priorities", "prioritised", 10, items=80, seed=1),
    case("healthy/retries-annotated", "prioritised", 16, items=128, how="retries", seed=2),
    case("healthy/delayed-annotated", "prioritised", 30, items=150, how="annotated", seed=3),
    case("healthy/restricted-to-all", "restricted", 10, items=80, allowed=10, seed=1),
    case("healthy/restricted-to-the-host", "restricted", 20, items=100, how="host", seed=2),
    case("healthy/restricted-loosely", "restricted", 8, items=80, allowed=8, how="loose", seed=3),
    case("healthy/few-restricted", "restricted", 10, items=100, allowed=2, share=0.08, seed=4),
    case("healthy/resource-everywhere", "restricted", 12, items=96, allowed=12, how="resources", seed=5),
    case("healthy/straggler-in-many-waves", "stages", 10, items=300, late=1, factor=3.0, where="first", seed=8),
    case("healthy/slightly-slow-worker", "slow_workers", 10, items=80, factor=1.1, seed=1),
    case("healthy/skew-in-many-tasks", "stages", 10, items=1000, seconds=0.2, profile="uniform", amount=3.0, seed=9),
    case("healthy/outer-task-of-a-wide-map", "nested", 8, outer=1, inner=64),
    case("healthy/persisted", "again", 20, items=80, use=0.4, rounds=3, form="persisted"),
    case("healthy/in-one-go", "again", 20, items=80, load=1.0, use=0.4, rounds=3, form="one_go"),
    case("healthy/data-broadcast", "near_data", 10, items=100, nbytes=10**9, broadcast=True, cluster=NO_LINKS),
    case("healthy/data-small", "near_data", 10, items=100, nbytes=1000),
    case("healthy/data-on-each", "near_data", 10, items=100, nbytes=10**9, holders=10, cluster=NO_LINKS),
    case("healthy/large-results-in-place", "stages", 12, items=48, stages=3, nbytes=500000000),
    case("healthy/retried-errors", "raises", 10, items=200, bad=50, how="retried", seconds=0.5),
    case("healthy/enough-leases", "semaphore", 10, items=60, leases=20),
    case("healthy/short-tasks-few-workers", "tiny", 4, items=600, seconds=0.1),
    case("healthy/short-tasks-beside-long", "tiny", 10, items=100, seconds=0.02, big=100),
    case("healthy/no-stealing", "stages", 10, items=80, amount=0.1, seed=10, config=NO_STEALING),
    case("healthy/sweep-map", "futures-map", (1, 2, 4, 8, 16), items=(16, 32, 64, 128, 256), seconds=0.5),
    case("healthy/sweep-same-items", "stages", (2, 4, 8, 16), items=96, amount=0.1, seed=11),
    case("healthy/sweep-beam", "beam-pardo", (5, 10, 20, 40), items=(10, 20, 40, 80), seconds=1.0, npartitions="items"),
    case("healthy/sweep-nothing-shared", "shared", (1, 2, 4, 8), items=64, serves=8, jitter=0.1),
    case("healthy/sweep-weak-scaling", "bag", (10, 25, 50), items=(20, 50, 100), seconds=2.0, jitter=0.05),
    case("too-few-partitions/bag-default-101-on-100", "bag", 100, items=101),
    case("too-few-partitions/beam-default-100", "beam-pardo", 100, items=100, seconds=0.5, stages=2),
    case("too-few-partitions/beam-sweep", "beam-pardo", (10, 50, 100), items=(10, 50, 100), seconds=1.0, stages=3),
    case("too-few-partitions/array-4-chunks", "chunks", 40, chunk=250, seconds=3.0, also=FEWER),
    case("too-few-partitions/frame-5-partitions", "frame", 30, partitions=5, seconds=3.0, also=FEWER),
    case("fewer-items-than-workers/3-on-8", "futures-map", 8, items=3, seconds=2.0),
    case("fewer-items-than-workers/beam-20-on-50", "beam-pardo", 50, items=20, seconds=1.0, npartitions="items"),
    case("fewer-items-than-workers/bag-16-on-64", "bag", 64, items=16, seconds=2.0),
    case("sequential-graph/1-of-12-on-4", "chain", 4, length=12, seconds=0.5),
    case("sequential-graph/1-of-20-on-20", "chain", 20, shape="delayed", seconds=0.5),
    case("sequential-graph/trunk", "tree", 30, leaves=60, seconds=0.5, fan_in=2, reduce_seconds=2.0, shape="delayed"),
    case("uneven-waves/12-on-10", "futures-map", 10, items=12, seconds=1.0),
    case("uneven-waves/22-on-20", "futures-map", 20, items=22, seconds=2.0),
    case("uneven-waves/bag-36-on-30", "bag", 30, items=36, seconds=2.0),
    case("narrow-stage/1-of-8-1", "narrowing", 8, items=16, few=1),
    case("narrow-stage/3-of-20-1", "narrowing", 20, items=40, few=3),
    case("narrow-stage/1-of-16-5", "narrowing", 16, items=32, few=1, rounds=5),
    case("work-inflation/two-served", "shared", (1, 2, 4, 8), items=64, jitter=0.1, quiet=OUTSIDE),
    case("work-inflation/eight-served", "shared", (4, 16, 64), items=256, serves=8, jitter=0.2, quiet=OUTSIDE),
    case("work-inflation/more-items", "shared", (2, 8, 32), items=(8, 32, 128), serves=6, jitter=0.1, quiet=OUTSIDE),
    case("work-inflation/each-starts-up", "shared", (1, 4, 16), items=64, serves=16, start_up=4.0, quiet=OUTSIDE),
    case("client-busy/between-20", "thinking", 20, items=60, think=8.0),
    case("client-busy/before-10", "thinking", 10, items=40, rounds=1, think=6.0, when="before"),
    case("client-busy/after-300", "thinking", 300, items=300, rounds=1, seconds=4.0, think=5.0, when="after"),
    case("client-waits/gathers-8x64MiB", "gathering", 2, cluster={"kind": "local"}),
    case("client-waits/gathers-4x200MiB", "gathering", 4, arrays=4, mebibytes=200, cluster={"kind": "local"}),
    case("straggler/map-4", "stages", 4, items=12, amount=0.1, late=1, factor=12.0, where="last", seed=1),
    case("straggler/delayed-16", "stages", 16, items=32, amount=0.05, late=1, factor=9.0, shape="delayed", seed=7),
    case("straggler/stages-barrier-20", "stages", 20, items=40, amount=0.1, late=1, stages=3, link="barrier", seed=10),
    case("straggler/threads-5x4", "stages", 5, threads=4, items=60, late=1, factor=12.0, where="last", seed=12),
    case("skewed-tasks/ramp-8", "stages", 8, items=8, seconds=0.3, profile="ramp", amount=12.0, seed=1),
    case(
        "skewed-tasks/stages-16", "stages", 16, items=16, profile="uniform", amount=15, link="barrier", stages=3, seed=6
    ),
    case("skewed-tasks/log-25", "stages", 25, items=25, profile="lognormal", amount=1.0, seed=3, also="straggler"),
    case("skewed-tasks/sizes-40", "stages", 40, items=40, profile="uniform", amount=20.0, nbytes=10**6, seed=5),
    case("slow-worker/1-of-4", "slow_workers", 4, items=4, seconds=4.0, factor=5.0, seed=1),
    case("slow-worker/1-of-8", "slow_workers", 8, items=8, seconds=3.0, stages=4, seed=2),
    case("slow-worker/3-of-50", "slow_workers", 50, items=50, seconds=4.0, stages=2, slow=3, factor=5.0, seed=4),
    case("tiny-tasks/futures-20x1ms", "tiny", 20, items=1500),
    case("tiny-tasks/bag-40x0.5ms", "tiny", 40, items=1500, seconds=0.0005, shape="bag"),
    case("tiny-tasks/array-100x1ms", "tiny", 100, items=1200, shape="array"),
    case("results-awaited-in-loop/result-1-on-4", "awaited", 4, steps=25, seed=1),
    case("results-awaited-in-loop/map-3-on-20", "awaited", 20, steps=25, width=3, form="map", seed=5),
    case("results-awaited-in-loop/as_completed-2-on-12", "awaited", 12, steps=30, width=2, form="as_completed", seed=7),
    case("slow-submission/submit-10", "slowly_sent", 10, items=40, pause=0.5, seed=1),
    case("slow-submission/compute-20", "slowly_sent", 20, items=80, pause=0.2, form="compute", seed=2),
    case("slow-submission/pairs-40", "slowly_sent", 40, items=120, seconds=0.5, form="pairs", seed=5),
    case("few-tasks-in-flight/2-on-8", "windowed", 8, items=40, window=2, jitter=0.5, seed=1),
    case("few-tasks-in-flight/5-on-20", "windowed", 20, items=100, window=5, jitter=0.5, seed=1),
    case("few-tasks-in-flight/30-on-100", "windowed", 100, items=600, window=30, jitter=0.5, seed=1),
    case("waiting-tasks/1-leases-on-8", "semaphore", 8, items=40, leases=1, quiet=WAITS),
    case("waiting-tasks/4-leases-on-20", "semaphore", 20, items=120, leases=4, quiet=WAITS),
    case("waiting-tasks/30-leases-on-100", "semaphore", 100, items=400, leases=30, quiet=WAITS),
    case("nested-client/blocking-12-on-16", "nested", 16, outer=12, inner=4, form="blocking", quiet=WAITS),
    case("nested-client/in-turn-4", "nested", 20, outer=4, inner=12, seconds=0.5, form="one_by_one", also=AWAITED),
    case("worker-restriction/workers-1-of-4-1", "restricted", 4, items=24, seed=1),
    case("worker-restriction/annotate-2-of-20-1", "restricted", 20, allowed=2, how="annotate", items=60, seed=3),
    case("worker-restriction/name-10-of-100-1", "restricted", 100, allowed=10, how="name", items=200, seed=5),
    case("worker-restriction/resources-3-of-12-1", "restricted", 12, allowed=3, how="resources", items=48, seed=6),
    case("worker-restriction/workers-1-of-10-0.5", "restricted", 10, items=60, share=0.5, seed=9),
    case("data-locality/scatter-1-of-10", "near_data", 10, items=20, cluster=NO_LINKS),
    case("data-locality/results-3-of-50", "near_data", 50, holders=3, how="results", items=90),
    case("data-locality/results-1-of-8", "near_data", 8, how="results", items=14, config=NO_STEALING),
    case("recomputation/delayed-4-times-on-10", "again", 10, items=20, quiet=AGAIN),
    case("recomputation/bag-5-times-on-8", "again", 8, items=32, load=0.8, rounds=5, form="bag", quiet=AGAIN),
    case("failed-trials/task-4", "raises", 4, items=12, also=UNMEASURED, quiet=FAILED),
    case("failed-trials/client-10", "raises", 10, items=30, how="client", also=UNMEASURED, quiet=FAILED),
    case("retried-tasks/8", "raises", 8, items=40, bad=1, how="retried"),
    case("retried-tasks/30", "raises", 30, items=120, bad=1, how="retried"),
    case("failed-trials/last-of-2", "raises", (4, 20), items=(12, 60), bad=(99, 7), quiet=FAILED),
    case("nothing-measured/no-task-on-2", "nothing", 2, also="invalid-trials", quiet=NONE),
    case("nothing-measured/no-task-on-20", "nothing", 20, also="invalid-trials", quiet=NONE),
    case("worker-died/5-of-10", "workers_leave", 10, leave=5, items=60, also="workers-missing"),
    case("worker-died/70-of-100-back", "workers_leave", 100, leave=70, items=400, back=6.0, also="workers-missing"),
    case("workers-missing/6-of-10", "workers_leave", 10, leave=6, items=60, graceful=True, also="worker-died"),
    case("workers-missing/40-of-60", "workers_leave", 60, leave=40, items=240, graceful=True, also="worker-died"),
    local("healthy/local-numpy", "computing", 2, items=10),
    local("healthy/local-python", "computing", 2, items=12, seconds=0.4, how="python"),
    local("healthy/local-own-arrays", "exchange", 2, items=4, mebibytes=8, seconds=0.4, rounds=3, across=False),
    local("healthy/local-little-exchange", "exchange", 2, items=4, mebibytes=1, seconds=0.4, rounds=3),
    local("healthy/local-threads-numpy", "computing", 1, threads=2, items=8, seconds=0.4),
    local("gil-bound/python-1x4", "computing", 1, threads=4, items=12, seconds=0.25, how="python", quiet=LOCK),
    local("gil-bound/python-1x3", "computing", 1, threads=3, items=9, seconds=0.25, how="python", quiet=LOCK),
    case("transfer-bound/300-simulated", "passed_on", 300, items=300),
    local("transfer-bound/2-workers", "exchange", 2, items=4, mebibytes=160, rounds=2, seconds=0.0),
    local("transfer-bound/4-workers", "exchange", 4, items=4, mebibytes=80, rounds=2, seconds=0.0),
    local("serialisation-bound/2-workers", "with_parcels", 2, items=10, objects=25000, also="large-graph"),
    local("serialisation-bound/3-workers", "with_parcels", 3, items=15, objects=20000, also="large-graph"),
    local("serialisation-bound/results", "exchanged_parcels", 3, objects=25000, rounds=2, also="transfer-bound"),
    local("large-graph/objects", "large_graph", 2, how="objects", mebibytes=16, also=SERIAL, quiet=TRAVELS),
    local("large-graph/constants", "large_graph", 2, mebibytes=60, seconds=0.02, also=SERIAL, quiet=TRAVELS),
    local("large-graph/rounds", "large_graph", 2, how="objects", mebibytes=16, rounds=3, also=SERIAL, quiet=TRAVELS),
    local("event-loop-blocked/scheduler", "blocked_loops", 2, items=40, stall=1.0),
    local("event-loop-blocked/workers", "blocked_loops", 2, items=40, stall=1.0, where="workers"),
    local("host-overloaded/8-others", "beside_others", 2, items=10, last=5.0, quiet=LONGER),
    local("worker-killing-task/exit-2", "worker_killing", 2, config=GIVEN_UP_SOON, quiet=DIES),
    local("worker-killing-task/segv-3", "worker_killing", 3, how="segv", config=GIVEN_UP_SOON, quiet=DIES),
    local("worker-killing-task/kill-2", "worker_killing", 2, how="kill", config=GIVEN_UP_SOON, quiet=DIES),
    local("worker-died/killed-1-of-3", "killed_workers", 3, also="workers-missing", quiet=DIES),
    local("workers-missing/too-late-to-register", "computing", 8, start_timeout_s=1.0, quiet=NOTHING),
    local("invalid-trials/timed-out", "lasting", 2, seconds=30.0, timeout_s=2.0, also=UNMEASURED, quiet=ENDED),
    local("invalid-trials/one-timed-out", "lasting", (1, 1), seconds=(0.3, 30.0), timeout_s=3.0, quiet=ENDED),
    local("nested-client/held", "nested", 4, outer=3, inner=4, seconds=0.3, form="blocking", also=AWAITED, quiet=WAITS),
    local("nested-client/turns", "nested", 4, outer=2, inner=6, form="one_by_one", also=AWAITED, quiet=WAITS),
    local("memory-spill/720-of-400-MiB", "memory", 1, items=24, limit_mb=400),
    local("memory-spill/two-workers", "memory", 2, items=36, limit_mb=400),
    local("healthy/local-memory-suffices", "memory", 2, items=10, mebibytes=10, seconds=0.5, passes=1, limit_mb=400),
    local("memory-paused/one-worker", "hoarding", 1, items=20, mebibytes=260, limit_mb=400),
    local("memory-paused/two-workers", "hoarding", 2, items=40, mebibytes=260, limit_mb=400),
)


def all_cases() -> tuple[Case, ...]:
    """Every case; names are unique."""
    assert len({case.name for case in CASES}) == len(CASES)
    return CASES
