from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from support.findings import findings_of, observed, only, watched
from support.small_cluster import address

from scalescope.diagnosis.evidence.departures import deaths
from scalescope.diagnosis.observation import Observation
from scalescope.model.finding import Severity
from scalescope.model.records import OVER_MEMORY, from_rows
from scalescope.model.sweep import Point
from scalescope.model.trial import Trial, TrialState

EPOCH = 1_000.0


@dataclass
class Story:
    """What happened to workers and tasks, as the recorder would write it down; times are relative."""

    workers: int = 4
    threads: int = 1
    tasks: list[dict[str, Any]] = field(default_factory=list)
    members: list[dict[str, Any]] = field(default_factory=list)
    events: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)
    logs: list[tuple[str, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.members += [self._member(i, -5.0) for i in range(self.workers)]

    def _member(self, number: int, joined: float) -> dict[str, Any]:
        name = {"worker": address(number), "name": str(number % self.workers), "host": "h"}
        return name | {"nthreads": self.threads, "joined": EPOCH + joined}

    def finished(self, key: str, worker: int, start: float, seconds: float = 1.0) -> None:
        moments = {"assigned": start, "start": start + 1e-6, "stop": start + seconds, "done": start + seconds}
        self._attempt(key, worker, 0, moments | {"runnable": 0.0}, span=seconds)

    def evenly(self, tasks: int, workers: int, worker: int = 0) -> None:
        """Tasks of a second each, in turn on workers from `worker` on."""
        for item in range(tasks):
            self.finished(f"work-{item}", worker + item % workers, item // workers)

    def cut_short(self, key: str, worker: int, assigned: float, end: float, *, given_up: bool = False) -> None:
        self._attempt(key, worker, 1 if given_up else 2, {"assigned": assigned, "done": end, "runnable": 0.0})
        if given_up:
            text = "KilledWorker: the workers that ran the task died, or no worker could run it"
            self.events.append((end, "task-erred", {"key": key, "worker": address(worker), "exception": text}))

    def _attempt(self, key: str, worker: int, status: int, moments: dict[str, float], **rest: Any) -> None:
        prefix = key.rpartition("-")[0]
        row = {name: EPOCH + when for name, when in moments.items()}
        self.tasks.append(
            row | {"key": key, "prefix": prefix, "group": prefix, "worker": address(worker), "status": status} | rest
        )

    def leaves(self, worker, when, *, expected=False, code=None, reason="handle-worker-cleanup") -> None:
        row = next(row for row in self.members if row["worker"] == address(worker))
        row |= {"left": EPOCH + when, "reason": f"{reason}-{EPOCH + when}"}
        message = {"action": "remove-worker", "worker": address(worker), "expected": expected}
        self.events.append((when, "all", {name: value for name, value in message.items() if value is not None}))
        if code is not None:
            self.events.append((when + 0.01, "worker-exit", {"worker": address(worker), "exitcode": code}))

    def dies(self, worker: int, since: float, when: float, *keys: str, code: int = 1, given_up: bool = False) -> None:
        """The worker ends, and cuts these tasks short that it had begun."""
        for key in keys:
            self.cut_short(key, worker, since, when, given_up=given_up)
        self.leaves(worker, when + 0.01, code=code)

    def joins(self, number: int, when: float) -> None:
        self.members.append(self._member(number, when))

    def observation(self, **trial: Any) -> Observation:
        logs = [{"worker": worker, "level": level, "text": text, "time": EPOCH} for worker, level, text in self.logs]
        events = [
            {"time": EPOCH + when, "topic": topic, "message": json.dumps(message)}
            for when, topic, message in self.events
        ]
        rows = {"tasks": self.tasks, "workers": self.members, "events": events, "logs": logs}
        tables = {name: from_rows(name, known) for name, known in rows.items()}
        trial = {"state": TrialState.INVALID, **trial}
        return Observation.of(Trial("t", Point(self.workers, self.threads), 0, False, **trial), tables)

    def dead(self) -> list[str]:
        """Addresses of the workers that left."""
        return [row["worker"] for row in self.members if row.get("left")]


CODES = {"worker-killing-task", "worker-died", "workers-missing"}
find = partial(findings_of, codes=CODES, bounded=CODES, least=0.0)


def worker_killing(workers: int, items: int, *, seed: int = 0, code: int = 3, tries: int = 4) -> Story:
    """Items are computed one after another; one of them kills its worker, which is replaced."""
    rng = random.Random(seed)
    story = Story(workers)
    bad = rng.randrange(items)
    clock = [0.0] * workers
    names = list(range(workers))
    for item in range(items):
        if item != bad:
            slot = clock.index(min(clock))
            story.finished(f"work-{item}", names[slot], clock[slot])
            clock[slot] += 1.0
    fresh = workers
    for attempt in range(tries):
        slot = rng.randrange(workers)
        end = clock[slot] + rng.uniform(0.1, 1.0)
        for other in rng.sample([i for i in range(items) if i != bad], min(1, items - 1)):
            story.cut_short(f"work-{other}", names[slot], clock[slot], end)
            story.finished(f"work-{other}", (names[slot] + 1) if workers > 1 else fresh, end + 2.0)
        story.cut_short(f"work-{bad}", names[slot], clock[slot], end, given_up=attempt == 3)
        story.leaves(names[slot], end + 0.01, code=code)
        story.joins(fresh, end + 1.0)
        names[slot], clock[slot], fresh = fresh, end + 1.0, fresh + 1
    story.bad = f"work-{bad}"  # type: ignore[attr-defined]
    return story


# ------------------------------------------------------------------ workers that end after the work

GATHER, PAUSE = ("job.py:9", "client.gather", 1), ("job.py:12", "time.sleep", 0)


def ended_early(*doing, more=0, again=()):
    """Sixteen tasks on four workers, three of which end after 5 s; the client did this meanwhile."""
    story = Story(4)
    story.evenly(16, 4)
    for number in range(more):
        story.finished(f"more-{number}", 0, 4.0 + number)
    for worker in (1, 2, 3):
        story.leaves(worker, 5.0)
        story.finished(f"work-{worker}", 0, 5.0 + more + worker)
    for key in again:
        story.cut_short(key, 1, 4.5, 5.0)
    return watched(story.observation(state=TrialState.VALID), *doing)


@pytest.mark.parametrize("doing", [[(4.1, GATHER), (9.0, PAUSE)], [(4.1, GATHER)], [(4.9, PAUSE), (0.15, GATHER)]])
def test_worker_deaths_that_cost_nothing_are_only_information(doing, golden_once):
    finding = golden_once(only(find(ended_early(*doing)), "worker-died"))
    assert (finding.severity, finding.lost_s, finding.limits_trust) == (Severity.INFO, 0.0, False)


@pytest.mark.parametrize(
    ("doing", "given"),
    [
        ([(4.1, GATHER), (1.0, PAUSE), (3.0, GATHER)], {}),  # it asks for what was lost
        ([(4.1, GATHER), (9.0, PAUSE)], {"more": 3}),  # others had not ended
        ([(4.1, GATHER), (9.0, PAUSE)], {"again": ["more-1"]}),  # a task had no result yet
        ([], {}),  # nobody knows what the client did
    ],
)
def test_worker_deaths_before_all_results_have_arrived_limit_the_trust_in_the_trial(doing, given):
    finding = find(ended_early(*doing, **given))["worker-died"]
    assert finding.severity is not Severity.INFO
    assert finding.limits_trust


# ------------------------------------------------------------------ worker-killing task


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("workers", "items"), [(1, 5), (2, 20), (4, 20), (20, 100), (100, 1000)])
def test_a_task_that_kills_its_workers_is_found(workers, items, seed, golden_once):
    story = worker_killing(workers, items, seed=seed)
    finding = golden_once(only(find(story.observation()), "worker-killing-task"))
    assert finding.severity is Severity.HIGH
    assert finding.confidence >= 0.9
    assert finding.lost_s > 0


CRASH = """Fatal Python error: Segmentation fault

Thread 0x00007f1 (most recent call first):
  File "/lib/threading.py", line 320 in wait
Current thread 0x00007f2 (most recent call first):
  File "/home/me/decode.py", line 12 in decode
  File "/home/me/work.py", line 3 in work"""
# The main thread handles a signal from outside, in the event loop.
SENT = """Fatal Python error: Segmentation fault
Current thread 0x0 (most recent call first):
  File "/lib/selectors.py", line 468 in select"""


@pytest.mark.parametrize(
    ("code", "logs", "over_memory"),
    [
        pytest.param(-9, (), False, id="SIGKILL"),
        pytest.param(-11, (), False, id="SIGSEGV"),
        pytest.param(1, (), False, id="exit code"),
        pytest.param(-11, [("FAULT", line) for line in CRASH.splitlines()], False, id="the line of the crash"),
        pytest.param(-11, [("FAULT", line) for line in SENT.splitlines()], False, id="not the event loop"),
        pytest.param(-15, (), True, id="by the nanny for their memory"),
        pytest.param(None, [("CRITICAL", "Kubernetes: OOMKilled: exit code 137")], False, id="Kubernetes, memory"),
        pytest.param(None, [("CRITICAL", "Kubernetes: Preempted: spot")], False, id="Kubernetes, preempted"),
    ],
)
def test_a_worker_killing_task_is_reported_with_how_the_processes_ended(golden, code, logs, over_memory):
    story = worker_killing(4, 40, code=code)
    for worker in story.dead():
        around = ([("ERROR", "something")], [("WARNING", "of the container that came after")]) if logs else ([], [])
        story.logs += [(worker, *each) for each in (*around[0], *logs, *around[1])]
        if over_memory:
            story.events.append((1.0, OVER_MEMORY, {"worker": worker, "pid": 1, "rss": 10**9}))
    golden(find(story.observation())["worker-killing-task"])


@pytest.mark.parametrize(("mebibytes", "said"), [(40, True), (2, False)])
def test_a_task_whose_inputs_fill_its_worker_gets_the_memory_limit_that_it_needs(golden_once, mebibytes, said):
    story = worker_killing(4, 11, code=-15)
    story.events += [(1.0, OVER_MEMORY, {"worker": each, "pid": 1, "rss": 1}) for each in story.dead()]
    seen = story.observation()
    tasks, workers = dict(seen.tables["tasks"]), dict(seen.tables["workers"])
    bad, finished = tasks["key"].index(story.bad), [row for row, each in enumerate(tasks["status"]) if not each][:10]
    tasks["nbytes"] = [mebibytes * 2**20] * len(tasks["key"])
    workers["memory_limit"] = [600 * 2**20] * len(workers["worker"])
    needs = from_rows("dependencies", [{"task": bad, "needs": row} for row in finished])
    tables = {**seen.tables, "tasks": tasks, "workers": workers, "dependencies": needs}
    finding = find(observed(seen.trial, tables))["worker-killing-task"]
    assert ("memory_limit='1200MiB'" in finding.remedy) == said
    if said:
        golden_once(finding)


def test_a_task_whose_inputs_exceed_a_workers_memory_is_found_as_worker_killing(golden):
    story = Story()
    story.evenly(16, 4)
    text = (
        "MemoryError(\"Task 'merge-1' has 480.00 MiB worth of input dependencies, but worker tcp://10.0.0.1:4000 has "
        'memory_limit set to 476.84 MiB.")'
    )
    story.events.append((4.0, "task-erred", {"key": "merge-1", "exception": text}))
    golden(only(find(story.observation()), "worker-killing-task"))


def test_a_worker_killing_task_not_given_up_yet_has_lower_confidence(golden):
    assert 0.5 < golden(find(worker_killing(4, 40, tries=2).observation())["worker-killing-task"]).confidence < 0.9


def test_two_worker_killing_tasks_are_both_named(golden):
    story = Story(4)
    story.evenly(20, 4)
    for i, key in enumerate(["work-30", "work-31", "work-30", "work-31"]):
        story.dies(i, 5.0 + i, 5.5 + i, key)
    golden(find(story.observation())["worker-killing-task"])


def test_tasks_that_die_together_each_time_are_suspected_with_lower_confidence(golden):
    """Four threads take the same four tasks each time."""
    story = Story(2, threads=4)
    story.finished("work-9", 0, 0.0)
    for i in range(2):
        story.dies(i, 1.0 + i, 1.5 + i, *(f"work-{item}" for item in range(4)))
    assert golden(find(story.observation())["worker-killing-task"]).confidence <= 0.7


@pytest.mark.parametrize("since", [0.05, 1.02, 9.0])
def test_of_two_suspected_tasks_the_one_that_was_still_running_is_named(since, golden):
    """A second after the last result `work-5` may have finished unreported; earlier or much later it still ran."""
    story = Story(4)
    for worker in range(4):
        story.finished(f"work-{10 + worker}", worker, 0.0)
    for worker in (0, 1):
        story.cut_short("work-7", worker, 0.9, 1.0 + since, given_up=worker == 1)
        story.dies(worker, 0.5, 1.0 + since, "work-5", given_up=worker == 1)
    golden(find(story.observation())["worker-killing-task"])


def test_all_worker_time_is_lost_when_no_task_finished():
    story = Story(2)
    for i in range(2):
        story.dies(i, 1.0 * i, i + 1.0, "work-0", code=9, given_up=i == 1)
    observation = story.observation()
    assert observation.attempts is None
    assert find(observation)["worker-killing-task"].lost_s == pytest.approx(2 * 2.0)


# ------------------------------------------------------------------ worker died


@pytest.mark.parametrize("workers", [2, 4, 20, 100])
@pytest.mark.parametrize("dead", [1, 2])
def test_a_worker_that_died_is_found(workers, dead, golden_once):
    story = Story(workers)
    for item in range(workers * 8):
        if item // workers < 4 or item % workers >= dead:
            story.finished(f"work-{item}", item % workers, item // workers)
    for worker in range(dead):
        story.cut_short(f"work-{workers * 4 + worker}", worker, 4.0, 4.5)
        story.finished(f"work-{workers * 4 + worker}", workers - 1, 8.0 + worker)
        story.leaves(worker, 4.51, code=-9)
    finding = golden_once(only(find(story.observation()), "worker-died"))
    assert finding.severity is Severity.HIGH
    assert finding.lost_s > 0


def test_a_worker_killed_by_a_planned_fault_is_named_as_such(golden):
    story = Story(2)
    story.finished("work-0", 0, 0)
    story.finished("work-1", 1, 0)
    story.leaves(0, 0.5, code=-9)
    story.finished("work-2", 1, 1)
    seen = story.observation()
    seen.trial.facts["fault"] = {"worker": address(0)}
    golden(find(seen)["worker-died"])


@pytest.mark.parametrize(("before", "mebibytes"), [(8, 500), (2, 500), (8, 130)])
def test_memory_that_tasks_left_in_a_dead_worker_is_named_in_the_remedy(before, mebibytes, golden):
    """Not if the process ended early, or held little besides its results."""
    story = Story(4)
    for worker in range(2):
        for item in range(before):
            story.finished(f"decode-{worker}{item}", worker, item)
        story.dies(worker, before, before + 0.5, f"decode-{worker}9", code=-15)
        story.finished(f"decode-{worker}9", 3, before + 1.0 + worker)
    rss = mebibytes * 2**20
    story.events += [(9.0, OVER_MEMORY, {"worker": each, "pid": 1, "rss": rss}) for each in story.dead()]
    finding = golden(find(story.observation())["worker-died"])
    assert ("`decode`" in finding.remedy) == (before > 2 and mebibytes > 130)


def test_a_worker_death_in_a_valid_trial_is_not_severe():
    story = Story(20)
    story.evenly(400, 19)
    story.leaves(19, 19.0, code=1)
    assert find(story.observation(state=TrialState.VALID))["worker-died"].severity is Severity.MEDIUM


def test_a_task_that_finished_at_last_is_not_called_worker_killing(golden):
    story = Story(4)
    story.evenly(40, 4)
    for worker in (0, 1):
        story.dies(worker, 4.0 + worker, 4.5 + worker, "work-50", code=-15)
    story.finished("work-50", 3, 10.0)
    golden(only(find(story.observation()), "worker-died"))


@pytest.mark.parametrize("twice", [False, True], ids=["different tasks", "each task interrupted twice"])
def test_workers_that_die_with_many_tasks_are_not_called_killed_by_one(twice):
    story = Story(10)
    story.finished("work-100", 9, 0.0, 30.0)
    for worker in range(8):
        story.dies(worker, 0.0, 5.0, f"work-{worker}", code=-15)
        if twice:
            story.joins(20 + worker, 6.0)
            story.dies(20 + worker, 6.0, 10.0, f"work-{worker}", code=-15)
    assert list(find(story.observation())) == ["worker-died"]


BY_SLURM = """lost 1 of 2 workers during the trial (0); 1 Slurm job of x ended too early: PREEMPTED, ExitCode=0:15
  where: job 18 on n3
  cause: a job with a higher priority took its place; the end of /logs/2-18.err:
    | next: never
  next: use a QOS without preemption"""
QUOTA = [("INFO", "fine"), ("ERROR", "worker.py disk quota exceeded.\nmore"), ("INFO", "bye")]
EVICTED = [*QUOTA, ("CRITICAL", "Kubernetes: Evicted: disk pressure")]
ON_A_NODE = {"cluster": {"pods": [{"worker": address(0), "node": "n1", "instance_type": "e2-small"}]}}


@pytest.mark.parametrize(
    ("why", "logs", "trial"),
    [
        pytest.param("check-worker-ttl", (), {}, id="no heartbeat"),
        pytest.param("handle-worker-cleanup", (), {}, id="nobody saw it"),
        pytest.param("handle-worker-cleanup", (), {"reason": BY_SLURM}, id="the cluster knows"),
        pytest.param("handle-worker-cleanup", QUOTA, {}, id="its log is quoted"),
        pytest.param("handle-worker-cleanup", EVICTED, {"facts": ON_A_NODE}, id="Kubernetes knows"),
    ],
)
def test_a_worker_that_left_without_exit_code_is_reported_with_the_known_reason(golden, why, logs, trial):
    story = Story(2)
    story.evenly(10, 1, 1)
    story.leaves(0, 3.0, reason=why)
    story.logs += [(address(0), *each) for each in logs]
    assert golden(find(story.observation(**trial))["worker-died"]).confidence < 0.9


def test_an_exit_code_that_a_nanny_reports_for_its_previous_worker_goes_to_the_one_that_died():
    """The worker died before it told its nanny its address, so the nanny names the worker before it."""
    story = Story(1)
    for item in range(10):
        story.finished(f"work-{item}", 0 if item < 3 else 2, item)
    story.leaves(0, 3.0, code=3)
    story.joins(1, 3.5)
    story.leaves(1, 4.5)
    story.events.append((4.51, "worker-exit", {"worker": address(0), "exitcode": 5}))
    codes = {death.worker: death.exit_code for death in deaths(story.observation())}
    assert codes == {address(0): 3, address(1): 5}


# ------------------------------------------------------------------ workers that left by request, or never came


def asked_to_leave(story: Story, worker: int, when: float, how: str) -> None:
    if how == "expected":
        story.leaves(worker, when, expected=True, reason="stimulus")
    elif how == "retired":
        story.leaves(worker, when, expected=None, reason="retire-workers")
    else:
        change = {"action": "worker-status-change", "prev-status": "running", "status": "closing_gracefully"}
        story.events.append((when - 0.1, address(worker), change))
        story.leaves(worker, when, expected=False)


@pytest.mark.parametrize("how", ["expected", "retired", "closing"])
@pytest.mark.parametrize("workers", [2, 10, 50])
def test_workers_that_left_by_request_are_found_as_missing_and_not_as_died(workers, how, golden):
    story = Story(workers)
    for item in range(workers * 10):
        worker = item % workers
        story.finished(
            f"work-{item}", max(worker, workers // 2), item // workers * (1 if worker >= workers // 2 else 2)
        )
    for worker in range(workers // 2):
        asked_to_leave(story, worker, 1.0, how)
    golden(only(find(story.observation()), "workers-missing"))


def test_workers_whose_end_the_resource_manager_explains_are_not_called_missing():
    story = Story(2)
    for item in range(20):
        story.finished(f"work-{item}", 1, float(item))
    story.leaves(0, 1.0, expected=True, reason="stimulus")
    observation = story.observation()
    assert only(find(observation), "workers-missing")
    reason = "1 of 2 workers were lost: slurm suspended 1 job\n  where: jobs 7\n  next: use another queue"
    trial = replace(observation.trial, state=TrialState.INVALID, reason=reason)
    assert not [each for each in find(replace(observation, trial=trial)) if each.code == "workers-missing"]


@pytest.mark.parametrize("how", ["expected", "retired", "closing"])
def test_workers_that_leave_while_no_task_waits_or_after_the_last_one_are_healthy(how):
    """One task runs on to the end; the other workers are sent away, or end by themselves afterwards."""
    story, later = Story(10), Story(4)
    for item in range(10):
        story.finished(f"work-{item}", item, 0.0, 20.0 if item == 9 else 1.0)
    for worker in range(9):
        asked_to_leave(story, worker, 1.5, how)
    assert not find(story.observation())
    later.evenly(16, 4)
    for worker in range(4):
        later.leaves(worker, 10.0, code=0)
    assert not find(later.observation())


@pytest.mark.parametrize(("asked", "came"), [(4, 2), (20, 12), (100, 10)])
def test_workers_that_never_came_are_found_as_missing(asked, came, golden_once):
    story = Story(asked)
    story.members = story.members[:came]
    story.evenly(came * 10, came)
    assert golden_once(only(find(story.observation()), "workers-missing")).lost_s <= (asked - came) * 10


def test_workers_that_nobody_needed_or_that_came_later_are_not_missing():
    story = Story(20)
    story.members = story.members[:4]
    for item in range(4):
        story.finished(f"work-{item}", item, 0.0, 10.0)
    assert not find(story.observation())
    story = Story(4)
    for row in story.members[2:]:
        row["joined"] = EPOCH + 5.0
    story.evenly(20, 2)
    story.finished("work-30", 3, 6.0)
    assert not find(story.observation())


def test_a_driver_that_got_too_few_workers_is_found_as_workers_missing(golden):
    message = (
        "1 of 8 local workers registered within 1 s\n  where: workers 1, 2 on 127.0.0.1\n"
        "  cause: the missing workers did not start or register in time\n  next: try fewer workers"
    )
    facts = {"error": {"type": "WorkersMissing", "message": message, "traceback": ""}}
    observation = Observation.of(Trial("t", Point(8), 0, False, TrialState.INVALID, message, facts=facts), {})
    golden(find(observation)["workers-missing"])


# ------------------------------------------------------------------ healthy


def test_without_dead_workers_there_is_no_finding_of_worker_deaths():
    for workers, threads in ((1, 1), (4, 2), (50, 1)):
        story = Story(workers, threads)
        for item in range(workers * threads * 4):
            story.finished(f"work-{item}", item % workers, item // (workers * threads))
        assert not find(story.observation(state=TrialState.VALID))
    facts = {"error": {"type": "ValueError", "message": "no", "traceback": ""}}
    assert not find(story.observation(state=TrialState.FAILED, facts=facts))
    trial = Trial("t", Point(2), 0, False, TrialState.INVALID, "the driver died")
    assert not find(Observation.of(trial, {}))
