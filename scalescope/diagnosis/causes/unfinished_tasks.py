"""The user's code ended before all of its tasks did."""

from __future__ import annotations

from collections import Counter

from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.evidence.departures import given_up
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.trial import RAN, TrialState
from scalescope.model.words import plural

CLUSTER = "cluster"  # `RAN` of a cluster watched from outside: a watch may end before its tasks

UNFINISHED_TASKS = TrialCause(
    code="unfinished-tasks",
    title="Script or flow ended before its tasks",
    needs="When the flow, script or block ended, at least a tenth of its tasks had not ended; or no task finished, or "
    "the tasks of a Prefect flow were cancelled, because their futures were dropped.",
    ruled_out_by="Scripts that raised, were stopped, or watched from outside. Futures that a client drops on purpose "
    "while others finish. Tasks that another client had sent before, or that the scheduler gave up when workers died.",
    remedy="Keep the futures, and wait for them before the end",
    link="https://distributed.dask.org/en/stable/memory.html",
    rules_out=("invalid-trials", "nothing-measured"),
    precedence=25,
    predicts=False,
    without_attempts=True,
    in_a_flow="keep the futures and wait for them at the end of the flow: `futures = {task}.map(items)`, then "
    "`prefect.futures.wait(futures)`, or return the futures",
    premise="Tasks had not ended when the call did.",
)


@UNFINISHED_TASKS.finds
def unfinished_tasks(observation: Observation) -> Finding | None:
    """`lost_s`: 0, since the time that the unfinished tasks would have taken is not known."""
    told = [message for _, message in observation.events("unfinished")]
    if not told or not _came_to_its_end(observation):
        return None
    left, cancelled = Counter[str](told[-1].get("left", {})), Counter[str](told[-1].get("cancelled", {}))
    finished = 0 if observation.attempts is None else len(observation.attempts.start)
    if not observation.by_prefect and finished:
        cancelled.clear()  # some clients release tasks that they no longer need
    all_of_them = left + cancelled
    sent = int(observation.numbers("graphs", "tasks").sum())  # tasks sent before the recording belong to somebody else
    count = min(all_of_them.total(), sent - finished - len(given_up(observation)))
    ran = str(observation.trial.facts.get(RAN, "workload"))
    if count <= 0 or count < NOTEWORTHY * (finished + count) or ran == CLUSTER:
        return None
    what = "flow" if observation.by_prefect and (ran == "script" or not left) else ran
    prefix = all_of_them.most_common(1)[0][0]
    end = ": they were cancelled." if cancelled or ran == "script" else ": the metrics leave them out."
    return UNFINISHED_TASKS.finding(
        observation,
        0.0,
        f"The {what} ended while {plural(count, 'task')} (`{prefix}`) had not finished{end}",
        f"keep the futures and wait for them before the {what} ends: `client.gather(futures)`",
        Evidence("tasks that were unfinished at the end", left.total(), "table events, topic unfinished"),
        Evidence("tasks cancelled before the end", cancelled.total(), "table events, topic unfinished"),
        Evidence("tasks that ended", finished, "table tasks"),
        confidence=0.95,
        severity=Severity.HIGH,
    )


def _came_to_its_end(observation: Observation) -> bool:
    """Whether the work returned: it did not raise, and neither a limit nor the machine stopped it."""
    state, reason = observation.trial.state, observation.trial.reason
    return state is TrialState.VALID or (state is TrialState.INVALID and reason.startswith("no task "))
