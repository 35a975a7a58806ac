"""Tasks that may run on few workers only, or on none."""

from __future__ import annotations

from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.evidence.placement import restricted_prefixes
from scalescope.diagnosis.evidence.rescheduled import placed_anywhere_saves_s
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.standstill import ASKS_FOR, NO_WORKER
from scalescope.model.words import percent, plural

RESOURCES_LINK = "https://distributed.dask.org/en/stable/resources.html"

MEANT = 0.25  # largest share of the worker time lost, for a limit by resources to count as intended

WORKER_RESTRICTION = TrialCause(
    code="worker-restriction",
    title="Tasks confined to few workers",
    needs="Tasks that may run only on some workers (`workers=`, hosts, resources) waited while threads elsewhere were "
    "idle. Or a worker took far longer than others for tasks that may run only on that worker. Or the trial stood "
    "still, with tasks that no worker may run.",
    ruled_out_by="Restricted tasks that did not wait. Idle threads on the allowed workers themselves (tiny-tasks). A "
    "restriction that names all workers.",
    remedy="Remove `workers=[...]` or `resources=`, or add `allow_other_workers=True`",
    link="https://distributed.dask.org/en/stable/locality.html",
    parts=("not_assigned", "no_runnable_task", "tail"),
    workers_unused=True,
    without_attempts=True,
    premise="The restriction is recorded, and threads were idle elsewhere.",
)


@WORKER_RESTRICTION.finds
def worker_restriction(observation: Observation) -> Finding | None:
    """Tasks may run on few workers only, or on none, and wait for them."""
    if observation.standstill or observation.attempts is None:
        return _unmet(observation)
    return _confined(observation)


def _unmet(observation: Observation) -> Finding | None:
    found = observation.standstill
    away = [each for each in found.groups if each.problem.startswith(NO_WORKER)] if found else []
    if not away:
        return None
    worst, tasks = away[0], sum(each.tasks for each in away)
    asked = worst.problem.partition(ASKS_FOR)[2] or "what no worker has"
    remedy, link = "name workers that exist, or add `allow_other_workers=True`, in the call", ""
    if asked.startswith("resources"):
        remedy = "start workers with these resources (`dask worker --resources`), or ask for no resources in the call"
        link = RESOURCES_LINK
    return WORKER_RESTRICTION.standing(
        observation,
        f"no worker may run {plural(tasks, 'task')} (`{worst.prefix}`), which ask for {asked}.",
        f"{remedy} that makes `{worst.prefix}` tasks",
        Evidence("tasks that no worker may run", tasks, "facts standstill"),
        confidence=0.95,
        link=link,
    )


def _confined(observation: Observation) -> Finding | None:
    """`lost_s`: time integral of the smaller of two numbers: restricted tasks waiting, and threads idle elsewhere."""
    found, attempts = restricted_prefixes(observation), observation.measured
    lost_s = sum(each.lost_s for each in found)
    if not found or (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    worst = found[0]
    meant = worst.by == "resources" and share < MEANT
    total = len(attempts.addresses)
    where = words.some([attempts.addresses[worker] for worker in worst.workers])
    who = f"{plural(len(worst.tasks), 'task')} `{worst.prefix}`"
    if worst.by == "resources":
        alike = [each for each in found if each.names == worst.names]
        holds = max(alike, key=lambda each: float((attempts.stop - attempts.start)[each.tasks].sum()))
        who = " and ".join(f"{plural(len(each.tasks), 'task')} `{each.prefix}`" for each in alike[:2])
        summary = f"{who} ask for resources ({worst.names}) and waited for them on {where}"
        remedy = (
            "raise what workers offer (`dask worker --resources`) or lower `resources=` in the call that makes "
            f"`{holds.prefix}` tasks"
        )
        if len(alike) > 1:
            remedy = (
                f"`{holds.prefix}` tasks hold the resources longest: if they need none, remove `resources=` from the "
                "call that makes them; else raise what workers offer (`dask worker --resources`)"
            )
    else:
        summary = f"{who} may run on {worst.allowed:,} of {plural(total, 'worker')} only ({where}) and had to wait"
        remedy = (
            f"remove `workers=[...]` from the call that makes `{worst.prefix}` tasks ({worst.allowed:,} of "
            f"{plural(total, 'worker')} allowed), or add `allow_other_workers=True`"
        )
    return WORKER_RESTRICTION.finding(
        observation,
        lost_s,
        f"{summary}, while other threads were idle for {percent(share)} of the worker time.",
        Remedy(remedy, saved_s=placed_anywhere_saves_s(observation)),
        Evidence("workers allowed, median", worst.allowed, "table tasks, column allowed"),
        Evidence("workers", total, "table workers"),
        Evidence("restricted tasks", len(worst.tasks), f"table tasks, prefix {worst.prefix}"),
        Evidence("restricted to", worst.names or "not recorded", "events, topic restriction"),
        Evidence("thread-seconds idle elsewhere, tasks waiting", round(lost_s, 3), "tasks and worker time"),
        confidence=0.95,
        severity=Severity.INFO if meant else None,
        link=RESOURCES_LINK if worst.by == "resources" else "",
    )
