"""The recorder alone, driven as a scheduler drives its plugins."""

from __future__ import annotations

import asyncio
import json
import pickle
import time
from collections import defaultdict
from itertools import islice
from struct import calcsize
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import LocalCluster
from hypothesis import given, settings
from hypothesis import strategies as st

from scalescope.capture import recorder
from scalescope.capture.recorder import EVENT_CHARACTERS, Recorder, as_json, call_of
from scalescope.model import spool
from scalescope.model.records import STATUS_ERRED, STATUS_FINISHED, STATUS_LOST

WORKER = "tcp://10.0.0.1:4000"
OTHER = "tcp://10.0.0.2:4000"


def load(number: int) -> int:
    return number


class NoText:
    def __repr__(self) -> str:
        raise ValueError("no text")


class FakeGroup:
    """A task group: hashable, as the real one is."""

    def __init__(self, name: str, prefix: Any) -> None:
        self.name = name
        self.prefix = prefix


class FakeScheduler:
    """The part of a scheduler that the recorder uses."""

    def __init__(self, **options: Any) -> None:
        self.tasks: dict[Any, Any] = {}
        self.task_groups: dict[str, FakeGroup] = {}
        self.workers: dict[str, Any] = {}
        self.task_prefixes: dict[str, Any] = {}
        self.plugins: dict[str, Any] = {}
        self.handlers: dict[str, Any] = {}
        self.stream_handlers = self.own_handlers()
        for number, address in enumerate([WORKER, OTHER]):
            self.workers[address] = SimpleNamespace(
                address=address, name=number, host="10.0.0.1", nthreads=2, memory_limit=9, metrics={}, nbytes=0
            )
        self.recorder = Recorder(lag_interval_s=None, undrained_s=None, **{"held_back_s": 0.0, **options})
        asyncio.run(self.recorder.start(self))
        self.plugins[Recorder.name] = self.recorder
        self.recorder.begin()

    def own_handlers(self) -> dict[str, Any]:
        return {"task-erred": self.handle_task_erred, "update-graph": self.handle_update_graph}

    async def handle_update_graph(self, *, client: str, tasks: int, **rest: Any) -> None:
        self.recorder.update_graph(self, tasks=range(tasks), client=client)

    def valid_workers(self, task: Any) -> Any:
        return task.worker_restrictions

    def handle_task_erred(self, **message: Any) -> None:
        if not message.get("retry"):
            self.move(message.pop("key"), "processing", "erred", **message)
            return
        self.move(message["key"], "processing", "released")
        self.move(message["key"], "released", "waiting")

    def remove_plugin(self, name: str) -> None:
        del self.plugins[name]

    def submit(self, key: Any, *dependencies: Any, prefix: str = "inc", group: Any = "inc-1") -> None:
        its_prefix = SimpleNamespace(name=prefix, state_counts=defaultdict(int), states={})
        its_prefix = self.task_prefixes.setdefault(prefix, its_prefix)
        self.tasks[key] = SimpleNamespace(
            key=key,
            prefix=its_prefix,
            group=self.task_groups.setdefault(group, FakeGroup(group, its_prefix)),
            dependencies=[self.tasks[dependency] for dependency in dependencies],
            run_spec=None,
            worker_restrictions=None,
            host_restrictions=None,
            resource_restrictions=None,
            loose_restrictions=False,
        )

    def move(self, key: Any, start: str, finish: str, **details: Any) -> None:
        if finish == "processing" != start:
            self.tasks[key].prefix.state_counts["processing"] += 1
        self.recorder.transition(key, start, finish, stimulus_id="test", **details)

    def assign(self, key: Any, start: str = "waiting", worker: str = WORKER) -> None:
        self.tasks[key].processing_on = self.workers[worker]
        self.move(key, start, "processing")

    def finish(self, key: Any, seconds: float = 1.0, *, worker: str = WORKER, **details: Any) -> None:
        startstops = [{"action": "compute", "start": 100.0, "stop": 100.0 + seconds}]
        message = {"nbytes": 28, "thread": 7, "startstops": startstops, "type": b"", "typename": "int", "metadata": {}}
        self.move(key, "processing", "memory", worker=worker, **(message | details))

    def lose(self, worker: str, key: Any) -> None:
        """A worker leaves, and its running task is lost."""
        del self.workers[worker]
        self.move(key, "processing", "released")
        self.recorder.remove_worker(self, worker)

    def run(self, key: Any, *dependencies: Any, seconds: float = 1.0, **names: Any) -> None:
        self.submit(key, *dependencies, **names)
        self.assign(key)
        self.finish(key, seconds)

    def drain(self, ack: int = 0) -> dict[str, Any]:
        return asyncio.run(self.recorder.drain(self.recorder.recording, ack=ack))

    def totals(self) -> dict[str, Any]:
        return asyncio.run(self.recorder.finish(self.recorder.recording, settle_s=0.0))

    def tasks_of(self, chunk: dict[str, Any]) -> list[dict[str, Any]]:
        _, columns = spool.unpack(chunk["tasks"])
        return [{name: column[row] for name, column in columns.items()} for row in range(chunk["tasks"]["rows"])]

    def rows(self) -> list[dict[str, Any]]:
        return self.tasks_of(self.drain(ack=self.recorder.sequence))


