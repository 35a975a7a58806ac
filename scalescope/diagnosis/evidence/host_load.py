"""Load of the driver's host."""

from __future__ import annotations

from dataclasses import dataclass

from scalescope.diagnosis.observation import Observation, once

FULL = 0.10  # share of a host idle, up to which its cores count as busy
OTHERS = 0.15  # share of a host taken by other processes and the hypervisor, from which a full host is not ours


@dataclass(frozen=True)
class HostLoad:
    """Where the CPU time of the driver's host went during the trial, as shares of its cores."""

    ours: float  # to our processes
    own: float  # of that, to the driver's own, in which client and scheduler may be
    others: float  # to all other processes and the kernel
    stolen: float  # to other machines of the hypervisor
    idle: float  # to none
    cpus: int  # how many cores
    seconds: float  # what the shares are of

    @property
    def foreign(self) -> float:
        """What was not available to the trial."""
        return self.others + self.stolen

    @property
    def crowded(self) -> bool:
        """Whether others keep all its cores busy."""
        return self.idle <= FULL and self.foreign >= OTHERS


@once
def host(observation: Observation) -> HostLoad | None:
    """The driver's host, if all workers are on it and its clock is real; None where that is not so or not known."""
    facts = observation.trial.facts
    load = (facts.get("host") or {}).get("load")
    if not load or (facts.get("cluster") or {}).get("clock") == "virtual":
        return None
    here = {"127.0.0.1", "localhost", "::1", (facts.get("host") or {}).get("hostname")}
    if any(name not in here for name in observation.column("workers", "host")):
        return None
    ours, others, stolen, idle = (load[name] for name in ("ours", "others", "stolen", "idle"))
    return HostLoad(ours, load.get("own", 0.0), others, stolen, idle, int(load["cpus"]), load["seconds"])
