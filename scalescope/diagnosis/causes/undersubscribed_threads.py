"""All threads busy, tasks waiting, cores idle."""

from __future__ import annotations

import numpy as np

from scalescope.diagnosis.causes.gil_bound import locked_workers
from scalescope.diagnosis.causes.oversubscribed_threads import SIZES_LINK
from scalescope.diagnosis.evidence.cpu_samples import MIN_SAMPLES, samples
from scalescope.diagnosis.evidence.host_load import host
from scalescope.diagnosis.evidence.timeline import timeline
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.words import percent

BUSY = 0.8  # share of worker time busy, from which threads have no time to spare
SLACK = 0.5  # share of the host idle, from which there is room for more threads
MANY_WAIT = 6  # mean tasks waiting per thread, from which several times the threads would be busy


UNDERSUBSCRIBED_THREADS = TrialCause(
    code="undersubscribed-threads",
    title="Room for more threads",
    needs="At least 80 % of the worker time was busy and tasks waited, while half of the host's cores were idle.",
    ruled_out_by="Threads that were idle, or took turns at a lock (gil-bound). Workers on other hosts, whose load is "
    "not known.",
    remedy="More threads per worker if tasks wait for something other than a core; otherwise more workers",
    link=SIZES_LINK,
)


@UNDERSUBSCRIBED_THREADS.finds
def undersubscribed_threads(observation: Observation) -> Finding | None:
    """Advice and no fault: `lost_s` is 0, and the severity `low` only where more threads would clearly pay."""
    found, here = samples(observation), host(observation)
    if found is None or here is None or observation.share("busy") < BUSY:
        return None
    spare = here.idle * here.cpus
    line = timeline(observation)
    waiting = line.integral((line.waiting >= 1).astype(np.float64)) / observation.measured.makespan
    if here.idle < SLACK or spare < 1 or waiting < SLACK or len(found.worker) < MIN_SAMPLES:
        return None
    if locked_workers(observation) is not None:  # more threads would take turns as well
        return None
    each = float((found.cpu * found.seconds).sum() / max((found.running * found.seconds).sum(), 1e-9))
    rest = each < SLACK
    queue = line.integral(line.waiting) / (observation.measured.makespan * observation.threads)
    pays = rest and queue >= MANY_WAIT and not observation.trial.facts.get("modelled")
    why = "tasks wait for something else than a core" if rest else "each task uses the one core of its thread"
    return UNDERSUBSCRIBED_THREADS.finding(
        observation,
        0.0,
        f"{percent(observation.share('busy'))} of the worker time is busy and {queue:.1f} tasks wait for each thread, "
        f"while {spare:.1f} of "
        f"{here.cpus} cores are idle: {why} ({each:.2f} cores for each).",
        "raise `threads_per_worker` (`--nthreads`), if what the tasks wait for can serve more at once"
        if rest
        else "use more workers or threads on this host",
        Evidence("share of worker time busy", round(observation.share("busy"), 3), "worker time"),
        Evidence("share of the time in which tasks waited", round(waiting, 3), "table tasks"),
        Evidence("cores in use for each running task", round(each, 3), "table memory, column cpu"),
        Evidence("cores idle", round(spare, 2), "facts host.load"),
        confidence=0.6,
        severity=Severity.LOW if pays else Severity.INFO,
    )