@pytest.fixture
def scheduler() -> FakeScheduler:
    return FakeScheduler()


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves by one second each time it is read."""
    ticks = iter(range(1_000, 10_000))
    monkeypatch.setattr("scalescope.capture.recorder.time", SimpleNamespace(time=lambda: float(next(ticks))))


# ---------------------------------------------------------------- what a healthy task leaves


def test_a_finished_task_becomes_one_row_with_all_its_fields(ticking: None) -> None:
    scheduler = FakeScheduler()
    begun = scheduler.recorder.begin()["time"]
    scheduler.submit(("inc-1", 5))
    scheduler.assign(("inc-1", 5))
    scheduler.finish(("inc-1", 5), seconds=2.5)
    (row,) = scheduler.rows()
    expected = {
        "key": "('inc-1', 5)",
        "prefix": "inc",
        "group": "inc-1",
        "worker": WORKER,
        "thread": 7,
        "runnable": begun + 1,
        "assigned": begun + 1,
        "start": 100.0,
        "stop": 102.5,
        "done": begun + 2,
        **dict.fromkeys(("transfer", "deserialize", "disk_read", "disk_write"), 0.0),
        **{"nbytes": 28, "span": 2.5, "status": STATUS_FINISHED, "retries": 0, "allowed": 0},
    }
    assert row | expected == row


def test_seconds_of_transfer_and_other_actions_are_added_up(scheduler: FakeScheduler) -> None:
    actions = [("transfer", 1.0), ("deserialize", 0.25), ("transfer", 2.0), ("disk-read", 4.0), ("disk-write", 8.0)]
    startstops = [{"action": action, "start": 10.0, "stop": 10.0 + seconds} for action, seconds in actions]
    startstops += [{"action": "compute", "start": 50.0, "stop": 51.0}, {"action": "new", "start": 0.0, "stop": 99.0}]
    scheduler.run("before")
    scheduler.submit("x")
    scheduler.assign("x")
    scheduler.finish("x", startstops=startstops)
    scheduler.run("after")
    before, row, after = scheduler.rows()
    measured = {name: row[name] for name in ("transfer", "deserialize", "disk_read", "disk_write", "start", "stop")}
    seconds = {"transfer": 3.0, "deserialize": 0.25, "disk_read": 4.0, "disk_write": 8.0}
    assert measured == {**seconds, "start": 50.0, "stop": 51.0}
    assert before["transfer"] == after["transfer"] == 0.0


def test_the_span_of_a_task_is_its_longest_path_of_dependencies(scheduler: FakeScheduler) -> None:
    #   a(1) ── c(4) ──┐
    #   b(2) ──────────┴ d(8)      e(16)
    scheduler.run("a", seconds=1)
    scheduler.run("b", seconds=2)
    scheduler.run("c", "a", seconds=4)
    scheduler.run("d", "b", "c", seconds=8)
    scheduler.run("e", seconds=16)
    assert {row["key"]: row["span"] for row in scheduler.rows()} == {"a": 1, "b": 2, "c": 5, "d": 13, "e": 16}


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_the_span_of_a_task_agrees_with_all_paths_of_any_graph(data: st.DataObject) -> None:
    scheduler = FakeScheduler()
    seconds: list[int] = []
    paths: list[int] = []  # longest path that ends with a task, over all paths
    for key in range(data.draw(st.integers(1, 8))):
        parents = data.draw(st.sets(st.integers(0, key - 1)) if key else st.just(set()))
        seconds.append(data.draw(st.integers(0, 9)))
        scheduler.run(key, *sorted(parents), seconds=seconds[key])
        paths.append(seconds[key] + max((paths[parent] for parent in parents), default=0))
    assert [row["span"] for row in scheduler.rows()] == paths


def test_a_forgotten_task_no_longer_adds_to_a_span(scheduler: FakeScheduler) -> None:
    scheduler.run("a", seconds=5)
    scheduler.move("a", "memory", "released")
    scheduler.move("a", "released", "forgotten")
    scheduler.submit("a")  # such as scattered data of that name, which never ran
    scheduler.run("b", "a", seconds=1)
    assert [row["span"] for row in scheduler.rows()] == [5, 1]


def test_a_queued_task_is_runnable_before_it_is_assigned(ticking: None) -> None:
    scheduler = FakeScheduler()
    scheduler.submit("x")
    scheduler.move("x", "waiting", "waiting")  # the scheduler found no worker free
    scheduler.move("x", "waiting", "queued")
    scheduler.submit("y")
    scheduler.move("y", "waiting", "no-worker")
    scheduler.assign("y", "no-worker")
    scheduler.assign("x", "queued")
    scheduler.finish("x")
    scheduler.finish("y")
    waited = {row["key"]: row["assigned"] - row["runnable"] for row in scheduler.rows()}
    assert waited == {"x": 3.0, "y": 1.0}


def test_a_task_that_left_the_queue_counts_as_runnable_only_from_its_return(ticking: None) -> None:
    scheduler = FakeScheduler()
    scheduler.submit("x")
    scheduler.move("x", "waiting", "queued")
    scheduler.move("x", "queued", "released")  # what it needs was lost
    scheduler.move("x", "released", "waiting")
    scheduler.assign("x")
    scheduler.finish("x")
    (row,) = scheduler.rows()
    assert row["runnable"] == row["assigned"]


def test_a_task_group_named_like_its_key_is_kept(scheduler: FakeScheduler) -> None:
    scheduler.run("sum-1", group="sum-1", prefix="sum")
    scheduler.run("inc-1", group="inc")
    assert [(row["group"], row["prefix"]) for row in scheduler.rows()] == [("sum-1", "sum"), ("inc", "inc")]


def test_a_group_of_nested_keys_is_kept(scheduler: FakeScheduler) -> None:
    scheduler.run((("part", 0), 1), group=("part", 0), prefix="part")
    assert [(row["group"], row["prefix"]) for row in scheduler.rows()] == [("('part', 0)", "part")]


# ---------------------------------------------------------------- errors, deaths, theft


def test_a_task_that_fails_becomes_a_row_and_an_event(scheduler: FakeScheduler) -> None:
    scheduler.submit("x")
    scheduler.assign("x")
    scheduler.tasks["x"].run_spec = SimpleNamespace(func=load, args=(7, "a" * 99, NoText()), kwargs={"deep": [1]})
    details = {"startstops": [{"action": "compute", "start": 1.0, "stop": 3.0}], "thread": 9}
    scheduler.stream_handlers["task-erred"](key="x", worker=WORKER, exception_text="E" * 5000, **details)
    chunk = scheduler.drain()
    (row,) = scheduler.tasks_of(chunk)
    assert (row["status"], row["start"], row["stop"], row["span"]) == (STATUS_ERRED, 1.0, 3.0, 2.0)
    ((_, topic, message),) = chunk["events"]
    assert topic == "task-erred"
    told = json.loads(message)
    assert told.pop("call").startswith("load(7, 'aaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaa', <NoText instance at 0x")
    assert told == {"key": "x", "worker": WORKER, "exception": "E" * 2000}


def test_the_call_of_a_task_is_described_for_user_functions_only() -> None:
    assert call_of(SimpleNamespace(func=load, args=(), kwargs={"deep": True})) == "load(deep=True)"
    assert call_of(SimpleNamespace(func=LocalCluster, args=(1,), kwargs={})) == ""  # a class of a library
    assert call_of({"function": b"", "args": b""}) == call_of(None) == ""  # as schedulers before 2024.12 hold it


def test_tasks_that_fail_because_of_another_task_become_no_rows(scheduler: FakeScheduler) -> None:
    scheduler.submit("x")
    scheduler.submit("y", "x")
    scheduler.move("y", "waiting", "erred", cause="x")
    assert scheduler.rows() == []


def test_a_failed_attempt_that_is_retried_becomes_a_row_of_its_own(scheduler: FakeScheduler) -> None:
    scheduler.submit("x")
    scheduler.assign("x")
    startstops = [{"action": "compute", "start": 1.0, "stop": 3.0}]
    scheduler.stream_handlers["task-erred"](
        key="x", worker=WORKER, thread=9, startstops=startstops, exception_text="ValueError()", retry=True
    )
    scheduler.assign("x", worker=OTHER)
    scheduler.finish("x", worker=OTHER)
    chunk = scheduler.drain()
    rows = [(row["status"], row["retries"], row["worker"], row["stop"]) for row in scheduler.tasks_of(chunk)]
    assert rows == [(STATUS_ERRED, 0, WORKER, 3.0), (STATUS_FINISHED, 1, OTHER, 101.0)]
    assert [topic for _, topic, _ in chunk["events"]] == ["task-erred"]


def test_an_attempt_whose_worker_died_is_lost_and_the_next_is_a_retry(scheduler: FakeScheduler) -> None:
    scheduler.submit("x")
    scheduler.assign("x")
    scheduler.lose(WORKER, "x")
    scheduler.move("x", "released", "waiting")
    scheduler.assign("x", worker=OTHER)
    scheduler.finish("x", worker=OTHER)
    lost, finished = scheduler.rows()
    assert (lost["status"], lost["worker"], lost["start"], lost["retries"]) == (STATUS_LOST, WORKER, 0.0, 0)
    assert (finished["status"], finished["retries"]) == (STATUS_FINISHED, 1)


@pytest.mark.parametrize("another_leaves", [False, True])
def test_a_cancelled_attempt_is_lost_and_the_next_is_not_a_retry(
    scheduler: FakeScheduler, another_leaves: bool
) -> None:
    scheduler.submit("x")
    scheduler.assign("x", worker=OTHER)
    if another_leaves:
        scheduler.lose(WORKER, "x")
    else:
        scheduler.move("x", "processing", "released")
    scheduler.assign("x", worker=OTHER)
    scheduler.finish("x", worker=OTHER)
    assert [(row["status"], row["retries"]) for row in scheduler.rows()] == [(STATUS_LOST, 0), (STATUS_FINISHED, 0)]


def unfinished_of(scheduler: FakeScheduler) -> list[Any]:
    scheduler.totals()
    events = scheduler.drain(ack=scheduler.recorder.sequence)["events"]
    return [json.loads(message) for _, topic, message in events if topic == "unfinished"]


def test_no_task_is_unfinished_when_all_have_ended(scheduler: FakeScheduler) -> None:
    scheduler.run("x-1")
    scheduler.move("x-1", "memory", "released")
    scheduler.move("x-1", "released", "forgotten")
    assert unfinished_of(scheduler) == []


def test_tasks_released_before_their_end_count_as_cancelled_once_forgotten(scheduler: FakeScheduler) -> None:
    for key in ("load-1", "load-2", "crunch-1", "again-1"):
        scheduler.submit(key)
    scheduler.assign("load-1")
    scheduler.move("load-1", "processing", "released")
    scheduler.move("load-2", "waiting", "queued")
    scheduler.move("load-2", "queued", "released")
    scheduler.move("crunch-1", "waiting", "released")
    scheduler.assign("again-1", worker=OTHER)
    scheduler.lose(OTHER, "again-1")  # it is run again
    scheduler.assign("again-1", worker=WORKER)
    scheduler.finish("again-1")
    for key in ("load-1", "load-2", "crunch-1", "again-1"):
        scheduler.move(key, "released", "forgotten")
    assert unfinished_of(scheduler) == [{"left": {}, "cancelled": {"load": 2, "crunch": 1}}]


def test_tasks_that_have_not_ended_are_counted_at_the_end(scheduler: FakeScheduler) -> None:
    scheduler.submit("load-1", prefix="load")
    scheduler.task_prefixes["load"].states = {"waiting": 3, "processing": 2, "memory": 5}
    assert unfinished_of(scheduler) == [{"left": {"load": 5}, "cancelled": {}}]


def test_a_task_given_up_after_its_workers_died_becomes_a_failed_row(scheduler: FakeScheduler) -> None:
    scheduler.submit("x")
    scheduler.assign("x")
    scheduler.move("x", "processing", "erred", worker=WORKER, cause="x", exception=b"")
    chunk = scheduler.drain()
    assert [row["status"] for row in scheduler.tasks_of(chunk)] == [STATUS_ERRED]
    assert "KilledWorker" in chunk["events"][0][2]


def test_a_task_whose_inputs_exceed_the_memory_of_a_worker_becomes_a_failed_row(scheduler: FakeScheduler) -> None:
    scheduler.submit("x")
    refused = pickle.dumps(MemoryError("input dependencies"))
    scheduler.move("x", "processing", "erred", worker=WORKER, cause="x", exception=refused)
    chunk = scheduler.drain()
    assert [row["status"] for row in scheduler.tasks_of(chunk)] == [STATUS_ERRED]
    assert "input dependencies" in chunk["events"][0][2]
    assert scheduler.totals()["foreign"] == 0


def test_a_task_that_no_worker_could_take_becomes_a_row_without_worker(scheduler: FakeScheduler) -> None:
    scheduler.submit("x")
    scheduler.move("x", "waiting", "no-worker")
    scheduler.move("x", "no-worker", "erred", cause="x")
    (row,) = scheduler.rows()
    assert (row["status"], row["worker"], row["assigned"]) == (STATUS_ERRED, "", 0.0)
    totals = scheduler.totals()
    assert (totals["rows"], totals["unassigned"], totals["assigned"]) == (1, 1, 0)


def test_a_stolen_task_belongs_to_the_worker_that_stole_it(ticking: None) -> None:
    scheduler = FakeScheduler()
    scheduler.submit("x")
    scheduler.assign("x")
    scheduler.recorder.log_event("stealing", ("confirm", "x", "ready", WORKER, OTHER, "stimulus"))
    scheduler.recorder.log_event("stealing", ("confirm", "unknown", "ready", WORKER, OTHER, "stimulus"))
    scheduler.lose(OTHER, "x")
    (row,) = scheduler.rows()
    assert row["worker"] == OTHER
    assert row["assigned"] > row["runnable"]


def test_a_task_that_finished_on_a_worker_that_left_has_not_ended(scheduler: FakeScheduler) -> None:
    scheduler.submit("x")
    scheduler.assign("x")
    scheduler.move("x", "processing", "processing", worker=WORKER, startstops=[], nbytes=1)
    assert scheduler.rows() == []
    assert scheduler.totals()["unfinished"] == 1


# ---------------------------------------------------------------- layouts of entries and of rows

KINDS = ("stolen", "queued", "unqueued", "forgotten", "finished", "restricted", "steps", "lost", "unassigned", "graph")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(KINDS), max_size=20))
def test_entries_of_every_kind_are_read_back_with_the_length_they_were_written_with(kinds: list[str]) -> None:
    scheduler = FakeScheduler(held_back_s=30.0)
    written: list[tuple[Any, int]] = []  # kind and number of details of each entry
    for key, kind in enumerate(kinds):
        scheduler.submit(key)
        if kind in ("stolen", "finished", "restricted", "steps", "lost"):
            scheduler.tasks[key].worker_restrictions = {OTHER} if kind == "restricted" else None
            scheduler.assign(key)
            written.append((SimpleNamespace, 0))
        if kind == "stolen":
            scheduler.recorder.log_event("stealing", ("confirm", key, "ready", WORKER, OTHER, "stimulus"))
            written.append((recorder._Stolen, 0))
        elif kind in ("queued", "unqueued"):
            scheduler.move(key, "waiting", "queued" if kind == "queued" else "released")
            written.append((recorder.RUNNABLE if kind == "queued" else recorder.UNQUEUED, 0))
        elif kind == "forgotten":
            scheduler.move(key, "memory", "forgotten")
            written.append((recorder.FORGOTTEN, 0))
        elif kind in ("finished", "restricted", "steps"):
            scheduler.finish(key, **({"startstops": []} if kind == "steps" else {}))
            written.append((recorder._Ending if kind == "restricted" else recorder.DONE, 7))
        elif kind == "lost":
            scheduler.move(key, "processing", "released")
            written.append((recorder._Ending, 7))
        elif kind == "unassigned":
            scheduler.move(key, "no-worker", "erred", cause=key)
            written += [(recorder.UNASSIGNED, 0), (recorder._Ending, 7)]
        elif kind == "graph":
            scheduler.recorder._note_graph(0.0, {})
            written.append((recorder.SENT, 1))
    attempts = scheduler.recorder.attempts
    assert attempts is not None
    values, read = iter(attempts.held), []
    for _, _, what in zip(values, values, values, strict=True):
        kind = what if isinstance(what, str) else type(what)
        _, details = recorder._ENTRIES.get(kind, (None, 0))
        read.append((kind, len(list(islice(values, details)))))
    assert read == written
    ended = [kind for kind, details in read if details == 7]
    assert scheduler.totals()["rows"] == len(ended)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "thread": st.integers(-(2**63), 2**63 - 1),
                "nbytes": st.integers(0, 2**63 - 1),
                "allowed": st.integers(0, 40_000),
                "start": st.floats(1.0, 2e9),
                "seconds": st.floats(0.0, 1e6),
            }
        ),
        min_size=1,
        max_size=8,
    )
)
def test_a_packed_row_is_read_back_unchanged(tasks: list[dict[str, Any]]) -> None:
    scheduler = FakeScheduler()
    expected = []
    for key, each in enumerate(tasks):
        scheduler.submit(key, group=f"group-{key % 2}")
        scheduler.tasks[key].worker_restrictions = range(each["allowed"])
        worker, stop = (WORKER, OTHER)[key % 2], each["start"] + each["seconds"]
        scheduler.assign(key, worker=worker)
        startstops = [{"action": "compute", "start": each["start"], "stop": stop}]
        scheduler.finish(key, worker=worker, thread=each["thread"], nbytes=each["nbytes"], startstops=startstops)
        allowed, span = min(each["allowed"], 2**15 - 1), stop - each["start"]
        row = {"key": str(key), "worker": worker, "group": f"group-{key % 2}", "allowed": allowed, "span": span}
        expected.append({**row, **{name: each[name] for name in ("thread", "nbytes", "start")}, "stop": stop})
    assert [{name: row[name] for name in expected[0]} for row in scheduler.rows()] == expected


def test_each_column_of_a_row_begins_at_a_multiple_of_its_size() -> None:
    begin = 0
    for kind in recorder._FIELDS.values():
        assert begin % calcsize(kind) == 0
        begin += calcsize(kind)
    assert recorder._ROW.size == begin
    assert all(begin % calcsize(kind) == 0 for kind in recorder._FIELDS.values())


# ---------------------------------------------------------------- nothing is lost


def test_a_chunk_is_sent_again_until_it_is_acknowledged(scheduler: FakeScheduler) -> None:
    scheduler.run("a")
    first = scheduler.drain(ack=0)
    scheduler.run("b")
    assert scheduler.drain(ack=0) == first
    assert scheduler.drain(ack=0) == first
    second = scheduler.drain(ack=first["seq"])
    assert second["seq"] == first["seq"] + 1
    assert scheduler.drain(ack=first["seq"]) == second  # an answer was lost, and the call came again
    assert [scheduler.tasks_of(chunk)[0]["key"] for chunk in (first, second)] == ["a", "b"]
    assert scheduler.drain(ack=second["seq"])["tasks"]["rows"] == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["run", "drain", "lost answer"]), max_size=30), st.integers(1, 4))
def test_every_row_arrives_once_and_in_order_even_if_answers_are_lost(steps: list[str], size: int) -> None:
    scheduler = FakeScheduler()
    attempts = scheduler.recorder.attempts
    assert attempts is not None
    take = attempts.take
    attempts.take = lambda limit: take(size)  # type: ignore[method-assign]  # small chunks
    received: list[str] = []
    ack = ran = 0

    def drain() -> bool:
        nonlocal ack
        chunk = scheduler.drain(ack=ack)
        assert chunk["seq"] == ack + 1
        ack = chunk["seq"]
        rows = scheduler.tasks_of(chunk)
        received.extend(row["key"] for row in rows)
        assert all(row["group"] == f"group-{int(row['key']) % 3}" for row in rows)
        return bool(chunk["last"])

    for step in steps:
        if step == "run":
            scheduler.run(str(ran), group=f"group-{ran % 3}")
            ran += 1
        elif step == "drain":
            drain()
        else:
            scheduler.drain(ack=ack)
    assert scheduler.totals()["rows"] == ran
    while not drain():
        pass
    assert received == [str(number) for number in range(ran)]


# ---------------------------------------------------------------- rows are made later


def chain(scheduler: FakeScheduler, tasks: int) -> None:
    """A chain of tasks; each is forgotten as soon as the next one has its result."""
    for number in range(tasks):
        scheduler.run(number, *([number - 1] if number else []))
        if number:
            scheduler.move(number - 1, "memory", "forgotten")


def edges(scheduler: FakeScheduler, chunk: dict[str, Any]) -> list[tuple[int, int]]:
    _, found = spool.unpack(chunk["dependencies"])
    return list(zip(found["task"], found["needs"], strict=True))


def test_no_row_is_made_until_the_tasks_have_ended() -> None:
    scheduler = FakeScheduler(held_back_s=30.0)
    chain(scheduler, 1_200)  # more than are made at once
    scheduler.submit("lost")
    scheduler.assign("lost")
    scheduler.lose(WORKER, "lost")
    first = scheduler.drain()
    assert (first["tasks"]["rows"], first["last"]) == (0, False)
    assert scheduler.recorder.attempts.rows == b""
    assert scheduler.totals()["rows"] == 1_201
    chunk = scheduler.drain(ack=1)
    rows = scheduler.tasks_of(chunk)
    assert [row["key"] for row in rows] == [*map(str, range(1_200)), "lost"]
    assert [row["span"] for row in rows] == [*map(float, range(1, 1_201)), 0.0]
    assert edges(scheduler, chunk) == [(number, number - 1) for number in range(1, 1_200)]
    assert rows[-1]["status"] == STATUS_LOST
    assert chunk["last"]
    assert scheduler.recorder.attempts.row_of.keys() == {1_199}


def test_no_more_entries_are_held_back_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalescope.capture.recorder.BATCH", 150)  # 16 entries a task: a batch of 10
    monkeypatch.setattr("scalescope.capture.recorder.HELD_BATCHES", 2)
    scheduler = FakeScheduler(held_back_s=30.0)
    chain(scheduler, 100)
    attempts = scheduler.recorder.attempts
    assert len(attempts.batches) == 2
    assert len(attempts.held) == 3
    assert len(attempts.row_of) <= 2
    chunk = scheduler.drain()
    made = chunk["tasks"]["rows"]
    assert made == 80
    assert edges(scheduler, chunk) == [(number, number - 1) for number in range(1, made)]
    assert scheduler.totals()["rows"] == 100
    assert edges(scheduler, scheduler.drain(ack=1)) == [(number, number - 1) for number in range(made, 100)]


def test_entries_held_for_longer_than_the_limit_are_handed_out(monkeypatch: pytest.MonkeyPatch, ticking: None) -> None:
    monkeypatch.setattr("scalescope.capture.recorder.BATCH", 20)  # two tasks
    scheduler = FakeScheduler(held_back_s=10.0)
    for number in range(8):  # two readings of the clock each, and one of a batch
        scheduler.run(number)
    handed_out = [scheduler.drain(ack=number)["tasks"]["rows"] for number in range(2)]
    assert handed_out == [6, 0]
    assert scheduler.totals()["rows"] == 8


def test_rows_and_events_beyond_the_limit_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalescope.capture.recorder.HELD_OTHERS", 2)
    monkeypatch.setattr("scalescope.capture.recorder.HELD_WAITS", 1)
    scheduler = FakeScheduler(held_rows=3, held_events=2)
    for number in range(5):
        scheduler.run(number)
        scheduler.recorder.log_event("topic", number)
    assert [row["key"] for row in scheduler.rows()] == ["0", "1", "2"]
    scheduler.run(5)
    assert [row["key"] for row in scheduler.rows()] == ["5"]
    recorder = scheduler.recorder
    for number in range(3):
        recorder.add_worker(scheduler, WORKER)
        recorder.remove_worker(scheduler, WORKER)
        recorder._sample_memory(number)
        recorder._note_lag()
        recorder._note_graph(0.0, {})
        recorder.attempts._add_wait("prefix", f"scalescope-wait lock\t{number}", 1.0)
    kept = recorder.members, recorder.memory, recorder.lag, recorder.graphs, recorder.attempts.waits
    assert list(map(len, kept)) == [2, 2, 2, 2, 1]
    totals = scheduler.totals()
    assert (totals["rows"], totals["dropped"], totals["assigned"]) == (4, 2, 6)
    assert totals["full"] == {"events": 3, "members": 4, "memory": 2, "lag": 1, "graphs": 1, "waits": 2}


def test_totals_include_the_schedulers_own_count_of_assigned_tasks(scheduler: FakeScheduler) -> None:
    scheduler.run("a")
    scheduler.run("b")
    scheduler.task_prefixes["inc"].state_counts["processing"] += 1  # a transition that the hook never saw
    totals = scheduler.totals()
    assert (totals["rows"], totals["assigned"]) == (2, 3)


@pytest.mark.parametrize("restarted", [True, False])
def test_the_schedulers_count_is_none_after_a_restart_or_when_it_has_no_counts(
    scheduler: FakeScheduler, restarted: bool
) -> None:
    scheduler.run("a")
    if restarted:
        scheduler.recorder.restart(scheduler)
    else:
        del scheduler.task_prefixes["inc"].state_counts
    totals = scheduler.totals()
    assert (totals["restarted"], totals["assigned"]) == (restarted, None)


def test_a_recording_contains_nothing_of_the_one_before(scheduler: FakeScheduler) -> None:
    scheduler.run("a", seconds=5)
    scheduler.submit("b")
    scheduler.assign("b")
    scheduler.recorder.log_event("topic", "before")
    first = scheduler.recorder.recording
    scheduler.recorder.begin()
    with pytest.raises(RuntimeError, match="another client"):
        asyncio.run(scheduler.recorder.drain(first))
    scheduler.finish("b")  # began before
    scheduler.run("c", "a", seconds=1)
    chunk = scheduler.drain()
    assert (chunk["seq"], chunk["events"]) == (1, [])
    assert [(row["key"], row["span"]) for row in scheduler.tasks_of(chunk)] == [("c", 1.0)]
    totals = scheduler.totals()
    assert (totals["rows"], totals["foreign"], totals["assigned"]) == (1, 1, 1)


def test_nothing_more_is_recorded_after_finish(scheduler: FakeScheduler) -> None:
    scheduler.run("a")
    totals = scheduler.totals()
    scheduler.run("b")
    scheduler.recorder.log_event("topic", "late")
    chunk = scheduler.drain()
    assert [row["key"] for row in scheduler.tasks_of(chunk)] == ["a"]
    assert chunk["events"] == []
    assert scheduler.totals() == totals  # the answer was lost, and the call came again


def test_finish_waits_for_running_tasks(scheduler: FakeScheduler) -> None:
    scheduler.submit("slow")
    scheduler.assign("slow")

    async def end() -> dict[str, Any]:
        asyncio.get_running_loop().call_later(0.05, scheduler.finish, "slow")
        return await scheduler.recorder.finish(scheduler.recorder.recording, settle_s=30.0)

    totals = asyncio.run(end())
    assert (totals["rows"], totals["unfinished"]) == (1, 0)


def test_finish_returns_on_a_scheduler_that_is_never_idle(scheduler: FakeScheduler) -> None:
    async def end() -> dict[str, Any]:
        async def others() -> None:
            for number in range(1_000_000):
                scheduler.run(number)
                await asyncio.sleep(0)

        busy = asyncio.ensure_future(others())
        await asyncio.sleep(0)  # they have begun
        try:
            finish = scheduler.recorder.finish(scheduler.recorder.recording, settle_s=0.1)
            return await asyncio.wait_for(finish, 5)
        finally:
            busy.cancel()

    totals = asyncio.run(end())
    assert totals["rows"] == totals["assigned"] > 0


# ---------------------------------------------------------------- workers, events, life


def test_present_joining_and_leaving_workers_are_recorded(scheduler: FakeScheduler) -> None:
    scheduler.recorder.remove_worker(scheduler=scheduler, worker=OTHER, stimulus_id="retired")
    scheduler.recorder.remove_worker(scheduler=scheduler, worker=WORKER)  # as before distributed 2023.6
    scheduler.recorder.add_worker(scheduler=scheduler, worker=OTHER)
    members = scheduler.drain()["members"]
    assert [entry[1:] for entry in members] == [
        ("joined", WORKER, "0", "10.0.0.1", 2, 9),
        ("joined", OTHER, "1", "10.0.0.1", 2, 9),
        ("left", OTHER, "retired"),
        ("left", WORKER, ""),
        ("joined", OTHER, "1", "10.0.0.1", 2, 9),
    ]


def test_managed_memory_is_recorded_only_where_it_changed(scheduler: FakeScheduler) -> None:
    recorder = scheduler.recorder
    recorder._sample_memory(1.0)
    scheduler.workers[WORKER].nbytes = 100
    scheduler.workers[OTHER].metrics["spilled_bytes"] = {"memory": 8, "disk": 5}
    recorder._sample_memory(2.0)
    recorder._sample_memory(3.0)
    assert recorder.memory[2:] == [(2.0, WORKER, 100, 0), (2.0, OTHER, 0, 5)]


def test_only_fine_metrics_of_the_trial_become_rows(scheduler: FakeScheduler) -> None:
    recorder = scheduler.recorder
    assert asyncio.run(recorder.fine_metrics(recorder.recording, wait_s=0.0)) == []  # a release that has none
    read, latency = ("execute", "inc", "disk-read", "seconds"), "latency"
    scheduler.cumulative_worker_metrics = {read: 2.0, latency: 1.0}
    recorder.begin()
    written, p2p = ("memory-monitor", "disk-write", "bytes"), ("p2p", "background", "process", "seconds")
    scheduler.cumulative_worker_metrics |= {read: 2.5, latency: 2.0, written: 7, p2p: 1.0}
    assert asyncio.run(recorder.fine_metrics(recorder.recording, wait_s=0.0)) == [
        ("execute", "inc", "disk-read", "seconds", 0.5),
        ("memory-monitor", "", "disk-write", "bytes", 7.0),
        ("p2p", "", "background process", "seconds", 1.0),
    ]


def test_dependencies_become_rows_even_across_chunks(scheduler: FakeScheduler) -> None:
    for key in "ab":
        scheduler.run(key)
    scheduler.run("c", "a", "b")
    first = scheduler.drain()
    scheduler.run("d", "c", "b")
    scheduler.submit("persisted")
    scheduler.move("a", "memory", "forgotten")
    scheduler.run("e", "persisted", "a")  # a task from before the trial or a forgotten one has no row
    second = scheduler.drain(ack=1)
    assert sorted(edges(scheduler, first)) == [(2, 0), (2, 1)]
    assert sorted(edges(scheduler, second)) == [(3, 1), (3, 2)]


def test_dependencies_beyond_the_limit_are_counted(scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalescope.capture.recorder.HELD_EDGES", 2)
    for key in "abc":
        scheduler.run(key)
    scheduler.run("d", "a", "b")
    scheduler.run("e", "c", "d")
    assert scheduler.rows()[-1]["span"] == 3.0
    assert scheduler.totals()["edges_dropped"] == 2


def test_restricted_tasks_say_how_many_workers_may_run_them(scheduler: FakeScheduler) -> None:
    scheduler.run("free")
    for key in "ab":
        scheduler.submit(key)
        scheduler.tasks[key].worker_restrictions = {OTHER}
        scheduler.assign(key)
        scheduler.finish(key)
    chunk = scheduler.drain()
    assert [row["allowed"] for row in scheduler.tasks_of(chunk)] == [0, 1, 1]
    ((_, topic, message),) = chunk["events"]
    assert topic == "restriction"
    assert json.loads(message) == {"prefix": "inc", "workers": [OTHER], "hosts": [], "resources": [], "loose": False}


def test_graphs_are_recorded_with_their_size(ticking: None) -> None:
    scheduler = FakeScheduler()
    handler = scheduler.stream_handlers["update-graph"]
    frames = SimpleNamespace(frames=[b"12345", memoryview(b"678")])
    asyncio.run(handler(client="Client-1", tasks=3, expr_ser=frames))
    scheduler.recorder.log_event("Client-1", {"action": "update-graph", "status": "OK"})
    chunk = scheduler.drain()
    ((_, seconds, *rest),) = chunk["graphs"]
    assert (seconds, rest) == (1.0, ["Client-1", "", 3, 8])
    assert chunk["events"] == []


def test_a_graph_sent_by_a_task_is_recorded_with_that_task(scheduler: FakeScheduler) -> None:
    handler = scheduler.stream_handlers["update-graph"]
    for client in ("Client-1", "Client-worker-2"):
        asyncio.run(handler(client=client, tasks=1, submitting_task="outer"))
    asyncio.run(handler(client="Client-1", tasks=1, submitting_task=None))
    assert [(client, task) for _, _, client, task, *_ in scheduler.drain()["graphs"]] == [
        ("Client-worker-Client-1", "outer"),
        ("Client-worker-2", "outer"),
        ("Client-1", ""),
    ]


def test_a_worker_whose_event_loop_is_slow_is_recorded(scheduler: FakeScheduler) -> None:
    scheduler.workers[WORKER].metrics = {"event_loop_interval": 0.02}
    scheduler.workers[OTHER].metrics = {"event_loop_interval": 1.5}
    scheduler.recorder._sample_memory(5.0)
    assert scheduler.recorder.lag == [(5.0, OTHER, 1.5 - 0.02)]


def test_the_longest_stall_of_the_event_loop_is_recorded() -> None:
    recorder = Recorder(lag_interval_s=0.01)
    asyncio.run(recorder.start(FakeScheduler()))

    async def stall() -> None:
        recorder.begin()
        for seconds in (0.05, 0.3, 0.75):
            await asyncio.sleep(0.02)
            time.sleep(seconds)
        while not recorder.lag:
            await asyncio.sleep(0.01)

    asyncio.run(stall())
    assert recorder.lag[0][1] == "scheduler"
    assert recorder.lag[0][2] >= 0.7


def test_uninstall_leaves_the_scheduler_as_it_was(scheduler: FakeScheduler) -> None:
    names = ("begin", "drain", "finish", "fine_metrics", "uninstall")
    assert set(scheduler.handlers) == {f"scalescope_{name}" for name in names}
    scheduler.recorder.uninstall()
    assert (scheduler.handlers, scheduler.plugins) == ({}, {})
    assert scheduler.stream_handlers == scheduler.own_handlers()


def test_a_new_recorder_replaces_one_that_was_left_behind(scheduler: FakeScheduler) -> None:
    new = Recorder(lag_interval_s=None)
    asyncio.run(new.start(scheduler))
    assert scheduler.plugins == {}  # the scheduler adds it after `start`
    assert scheduler.handlers["scalescope_begin"] == new.begin
    new.uninstall()
    assert scheduler.stream_handlers == scheduler.own_handlers()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"a": [1, 2.5, None]}, {"a": [1, 2.5, None]}),
        ({"keys": {"b", "a"}}, {"keys": ["a", "b"]}),
        ({("tuple", 1): 2}, {"text": "{('tuple', 1): 2}"}),
        (object, "<class 'object'>"),
        ("x" * 10_000, {"truncated": 10_002, "text": '"' + "x" * (EVENT_CHARACTERS - 1)}),
    ],
)
def test_any_event_becomes_json(message: Any, expected: Any) -> None:
    assert json.loads(as_json(message)) == expected
