from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from dask.sizeof import sizeof
from dask.utils import key_split
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.worker import thread_state

from scalescope import workloads
from scalescope.errors import InvalidField, WrongAnswer
from scalescope.model.recorded_graph import RecordedGraph, RecordedTask, ScatteredData, Submission
from scalescope.workloads import replay

if TYPE_CHECKING:
    from .conftest import Place

TREE = RecordedGraph(("leaf", "add"), (RecordedTask(0, 0.001), RecordedTask(0, 0.001), RecordedTask(1, 0.001, (0, 1))))
TWO_MAPS = RecordedGraph(
    ("inc", "dec"),
    (*[RecordedTask(0, 0.001)] * 3, *(RecordedTask(1, 0.001, (i,), 0, 1) for i in range(3))),
    (Submission(), Submission(0, 0.01, 0.01)),
)
SCATTERED = RecordedGraph(
    ("load", "use"),
    (*[RecordedTask(0, 0.001, scattered=(0,))] * 3, RecordedTask(1, 0.001, (0,), 0, 1, scattered=(0, 1))),
    (Submission(), Submission(0, 0.01, 0.01)),
    scattered=(ScatteredData(5_000), ScatteredData(7_000, everywhere=True)),
)
INNER = RecordedGraph(
    ("part", "join"),
    (*[RecordedTask(0, 0.01, scattered=(0,))] * 3, RecordedTask(1, 0.01, (0, 1, 2), 0, 1)),
    (Submission(pause_s=0.01), Submission(0, 0.01, 0.01)),
    scattered=(ScatteredData(5_000),),
)
NESTED = RecordedGraph(
    ("whole", "end"),
    (*(RecordedTask(0, 0.01, sends=INNER, secedes=secedes) for secedes in (True, False)), RecordedTask(1, 0.0, (0, 1))),
)
SHUFFLE = RecordedGraph(
    ("make", "move", "shuffle_barrier", "take"),
    (
        *[RecordedTask(0, 0.01, nbytes=6_000)] * 3,
        *(RecordedTask(1, 0.01, (i,)) for i in range(3)),
        RecordedTask(2, 0.0, (3, 4, 5)),
        *[RecordedTask(3, 0.01, (6,))] * 2,
    ),
)
CONFINED = RecordedGraph(("a", "b"), (*[RecordedTask(0, 0.001, (), 1)] * 8, RecordedTask(1, 0.0, (0, 7))))


def written(folder: Path, graph: RecordedGraph) -> str:
    path = folder / "graph.json"
    path.write_text(graph.to_json())
    return str(path)


@pytest.mark.parametrize(
    ("graph", "ran"),
    [
        (TREE, {"leaf": 2, "add": 1}),
        (TWO_MAPS, {"inc": 3, "dec": 3}),
        (dataclasses.replace(TWO_MAPS, stages=("inc", "inc")), {"inc": 6}),
        (CONFINED, {"a": 8, "b": 1}),
        (SCATTERED, {"load": 3, "use": 1}),
        (SHUFFLE, {"make": 3, "move": 3, "shuffle_barrier": 1, "take": 2}),
    ],
    ids=["one graph", "two submissions", "two groups of a prefix", "a restriction", "scattered data", "a shuffle"],
)
def test_replay_runs_a_recorded_graph_in_process(
    inproc: Place, tmp_path: Path, graph: RecordedGraph, ran: dict[str, int]
) -> None:
    workload = workloads.load("replay")
    with inproc.counting() as counting:
        told = workload.run(inproc.client, **workload.bind({"graph": written(tmp_path, graph)}))
    assert told == {"tasks": len(graph.tasks), "submissions": len(graph.submissions)}
    assert counting.tasks == ran


def test_replay_runs_a_recorded_graph_in_worker_processes(processes: Place, tmp_path: Path) -> None:
    assert replay.replay.run(processes.client, graph=written(tmp_path, TWO_MAPS))["tasks"] == 6


