"""GPUs that are missing, full or slow."""

from __future__ import annotations

import re

import numpy as np

from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.causes.slow_worker import SLOW_WORKER
from scalescope.diagnosis.evidence.gpu import facts_of_gpus, gpus, moved_bytes, names_of_cards, on_gpu
from scalescope.diagnosis.evidence.spilling import WORTH_TELLING, spilling
from scalescope.diagnosis.evidence.task_batches import slow_workers
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.trial import TrialState
from scalescope.model.words import number, percent

NO_GPU = re.compile(
    r"no CUDA GPUs are available|found no NVIDIA driver|not compiled with CUDA|cudaErrorNoDevice|"
    r"no CUDA-capable device|cudaErrorInsufficientDriver|was asked for a GPU",
    re.IGNORECASE,
)
FULL = re.compile(r"CUDA out of memory|OutOfMemoryError|cudaErrorMemoryAllocation|out_of_memory|bad_alloc.*CUDA", re.I)
THROTTLED = 0.3  # least share of samples with clocks slowed by heat or power brake, for these to explain slow tasks
SLOWER = 1.5  # least ratio of task times without and with a GPU, for the worker to be at fault

GPU_MISSING = TrialCause(
    code="gpu-missing",
    title="Tasks need a GPU that is not there",
    needs="Tasks raised an error of CUDA that says no GPU is seen (events task-erred); or tasks that use a GPU on some "
    "workers took 1.5 times as long on workers without one, at a cost of 10 % of the worker time.",
    ruled_out_by="Workers that have GPUs and are slow for other reasons (slow-worker).",
    remedy="Keep tasks that need a GPU on workers with one, or give all workers a GPU that CUDA sees",
    link="https://distributed.dask.org/en/stable/resources.html",
    parts=("busy", "lost"),
    changes=(Term.WORK, Term.SPAN),
    rules_out=("slow-worker", "retried-tasks", "skewed-tasks", "straggler"),
    without_attempts=True,
    precedence=10,
    premise="Tasks that use a GPU ran on workers that have none, or see none.",
)
_PLACE = (
    "start GPU workers with `--resources GPU=1` and make GPU tasks under `dask.annotate(resources={'GPU': 1})`, or "
    "give every worker a GPU: Slurm `cluster.gpus` (as `--gres=gpu:N`), Kubernetes `cluster.gpus` (as nvidia.com/gpu)"
)


