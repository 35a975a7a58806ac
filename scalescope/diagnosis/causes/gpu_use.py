"""GPUs that wait for their tasks, or tasks that wait for their GPU."""

from __future__ import annotations

import math
from dataclasses import replace

from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.evidence.gpu import gpus, names_of_cards, on_gpu
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding
from scalescope.model.metrics import GPU_IDLE
from scalescope.model.sweep import THREADS
from scalescope.model.words import number, percent

FED = 0.8  # least utilisation at which a GPU does not count as starved
FULL = 0.9  # utilisation to aim at; beyond it, more tasks at a time only wait for each other
QUEUED = 1.5  # least mean number of tasks that copy to a GPU or wait for it, for it to count as contended
MOST = 16  # most tasks at a time on a GPU that a remedy recommends
PREFETCH = "`torch.utils.data.DataLoader(..., num_workers=4, prefetch_factor=2)`"

GPU_STARVED = TrialCause(
    code="gpu-starved",
    title="The GPU waits for its tasks",
    needs="While tasks that use the GPU (5 % utilisation, or copies) ran, the GPU computed less than 80 % of the time, "
    "and their threads spent at least 10 % of the worker time on something else meanwhile (table gpu).",
    ruled_out_by="Tasks that never use the GPU (gpu-unused). A GPU that is idle because its worker has no task: the "
    "other parts of worker time say why.",
    remedy="Load data ahead in other threads or processes, keep data on the GPU, or let more tasks at a time feed it",
    link="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    parts=("busy",),
    changes=(Term.WORK, Term.SPAN),
    premise="The GPU was idle while its tasks ran.",
)
_DID = {
    "loading": "read and decoded data",
    "python": "computed in Python or on the CPU",
    "copying": "copied to or from the GPU, or waited for it",
    "waiting": "waited for something outside, a lock or a core",
}


