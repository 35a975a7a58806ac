"""How many workers the nodes of a partition hold at the same time when nobody else uses them.

Slurm hides CLOUD nodes that are powered off. Their resources are the partition's, less those of visible nodes.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from scalescope.slurm.commands import Run, answer
from scalescope.slurm.job_facts import size, tres
from scalescope.slurm.jobs import is_closed, leading_number, parse_scontrol

_MANY = 10**6  # number assumed for GPUs of hidden nodes, since few sites have Slurm count a partition's GPUs


@dataclass(frozen=True)
class SlurmNodeShape:
    """Resources that a job asks for, or that a node has."""

    cores: int
    memory_mb: int = 0  # 0: the partition's default
    gpus: int = 0
    threads: int = 1  # threads per core if jobs get whole cores: rounds up a job's `cores` to a multiple; else 1

    def __str__(self) -> str:
        parts = ((self.cores, "core"), (self.memory_mb, "MB"), (self.gpus, "GPU"))
        return ", ".join(f"{count} {unit}{'s' if count > 1 and unit != 'MB' else ''}" for count, unit in parts if count)

    def holds(self, job: SlurmNodeShape) -> int:
        pairs = ((self.cores, self._whole(job)), (self.memory_mb, job.memory_mb), (self.gpus, job.gpus))
        return max(min(has // wants for has, wants in pairs if wants), 0)

    def without(self, number: int, job: SlurmNodeShape) -> SlurmNodeShape:
        cores, memory_mb = self.cores - number * self._whole(job), self.memory_mb - number * job.memory_mb
        return SlurmNodeShape(cores, memory_mb, self.gpus - number * job.gpus, self.threads)

    def _whole(self, job: SlurmNodeShape) -> int:
        return math.ceil(job.cores / self.threads) * self.threads


@dataclass(frozen=True)
class SlurmCapacity:
    """Most workers that can run at once on an otherwise idle cluster."""

    most: int  # most workers on all nodes, including down or drained ones
    now: int  # most workers on the nodes that work
    closed: Mapping[str, tuple[str, str]]  # state and reason of nodes that are down or drained


@dataclass(frozen=True)
class _Asleep:
    """The nodes of a partition that are powered off and hidden."""

    all: SlurmNodeShape  # resources of these nodes together
    count: int
    alone: bool  # True if no two jobs share a node

    def room(self) -> list[tuple[SlurmNodeShape, bool]]:
        """Upper bound: one node may have nearly all, so a job is refused only if all nodes together have too little."""
        return [(self.all, True)] * self.count if self.alone else [(self.all, False)]


@dataclass(frozen=True)
class SlurmRoom:
    """Where jobs may run."""

    partition: str = ""  # partition, or several, separated by commas; empty is the default one
    exclude: str = ""  # nodes to leave out, as Slurm abbreviates them
    constraint: str = ""  # features joined by `&`; any other form is ignored
    gpu: str = "gpu"  # the generic resource that is a GPU, with its type if it matters: `gpu:h200`
    whole_nodes: bool = False  # True if no two jobs share a node

    def capacity(
        self, job: Callable[[int], SlurmNodeShape], full: int, *, run: Run, ours: Collection[str] = ()
    ) -> SlurmCapacity | None:
        """Room for jobs of `full` workers and one job with the remaining workers; None: only sbatch can tell.

        Jobs on a node that drains run on, so the nodes of our own jobs, `ours`, count as working.
        """
        all_rows = self._rows(run)
        rows = self._fitting(all_rows, run)
        nodes = self._nodes(rows, run)
        if nodes is None:
            return None
        asleep = [node for each in self._asleep(all_rows, run) for node in each.room()]
        jobs, most = _workers([*nodes.values(), *asleep], job, full)
        if not jobs:
            return None
        closed = {name: state for name, state in _closed(rows).items() if name not in ours}
        _, now = _workers([*(node for name, node in nodes.items() if name not in closed), *asleep], job, full)
        return SlurmCapacity(most, now, closed)

    def cores_of_whole_nodes(self, run: Run) -> int:
        """Cores of the largest node, if each job gets a node for itself; else 0."""
        rows = self._rows(run)
        awake = [node.cores for node, alone in (self._nodes(self._fitting(rows, run), run) or {}).values() if alone]
        asleep = [math.ceil(each.all.cores / each.count) for each in self._asleep(rows, run) if each.alone]
        return max(awake + asleep, default=0)

    def closed_nodes(self, run: Run) -> dict[str, tuple[str, str]]:
        """State and reason of the nodes that are down or drained."""
        return _closed(self._fitting(self._rows(run), run))

    def _rows(self, run: Run) -> list[list[str]]:
        """The nodes of our partitions that Slurm shows, once for each partition."""
        partition = ("-p", self.partition) if self.partition else ()
        text = answer(run, "sinfo", "-h", "-N", *partition, "-o", "%N|%P|%f|%c|%X %Y %Z|%m|%B|%h|%G|%T|%E")
        rows = [row for line in text.splitlines() if len(row := line.split("|", 10)) == 11]
        return [row for row in rows if self.partition or row[1].endswith("*")]

    def _fitting(self, rows: Iterable[list[str]], run: Run) -> list[list[str]]:
        """The rows of nodes that jobs may use, without the columns of partitions and features."""
        left_out = answer(run, "scontrol", "show", "hostnames", self.exclude).split() if self.exclude else []
        wanted = set(self.constraint.split("&")) if re.fullmatch(r"[\w.&-]+", self.constraint) else set()
        return [
            [name, *rest]
            for name, _, features, *rest in rows
            if name not in left_out and wanted <= set(features.split(","))
        ]

    def _asleep(self, rows: Iterable[list[str]], run: Run) -> list[_Asleep]:
        shown: dict[str, dict[str, list[str]]] = {}
        for name, partition, *row in rows:
            shown.setdefault(partition.removesuffix("*"), {})[name] = row
        found = []
        for fields in map(parse_scontrol, answer(run, "scontrol", "show", "partition", "-o").splitlines()):
            name = fields["PartitionName"]
            nodes = shown.get(name, {}).values()
            count = leading_number(fields.get("TotalNodes", "")) - len(nodes)
            is_ours = name in self.partition.split(",") if self.partition else fields.get("Default") == "YES"
            if is_ours and count > 0:
                memory_mb = (size(tres(fields.get("TRES", "")).get("mem", "")) or 0) // 2**20
                all_nodes = SlurmNodeShape(
                    leading_number(fields.get("TotalCPUs", "")) - sum(leading_number(row[1]) for row in nodes),
                    memory_mb - sum(leading_number(row[3]) for row in nodes),
                    _MANY,
                )
                alone = self.whole_nodes or _linear(_config(run)) or fields.get("OverSubscribe") == "EXCLUSIVE"
                found.append(_Asleep(all_nodes, count, alone))
        return found

    def _nodes(self, rows: Iterable[list[str]], run: Run) -> dict[str, tuple[SlurmNodeShape, bool]] | None:
        config = _config(run)
        # If this process itself runs in a job, the cores of that job are taken.
        own = {os.environ.get("SLURMD_NODENAME", ""): leading_number(os.environ.get("SLURM_CPUS_ON_NODE", ""))}
        found: dict[str, tuple[SlurmNodeShape, bool]] = {}
        for name, cpus, topology, memory, most, shared, gres, _, _ in rows:
            if shared.startswith(("YES", "FORCE")):
                return None
            has = leading_number(cpus) - own.get(name, 0)
            before = found[name][0].cores if name in found else 0  # cores counted for its other partitions
            cores = min(has, before + (int(most) if most.isdigit() else has))
            gpus = sum(int(number) for number in re.findall(rf"{re.escape(self.gpu)}(?::[^:,(]+)?:(\d+)", gres))
            sockets, per_socket, threads = map(int, topology.split())
            whole_cores = "CR_CPU" not in config and sockets * per_socket * threads == leading_number(cpus)
            shape = SlurmNodeShape(cores, leading_number(memory), gpus, threads if whole_cores else 1)
            found[name] = shape, self.whole_nodes or _linear(config) or shared.startswith("EXCLUSIVE")
        return found


def _config(run: Run) -> str:
    return answer(run, "scontrol", "show", "config")


def _linear(config: str) -> bool:
    return re.search(r"^SelectType\s*=\s*select/linear", config, re.MULTILINE) is not None


def _closed(rows: Iterable[list[str]]) -> dict[str, tuple[str, str]]:
    found = {name: (state, why) for name, *_, state, why in rows if is_closed(state)}
    return {name: (state, "" if why == "none" else why) for name, (state, why) in found.items()}


def _workers(
    nodes: Iterable[tuple[SlurmNodeShape, bool]], job: Callable[[int], SlurmNodeShape], full: int
) -> tuple[int, int]:
    """Full jobs that can run at once, and their workers together with those of one smaller job."""
    jobs, rest = 0, 0
    for (node, alone), number in Counter(nodes).items():
        fits = min(node.holds(job(full)), 1 if alone else node.cores)
        jobs += number * fits
        if not (alone and fits):
            left = node.without(fits, job(full))
            rest = max(rest, next((n for n in range(full - 1, 0, -1) if left.holds(job(n))), 0))
    return jobs, jobs * full + rest