def test_tasks_of_a_shuffle_send_parts_to_the_workers_that_have_outputs(
    inproc: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert replay.outputs(SHUFFLE) == {3: 2, 4: 2, 5: 2}
    received: list[tuple[str, int]] = []
    for worker in inproc.cluster.workers.values():
        address = worker.address
        monkeypatch.setitem(worker.handlers, "echo", lambda data, to=address: received.append((to, data.nbytes)))
    replay.replay.run(inproc.client, graph=written(tmp_path, SHUFFLE))
    assert 3 <= len(received) <= 6  # no worker sends to itself
    assert set(received) <= {(address, 3_000) for address in sorted(inproc.client.nthreads())[:2]}


def test_outputs_of_a_shuffle_are_moved_to_distinct_workers_after_a_first_run(inproc: Place, tmp_path: Path) -> None:
    """Their first run is on any worker; the second one is on a worker of their own."""
    moved = SHUFFLE.tasks[:7]
    outputs = [RecordedTask(3, 0.01, (6,), allowed=1, first_s=0.02)] * 2
    graph = dataclasses.replace(SHUFFLE, tasks=(*moved, *outputs), spread=(3,))
    ended: list[tuple[str, str]] = []

    class Ends(SchedulerPlugin):  # type: ignore[misc]
        def transition(self, key: Any, start: str, finish: str, *args: Any, worker: str = "", **kwargs: Any) -> None:
            if key_split(key) == "take" and start == "processing":
                ended.append((finish, worker))

    inproc.cluster.scheduler.add_plugin(Ends(), name="ends")
    try:
        assert replay.replay.run(inproc.client, graph=written(tmp_path, graph))["tasks"] == 9
    finally:
        inproc.cluster.scheduler.remove_plugin("ends")
    assert {worker for finish, worker in ended if finish == "memory"} == set(sorted(inproc.client.nthreads())[:2])
    assert 1 <= sum(finish != "memory" for finish, _ in ended) <= 2  # one may be there by chance


def test_replay_runs_tasks_that_submit_tasks(processes: Place, tmp_path: Path) -> None:
    with processes.counting() as counting:
        assert replay.replay.run(processes.client, graph=written(tmp_path, NESTED))["tasks"] == 3
    assert counting.tasks == {"whole": 2, "part": 6, "join": 2, "end": 1}


def test_replay_runs_only_the_first_tasks_if_asked(inproc: Place, tmp_path: Path) -> None:
    with inproc.counting() as counting:
        assert replay.replay.run(inproc.client, graph=written(tmp_path, TWO_MAPS), tasks=4)["tasks"] == 4
    assert counting.tasks == {"inc": 3, "dec": 1}


def test_a_part_of_a_submission_ends_where_worker_restrictions_change() -> None:
    assert replay.parts(CONFINED, replay.confinements(CONFINED, 2)) == {0: [range(8), range(8, 9)]}
    assert replay.parts(TWO_MAPS, replay.confinements(TWO_MAPS, 2)) == {0: [range(3)], 1: [range(3, 6)]}


@pytest.mark.parametrize(
    ("spread", "workers", "allowed"),
    [
        ((), 2, [{0}] * 8),
        ((0,), 2, [{0}] * 4 + [{1}] * 4),
        ((0,), 16, [{number} for number in range(0, 16, 2)]),
        ((0,), 1, [None] * 8),
    ],
)
def test_restricted_tasks_are_spread_over_the_workers_as_recorded(
    spread: tuple[int, ...], workers: int, allowed: list[set[int] | None]
) -> None:
    found = replay.confinements(dataclasses.replace(CONFINED, spread=spread), workers)
    assert [each if each is None else set(each) for each in found] == [*allowed, None]


AS_COMPLETED = RecordedGraph(
    ("slow", "quick", "of_slow", "of_quick", "rest"),
    (RecordedTask(0, 0.3), *(RecordedTask(stage, 0.001, (), 0, stage) for stage in (1, 2, 3, 4))),
    (Submission(), Submission(), Submission(0), Submission(1), Submission(3, after_all=True)),
)


def test_replay_submits_tasks_as_the_recorded_results_arrived(
    inproc: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the record the result of `slow` came first, and all results came before `rest` was submitted."""
    order: list[str] = []
    sending = inproc.client.map

    def noted(*args: Any, key: list[tuple[str, str]], **options: Any) -> Any:
        order.append(key[0][0].partition("-")[0])
        return sending(*args, key=key, **options)

    monkeypatch.setattr(inproc.client, "map", noted)
    replay.replay.run(inproc.client, graph=written(tmp_path, AS_COMPLETED))
    assert order == ["slow", "quick", "of_quick", "of_slow", "rest"]


@pytest.mark.parametrize("window", [0, 2])
def test_replay_keeps_no_more_tasks_running_than_the_recorded_client(
    inproc: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """Without a window the client sent six tasks without waiting."""
    running = list[int]()
    sending = inproc.client.map

    def noted(*args: Any, **options: Any) -> Any:
        running.append(sum(not future.done() for future in inproc.client.futures.values()))
        return sending(*args, **options)

    monkeypatch.setattr(inproc.client, "map", noted)
    tasks = tuple(RecordedTask(0, 0.2, submission=i) for i in range(6))
    graph = RecordedGraph(("part",), tasks, (Submission(),) * 6, window=window)
    replay.replay.run(inproc.client, graph=written(tmp_path, graph))
    assert max(running) == (1 if window else 5)


def test_a_task_waits_for_its_dependencies_even_if_its_turn_has_come(inproc: Place, tmp_path: Path) -> None:
    tasks = list(AS_COMPLETED.tasks)
    tasks[3] = dataclasses.replace(tasks[3], needs=(2,))
    graph = dataclasses.replace(AS_COMPLETED, tasks=tuple(tasks))
    assert replay.replay.run(inproc.client, graph=written(tmp_path, graph))["tasks"] == 5


def test_a_recorded_graph_is_divided_into_phases_and_turns() -> None:
    turns = [[(turn.numbers, turn.after) for turn in phase] for phase in replay.phases(AS_COMPLETED)]
    assert turns == [[((0, 1), -1), ((2,), 0), ((3,), 1)], [((4,), 3)]]
    assert [turn.needs for phase in replay.phases(TWO_MAPS) for turn in phase] == [frozenset(), {0}]


def test_a_submission_without_tasks_ends_at_once(inproc: Place, tmp_path: Path) -> None:
    graph = dataclasses.replace(TREE, submissions=(Submission(), Submission(), Submission(1)))
    assert replay.replay.run(inproc.client, graph=written(tmp_path, graph))["submissions"] == 3


def test_last_uses_names_the_last_task_that_needs_each_result() -> None:
    assert replay.last_uses(TREE) == [2, 2, -1]


def test_a_recorded_graph_is_read_from_an_fsspec_address() -> None:
    fsspec.filesystem("memory").pipe("/replay/graph.json", TREE.to_json().encode())
    assert RecordedGraph.read("memory://replay/graph.json") == TREE
    for address in ("memory://replay/other.json", "nosuch://replay/graph.json"):
        with pytest.raises(InvalidField, match=r"params\.graph"):
            RecordedGraph.read(address)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', '{"format": 1, "stages": []}'])
def test_a_file_without_a_valid_graph_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "graph.json"
    path.write_text(text)
    with pytest.raises(InvalidField, match=r"params\.graph"):
        RecordedGraph.read(str(path))
    with pytest.raises(InvalidField, match="No such file"):
        RecordedGraph.read(str(tmp_path / "other.json"))


def test_replayed_results_have_the_recorded_size() -> None:
    result = replay.nap(3, 0.0, 5_000_000, 0.5, ())
    assert result == 3
    assert 5_000_000 <= sizeof(pickle.loads(pickle.dumps(result))) < 5_000_100
    assert thread_state.cpu_share == 0.5


@pytest.mark.parametrize("gathered", [True, False])
def test_replay_fetches_only_results_that_no_task_needs(
    inproc: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gathered: bool
) -> None:
    checked: dict[int, int] = {}
    monkeypatch.setattr(replay, "check", checked.update)
    replay.replay.run(inproc.client, graph=written(tmp_path, dataclasses.replace(TREE, gathered=gathered)))
    assert checked == ({2: 2} if gathered else {})


def test_a_wrong_result_of_a_replayed_task_raises_wrong_answer() -> None:
    replay.check({0: 0, 1: 1})
    with pytest.raises(WrongAnswer, match="task 1 returned 0"):
        replay.check({0: 0, 1: 0})


def test_replay_is_found_by_name_but_is_no_built_in_workload() -> None:
    assert workloads.load("replay") is replay.replay
    assert replay.replay not in workloads.builtin()


def test_beam_files_can_be_replaced_by_a_simpler_workload_that_sleeps() -> None:
    (stand_in,) = workloads.load("beam-files").simpler
    files = workloads.load("beam-files").bind({"items": 10, "npartitions": 5})
    params = workloads.load(stand_in.workload).bind(stand_in.params(files, 6.0))
    assert params == {"items": 10, "npartitions": 5, "partition_size": None, "stages": 3, "seconds": 0.2}
