"""Pairs of workloads of which B has one change, and the part of the difference that it is.

Nothing but `distributed` is imported: workers of other environments import this file, too.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import distributed


def load(i, seconds=1.0, size=100_000):
    time.sleep(seconds)
    return bytes(size)


def read(i, seconds=1.0, size=100_000):
    return load(i, seconds, size)


def clean(x, seconds=0.5):
    time.sleep(seconds)
    return x


def check(x, seconds=0.5):
    time.sleep(seconds)
    return x


def combine(xs, seconds=1.0):
    time.sleep(seconds)
    return len(xs)


def prepare(seconds):
    time.sleep(seconds)


def look(seconds):
    time.sleep(seconds)


def job(
    client, *, items: int = 40, load_s: float = 1.0, clean_s: float = 0.5, combine_s: float = 1.0, size: int = 100_000,
    prepare_s: float = 1.0, look_s: float = 0.0, name: str = "load", check_s: float = 0.0, again: bool = False,
    straggler_s: float = 0.0, every: int = 0, one_by_one: bool = False, pinned: bool = False,
    chain: int = 0, broadcast: int = 0, late_s: float = 0.0, skip: bool = False, planted: bool = False,
    noise: float = 0.03,
):  # fmt: skip
    """Items are loaded, cleaned and combined; parameters change what is done, how, and for how long."""
    chance = random.Random()

    def vary(seconds):
        return seconds * chance.uniform(1 - noise, 1 + noise)

    prepare(vary(prepare_s))
    first = read if name == "read" else load
    if planted:
        import planted as package

        first = package.load
        items = package.items(items)
    seconds = [vary(load_s) * (3 if every and i % every == 0 else 1) for i in range(items)]
    if straggler_s:
        seconds[-1] = straggler_s
    where = {"workers": list(client.scheduler_info()["workers"])[:1], "allow_other_workers": False} if pinned else {}
    loaded = client.map(first, range(items), seconds, [size] * items, pure=False, **where)
    if late_s:
        look(vary(late_s))
    if one_by_one:
        [client.submit(clean, each, vary(clean_s), pure=False).result() for each in loaded[:20]]
    done = loaded if skip else client.map(clean, loaded, [vary(clean_s) for _ in loaded], pure=False)
    if check_s:
        done = client.map(check, done, [vary(check_s) for _ in done], pure=False)
    if again:
        client.gather(client.map(first, range(items), seconds, [size] * items, pure=False))
    if broadcast:
        data = client.submit(load, -1, 0.01, broadcast, pure=False)
        done = client.map(lambda x, y, s: clean(x, s), done, [data] * len(done), [0.01] * len(done), pure=False)
    total = client.submit(combine, done, vary(combine_s), pure=False)
    for _ in range(chain):
        total = client.submit(check, total, vary(1.0), pure=False)
    total.result()
    if look_s:
        look(vary(look_s))


def blocks(client, *, side: int = 4096):
    """Chunks as Dask's configuration has them."""
    import dask.array as da

    da.ones((side, side), chunks="auto").map_blocks(lambda block: time.sleep(block.size / 2e6) or block).sum().compute()


def real(client, *, items: int = 8, imports: bool = False, held: int = 0, spins: int = 0, sleep_s: float = 0.2):
    """Parts that only real time has."""
    sys.modules.pop("planted_late", None)
    if imports:
        import planted_late  # noqa: F401
    kept = client.map(lambda i: bytes(held), range(items if held else 0), pure=False)
    sleep_s = 0.0 if spins else 0.8 if os.environ.get("OMP_NUM_THREADS") == "3" else sleep_s
    done = client.map(lambda i: time.sleep(sleep_s) or sum(range(spins)), range(items))
    client.gather(done)
    client.gather(client.map(len, kept, pure=False))


job.modelled = blocks.modelled = True


