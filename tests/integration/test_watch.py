"""`scalescope watch` on real clusters of this machine, whose workers are separate processes.

    SCALESCOPE_FAULT_ROUNDS=20 pytest tests/integration/test_watch.py -k killed

kills watchers at that many moments.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, Event, LocalCluster, Lock, get_client, get_worker
from rich.console import Console
from support.waiting import wait_for as wait

from scalescope.capture import recorder
from scalescope.capture.live import standing_tasks
from scalescope.capture.live.remote_calls import ClientCalls, DirectCalls
from scalescope.capture.shipping import Shipment
from scalescope.cli import main as cli
from scalescope.cli import watch_display as drawing
from scalescope.errors import ClusterError
from scalescope.own_code import cluster_watch
from scalescope.own_code.cluster_watch import ClusterWatch

WORKERS = 4
ROUNDS = int(os.environ.get("SCALESCOPE_FAULT_ROUNDS", "1"))
WATCH = [sys.executable, "-c", "from scalescope.cli.main import main; main()", "watch"]
HOLDER = """
import sys, time, distributed
client = distributed.Client(sys.argv[1])
distributed.Lock("held").acquire()
print("held", flush=True)
time.sleep(600)
"""


def nap(number: int, after: object = None) -> int:
    time.sleep(0.1)
    return number


def until_told(number: object = None) -> None:
    Event("told").wait()


def locked() -> None:
    with Lock("held"):
        pass


def nested() -> Any:
    return get_client().submit(nap, 1, workers=[get_worker().address], pure=False).result()


def left_on(client: Client) -> tuple[Any, ...]:
    """Everything on the cluster that a watcher or a recorder could leave or change."""

    def scheduler(dask_scheduler: Any) -> tuple[Any, ...]:
        own = dask_scheduler
        handlers = {name: repr(handler) for name, handler in own.stream_handlers.items()}
        tasks = {str(key): task.state for key, task in own.tasks.items()}
        plugins = sorted(own.plugins), sorted(own.worker_plugins), sorted(own.nanny_plugins)
        clients = sorted(name for name in own.clients if not name.startswith("Client-worker"))  # clients of tasks stay
        return plugins, sorted(own.handlers), handlers, clients, tasks, sorted(own.extensions)

    return client.run_on_scheduler(scheduler), client.run(lambda dask_worker: sorted(dask_worker.plugins))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as made:
        yield made


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as made:
        yield made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_watch, "INTERVAL_S", 0.3)
    monkeypatch.setattr(cluster_watch, "STILL_S", 1.5)
    monkeypatch.setattr(standing_tasks, "ANSWER_S", 0.5)


# ------------------------------------------------------------------ what is fine


def test_watch_counts_working_threads_and_why_others_are_idle(client: Client) -> None:
    def looked(working: int) -> Any:
        wait(lambda: watch.look().seen["working"] == working)
        return watch.last

    before, watch = left_on(client), ClusterWatch(DirectCalls(client.scheduler.address))
    assert watch.look().seen["idle"]["client"] == WORKERS
    told = Event("told", client=client)
    first = client.submit(until_told, pure=False)
    rest = client.map(nap, range(3), [first] * 3)
    assert looked(1).seen["idle"]["nothing_runnable"] == WORKERS - 1
    here = [next(iter(client.scheduler_info()["workers"]))]
    told.set()
    client.gather(rest)
    told.clear()
    del first, rest
    confined = client.map(until_told, range(4), workers=here, key="\x1b[2J")
    look = looked(1)
    assert look.seen["idle"]["restricted"] == WORKERS - 1
    assert [(group.done, group.total) for group in look.groups] == [(0, 4)]
    assert look.standstill is None
    told.set()
    client.gather(confined)
    del confined
    told.clear()
    wait(lambda: watch.look().seen["idle"]["client"] == WORKERS)
    wait(lambda: left_on(client)[0][4] == before[0][4])
    assert left_on(client) == before
    assert watch.ended == 8
    assert sum(watch.thread_seconds.values()) == pytest.approx(WORKERS * watch.watched_s)
    assert "8 tasks ended" in drawing.summary(watch)
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        console.print(drawing.picture("tcp://10.0.0.7:8786", look))
    assert max(map(len, captured.get().splitlines())) <= drawing.WIDTH
    assert r"\x1b[2J" in captured.get()
    assert "\x1b" not in captured.get() + drawing.line(look)
    assert "restrictions of the tasks" in drawing.line(look)


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("tmux") is None, reason="install tmux")
def test_watch_obeys_keys_in_a_terminal(client: Client, tmp_path: Path) -> None:
    address, page = client.scheduler.address, tmp_path / "page.html"
    futures = client.map(nap, range(2000), pure=False)

    def tmux(*words: str) -> str:
        command = ["tmux", "-S", str(tmp_path / "socket"), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def press(key: str, shows: str) -> None:
        tmux("send-keys", key)
        wait(lambda: shows in tmux("capture-pane", "-p"), seconds=60)

    watched = shlex.join([*WATCH, address, "--record", "--report", str(page)])
    tmux("new-session", "-d", "-x", "90", "-y", "30", f"{watched}; sleep 600")
    try:
        wait(lambda: "groups by most left" in tmux("capture-pane", "-p"), seconds=60)
        press("Enter", "inside nap")
        press("w", "workers by most tasks")
        press("s", "workers by memory")
        press("Enter", "given: nap")
        press("f", "FROZEN")
        press("r", f"Report: {page}")
    finally:
        tmux("kill-server")
    assert "nap" in page.read_text()
    client.cancel(futures)


def test_watch_with_record_ends_with_a_verdict(
    client: Client, quick: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("bokeh")
    before = left_on(client)
    futures = client.map(nap, range(400), pure=False)
    page = tmp_path / "page.html"
    address = client.scheduler.address
    assert cli.run(["watch", address, "--for", "5s", "--record", "--report", str(page), "--json"]) in (0, 1)
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"]["line"]
    assert told["ended"] > 5
    assert "nap" in page.read_text()
    client.gather(futures)
    del futures
    wait(lambda: left_on(client) == before)


# ------------------------------------------------------------------ what breaks


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_killed_watch_leaves_nothing_on_the_cluster(
    client: Client, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the rounds kill after the first look, the others at any moment after the start of the process."""
    name = pickle.loads(pickle.dumps(Shipment(recorder, "__name__")))
    sent = sys.modules[name]  # the module that the scheduler uses, which is in this process
    monkeypatch.setattr(sent, "ALONE_S", 0.5)
    chance = random.Random(number)
    before = left_on(client)
    address = client.scheduler.address
    told = [subprocess.Popen([*WATCH, address, *more], stderr=subprocess.PIPE) for more in ([], ["--record"])]
    try:
        if number % 2:
            time.sleep(chance.uniform(0, 6))
        else:
            for each in told:
                assert each.stderr is not None
                assert b"threads have a task" in each.stderr.readline()
            assert "scalescope-recorder" in left_on(client)[0][0][0]
            time.sleep(chance.uniform(0, 3) if number else 0)
    finally:
        for each in told:
            each.kill()
            each.communicate()
    wait(lambda: left_on(client) == before)


