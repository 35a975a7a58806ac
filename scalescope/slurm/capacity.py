"""How many workers the nodes of a partition hold at the same time when nobody else uses them."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from scalescope.slurm.commands import Run, answer
from scalescope.slurm.jobs import leading_number


@dataclass(frozen=True)
class SlurmNodeShape:
    """What a job asks for, or what a node has."""

    cores: int
    memory_mb: int = 0  # 0: what the partition gives
    gpus: int = 0
    threads: int = 1  # of each core, where jobs get whole cores: a job that asks for one thread gets all of them

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
class SlurmRoom:
    """Where jobs may run."""

    partition: str = ""  # or several, separated by commas; empty is the default one
    exclude: str = ""  # nodes, as Slurm abbreviates them
    constraint: str = ""  # features joined by `&`; any other form is ignored
    gpu: str = "gpu"  # the generic resource that is a GPU, with its type if it matters: `gpu:h200`
    whole_nodes: bool = False  # whether no two jobs share a node

    def most_workers(self, job: Callable[[int], SlurmNodeShape], full: int, *, run: Run) -> int | None:
        """Most workers that run at once, in jobs of `full` workers and one with the rest; None: sbatch must decide."""
        nodes = self._nodes(run)
        if nodes is None:
            return None
        jobs, rest = 0, 0
        # Nodes that are down or drained count, for they may come back.
        for (node, alone), number in Counter(nodes).items():
            fits = min(node.holds(job(full)), 1 if alone else node.cores)
            jobs += number * fits
            if not (alone and fits):
                left = node.without(fits, job(full))
                rest = max(rest, next((n for n in range(full - 1, 0, -1) if left.holds(job(n))), 0))
        return jobs * full + rest if jobs else None

    def _nodes(self, run: Run) -> list[tuple[SlurmNodeShape, bool]] | None:
        partition = ("-p", self.partition) if self.partition else ()
        text = answer(run, "sinfo", "-h", "-N", *partition, "-o", "%N|%c|%X %Y %Z|%m|%B|%h|%P|%f|%G")
        rows = [row for line in text.splitlines() if len(row := line.split("|", 8)) == 9]
        left_out = answer(run, "scontrol", "show", "hostnames", self.exclude).split() if self.exclude else []
        wanted = set(self.constraint.split("&")) if re.fullmatch(r"[\w.&-]+", self.constraint) else set()
        config = answer(run, "scontrol", "show", "config")
        linear = re.search(r"^SelectType\s*=\s*select/linear", config, re.MULTILINE) is not None
        # If this process is a job itself, it keeps its cores.
        own = {os.environ.get("SLURMD_NODENAME", ""): leading_number(os.environ.get("SLURM_CPUS_ON_NODE", ""))}
        found: dict[str, tuple[SlurmNodeShape, bool]] = {}
        for name, cpus, topology, memory, most, shared, in_partition, features, gres in rows:
            default = self.partition or in_partition.endswith("*")
            if not default or name in left_out or not wanted <= set(features.split(",")):
                continue
            if shared.startswith(("YES", "FORCE")):
                return None
            has = leading_number(cpus) - own.get(name, 0)
            before = found[name][0].cores if name in found else 0  # in another of the partitions
            cores = min(has, before + (int(most) if most.isdigit() else has))
            gpus = sum(int(number) for number in re.findall(rf"{re.escape(self.gpu)}(?::[^:,(]+)?:(\d+)", gres))
            sockets, per_socket, threads = map(int, topology.split())
            whole_cores = "CR_CPU" not in config and sockets * per_socket * threads == leading_number(cpus)
            shape = SlurmNodeShape(cores, leading_number(memory), gpus, threads if whole_cores else 1)
            found[name] = shape, self.whole_nodes or linear or shared.startswith("EXCLUSIVE")
        return list(found.values())