@GPU_STARVED.finds
def gpu_starved(observation: Observation) -> Finding | None:
    """`lost_s`: busy thread-seconds of tasks that use the GPU while it did not compute."""
    found, using = gpus(observation), on_gpu(observation)
    if found is None or not using:
        return None
    uses = [found.prefixes[prefix].seconds for prefix in using]
    seconds = {part: sum(use[part] for use in uses) for part in ("computing", *GPU_IDLE)}
    lost_s = sum(seconds[part] for part in GPU_IDLE)
    busy = seconds["computing"] / (seconds["computing"] + lost_s) if lost_s > 0 else 1.0
    if busy >= FED or (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    part = max(GPU_IDLE, key=seconds.__getitem__)
    worst = max(using, key=lambda prefix: sum(found.prefixes[prefix].seconds[each] for each in GPU_IDLE))
    now = max(1.0, *(card.tasks for card in found.cards.values()))
    wanted = math.ceil(round(now * FULL / max(busy, 0.01), 6))
    threads = math.ceil(observation.trial.point.threads_per_worker * wanted / now)
    more = (
        f"let {wanted} tasks at a time feed each GPU instead of {number(now, 2)}: `{THREADS}={threads}`"
        if wanted <= MOST
        else f"let more tasks at a time feed each GPU (`{THREADS}`): to keep it busy takes {wanted} tasks"
    )
    helps = part in ("loading", "waiting") and wanted <= MOST
    return GPU_STARVED.finding(
        observation,
        lost_s,
        f"GPUs{names_of_cards(observation)} computed {percent(busy)} of the time in which tasks such as `{worst}` ran "
        f"on them. For {percent(seconds[part] / lost_s)} of the rest, the tasks {_DID[part]}. The idle GPU costs "
        f"{percent(share)} of the worker time.",
        Remedy(
            {
                "loading": f"load the next data while the GPU computes, in torch with {PREFETCH}, or {more}",
                "waiting": f"{more}, so that one computes while another waits; or fetch the next data in a thread",
                "python": "give the GPU more work per call: larger batches, `torch.compile`, CUDA graphs, CuPy or cuDF "
                "instead of loops; more tasks at a time help only in separate processes (`workers`), not in threads",
                "copying": "copy less, and copy while the GPU computes: pinned memory and `tensor.to('cuda', "
                "non_blocking=True)`; leave results on the GPU between tasks, as CuPy and cuDF with `dask cuda worker` "
                "do",
            }[part],
            change={THREADS: threads} if helps else {},
        ),
        Evidence("utilisation while tasks used the GPU", round(busy, 3), "table gpu, NVML"),
        *(Evidence(f"thread-seconds, {each}", round(seconds[each], 3), "table gpu") for each in GPU_IDLE),
        Evidence("tasks at a time on a GPU", round(now, 2), "table gpu"),
        confidence=0.8,
    )


GPU_CONTENDED = TrialCause(
    code="gpu-contended",
    title="Tasks wait for the same GPU",
    needs="While tasks ran, a GPU computed at least 90 % of the time, at least 1.5 tasks at a time waited for it "
    "(copies, synchronisation), and these waits cost at least 10 % of the worker time (table gpu).",
    ruled_out_by="A GPU that is not always busy: sharing makes use of it. To NVML, kernels that fill only part of the "
    "card (and gain from sharing) look the same; a sweep over threads tells them apart.",
    remedy="Give each worker a GPU of its own, or let fewer tasks at a time use one",
    link="https://docs.rapids.ai/api/dask-cuda/stable/",
    parts=("busy",),
    changes=(Term.WORK, Term.SPAN),
    rules_out=("work-inflation", "slow-worker", "skewed-tasks"),
    premise="Tasks shared a GPU, as its processes show.",
)


@GPU_CONTENDED.finds
def gpu_contended(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds for which tasks waited for a busy GPU, without the one task that it serves at a time."""
    found = gpus(observation)
    if found is None:
        return None
    addresses, lost_s, worst = observation.measured.addresses, 0.0, None
    for card in found.cards.values():
        mine = [addresses.index(worker) for worker in card.workers if worker in addresses]
        computing = float(found.seconds["computing"][mine].sum())
        idle = sum(float(found.seconds[part][mine].sum()) for part in GPU_IDLE)
        if computing >= FULL * (computing + idle) and card.queued >= QUEUED:
            lost_s += computing * (card.queued - 1) / card.tasks
            worst = card if worst is None or card.queued > worst.queued else worst
    if worst is None or (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    sharing, waiting = words.plural(len(worst.workers), "worker"), number(worst.queued, 2)
    finding = GPU_CONTENDED.finding(
        observation,
        lost_s,
        f"A GPU{names_of_cards(observation)} that was always busy serves {sharing}, with {waiting} tasks waiting at a "
        f"time: the tasks wait for each other for {percent(share)} of the worker time.",
        "give each worker a GPU of its own (Slurm: `cluster.gpus`, as `--gres=gpu:N`; Kubernetes: `cluster.gpus=1`, as "
        "nvidia.com/gpu; one host: `dask cuda worker`), or use fewer workers or threads on this GPU: the work "
        "then takes no longer",
        Evidence("tasks that wait for the GPU at a time", round(worst.queued, 2), "table gpu, doing copying"),
        Evidence("workers on the same GPU", len(worst.workers), "table gpu"),
        confidence=0.8,
    )
    return replace(finding, gain=None)  # the gain depends on the number of GPUs that are added


GPU_UNUSED = TrialCause(
    code="gpu-unused",
    title="CPU tasks occupy GPU workers",
    needs="At least 10 % of the worker time passed on workers with a GPU in tasks that do not use it, while other "
    "tasks of the trial use theirs, or the cluster was asked for GPUs (table gpu).",
    ruled_out_by="A host that happens to have a GPU which the workload never uses.",
    remedy="Run tasks that use no GPU on workers without one, or make torch or CuPy see the GPU",
    link="https://distributed.dask.org/en/stable/resources.html",
    parts=("busy",),
    changes=(Term.THREADS,),
    premise="Tasks that do not use the GPU ran on workers with a GPU, as its samples show.",
)


@GPU_UNUSED.finds
def gpu_unused(observation: Observation) -> Finding | None:
    """`lost_s`: busy thread-seconds, on workers with a GPU, of tasks that do not use it."""
    found, using = gpus(observation), on_gpu(observation)
    facts = observation.trial.facts.get("cluster") or {}
    if found is None or not (using or facts.get("gpus")):
        return None
    seconds = {prefix: sum(use.seconds.values()) for prefix, use in found.prefixes.items() if prefix not in using}
    lost_s = sum(seconds.values())
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    longest = max(seconds, key=seconds.__getitem__)
    remedy = (
        "run these tasks elsewhere: start GPU workers with `--resources GPU=1` and make only the tasks that need one "
        "under `dask.annotate(resources={'GPU': 1})`; on Kubernetes, give some groups of "
        "workers (`cluster.groups`) no GPU"
        if using
        else "check `client.run(torch.cuda.is_available)`: a torch built for the CPU does not see a GPU; or ask for "
        "workers without GPUs"
    )
    return GPU_UNUSED.finding(
        observation,
        lost_s,
        f"Workers with a GPU{names_of_cards(observation)} spent {percent(share)} of the worker time on tasks that do "
        f"not use it, such as `{longest}`" + ("." if using else "; no task used a GPU."),
        remedy,
        Evidence("thread-seconds of tasks that use no GPU", round(lost_s, 3), "table gpu"),
        Evidence("prefixes that use the GPU", ", ".join(sorted(using)) or "none", "table gpu"),
        confidence=0.8,
    )
