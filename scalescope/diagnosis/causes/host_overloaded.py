"""Other processes used the host."""

from __future__ import annotations

import numpy as np

from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.evidence.cpu_samples import samples
from scalescope.diagnosis.evidence.host_load import host
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.words import percent, plural

STOLEN = 0.10  # share of the host's cores; the hypervisor takes them only from whoever wants to run


HOST_OVERLOADED = TrialCause(
    code="host-overloaded",
    title="Others used the host",
    needs="At most 10 % of the host was idle and others used at least 15 %, or the hypervisor took 10 % (facts "
    "host.load), while tasks ran or waited without a core.",
    ruled_out_by="Idle cores. Our own processes filled the host (oversubscribed-threads). A virtual clock.",
    remedy="Free the host of other processes, or measure on dedicated cores.",
    link="https://pyperf.readthedocs.io/en/latest/system.html",
    parts=("busy", "not_assigned"),
    spoils=50,
)


@HOST_OVERLOADED.finds
def host_overloaded(observation: Observation) -> Finding | None:
    """`lost_s`: cores that others had and tasks lacked. At most medium, since no workload is at fault."""
    here, found = host(observation), samples(observation)
    if here is None or not (here.crowded or here.stolen >= STOLEN):
        return None
    taken = (here.foreign if here.crowded else here.stolen) * here.cpus * observation.measured.makespan
    if found is None:
        wanted = observation.seconds("busy", "not_assigned")
    else:
        wanted = float((np.maximum(found.running - found.cpu, 0.0) * found.seconds).sum())
        wanted += observation.seconds("not_assigned")
    lost_s = min(taken, wanted)
    if observation.share_of(lost_s) < NOTEWORTHY:
        return None
    stolen = here.stolen >= here.others
    return HOST_OVERLOADED.finding(
        observation,
        lost_s,
        f"{'Other machines on the same hardware' if stolen else 'Other processes'} took {percent(here.foreign)} of the "
        f"{plural(here.cpus, 'core')} of this host and left {percent(here.idle)} idle: do not trust the measured "
        "times.",
        "run on dedicated cores or another instance type, and measure again"
        if stolen
        else "stop the other processes (`top` shows them) or pin them to other cores, and measure again",
        Evidence("share of the host used by other processes", round(here.others, 3), "facts host.load"),
        Evidence("share taken by the hypervisor", round(here.stolen, 3), "facts host.load"),
        Evidence("share used by the trial", round(here.ours, 3), "facts host.load"),
        Evidence("share idle", round(here.idle, 3), "facts host.load"),
        confidence=0.9,
        severity=Severity.MEDIUM,
    )