PLANTED = ({"planted": True}, "planted", "job", {"environment": "planted==1.0"})
RELEASES = {  # of the package `planted`: seconds times, items times, seconds of the client
    "1.0": (1.0, 1, 0.0), "1.1": (1.7, 1, 0.0), "1.2": (0.5, 1, 0.0), "1.3": (1.0, 2, 0.0), "1.4": (1.0, 1, 6.0),
}  # fmt: skip
CODE = """
import time
def load(i, seconds, size):
    time.sleep(seconds * {0})
    return bytes(size)
def items(count):
    time.sleep({2})
    return count * {1}
"""


@dataclass(frozen=True)
class Pair:
    """A change, and the parts that it can be."""

    kinds: str  # of the first part
    name: str = ""  # what its name, or the place where it grew, holds
    params: dict[str, Any] = field(default_factory=dict)
    point: dict[str, Any] = field(default_factory=dict)  # axes with other values
    cluster: dict[str, Any] = field(default_factory=dict)
    base: dict[str, Any] = field(default_factory=dict)  # parameters of both sides
    culprit: str = ""  # name of the first fact that differs
    function: str = "job"
    base_point: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    beside: int = 0  # processes that compute while B runs
    host: dict[str, str] = field(default_factory=dict)  # facts of B's host


PAIRS = {
    # more, fewer and other tasks
    "twice the items": Pair("graph", "load", {"items": 80}, culprit="items"),
    "a fifth more items": Pair("graph", "load", {"items": 48}),
    "half the items": Pair("graph", "load", {"items": 20}),
    "a new stage": Pair("graph", "check", {"check_s": 0.5}),
    "a short new stage": Pair("graph", "check", {"check_s": 0.15}),
    "a stage gone": Pair("graph", "clean", {"skip": True}),
    "loaded twice": Pair("graph", "load", {"again": True}),
    "a serial chain is new": Pair("graph", "check", {"chain": 5}),
    "a longer chain": Pair("graph", "check", {"chain": 12}, base={"chain": 4}),
    "small chunks": Pair("chunks", "", {"items": 320, "load_s": 0.2, "clean_s": 0.1}),
    "large chunks": Pair("chunks", "load", {"items": 5, "load_s": 8.0}),
    "uneven chunks": Pair("chunks", "load", {"items": 10, "load_s": 4.8}),
    "half the items, twice as long": Pair("chunks", "load", {"items": 20, "load_s": 2.4, "clean_s": 1.0}),
    # slower functions
    "a later stage is slower": Pair("slower", "check", {"check_s": 1.0}, base={"check_s": 0.5}),
    "load is slower": Pair("slower", "load", {"load_s": 1.5}, culprit="load_s"),
    "load is a little slower": Pair("slower", "load", {"load_s": 1.15}),
    "load is faster": Pair("slower", "load", {"load_s": 0.5}),
    "clean is slower": Pair("slower", "clean", {"clean_s": 1.0}),
    "clean is faster": Pair("slower", "clean", {"clean_s": 0.2}),
    "combine is slower": Pair("slower", "combine", {"combine_s": 5.0}),
    "combine is faster": Pair("slower", "combine", {"combine_s": 1.0}, base={"combine_s": 6.0}),
    "every fourth is three times as slow": Pair("slower", "load", {"every": 4}),
    "one straggler": Pair("slower waiting", "load", {"straggler_s": 12.0}),
    "another name and slower": Pair("slower", "read", {"name": "read", "load_s": 1.6}),
    "slower and more": Pair("slower", "load", {"load_s": 2.0, "items": 48}),
    "more and a little slower": Pair("graph", "load", {"load_s": 1.1, "items": 72}),
    # the client
    "a slow line before": Pair("client", "prepare", {"prepare_s": 5.0}),
    "a slow line after": Pair("client", "look", {"look_s": 4.0}),
    "a slow line while tasks run": Pair("client", "look", {"late_s": 30.0}),
    "a faster line": Pair("client", "prepare", {"prepare_s": 0.5}, base={"prepare_s": 6.0}),
    "one by one": Pair("graph client waiting", "", {"one_by_one": True}),
    "in one by one, slower": Pair("slower", "clean", {"clean_s": 1.5}, base={"one_by_one": True}),
    # data
    "larger results, a slow link": Pair("transfer", "", {"size": 40_000_000}),
    "a slower link": Pair("transfer", "", {}, {}, {"bandwidth": "200Mbit"}, {"size": 10_000_000}, "bandwidth"),
    "more CPU for packing": Pair("transfer serialisation", "", {}, {}, {"cpu_ms_per_mb": 30.0}, {"size": 10_000_000}),
    "more latency": Pair("transfer", "", {}, {}, {"latency_ms": 400.0}, culprit="latency_ms"),
    "a slower link, a broadcast": Pair("transfer", "", {}, {}, {"bandwidth": "100Mbit"}, {"broadcast": 50_000_000}),
    "an event loop per transfer": Pair("transfer", "", {}, {}, {"message_ms": 200.0}, culprit="message_ms"),
    # placement, workers, scheduler
    "pinned to one worker": Pair("waiting placement", "", {"pinned": True}),
    "fewer workers": Pair("threads", "", {}, {"workers": 2}, culprit="workers"),
    "more workers": Pair("threads", "", {}, {"workers": 8}, culprit="workers"),
    "one worker": Pair("threads", "", {}, {"workers": 1}, culprit="workers"),
    "fewer threads": Pair("threads", "", {}, {"threads_per_worker": 1}, culprit="threads_per_worker"),
    "more threads": Pair("threads", "", {}, {"threads_per_worker": 4}, culprit="threads_per_worker"),
    "a slow scheduler": Pair("placement scheduler", "", {}, {}, {"scheduler_us": 20_000}, culprit="scheduler_us"),
    "a slower scheduler, many tasks": Pair(
        "placement scheduler", "", {}, {}, {"scheduler_us": 2_000}, {"items": 800, "load_s": 0.05, "clean_s": 0.05}
    ),
    "slow workers' loops": Pair("placement scheduler waiting", "", {}, {}, {"worker_us": 300_000}, culprit="worker_us"),
    "two threads of one worker": Pair("threads", "", {}, {"workers": 1, "threads_per_worker": 4}, culprit="workers"),
    "stages wait for a straggler": Pair("slower waiting", "load", {"straggler_s": 20.0}, base={"chain": 2}),
    # configuration, packages
    "smaller chunks by configuration": Pair(
        "graph chunks", "", {}, {"array.chunk-size": "100KiB"}, {}, {}, "array.chunk-size", "blocks"
    ),
    "larger chunks by configuration": Pair(
        "graph chunks", "", {}, {"array.chunk-size": "64MiB"}, {}, {}, "array.chunk-size", "blocks",
        {"array.chunk-size": "1MiB"},
    ),
    "a slower release": Pair("slower", "load", {}, {"environment": "planted==1.1"}, {}, *PLANTED),
    "a faster release": Pair("slower", "load", {}, {"environment": "planted==1.2"}, {}, *PLANTED),
    "a release with more tasks": Pair("graph", "load", {}, {"environment": "planted==1.3"}, {}, *PLANTED),
    "a release whose client is slow": Pair("client", "items", {}, {"environment": "planted==1.4"}, {}, *PLANTED),
    # in real time
    "an import": Pair("imports client", "", {"imports": True}, {}, {}, {}, "imports", "real"),
    "a variable": Pair("slower", "", {}, {}, {}, {}, "OMP_NUM_THREADS", "real", variables={"OMP_NUM_THREADS": "3"}),
    "twice the real tasks": Pair("graph", "", {"items": 24}, {}, {}, {}, "items", "real"),
    "fewer real threads": Pair("threads", "", {}, {"threads_per_worker": 1}, {}, {"items": 16}, "threads", "real"),
    "spilling": Pair(
        "spill paused", "", {}, {}, {"memory_limit_mb": 500}, {"held": 60_000_000, "items": 12}, "memory", "real"
    ),
    # another machine
    "a slower processor": Pair(
        "machine", "", {"sleep_s": 0.3}, {}, {}, {}, "cpu_model", "real", host={"cpu_model": "a slow one"}
    ),
    "other processes compute": Pair(
        "machine", "", {}, {}, {}, {"spins": 20_000_000, "items": 12}, "cores used by other", "real", beside=4
    ),
    # written after the others had been run
    "a later stage is three times as slow": Pair("slower", "check", {"check_s": 1.5}, base={"check_s": 0.5}),
    "half as many items again": Pair("graph", "load", {"items": 60}, base={"check_s": 0.3}),
    "a slow line before one by one": Pair("client", "prepare", {"prepare_s": 3.0}, base={"one_by_one": True}),
    "a faster line after": Pair("client", "look", {"look_s": 2.0}, base={"look_s": 6.0}),
    "four times the workers": Pair("threads", "", {}, {"workers": 8}, {}, {}, "workers", "job", {"workers": 2}),
    "a slow network and a chain": Pair("transfer client", "", {}, {}, {"latency_ms": 800.0}, {"chain": 4}, "latency"),
    "a slow scheduler of short tasks": Pair(
        "placement scheduler", "", {}, {}, {"scheduler_us": 5_000}, {"items": 400, "load_s": 0.1}, "scheduler_us"
    ),
    "a release with more tasks, few items": Pair(
        "graph", "load", {}, {"environment": "planted==1.3"}, {}, {"planted": True, "items": 20}, *PLANTED[1:]
    ),
    "another name and a new stage": Pair("graph", "check", {"name": "read", "check_s": 0.5}),
    "a straggler before a stage": Pair("slower waiting", "load", {"straggler_s": 8.0}, base={"check_s": 0.5}),
    "every second is three times as slow": Pair("slower", "load", {"every": 2}),
    "a stage of three gone": Pair("graph", "clean", {"skip": True}, base={"check_s": 0.5}),
}  # fmt: skip


