"""Load of the driver's host, and the cores that worker processes used."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Floats, Ints
from scalescope.capture.host import CpuShares
from scalescope.diagnosis.evidence.task_table import threads_of_workers, worker_of_rows
from scalescope.diagnosis.evidence.timeline import covered
from scalescope.diagnosis.observation import Observation, once

FULL = 0.10  # most idle share of a host whose cores count as all busy
SAME_HOST = 1.1  # multiple of a host's cores (clocks differ); workers that use more are in containers of their own
OTHERS = 0.15  # least share of a host taken by other processes and the hypervisor, for them to explain a full host


@dataclass(frozen=True, kw_only=True)
class HostLoad(CpuShares):
    """CPU time of the driver's host, or of all workers' hosts, in the trial; `own` may include client and scheduler."""

    @property
    def foreign(self) -> float:
        """Share of the host that was not available to the trial."""
        return self.others + self.stolen

    @property
    def crowded(self) -> bool:
        return self.idle <= FULL and self.foreign >= OTHERS


@once
def host(observation: Observation) -> HostLoad | None:
    """Load of the driver's host, if all workers run on it in real time; else None, also if it is not known."""
    return None if observation.host_load is None else HostLoad(**observation.host_load)


@once
def hosts_of_workers(observation: Observation) -> HostLoad | None:
    """Load of the workers' hosts, by the worker processes alone (others are not recorded there); None if unknown."""
    found, attempts = samples(observation), observation.measured
    cores, hosts = observation.numbers("workers", "cores"), observation.column("workers", "host")
    if found is None or not len(cores) or not cores.all():
        return None
    at = worker_of_rows(observation, "workers")
    computing = np.where(found.running >= 0.5, found.seconds, 0.0)
    count = len(attempts.addresses)
    with np.errstate(invalid="ignore"):
        used = np.bincount(found.worker, computing * found.cpu, count) / np.bincount(found.worker, computing, count)
    used, total, capacity = np.nan_to_num(used), 0.0, 0.0
    for host_name in dict.fromkeys(hosts):
        here = np.array([each == host_name for each in hosts])
        taken = float(used[np.unique(at[here])].sum())
        # workers in separate containers may together use more cores than one container has
        shared = taken <= SAME_HOST * float(cores[here].max())
        total, capacity = total + taken, capacity + float(cores[here].max() if shared else cores[here].sum())
    share = min(total / capacity, 1.0)
    return HostLoad(ours=share, idle=1.0 - share, cpus=round(capacity), seconds=attempts.makespan)


MIN_SAMPLES = 3  # least samples of a worker; fewer prove nothing


@dataclass(frozen=True)
class CpuSamples:
    """CPU use of worker processes; one element per sample after the first of each process."""

    worker: Ints  # index into `Attempts.addresses`; always 0 where scheduler and workers share one process
    seconds: Floats  # seconds since the sample before
    cpu: Floats  # cores in use, as a mean over `seconds`
    running: Floats  # tasks computing in the process, as a mean over `seconds`
    threads: Ints  # threads of the process's workers


@once
def samples(observation: Observation) -> CpuSamples | None:
    """The samples within the makespan; None where CPU was not recorded, or some workers share processes."""
    attempts, cpu = observation.measured, observation.numbers("memory", "cpu")
    if not len(cpu):
        return None
    worker = worker_of_rows(observation, "memory")
    time = observation.numbers("memory", "time") - attempts.epoch
    one = in_one_process(observation)
    if one:
        worker = np.zeros_like(worker)
    elif _share_processes(observation, worker, time):
        return None
    order = np.lexsort((time, worker))
    order = order[worker[order] >= 0]
    worker, time, cpu = worker[order], time[order], cpu[order]
    begin = np.concatenate([[0.0], time[:-1]])
    kept = np.concatenate([[False], np.diff(worker) == 0]) & (begin >= 0) & (time <= attempts.makespan) & (time > begin)
    worker, begin, end, cpu = worker[kept], begin[kept], time[kept], cpu[kept]
    if not cpu.any():
        return None
    threads = threads_of_workers(observation)
    if one:
        at_once = sum(running(observation, worker + each, begin, end) for each in range(len(attempts.addresses)))
        return CpuSamples(worker, end - begin, cpu, np.asarray(at_once), np.full_like(worker, threads.sum()))
    return CpuSamples(worker, end - begin, cpu, running(observation, worker, begin, end), threads[worker])


def in_one_process(observation: Observation) -> bool:
    """Whether scheduler and all workers run in the client's process (`Client(processes=False)`)."""
    return not observation.trial.virtual and all(each.startswith("inproc:") for each in observation.measured.addresses)


def _share_processes(observation: Observation, worker: Ints, time: Floats) -> bool:
    """Whether workers share processes: one that stayed has no samples, as only the first of each process has."""
    attempts = observation.measured
    members = attempts.members
    seen = np.unique(worker)
    interval = float(np.median(np.diff(np.sort(time[worker == seen[-1]])))) if (worker == seen[-1]).sum() > 1 else 1.0
    stayed = (members.left >= attempts.makespan) & (members.left - members.joined > 3 * interval)
    return bool(np.setdiff1d(members.worker[stayed], seen).size)


def running(observation: Observation, worker: Ints, begin: Floats, end: Floats) -> Floats:
    """Tasks computing on each worker, as a mean over each interval."""
    attempts = observation.measured
    order = np.argsort(attempts.worker.astype(np.min_scalar_type(len(attempts.addresses))), kind="stable")
    first = np.searchsorted(attempts.worker[order], np.arange(len(attempts.addresses) + 1))
    result = np.zeros(len(worker))
    for i in np.unique(worker).tolist():
        mine, rows = worker == i, order[first[i] : first[i + 1]]
        for moments, sign in ((attempts.start[rows], 1.0), (attempts.stop[rows], -1.0)):
            result[mine] += sign * (covered(moments, end[mine]) - covered(moments, begin[mine]))
    length = end - begin
    mean: Floats = np.maximum(result, 0.0) / np.where(length > 0, length, 1.0)
    return mean
