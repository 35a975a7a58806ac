"""Causes that end workers, or keep them away."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from scalescope.analysis.attempts import Floats
from scalescope.diagnosis import levels
from scalescope.diagnosis.observation import Observation, TrialCause, once
from scalescope.diagnosis.registry import NOTEWORTHY, severity_of
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.records import KUBERNETES, STATUS_ERRED, STATUS_FINISHED, STATUS_LOST
from scalescope.model.trial import TrialState
from scalescope.model.words import percent, plural

SETTLE_S = 1.0
"""How long after the last attempt a worker's departure still belongs to it."""
NEAR_S = 2.0
"""How far apart in time two reports of one death may be: of the scheduler, and of the nanny."""
REPORTED_S = 0.1
"""Seconds within which the scheduler hears of a result, and of a death."""
REPEATED = 2
"""Deaths in which the same task took part, from which on the task is suspected."""
MOST_SUSPECTS = 3
"""Tasks that may share the blame; with more of them it is not a task that ends the workers."""
EXPLAINED = 0.75
"""Share of the deaths that the suspected tasks must account for."""

KILLED_LINK = "https://distributed.dask.org/en/stable/killed.html"
MEMORY_LINK = "https://distributed.dask.org/en/stable/worker-memory.html#kill-worker"
MORE_MEMORY = (
    "give each worker more memory (`memory_limit=`, `--memory-limit`) or fewer threads, or make the partitions smaller"
)

_ORDERLY = ("closing_gracefully", "closing")
"""States that a worker passes through when it leaves by request."""


@dataclass(frozen=True)
class Departure:
    """A worker that left before the last computation ended.

    Attributes:
        worker: Its address.
        name: Its name.
        host: Its host.
        time: When, in seconds since the epoch.
        expected: Whether somebody had asked it to.
        reason: The scheduler's word for what made it remove the worker.
        held: Keys that were assigned to it and not finished.
        exit_code: Of its process; negative for a signal; None when nobody saw its end.
        over_memory: Whether its nanny ended it for its memory.
        words: What its log says of it, in a line; empty where it says nothing.
    """

    worker: str
    name: str
    host: str
    time: float
    expected: bool
    reason: str
    held: frozenset[str]
    exit_code: int | None = None
    over_memory: bool = False
    words: str = ""


@once
def departures(observation: Observation) -> tuple[Departure, ...]:
    """All workers that left before the last computation ended, in the order in which they left."""
    end = _last_work(observation)
    rows = zip(
        *(observation.column("workers", name) for name in ("worker", "name", "host", "left", "reason")), strict=True
    )
    gone = sorted((row for row in rows if 0 < row[3] < end), key=lambda row: float(row[3]))
    if not gone:
        return ()
    asked = _asked_to_leave(observation, {str(row[0]) for row in gone})
    held, codes, words = _held(observation), _exit_codes(observation, gone), _last_words(observation)
    over_memory = {str(message.get("worker")) for _, message in observation.events("worker-restart-memory")}
    return tuple(
        Departure(
            worker=worker,
            name=str(name),
            host=str(host),
            time=float(left),
            expected=worker in asked or str(reason).startswith("retire-workers"),
            reason=str(reason),
            held=frozenset(held.get(worker, ())),
            exit_code=codes.get(worker),
            over_memory=worker in over_memory,
            words=words.get(worker, ""),
        )
        for worker, name, host, left, reason in gone
    )


@once
def deaths(observation: Observation) -> tuple[Departure, ...]:
    """The departures that nobody had asked for."""
    return tuple(departure for departure in departures(observation) if not departure.expected)


def _last_work(observation: Observation) -> float:
    """When the last attempt ended, whatever its end; infinity when none was recorded."""
    done = observation.numbers("tasks", "done")
    # The scheduler notes the ends of a dying worker's attempts just before it lists the worker as gone.
    return float(done.max()) + SETTLE_S if len(done) else np.inf