def trials(pair: Pair, changed: bool, address: str, seed: int) -> list[Any]:
    from support.requests import finished_run

    point = {"workers": 4, "threads_per_worker": 2, **pair.base_point, **(pair.point if changed else {})}
    local = pair.function == "real"
    if "environment" in point:
        point["environment"] = f"distributed=={distributed.__version__} {point['environment']}"
    os.environ |= pair.variables if changed else {}
    spin = [sys.executable, "-c", f"import os\nwhile os.getppid() == {os.getpid()}: pass"]
    beside = [subprocess.Popen(spin) for _ in range(pair.beside if changed else 0)]
    sweep = {
        "workload": f"{__file__}:{pair.function}",
        "points": [{**point, **({"workers": 2} if local else {})}],
        "params": {**pair.base, **(pair.params if changed else {})},
        "cluster": {"kind": "local" if local else "simulated", **(pair.cluster if changed else {})},
        "repeats": 5 if local else 3,
        "warmups": int(local),
        "seed": seed,
    }
    try:
        found = [trial for trial in finished_run(sweep, address, fresh=True).trials if trial.counts]
        host = pair.host if changed else {}
        return [replace(each, facts={**each.facts, "host": {**each.facts["host"], **host}}) for each in found]
    finally:
        for each in beside:
            each.kill()
            each.wait()
        for name in pair.variables:
            os.environ.pop(name, None)


def write_releases(folder: Path) -> None:
    """Releases of the package `planted` as wheels, and a module that takes long to import."""
    from support.wheels import write_wheel

    for version, numbers in RELEASES.items():
        write_wheel(folder, "planted", version, code=CODE.format(*numbers))
    (folder / "planted_late.py").write_text("import time\ntime.sleep(2)")