def test_watch_refuses_a_silent_scheduler_wrong_options_and_old_releases(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "CALL_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert cli.run(["watch", f"tcp://127.0.0.1:{mute.getsockname()[1]}"]) == 3
    said = capsys.readouterr().err
    assert "within 1 s" in said
    assert "next:" in said
    assert cli.run(["watch", "tcp://127.0.0.1:1", "--report", "page.html"]) == 2
    assert "add --record" in capsys.readouterr().err
    assert cli.run(["watch", "tcp://127.0.0.1:1", "--for", "soon"]) == 2
    assert cli.run(["watch"]) == 2
    cluster_watch.check_release("2023.5.0", "here")
    with pytest.raises(ClusterError, match=r"2023\.4\.1"):
        cluster_watch.check_release("2023.4.1", "here")


def test_watch_names_hanging_tasks_with_worker_and_line(
    client: Client, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """This test must be the last, since its cluster hangs."""
    address = client.scheduler.address
    full, blocked, stopped, deaf = client.scheduler_info()["workers"]
    pids = client.run(os.getpid)
    with subprocess.Popen([sys.executable, "-c", HOLDER, address], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        holder.kill()
    client.run(deafen, workers=[deaf])
    waiting = client.submit(locked, workers=[blocked], pure=False)
    asleep = client.submit(until_told, workers=[stopped], pure=False)
    asking = client.submit(nested, workers=[full], pure=False)
    lost = client.submit(nap, 1, workers=[deaf], pure=False)
    nowhere = client.submit(nap, 1, workers=["tcp://127.0.0.1:1"], pure=False)
    wait(lambda: {full, blocked, stopped} <= client.call_stack().keys())
    os.kill(pids[stopped], signal.SIGSTOP)
    try:
        assert cli.run(["watch", address, "--for", "4s", "--json"]) == 1
    finally:
        os.kill(pids[stopped], signal.SIGCONT)
    told = json.loads(capsys.readouterr().out)["standstill"]
    found = {task["key"]: task for task in told["tasks"]}
    own = [found[future.key] for future in (asking, waiting, asleep, lost)]
    assert [task["worker"] for task in own] == [full, blocked, stopped, deaf]
    assert all(0 < time.time() - task["since"] < 60 for task in own)
    inner = next(task for task in told["tasks"] if task["worker"] == full and task["key"] != asking.key)
    for task, where, call, problem in (
        (found[asking.key], line_of(nested), "result (client.py)", ""),
        (found[waiting.key], line_of(locked), "__enter__ (semaphore.py)", ""),
        (found[asleep.key], "", "", "assigned to a worker that has been silent since"),
        (found[lost.key], "", "", "assigned to a worker that does not have it"),
        (found[nowhere.key], "", "", "no worker may run it: it asks for workers tcp://127.0.0.1:1"),
        (inner, "", "", "waits for a thread there"),
    ):
        assert (task["where"], task["call"]) == (where, call)
        assert task["problem"].startswith(problem)
    assert [hint.split()[0] for hint in told["hints"]] == ["Held:", "A", "Tasks", "A", "No"]


def line_of(function: Callable[..., Any]) -> str:
    """The place of a function's first line, as messages name it."""
    return f"test_watch.py:{function.__code__.co_firstlineno + 1} in {function.__name__}"


def deafen(dask_worker: Any) -> None:
    """From now on the worker loses messages that assign tasks."""
    dask_worker.stream_handlers["compute-task"] = lambda **message: None


def test_watch_counts_workers_retired_by_request_separately() -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        watch = ClusterWatch(ClientCalls(client))
        watch.look()
        client.retire_workers([next(iter(client.scheduler_info(n_workers=-1)["workers"]))])
        cluster.scale(3)
        # `wait_for_workers` forgets a worker of whose leaving distributed's cluster has not heard, which then fails
        wait(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) >= 2, "no worker came")
        found = watch.look()
    assert (len(found.left), found.retired) == (1, 1)
    assert found.came >= 1
    assert "(1 by request)" in drawing.line(found)
