"""A call that should be lazy makes the cluster compute a partition, only to learn its columns."""

from __future__ import annotations

import numpy as np

from scalescope.analysis.attempts import Bools
from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.evidence.timeline import timeline
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause, once
from scalescope.model.finding import Evidence, Finding, Place
from scalescope.model.words import duration, percent, plural

# Calls that compute a partition unless they get `meta`
LEARN = ("from_delayed", "to_dataframe")

META_COMPUTED = TrialCause(
    code="meta-computed",
    title="A partition computed just to learn its columns",
    needs="The client waited for tasks that it had sent in `from_delayed` or `to_dataframe`. These tasks, which run "
    "again when the collection is computed, and the threads that were idle meanwhile cost 10 % of the worker time.",
    ruled_out_by="Other tasks that kept the threads busy meanwhile. Tasks that were sent earlier, and whose results "
    "are kept: the calls only wait for these. A function that Dask calls in the client for its meta (client-busy).",
    remedy="Tell Dask the columns (`meta=`)",
    link="https://docs.dask.org/en/stable/generated/dask.dataframe.from_delayed.html",
    parts=("busy", "no_runnable_task"),
    changes=(Term.WORK,),
    premise="With `meta`, these calls compute nothing.",
)


@META_COMPUTED.finds
def meta_computed(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds idle while the client waited in calls of `LEARN`, and those of tasks sent there."""
    own, line, attempts = sent_for_meta(observation), timeline(observation), observation.measured
    rows = np.flatnonzero(_called(observation) & observation.client_waits)
    if not len(rows) or not own.any():
        return None
    begin, end = (each[rows] for each in observation.client_spans)
    durations = np.where(own, attempts.stop - attempts.start, 0.0)
    lost_s = float(durations.sum()) + float(line.between(line.idle, begin, end).sum())
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    longest = rows[(end - begin).argmax()]
    where, call = (str(observation.column("client", name)[longest]) for name in ("where", "what"))
    waited_s, prefix = float((end - begin).sum()), attempts.prefix[int(durations.argmax())]
    return META_COMPUTED.finding(
        observation,
        lost_s,
        f"The client waited {duration(waited_s)} in `{call}` at {where}: to learn the columns, Dask computed "
        f"{plural(int(own.sum()), 'task')} such as `{prefix}`, and computes the same again with the whole collection: "
        f"{percent(share)} of the worker time.",
        Remedy(
            f"pass `meta=`, an empty DataFrame with these columns, to `{call.rpartition('.')[2]}`",
            shorter_s=float(durations.sum()),
        ),
        Evidence("seconds that the client waited for columns", round(waited_s, 3), "table client"),
        Evidence("thread-seconds to learn columns", round(float(durations.sum()), 3), "tables tasks and graphs"),
        confidence=0.9,
        place=Place.of(where),
    )


@once
def sent_for_meta(observation: Observation) -> Bools:
    """Attempts of tasks that the client sent within a call that learns columns."""
    attempts, called = observation.measured, _called(observation)
    begin, end = (each[called][:, None] for each in observation.client_spans)
    sent = observation.numbers("graphs", "time") - attempts.epoch
    there = np.append(False, ((sent >= begin) & (sent <= end)).any(axis=0))  # graphs count from 1; 0 is unknown
    return there[np.where(attempts.graph < len(there), attempts.graph, 0)]


def _called(observation: Observation) -> Bools:
    return np.isin(observation.client_calls, LEARN)
