"""One of Dask's own schedulers computes in the client's process, while the cluster is idle."""

from __future__ import annotations

import numpy as np

from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.evidence.client_time import client_time
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model.finding import Evidence, Finding, Place, Severity
from scalescope.model.records import LOCAL
from scalescope.model.words import duration

LOCAL_SCHEDULER = TrialCause(
    code="local-scheduler",
    title="Dask computes past the cluster",
    needs="For at least 10 % of the worker time, and 0.1 s, one of Dask's own schedulers (`threads`, `processes` or "
    "`sync`) computed in the client's process, while the cluster had no task.",
    ruled_out_by="Code of the client's own (client-busy). Tasks that ran on the cluster meanwhile.",
    remedy="Compute on the cluster: without `scheduler=`",
    link="https://docs.dask.org/en/stable/scheduling.html#configuration",
    parts=("client",),
    predicts=False,
    rules_out=("nothing-measured",),
    without_attempts=True,
    premise="Samples show Dask's own scheduler: the cluster was there, and had nothing to do.",
)


@LOCAL_SCHEDULER.finds
def local_scheduler(observation: Observation) -> Finding | None:
    """`lost_s`: all threads, while such a scheduler computed and the cluster had no task."""
    chosen = np.array([what == LOCAL for what in observation.column("client", "what")], dtype=bool)
    seconds, whole_s = observation.numbers("client", "seconds"), observation.trial.real_s
    if chosen.any() and observation.attempts is not None:
        seconds = client_time(observation).seconds.sum(axis=1) / observation.threads
        whole_s = observation.attempts.elapsed
    spent_s = float(seconds[chosen].sum())
    if spent_s < max(0.1, NOTEWORTHY * whole_s):
        return None
    where = observation.column("client", "where")[int(np.where(chosen, seconds, 0.0).argmax())]
    return LOCAL_SCHEDULER.finding(
        observation,
        spent_s * observation.threads,
        f"For {duration(spent_s)} the cluster had no task: `compute` at {where} ran one of Dask's own schedulers "
        "in the process of the client.",
        "take `scheduler=` out of that call (or out of `dask.config`): without it, Dask computes on the cluster",
        Evidence("seconds in Dask's own scheduler", round(spent_s, 3), "table client"),
        confidence=0.9,
        severity=None if observation.attempts is not None else Severity.HIGH,
        place=Place.of(str(where)),
    )