def _asked_to_leave(observation: Observation, gone: Collection[str]) -> set[str]:
    """Those who left by request: by the scheduler's own word where it has one (since 2024), else by their status."""
    asked = {
        str(message.get("worker"))
        for _, message in observation.events("all")
        if message.get("action") == "remove-worker" and message.get("expected") is True
    }
    columns = (observation.column("events", name) for name in ("topic", "message"))
    for topic, text in zip(*columns, strict=True):
        if topic in gone and topic not in asked and any(f'"status": "{status}"' in text for status in _ORDERLY):
            asked.add(topic)
    return asked


def _held(observation: Observation) -> dict[str, set[str]]:
    """Keys per worker whose attempt there was lost, or was the one after which the scheduler gave the task up."""
    status = np.asarray(observation.column("tasks", "status"), dtype=np.int64)
    key, worker = observation.column("tasks", "key"), observation.column("tasks", "worker")
    killed = given_up(observation)
    held: dict[str, set[str]] = {}
    for row in np.flatnonzero(status != STATUS_FINISHED).tolist():
        if status[row] == STATUS_LOST or (status[row] == STATUS_ERRED and key[row] in killed):
            held.setdefault(worker[row], set()).add(key[row])
    return held


@once
def given_up(observation: Observation) -> frozenset[str]:
    """Keys of tasks that the scheduler gave up because too many workers died while they were there."""
    events = observation.events("task-erred")
    return frozenset(str(message["key"]) for _, message in events if "KilledWorker" in str(message.get("exception")))


def _exit_codes(observation: Observation, gone: Sequence[tuple[Any, ...]]) -> dict[str, int]:
    """The exit code of each worker's process.

    A nanny whose worker dies while it starts still names the worker before: what no address claims goes to the
    departure next to it in time.
    """
    events = [(when, message) for when, message in observation.events("worker-exit") if "exitcode" in message]
    found: dict[str, int] = {}
    for exact in (True, False):
        for worker, _, _, left, _ in gone:
            if worker in found:
                continue
            near = [
                (abs(when - left), i)
                for i, (when, message) in enumerate(events)
                if abs(when - left) <= NEAR_S and (not exact or message.get("worker") == worker)
            ]
            if near:
                code = events.pop(min(near)[1])[1]["exitcode"]
                if isinstance(code, int):
                    found[worker] = code
    return found


def _last_words(observation: Observation) -> dict[str, str]:
    """Per worker the line of its log that says most of its end: a crash, else its last error or warning."""
    found: dict[str, str] = {}
    crashing: dict[str, bool] = {}  # whether the stack of the thread that crashed has begun
    columns = (observation.column("logs", name) for name in ("worker", "level", "text"))
    for worker, level, text in zip(*columns, strict=True):
        if worker in crashing:
            if text.startswith("Current thread"):
                crashing[worker] = True
            elif crashing[worker] and text.startswith("  File "):
                # A signal from outside is dealt with by the main thread, wherever the fault is: in the event loop.
                found[worker] += "" if "selectors.py" in text else f", {text.strip()}"
                crashing[worker] = False
        elif text.startswith("Fatal Python error"):
            crashing[worker], found[worker] = False, words.first_line(text)
        elif level in ("WARNING", "ERROR", "CRITICAL") and not found.get(worker, "").startswith(KUBERNETES):
            found[worker] = words.first_line(text)
    return found


# ------------------------------------------------------------------ worker-killing task


@dataclass(frozen=True)
class _KillingTasks:
    """Which tasks ended which workers.

    Attributes:
        groups: Keys that took part in the same deaths, so that one of them did it; the likeliest first.
        deaths: Those that they account for.
    """

    groups: tuple[tuple[str, ...], ...]
    deaths: tuple[Departure, ...]


