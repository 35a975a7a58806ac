"""Tells how long the GPUs computed, and what the threads that used them did.

The busy thread-seconds of each worker are divided equally among the samples (`records.GPU`) of its running tasks. The
share of a sample in which NVML saw a kernel is `computing`. The rest is `copying` or `loading` if the thread's stack
shows it; otherwise `python` while the thread was on a core, and `waiting` while it was not. NVML sees cards, not
processes: on a shared card, kernels of any worker count as `computing`. NVML's values are late: a sample of a thread is
compared with NVML's value `LAG_S` later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Attempts, Bools, Floats, Ints, codes
from scalescope.analysis.events import Tables
from scalescope.model.metrics import GPU_TIME, PrefixGpu

# Seconds. NVML updates the value of an H100 every 0.2 s, for the last 0.14 s: on average 0.17 s late (docs/accuracy.md)
LAG_S = 0.17
USES = 0.05  # mean utilisation, or share of samples that copy, from which tasks count as using the GPU
APART = 5  # samples near which only a prefix's own tasks ran; with so many, only these tell whether it uses the GPU


@dataclass(frozen=True)
class Card:
    """One GPU during the workload's call."""

    workers: tuple[str, ...]  # addresses of workers that use it
    busy: float  # share of the time in which the card computed, from 0 to 1
    memory_peak: int  # most bytes of the card's memory in use, by all processes
    tasks: float  # mean number of tasks on the card's workers while any task runs
    queued: float  # mean number of these tasks that copy or wait for the card


@dataclass(frozen=True)
class GpuTime:
    """The workers' GPUs in a trial."""

    cards: Mapping[str, Card]  # cards by identity; a card that several workers share occurs once
    seconds: Mapping[str, Floats]  # busy thread-seconds by part of `GPU_TIME` and worker (`Attempts.addresses`)
    prefixes: Mapping[str, PrefixGpu]  # measurements by task prefix
    using: frozenset[str]  # prefixes whose tasks use the GPU

    @property
    def busy(self) -> float:
        return float(np.mean([card.busy for card in self.cards.values()]))

    def total(self) -> dict[str, float]:
        return {part: float(self.seconds[part].sum()) for part in GPU_TIME}


def gpu_time(tables: Tables, attempts: Attempts, busy: Floats) -> GpuTime | None:
    """Divide `busy`, the busy thread-seconds of each worker in `Attempts.addresses`; None without samples."""
    table = tables.get("gpu", {})
    when = np.asarray(table.get("time", ()), np.float64) - attempts.epoch
    kept = np.flatnonzero((when >= attempts.begin) & (when <= attempts.end))
    if not len(kept):
        return None
    names = {name: [table[name][i] for i in kept] for name in ("worker", "gpu", "prefix", "doing")}
    used, cpu, memory = (np.asarray(table[name], np.float64)[kept] for name in ("utilisation", "cpu", "memory"))
    index = {address: i for i, address in enumerate(attempts.addresses)}
    worker = np.array([index.get(name, -1) for name in names["worker"]])
    runs = np.array([bool(prefix) for prefix in names["prefix"]]) & (worker >= 0)
    doing = np.array(names["doing"])
    plain, at = ~np.isin(doing, ("copying", "loading")), _told_later(worker, when[kept], used)
    rest = 1.0 - at
    share = {
        "computing": at,
        "loading": rest * (doing == "loading"),
        "copying": rest * (doing == "copying"),
        "python": rest * plain * np.clip(cpu, 0, 1),
        "waiting": rest * plain * (1 - np.clip(cpu, 0, 1)),
    }
    count = np.bincount(worker[runs], minlength=len(busy))
    each = np.where(count > 0, busy / np.maximum(count, 1), 0.0)  # thread-seconds that one sample stands for
    stands_for = np.where(runs, each[worker], 0.0)
    parts: dict[str, Floats] = {
        part: np.bincount(worker[runs], weights=(values * stands_for)[runs], minlength=len(busy)).astype(np.float64)
        for part, values in share.items()
    }
    sampled = np.isin(np.arange(len(busy)), worker)
    parts["unseen"] = np.where(sampled & (count == 0), busy, 0.0)
    parts["no_gpu"] = np.where(sampled, 0.0, busy)
    prefixes, place = codes(names["prefix"])
    by_prefix = {
        name: PrefixGpu(
            utilisation=float(at[mine].mean()),
            memory_peak=int(memory[mine].max()),
            seconds={part: float((share[part] * stands_for)[mine].sum()) for part in share},
        )
        for i, name in enumerate(prefixes)
        if (mine := runs & (place == i)).any()
    }
    apart, using = _apart(codes(names["gpu"])[1], place, when[kept], runs), set()
    for i, name in enumerate(prefixes):
        mine = runs & (place == i)
        mine = mine & apart if (mine & apart).sum() >= APART else mine
        if mine.any() and max(at[mine].mean(), (doing[mine] == "copying").mean()) >= USES:
            using.add(name)
    cards = _cards(names, when[kept], used, memory)
    return GpuTime(cards, {part: parts[part] for part in GPU_TIME}, by_prefix, frozenset(using))


def _told_later(worker: Ints, when: Floats, used: Floats) -> Floats:
    told = used.copy()
    for i in np.unique(worker):
        own = np.flatnonzero(worker == i)
        times, first = np.unique(when[own], return_index=True)
        told[own] = used[own][first][np.searchsorted((times[1:] + times[:-1]) / 2, when[own] + LAG_S)]  # the nearest
    return told


def _apart(card: Ints, prefix: Ints, when: Floats, runs: Bools) -> Bools:
    """True for samples near which no task of another prefix ran on the same card; NVML's delay would mix them."""
    apart = np.zeros(len(when), bool)
    for i in np.unique(card):
        own = np.flatnonzero(runs & (card == i))
        own = own[np.argsort(when[own])]
        begin = np.searchsorted(when[own], when[own] - 2 * LAG_S)
        end = np.searchsorted(when[own], when[own] + 2 * LAG_S, side="right")
        for each in np.unique(prefix[own]):
            mine = prefix[own] == each
            count = np.concatenate([[0], np.cumsum(mine)])
            apart[own[mine & (count[end] - count[begin] == end - begin)]] = True
    return apart


def _cards(names: Mapping[str, list[str]], when: Floats, used: Floats, memory: Floats) -> dict[str, Card]:
    (gpus, card), (workers, worker), found = codes(names["gpu"]), codes(names["worker"]), {}
    runs = np.array([bool(prefix) for prefix in names["prefix"]])
    queued = runs & (np.array(names["doing"]) == "copying")
    _, sample = np.unique(np.column_stack([worker, when]), axis=0, return_index=True)  # one row a sample, not a task
    samples = np.bincount(worker[sample], minlength=len(workers))

    def per_sample(rows: Ints) -> Floats:
        return np.bincount(worker[rows], minlength=len(workers)) / samples

    running = per_sample(sample[runs[sample]])
    tasks, waiting = per_sample(np.flatnonzero(runs)), per_sample(np.flatnonzero(queued))
    for i, gpu in enumerate(gpus):
        mine, once = card == i, sample[card[sample] == i]
        own = np.unique(worker[mine])
        most = max(float(running[own].max()), 1e-9)
        found[gpu] = Card(
            workers=tuple(workers[j] for j in own),
            busy=float(used[once].mean()),
            memory_peak=int(memory[mine].max()),
            tasks=float(tasks[own].sum()) / most,
            queued=float(waiting[own].sum()) / most,
        )
    return found
