"""Ends of worker processes in words, and where to look."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.diagnosis.cause import NOTEWORTHY, severity_of
from scalescope.diagnosis.evidence.departures import Departure, given_up
from scalescope.diagnosis.observation import Observation
from scalescope.errors import told
from scalescope.model.finding import Evidence, Severity
from scalescope.model.records import KUBERNETES
from scalescope.model.trial import TrialState

KILLED_LINK = "https://distributed.dask.org/en/stable/killed.html"
MEMORY_LINK = "https://distributed.dask.org/en/stable/worker-memory.html#kill-worker"
MORE_MEMORY = (
    "give each worker more memory (`memory_limit=`, `--memory-limit`) or fewer threads, or make the partitions smaller"
)


def severity_of_loss(observation: Observation, share: float) -> Severity:
    """Severity by the share of the worker time lost, at least medium; high if the trial is invalid."""
    return Severity.HIGH if observation.trial.state is TrialState.INVALID else severity_of(max(share, NOTEWORTHY))


def untold(observation: Observation) -> str:
    """A sentence, with a leading space, about task runs that Prefect does not end; empty if there are none."""
    if not observation.by_prefect or not given_up(observation):
        return ""
    return (
        " Prefect does not learn of this, and shows the run of such a task as RUNNING for ever; end the run in the "
        "flow with `get_client(sync_client=True).set_task_run_state(future.task_run_id, Crashed(), force=True)`."
    )


def lost_with_workers(observation: Observation) -> float:
    if observation.attempts is not None:
        return observation.seconds("lost")
    assigned = observation.numbers("tasks", "assigned")
    done = observation.numbers("tasks", "done")
    known = assigned > 0
    return observation.threads * float(done[known].max() - assigned[known].min()) if known.any() else 0.0


@dataclass(frozen=True)
class ProcessEnd:
    """How processes ended, where to look, and where to read more."""

    text: str
    look: str
    link: str = KILLED_LINK


ON_PURPOSE = ProcessEnd(
    " (killed on purpose, by the axis `fault`)",
    "nothing has to be done if you measure what the loss of a worker costs (metric recovery_s); else remove that axis",
)


def how_ended(dead: Sequence[Departure], reason: str) -> ProcessEnd:
    """The end that most of the deaths show, by logs and exit codes; else the reason why the trial does not count."""
    crash = next((death.words for death in dead if death.words.startswith("Fatal Python error")), "")
    if crash:
        where = "at that line" if ", File " in crash else "in which it crashed (table logs has its threads' stacks)"
        return ProcessEnd(f" ({crash})", f"fix or upgrade the native code {where}")
    if sum(death.over_memory for death in dead) * 2 > len(dead):
        return ProcessEnd(", each ended by its nanny because its memory was over the limit", MORE_MEMORY, MEMORY_LINK)
    code = Counter(death.exit_code for death in dead).most_common(1)[0][0]
    if any("MemoryError" in death.words for death in dead):
        return ProcessEnd(
            " (MemoryError in its log)", "give the worker more memory, or make the partition smaller", MEMORY_LINK
        )
    if seen := next((death.words for death in dead if death.words.startswith(KUBERNETES)), ""):
        if "OOMKilled" in seen:
            of_pods = MORE_MEMORY.replace("`memory_limit=`, `--memory-limit`", "`cluster.memory_mb`")
            return ProcessEnd(f" ({seen})", of_pods, MEMORY_LINK)
        return ProcessEnd(f" ({seen})", "read the table logs: the last lines of the worker, and the events of its pod")
    if code is None:
        if any(death.reason.startswith("check-worker-ttl") for death in dead):
            return ProcessEnd(
                " (no heartbeat for longer than `distributed.scheduler.worker-ttl` allows)",
                "look for code that holds the interpreter lock for minutes, or raise that limit",
            )
        said, logs = told(reason), "look into the platform's logs (pod, job, kernel): no nanny saw how the worker ended"
        cause = said.get("cause", "").partition("; the end of ")[0]
        return ProcessEnd(f" ({cause})" if cause else "", said.get("next", logs))
    if code >= 0:
        return ProcessEnd(
            f" (exit code {code})", "look for code in tasks that ends the process: `os._exit`, `sys.exit`, an abort"
        )
    name = signal_name(-code)
    if name == "SIGKILL":
        return ProcessEnd(
            f" (killed by {name})",
            "look for `out of memory` in the kernel's log (`dmesg`) or in the events of the pod or job, the usual "
            "reason for SIGKILL; if you find it, give each worker more memory, or make the partition smaller",
            MEMORY_LINK,
        )
    if name == "SIGTERM":
        return ProcessEnd(
            f" (ended by {name})",
            "ask the resource manager why: walltime, preemption, or a memory limit; if it was the walltime, start "
            "workers with a shorter `--lifetime`",
        )
    return ProcessEnd(f" (crashed with {name})", "look for the native code (C extension) in which the worker crashed")


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def traces_of(dead: Sequence[Departure]) -> tuple[Evidence, ...]:
    found = []
    for death in dead[:3]:
        code = "unknown" if death.exit_code is None else death.exit_code
        found.append(Evidence(f"exit code of worker {death.name} ({death.worker})", code, "event worker-exit"))
        if death.words:
            found.append(Evidence(f"log of worker {death.name}", death.words, "table logs"))
    return tuple(found)