@once
def _blame(observation: Observation) -> _KillingTasks | None:
    """The smallest sets of unfinished tasks that were on the workers that died, or None.

    The scheduler blames every task that was assigned to a worker that died (dask/distributed#5234). Only one that took
    part in several deaths, and never finished anywhere, is suspected here.
    """
    dead = deaths(observation)
    if len(dead) < REPEATED:
        return None
    taken = Counter(key for death in dead for key in death.held)
    suspects = {key for key, count in taken.items() if count >= REPEATED}
    finished = np.asarray(observation.column("tasks", "status"), dtype=np.int64) == STATUS_FINISHED
    suspects -= set(compress(observation.column("tasks", "key"), finished.tolist())) if suspects else set()
    groups: list[tuple[str, ...]] = []
    rest = list(dead)
    while suspects and len(groups) < MOST_SUSPECTS:
        count = Counter(key for death in rest for key in death.held & suspects)
        most = max(count.values(), default=0)
        if most < REPEATED:
            break
        first = next(key for death in rest for key in sorted(death.held) if count[key] == most)
        where = [death for death in rest if first in death.held]
        together = {key for key in count if count[key] == most and all(key in death.held for death in where)}
        groups.append(_by_likelihood(observation, together, where))
        rest = [death for death in rest if first not in death.held]
    if not groups or len(rest) > (1 - EXPLAINED) * len(dead):
        return None
    return _KillingTasks(tuple(groups), tuple(death for death in dead if death not in rest))


def _by_likelihood(observation: Observation, keys: Collection[str], dead: Sequence[Departure]) -> tuple[str, ...]:
    """The keys, that one first which most often was the one running when its worker died.

    A worker begins tasks in the order in which it was given them, so it is the first that it had not finished. Only
    where it died about as long after its last known result as a task takes, that first one may have finished
    unreported, and the second have ended the process as it began.
    """
    if len(keys) == 1:
        return tuple(keys)
    columns = [observation.column("tasks", name) for name in ("key", "worker", "status", "assigned", "start", "stop")]
    workers = {death.worker: death for death in dead}
    given: dict[str, list[tuple[float, str]]] = {worker: [] for worker in workers}
    last: dict[str, float] = {}
    durations = []
    for key, worker, status, assigned, start, stop in zip(*columns, strict=True):
        if worker not in workers:
            continue
        if status != STATUS_FINISHED:
            given[worker].append((assigned, key))
        else:
            last[worker] = max(stop, last.get(worker, 0.0))
            durations.append(stop - start)
    usual = float(np.median(durations)) if durations else 0.0
    votes: Counter[str] = Counter()
    for worker, held in given.items():
        since = workers[worker].time - last.get(worker, np.inf)
        second = len(held) > 1 and 0.9 * usual <= since <= 1.5 * usual + REPORTED_S
        votes[sorted(held)[int(second)][1]] += 1
    return tuple(sorted(keys, key=lambda key: (-votes[key], key)))


WORKER_KILLING_TASK = TrialCause(
    code="worker-killing-task",
    title="A task kills its workers",
    needs="At least two workers died that nobody had asked to leave (table workers, events remove-worker), and the "
    "same one to three tasks, which finished nowhere, were on three quarters of them (table tasks).",
    ruled_out_by="The task finished on another worker; the workers left by request; each death had other tasks: then "
    "it is worker-died.",
    remedy="Run that item alone outside Dask and fix what ends the process; the finding names key, exit code and the "
    "line of the crash where the log has it.",
    link=KILLED_LINK,
    parts=("lost",),
    rules_out=("worker-died",),
    precedence=10,
    spoils=10,
    without_attempts=True,
)


