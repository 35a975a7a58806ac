"""Whether the GPUs computed, and what the threads that held them did meanwhile.

The busy thread-seconds of each worker are divided by its samples (`records.GPU`), without remainder: each sample of a
running task stands for an equal part of them. The part in which NVML saw a kernel is `computing`; the rest is
`copying` or `loading` where the stack of the thread shows that, and otherwise `python` while the thread was on a core
and `waiting` while it was not. NVML sees cards, not processes: on a shared card, `computing` is for any of its workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Attempts, Floats, Tables, codes
from scalescope.model.metrics import GPU_TIME, PrefixGpu


@dataclass(frozen=True)
class Card:
    """One GPU during the workload's call."""

    workers: tuple[str, ...]  # addresses of those that use it
    busy: float  # part of the time in which it computed, from 0 to 1
    memory_peak: int  # bytes in use, by whomever


@dataclass(frozen=True)
class GpuTime:
    """The workers' GPUs in a trial."""

    cards: Mapping[str, Card]  # by identity; each once, however many workers share it
    seconds: Mapping[str, Floats]  # busy thread-seconds by part of `GPU_TIME` and worker (`Attempts.addresses`)
    prefixes: Mapping[str, PrefixGpu]  # of tasks that were seen

    @property
    def busy(self) -> float:
        return float(np.mean([card.busy for card in self.cards.values()]))

    def total(self) -> dict[str, float]:
        return {part: float(self.seconds[part].sum()) for part in GPU_TIME}


def gpu_time(tables: Tables, attempts: Attempts, busy: Floats) -> GpuTime | None:
    """Divide the busy thread-seconds of each worker, `busy` by `Attempts.addresses`; None without samples."""
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
    plain, rest = ~np.isin(doing, ("copying", "loading")), 1.0 - used
    share = {
        "computing": used,
        "loading": rest * (doing == "loading"),
        "copying": rest * (doing == "copying"),
        "python": rest * plain * np.clip(cpu, 0, 1),
        "waiting": rest * plain * (1 - np.clip(cpu, 0, 1)),
    }
    count = np.bincount(worker[runs], minlength=len(busy))
    each = np.where(count > 0, busy / np.maximum(count, 1), 0.0)  # thread-seconds that a row of a worker stands for
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
            utilisation=float(used[mine].mean()),
            memory_peak=int(memory[mine].max()),
            seconds={part: float((share[part] * stands_for)[mine].sum()) for part in share},
        )
        for i, name in enumerate(prefixes)
        if (mine := runs & (place == i)).any()
    }
    return GpuTime(_cards(names, when[kept], used, memory), {part: parts[part] for part in GPU_TIME}, by_prefix)


def _cards(names: Mapping[str, list[str]], when: Floats, used: Floats, memory: Floats) -> dict[str, Card]:
    (gpus, card), (_, worker), found = codes(names["gpu"]), codes(names["worker"]), {}
    for i, gpu in enumerate(gpus):
        mine = np.flatnonzero(card == i)
        workers = [names["worker"][row] for row in mine]
        # a sample counts once, however many tasks ran
        once = mine[np.unique(np.column_stack([worker[mine], when[mine]]), axis=0, return_index=True)[1]]
        found[gpu] = Card(tuple(dict.fromkeys(workers)), float(used[once].mean()), int(memory[mine].max()))
    return found
