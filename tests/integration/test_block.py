"""`scalescope.diagnose` on clusters that the user created: real clusters of this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, Event, LocalCluster

import scalescope
from scalescope.cli import main as cli
from scalescope.errors import InvalidField, UsageError
from scalescope.model.finding import Severity
from scalescope.model.trial import TrialState
from scalescope.own_code import cluster_watch, hang_watch


def nap(number: int, seconds: float = 0.1) -> int:
    time.sleep(seconds)
    return number


def stand(number: int) -> None:
    Event("go").wait()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as made:
        yield made


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as made:
        yield made


def left_on(client: Client) -> tuple[Any, ...]:
    """Everything on the cluster that a recorder could leave behind."""

    def scheduler(dask_scheduler: Any) -> tuple[Any, ...]:
        own = dask_scheduler
        handlers = {name: repr(handler) for name, handler in own.stream_handlers.items()}
        return sorted(own.plugins), sorted(own.handlers), sorted(own.worker_plugins), handlers, len(own.clients)

    return client.run_on_scheduler(scheduler), client.run(lambda dask_worker: sorted(dask_worker.plugins))


# ------------------------------------------------------------------ what is fine


def test_a_diagnosed_block_has_a_verdict_and_leaves_nothing_on_the_cluster(
    client: Client, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = left_on(client)
    with scalescope.diagnose(client) as found:
        with pytest.raises(UsageError, match="has not ended"):
            _ = found.verdict
        for number in range(10):
            client.submit(nap, number, 0.3, pure=False, key=f"<img src=x onerror=alert({number})>").result()
    assert "<img" not in found._repr_html_()
    assert left_on(client) == before
    assert found.findings[0].code == "results-awaited-in-loop"
    assert found.findings[0].gain is not None
    assert found.verdict in capsys.readouterr().out
    assert found.trial.state is TrialState.VALID
    assert found.metrics is not None
    assert (found.metrics.tasks, found.metrics.workers_used) == (10, 2)
    assert len(found.tasks) == 10
    pytest.importorskip("bokeh")
    assert "results-awaited-in-loop" in Path(found.report(str(tmp_path / "report.html"))).read_text()


def test_a_diagnosed_block_can_be_saved_and_shown_like_a_run(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with scalescope.diagnose(client, "the morning's job") as found:  # long enough that a busy host causes no finding
        client.gather(client.map(nap, range(20), seconds=0.5, pure=False))
    run = found.save(str(tmp_path / "store.db"))
    capsys.readouterr()
    assert cli.run(["show", run, "--store", str(tmp_path / "store.db")]) == 0
    assert "No fault found" in capsys.readouterr().out
    assert cli.run(["show", "list", "--store", str(tmp_path / "store.db")]) == 0
    assert "the morning's job" in capsys.readouterr().out


def test_blocks_can_follow_each_other_and_an_empty_block_is_invalid(client: Client) -> None:
    for _ in range(2):
        with scalescope.diagnose(client) as found:
            client.submit(nap, 1, pure=False).result()
        assert found.metrics is not None
        assert found.metrics.tasks == 1
    assert "thread-seconds" in found._repr_html_()
    with scalescope.diagnose(client) as found:
        pass
    assert found.trial.state is TrialState.INVALID
    assert found.findings[0].code == "nothing-measured"


# ------------------------------------------------------------------ what breaks


def test_an_error_within_a_block_is_raised_and_recorded(client: Client) -> None:
    with pytest.raises(ZeroDivisionError), scalescope.diagnose(client) as found:  # noqa: PT012
        client.gather(client.map(nap, range(4), pure=False))
        1 / 0  # noqa: B018
    assert found.trial.state is TrialState.FAILED
    assert "ZeroDivisionError" in found.trial.reason
    assert "test_block.py:" in found.trial.reason
    assert len(found.tasks) == 4
    assert [found.metrics and found.metrics.tasks, found.points[0].metrics and found.points[0].metrics.tasks] == [4, 4]


def test_a_hanging_block_is_reported_and_is_the_verdict_after_ctrl_c(
    client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "STILL_S", 0.5)
    monkeypatch.setattr(hang_watch, "INTERVAL_S", 0.1)
    said, until = "", time.monotonic() + 60
    with pytest.raises(KeyboardInterrupt), scalescope.diagnose(client) as found:  # noqa: PT012
        futures = client.map(stand, range(2), pure=False)
        while "test_block.py" not in said:
            assert time.monotonic() < until
            time.sleep(0.1)
            said += capsys.readouterr().err
        raise KeyboardInterrupt
    assert said.count("NOTHING MOVES") == 1
    assert "in stand" in said
    [cause, limit] = found.findings
    assert (cause.code, limit.code) == ("waiting-tasks", "failed-trials")
    assert "you stopped the block" in found.trial.reason
    Event("go", client).set()
    client.gather(futures)


def test_a_block_that_closes_its_client_or_cluster_still_gets_a_verdict(cluster: LocalCluster) -> None:
    with Client(cluster, set_as_default=False) as client, scalescope.diagnose(client) as found:
        client.gather(client.map(nap, range(4), pure=False))
        client.close()
    assert found.metrics is not None
    assert found.metrics.tasks == 4
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        client = Client(cluster, set_as_default=False)
        with scalescope.diagnose(client) as found:
            client.submit(nap, 1).result()
            client.close()
            cluster.close()
    assert found.trial.state is TrialState.INVALID
    assert "'finish'" in found.trial.reason


def test_nested_blocks_and_closed_or_asynchronous_clients_are_refused(client: Client, cluster: LocalCluster) -> None:
    with scalescope.diagnose(client) as outer:
        with pytest.raises(UsageError, match="Another block"), scalescope.diagnose(client):
            pass
        client.submit(nap, 1, pure=False).result()
    assert outer.metrics is not None
    with Client(cluster, set_as_default=False) as closed:
        pass
    with pytest.raises(UsageError, match="is closed"), scalescope.diagnose(closed):
        pass
    with pytest.raises(InvalidField, match="Client"), scalescope.diagnose(cluster):
        pass

    async def asynchronous() -> None:
        async with Client(cluster.scheduler_address, asynchronous=True, set_as_default=False) as other:
            with pytest.raises(UsageError, match="asynchronous"), scalescope.diagnose(other):
                pass

    asyncio.run(asynchronous())


@pytest.mark.parametrize("fails", [False, True])
def test_a_block_of_an_asynchronous_client_is_recorded_by_async_with(
    fails: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scheduler and workers run on the event loop of the block, which the recorder must not hold up."""

    async def main() -> Any:
        options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
        async with (
            LocalCluster(**options, dashboard_address=None, asynchronous=True) as cluster,
            Client(cluster, asynchronous=True, set_as_default=False) as client,
        ):
            try:
                async with scalescope.diagnose(client) as found:
                    for number in range(10):
                        await client.submit(nap, number, 0.1, pure=False)
                    if fails:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                assert fails
            assert await client.submit(nap, 1, pure=False) is not None  # the loop goes on
            return found

    found = asyncio.run(main())
    assert found.metrics is not None
    assert found.metrics.tasks == 10
    assert (found.trial.state is TrialState.FAILED) is fails
    assert found.verdict in capsys.readouterr().out
    if not fails:
        assert found.findings[0].code == "results-awaited-in-loop"


@pytest.mark.parametrize("waits", [True, False])
def test_an_asynchronous_client_is_only_accused_of_work_between_its_calls(waits: bool) -> None:
    async def main() -> Any:
        options: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 2, "processes": False}
        async with Client(**options, dashboard_address=None, asynchronous=True, set_as_default=False) as client:
            async with scalescope.diagnose(client) as found:
                sent = []
                for number in range(12):
                    await asyncio.sleep(0.25 if waits else 0.0)  # a source with a pace of its own
                    time.sleep(0.0 if waits else 0.25)  # stands for work that holds up the event loop
                    sent.append(client.submit(nap, number, 0.05, pure=False))
                await client.gather(sent)
            return found

    found = asyncio.run(main())
    assert all(each.severity is Severity.INFO for each in found.findings) is waits


def test_an_adaptive_cluster_without_workers_can_be_diagnosed() -> None:
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        cluster.adapt(minimum=0, maximum=2, interval="100ms", wait_count=1)
        with scalescope.diagnose(client) as found:
            client.gather(client.map(nap, range(8), pure=False))
    assert found.trial.state is TrialState.VALID
    assert found.trial.facts["cluster"]["adaptive"]["maximum"] == 2
    assert found.trial.point.workers <= 2