@WORKER_KILLING_TASK.finds
def worker_killing_task(observation: Observation) -> Finding | None:
    """One task, or a few, that end every worker that runs them.

    Worker time lost: the part `lost`, which is attempts that were cut short or whose results had to be computed again,
    and threads that were away until their worker was back; where nothing finished, all of it.
    """
    blame = _blame(observation)
    if blame is None:
        return None
    keys = [group[0] for group in blame.groups]
    sure = all(len(group) == 1 for group in blame.groups)
    refused = any(given_up(observation).intersection(group) for group in blame.groups)
    dead, total = blame.deaths, len(deaths(observation))
    how = _how(dead)
    which = ", ".join(f"`{words.middle_cut(key)}`" for key in keys)
    whole = f"Task {which}" if len(keys) == 1 else f"Tasks {which}"
    if not sure:
        also = [key for group in blame.groups for key in group[1:]]
        whole = (
            f"Most likely task {which} (or {words.some([words.middle_cut(key) for key in also], 2)}, always there too)"
        )
    end = f", and the scheduler gave up on {'it' if len(keys) == 1 else 'them'} (KilledWorker)" if refused else ""
    count = f"all {total:,} workers" if len(dead) == total else f"{len(dead):,} of the {total:,} workers"
    prefix = dict(zip(observation.column("tasks", "key"), observation.column("tasks", "prefix"), strict=True))[keys[0]]
    return WORKER_KILLING_TASK.finding(
        observation,
        _lost(observation),
        f"{whole} ended every worker that ran {'it' if len(keys) == 1 else 'one of them'}: {count} that died had "
        f"it{how.text}{end}.",
        f"run `{prefix}` on the item of `{words.middle_cut(keys[0])}` alone, outside Dask (`python -X faulthandler`), "
        f"and {how.look}",
        *(Evidence("key of the task", key, "table tasks") for group in blame.groups for key in group[:3]),
        Evidence("workers that died while it was there", len(dead), "tables workers and tasks"),
        Evidence("workers that died", total, "table workers"),
        *_traces(dead),
        *((Evidence("the scheduler's verdict", "KilledWorker", "event task-erred"),) if refused else ()),
        confidence=(0.95 if refused else 0.8) if sure else 0.6,
        severity=Severity.HIGH if refused else _severity(observation, observation.share("lost")),
    )


def _severity(observation: Observation, share: float) -> Severity:
    """By the share of the worker time lost; severe in any case where the trial is no measurement for it."""
    return Severity.HIGH if observation.trial.state is TrialState.INVALID else severity_of(max(share, NOTEWORTHY))


def _lost(observation: Observation) -> float:
    if observation.attempts is not None:
        return observation.seconds("lost")
    assigned = observation.numbers("tasks", "assigned")
    done = observation.numbers("tasks", "done")
    known = assigned > 0
    return observation.threads * float(done[known].max() - assigned[known].min()) if known.any() else 0.0


# ------------------------------------------------------------------ how a process ended


@dataclass(frozen=True)
class _ProcessEnd:
    """How processes ended, where to look, and where to read more."""

    text: str
    look: str
    link: str = KILLED_LINK


ON_PURPOSE = _ProcessEnd(
    " (killed on purpose, by the axis `fault`)", "leave the axis out; recovery_s says what it cost"
)