@GPU_MISSING.finds
def gpu_missing(observation: Observation) -> Finding | None:
    """`lost_s`: the extra time of tasks on workers without a GPU; or the part `lost`, if tasks raised."""
    absent = ((observation.trial.facts.get("capture") or {}).get("gpus") or {}).get("absent") or []
    why = f" ({absent[0]})" if absent else ""
    raised = _raised(observation, NO_GPU)
    if raised:
        return GPU_MISSING.finding(
            observation,
            observation.seconds("lost"),
            f"{words.plural(len(raised), 'task')} needed a GPU that their worker does not see: {raised[0]}{why}.",
            f"run `nvidia-smi` and `torch.cuda.is_available()` on such a worker; then {_PLACE}",
            Evidence("tasks that raised", len(raised), "events task-erred"),
            confidence=0.95,
            severity=None if observation.trial.state is TrialState.VALID else Severity.HIGH,
        )
    found = None if observation.attempts is None else gpus(observation)
    if found is None:
        return None
    attempts, having = observation.measured, {worker for card in found.cards.values() for worker in card.workers}
    with_gpu = np.array([address in having for address in attempts.addresses])
    durations, own = attempts.stop - attempts.start, with_gpu[attempts.worker]
    lost_s, worst, times = 0.0, "", 0.0
    for prefix in on_gpu(observation):
        mine = attempts.useful & np.array([each == prefix for each in attempts.prefix])
        if not (mine & own).any() or not (mine & ~own).any():
            continue
        usual = float(np.median(durations[mine & own]))
        ratio = float(np.median(durations[mine & ~own])) / usual if usual > 0 else 1.0
        if ratio >= SLOWER:
            lost_s += float(np.maximum(durations[mine & ~own] - usual, 0).sum())
            worst, times = (prefix, ratio) if ratio > times else (worst, times)
    if not worst or (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    return GPU_MISSING.finding(
        observation,
        lost_s,
        f"Tasks `{worst}` use a GPU if their worker has one; {int((~with_gpu).sum())} of {len(with_gpu)} workers have "
        f"none{why}, and the tasks take {number(times, 2)} times as long there: {percent(share)} of the worker time.",
        _PLACE,
        Evidence("times as long without a GPU", round(times, 2), "table tasks"),
        confidence=0.85,
    )


GPU_MEMORY_FULL = TrialCause(
    code="gpu-memory-full",
    title="The memory of a GPU is full",
    needs="Tasks raised CUDA's error that its memory is full (events task-erred); or dask-cuda moved results between "
    "GPU and host, at a cost of 10 % of the worker time (part `spill`).",
    ruled_out_by="High use without errors or moves: torch, RMM and JAX keep memory that they do not use at the time. "
    "Moves that cost less are information. Moves by cuDF or RMM inside tasks are not seen.",
    remedy="Smaller batches, fewer tasks at a time on a GPU, or moving results to the host",
    link="https://docs.rapids.ai/api/dask-cuda/stable/spilling/",
    parts=("lost", "spill", "not_assigned", "transfer"),
    rules_out=("retried-tasks",),
    without_attempts=True,
    precedence=10,
    premise="The memory of the GPU is recorded.",
)


@GPU_MEMORY_FULL.finds
def gpu_memory_full(observation: Observation) -> Finding | None:
    """`lost_s`: the worker-time part `lost` (attempts that raised), or the time spent moving results."""
    raised = _raised(observation, FULL)
    if not raised:
        return _moved_to_host(observation)
    most = float(observation.numbers("gpu", "memory").max(initial=0.0))
    totals = [each["memory_total"] for each in facts_of_gpus(observation).values() if "memory_total" in each]
    seen = f" Samples show at most {words.size(most)} of {words.size(min(totals))} in use." if totals and most else ""
    found = None if observation.attempts is None else gpus(observation)
    sharing = max((len(card.workers) for card in found.cards.values()), default=1) if found else 1
    shared = f"; {sharing} workers share a GPU: give each its own" if sharing > 1 else ""
    return GPU_MEMORY_FULL.finding(
        observation,
        observation.seconds("lost"),
        f"{words.plural(len(raised), 'task')} found the memory of the GPU{names_of_cards(observation)} full.{seen}",
        f"use smaller batches or partitions and fewer tasks at a time on a GPU (`threads_per_worker`){shared}; in "
        "torch use `torch.no_grad()` and `del` finished tensors, in RAPIDS let `dask cuda worker "
        "--device-memory-limit` and `--enable-cudf-spill` move data to the host",
        Evidence("tasks that raised", len(raised), "events task-erred"),
        Evidence("error that a task raised", raised[0], "events task-erred"),
        confidence=0.95,
        severity=None if observation.trial.state is TrialState.VALID else Severity.HIGH,
    )


def _moved_to_host(observation: Observation) -> Finding | None:
    moved = moved_bytes(observation)
    if observation.attempts is None or moved < WORTH_TELLING:
        return None
    lost_s = spilling(observation).lost_s
    share = observation.share_of(lost_s)
    return GPU_MEMORY_FULL.finding(
        observation,
        lost_s,
        f"The memory of the GPUs{names_of_cards(observation)} was full, and dask-cuda moved {words.size(moved)} of "
        f"results to the host and back: {percent(share)} of the worker time.",
        "raise `--device-memory-limit` of `dask cuda worker` if it is below the GPU's memory, use more GPUs or smaller "
        "partitions, and release results that no task needs any more (`del` their futures)",
        Evidence("bytes moved, both ways", moved, "dask-cuda"),
        Evidence("thread-seconds of moving", round(lost_s, 3), "worker time, part spill"),
        confidence=0.85,
        severity=None if share >= NOTEWORTHY else Severity.INFO,
    )


GPU_SLOW = TrialCause(
    code="gpu-slow",
    title="A GPU is slower than the others",
    needs="A worker is slow at everything (slow-worker), and either heat or a power brake slows its GPU in 30 % of the "
    "samples, or more processes use this GPU than the GPUs of other workers.",
    ruled_out_by="Slow workers whose GPUs are alike, as far as NVML tells (slow-worker). A single GPU, or all GPUs "
    "slowed: there is nothing to compare with.",
    remedy="Take the worker out, and look at the cooling and the other processes of its GPU",
    link="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
    parts=SLOW_WORKER.parts,
    changes=SLOW_WORKER.changes,
    rules_out=("slow-worker", "sequential-graph", "gpu-starved"),
    premise="Clock and temperature of the GPU itself are recorded.",
)


@GPU_SLOW.finds
def gpu_slow(observation: Observation) -> Finding | None:
    """`lost_s`: the same as for the cause slow-worker."""
    slower, facts, addresses = SLOW_WORKER.find(observation), facts_of_gpus(observation), observation.measured.addresses
    if slower is None or slower.code != SLOW_WORKER.code or not facts:
        return None
    slow = {addresses[worker]: times for worker, times in slow_workers(observation)}
    usual = float(np.median([each["processes"] for each in facts.values()]))
    reasons = {
        worker: "heat or power brake slows its clock"
        if facts[worker]["throttled"] >= THROTTLED
        else f"{facts[worker]['processes']} processes use it"
        for worker in slow
        if worker in facts and (facts[worker]["throttled"] >= THROTTLED or facts[worker]["processes"] > usual)
    }
    if not reasons:
        return None
    worst = max(reasons, key=slow.__getitem__)
    return GPU_SLOW.finding(
        observation,
        slower.lost_s,
        f"The GPU of worker `{worst}`{observation.place(worst)} is {number(slow[worst], 2)} times slower than the "
        f"others at the same tasks, which costs {percent(observation.share_of(slower.lost_s))} of the worker time: "
        f"{reasons[worst]}.",
        f"do not use {words.some(sorted(reasons))} (`client.retire_workers`; Slurm `--exclude`, Kubernetes "
        "`cluster.node_selector`), and run `nvidia-smi -q -d PERFORMANCE,PIDS` on that host",
        Evidence("times slower", round(slow[worst], 2), f"table tasks, worker {worst}"),
        Evidence("share of samples with a slowed clock", round(facts[worst]["throttled"], 3), "NVML"),
        Evidence("processes on the GPU", facts[worst]["processes"], "NVML"),
        confidence=0.85,
    )


def _raised(observation: Observation, pattern: re.Pattern[str]) -> list[str]:
    texts = [str(message.get("exception", "")) for _, message in observation.events("task-erred")]
    return [words.first_line(text) for text in texts if pattern.search(text)]
