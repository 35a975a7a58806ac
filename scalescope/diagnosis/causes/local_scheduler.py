"""One of Dask's own schedulers, or joblib, computes in the client's process, while the cluster is idle."""

from __future__ import annotations

import numpy as np

from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.evidence.client_time import client_time
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model.finding import Evidence, Finding, Place, Severity
from scalescope.model.records import JOBLIB, LOCAL, PAST_THE_CLUSTER
from scalescope.model.words import duration

RUN = "client.run"
# Text and remedy for each way to compute without tasks on the cluster
SAID = {
    LOCAL: (
        "`compute` at {where} ran one of Dask's local schedulers in the process of the client",
        "remove `scheduler=` from that call (or from `dask.config`): Dask then computes on the cluster",
    ),
    JOBLIB: (
        "joblib at {where} computed with another backend than Dask's",
        "call joblib under `joblib.parallel_config(backend='dask')`, and remove `backend=` and `require=` from "
        "`Parallel(...)`, which override that",
    ),
    RUN: (
        "`client.run` at {where} ran a function in the event loops of workers, and waited for it each time",
        "turn these calls into tasks, all sent before the first result is awaited: `client.submit(f, ..., "
        "workers=[address])`, then `client.gather(futures)`",
    ),
}

LOCAL_SCHEDULER = TrialCause(
    code="local-scheduler",
    title="Dask computes without the cluster",
    needs="For at least 10 % of the worker time, and 0.1 s, one of Dask's local schedulers (`threads`, `processes` or "
    "`sync`) computed in the client's process, or joblib with another backend than Dask's, while the cluster had no "
    "task. Or there was no task at all, and `client.run` did the work.",
    ruled_out_by="Other code of the client (client-busy). Tasks that ran on the cluster meanwhile.",
    remedy="Compute on the cluster: remove `scheduler=`",
    link="https://docs.dask.org/en/stable/scheduling.html#configuration",
    parts=("client",),
    predicts=False,
    rules_out=("nothing-measured",),
    without_attempts=True,
    premise="Samples show work outside the cluster, while the cluster had nothing to do.",
)


@LOCAL_SCHEDULER.finds
def local_scheduler(observation: Observation) -> Finding | None:
    """`lost_s`: seconds in which a local scheduler, joblib or `client.run` did the work, times the threads."""
    past = PAST_THE_CLUSTER if observation.attempts is not None else (*PAST_THE_CLUSTER, RUN)
    chosen = np.array([what in past for what in observation.column("client", "what")], dtype=bool)
    seconds, whole_s = observation.numbers("client", "seconds"), observation.trial.real_s
    if chosen.any() and observation.attempts is not None:
        seconds = client_time(observation).seconds.sum(axis=1) / observation.threads
        whole_s = observation.attempts.elapsed
    spent_s = float(seconds[chosen].sum())
    if spent_s < max(0.1, NOTEWORTHY * whole_s):
        return None
    row = int(np.where(chosen, seconds, 0.0).argmax())
    where = observation.column("client", "where")[row]
    how = observation.column("client", "what")[row]
    said, remedy = SAID[how]
    return LOCAL_SCHEDULER.finding(
        observation,
        spent_s * observation.threads,
        f"For {duration(spent_s)} the cluster had no task: {said.format(where=where)}.",
        remedy,
        Evidence("seconds computed without the cluster", round(spent_s, 3), "table client"),
        confidence=0.9,
        severity=None if observation.attempts is not None else Severity.HIGH,
        link="https://distributed.dask.org/en/stable/client.html" if how == RUN else "",
        place=Place.of(str(where)),
    )