def _how(dead: Sequence[Departure]) -> _ProcessEnd:
    """What the last one shows, if most of them show the same."""
    crash = next((death.words for death in dead if death.words.startswith("Fatal Python error")), "")
    if crash:
        where = "there" if ", File " in crash else "in which it crashed (table logs has the stacks of its threads)"
        return _ProcessEnd(f" ({crash})", f"fix or upgrade the native code {where}")
    if sum(death.over_memory for death in dead) * 2 > len(dead):
        return _ProcessEnd(
            ", each ended by its nanny because its memory was over the limit",
            MORE_MEMORY,
            MEMORY_LINK,
        )
    code = Counter(death.exit_code for death in dead).most_common(1)[0][0]
    if any("MemoryError" in death.words for death in dead):
        return _ProcessEnd(
            " (MemoryError in its log)", "give it more memory, or make its partition smaller", MEMORY_LINK
        )
    if told := next((death.words for death in dead if death.words.startswith(KUBERNETES)), ""):
        if "OOMKilled" in told:
            return _ProcessEnd(f" ({told})", MORE_MEMORY, MEMORY_LINK)
        return _ProcessEnd(f" ({told})", "see table logs for its last words and the events of its pod")
    if code is None:
        timed_out = any(death.reason.startswith("check-worker-ttl") for death in dead)
        if timed_out:
            return _ProcessEnd(
                " after sending no heartbeat for `distributed.scheduler.worker-ttl`",
                "look for code that holds the interpreter lock for minutes, or raise that option",
            )
        return _ProcessEnd(
            "", "look into the logs of the platform (pod, job, kernel): no nanny saw how its process ended"
        )
    if code >= 0:
        return _ProcessEnd(
            f" (exit code {code})", "look for code that ends the process itself: `os._exit`, `sys.exit`, an abort"
        )
    name = _signal(-code)
    if name == "SIGKILL":
        return _ProcessEnd(
            f" (killed by {name})",
            "look for `out of memory` in the kernel's log (`dmesg`) or in the events of the pod or job, which is what "
            "it usually means; then give each worker more memory, or make the partition smaller",
            MEMORY_LINK,
        )
    if name == "SIGTERM":
        return _ProcessEnd(
            f" (ended by {name})",
            "ask the resource manager why: walltime, preemption, or a memory limit; with a walltime, start workers "
            "with a `--lifetime` below it",
        )
    return _ProcessEnd(f" (crashed with {name})", "look for the native code in which it crashed")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _traces(dead: Sequence[Departure]) -> tuple[Evidence, ...]:
    """Where to read of each death; three at most."""
    found = []
    for death in dead[:3]:
        code = "unknown" if death.exit_code is None else death.exit_code
        found.append(Evidence(f"exit code of worker {death.name} ({death.worker})", code, "event worker-exit"))
        if death.words:
            found.append(Evidence(f"log of worker {death.name}", death.words, "table logs"))
    return tuple(found)


WORKER_DIED = TrialCause(
    code="worker-died",
    title="Workers died",
    needs="A worker left before the last computation ended, and nobody had asked it to (events remove-worker).",
    ruled_out_by="It left by request (scaled down, retired, closing gracefully), or after the work; or one task was on "
    "every worker that died: then it is worker-killing-task.",
    remedy="It depends on why, which the finding says by exit code, nanny and log: memory, a native crash, the "
    "resource manager, or a lost machine.",
    link=KILLED_LINK,
    parts=("lost",),
    precedence=20,
    spoils=20,
    without_attempts=True,
)


@WORKER_DIED.finds
def worker_died(observation: Observation) -> Finding | None:
    """Workers died, and no task was on all of them.

    Worker time lost: the part `lost`, as for a worker-killing task. A trial that it made invalid is no measurement,
    which is critical however short it was.
    """
    dead = deaths(observation)
    if not dead:
        return None
    on_purpose = {death.worker for death in dead} == {observation.trial.facts.get("fault", {}).get("worker")}
    how, last = ON_PURPOSE if on_purpose else _how(dead), dead[-1]
    share = observation.share("lost")
    cut = len(frozenset().union(*(death.held for death in dead)))
    place = observation.place(last.worker) or f" on {last.host}"
    where = f"worker {last.name}{place}" if len(dead) == 1 else f"the last worker {last.name}{place}"
    more = f"; {plural(cut, 'task')} had to start again" if cut else ""
    loss = f", and {percent(share)} of the worker time was lost with them" if share >= 0.01 else ""
    is_said = not last.words or last.words.startswith(("Fatal", KUBERNETES))
    said = "" if is_said else f" Its log ends: {last.words}."
    return WORKER_DIED.finding(
        observation,
        _lost(observation),
        f"{plural(len(dead), 'worker')} died during the trial, {where}{how.text}{more}{loss}.{said}",
        how.look,
        Evidence("workers that died", len(dead), "table workers"),
        Evidence("tasks that were with them", cut, "table tasks"),
        *_traces(dead),
        confidence=0.9 if last.exit_code is not None or last.over_memory else 0.8,
        severity=_severity(observation, share),
        link=how.link,
    )


WORKERS_MISSING = TrialCause(
    code="workers-missing",
    title="Fewer workers than asked for",
    needs="The driver gave up waiting for workers, or threads asked for were absent while tasks waited for them.",
    ruled_out_by="The workers joined later (late-workers) or died (worker-died); no task waited for them.",
    remedy="Wait for the workers before the work begins, and keep them until its end.",
    link=f"{KILLED_LINK}#worker-never-connects",
    parts=("late_start", "lost"),
    precedence=30,
    spoils=30,
    without_attempts=True,
)


@WORKERS_MISSING.finds
def workers_missing(observation: Observation) -> Finding | None:
    """The cluster does not have the workers asked for: they never came, or left by request and nobody replaced them.

    Worker time lost: over the makespan, threads asked for and not there while as many tasks waited; not those whose
    worker came later (`late-workers`) or died (`worker-died`).
    """
    error = observation.trial.facts.get("error") or {}
    if error.get("type") == "WorkersMissing":
        return _never_complete(observation, str(error.get("message", "")))
    if observation.attempts is None:
        return None
    line = levels.timeline(observation)
    away = _away(observation)
    lost_s = line.integral(np.minimum(away, line.waiting))
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    left = [departure for departure in departures(observation) if departure.expected]
    mean = line.integral(away) / observation.attempts.makespan
    why = "never came"
    if left:
        why = f"left by request and were not replaced ({words.some([departure.name for departure in left])})"
    return WORKERS_MISSING.finding(
        observation,
        lost_s,
        f"On average {mean:,.1f} of {plural(observation.threads, 'thread')} asked for were not there while tasks "
        f"waited for them: workers {why}; {percent(share)} of the worker time was lost.",
        "keep workers for the whole run: no `cluster.adapt(...)` or `--lifetime` below its length, and "
        "`client.wait_for_workers(n)` before it begins"
        if left
        else "wait for them with `client.wait_for_workers(n)` before the work begins, and read why the others did not "
        "come in the logs of the platform",
        Evidence("threads asked for", observation.threads, "the point"),
        Evidence("threads missing on average", round(mean, 2), "table workers"),
        Evidence("workers that left by request", len(left), "table workers, events remove-worker"),
        confidence=0.9,
        severity=_severity(observation, share) if left else severity_of(share),
    )


def _away(observation: Observation) -> Floats:
    """Threads asked for that neither are there nor will come nor died, over the timeline."""
    line, members = levels.timeline(observation), observation.measured.members
    addresses = observation.measured.addresses
    dead = {death.worker for death in deaths(observation)}
    died = np.array([addresses[worker] in dead for worker in members.worker.tolist()], dtype=bool)
    joined = np.repeat(members.joined, members.nthreads)
    to_come = line.level(np.zeros(len(joined)), joined)
    gone = np.repeat(members.left[died], members.nthreads[died])
    forever = np.full(len(gone), observation.measured.makespan)
    return np.maximum(observation.threads - line.capacity - to_come - line.level(gone, forever), 0.0)


def _never_complete(observation: Observation, message: str) -> Finding:
    """What the driver said when it did not get the workers."""
    what, *details = message.strip().splitlines() or ["the workers did not arrive"]
    said = {label: text for line in details for label, _, text in [line.strip().partition(": ")] if text}
    cause = f": {said['cause']}" if said.get("cause") else ""
    return WORKERS_MISSING.finding(
        observation,
        0.0,
        f"The cluster did not get the workers asked for: {words.first_line(what)}{cause}.",
        said.get("next", "read the driver's log and the logs of the platform, then run the same sweep again"),
        Evidence("workers asked for", observation.trial.point.workers, "the point"),
        Evidence("what the cluster said", words.first_line(what), said.get("where", "driver")),
        confidence=0.95,
        severity=Severity.HIGH,
    )
