"""The worker of work pools of type slurm, on a real Slurm with a real Prefect server.

Jobs run small shell commands in place of flows, so that what Slurm does to a job is seen alone. Deployed flows, the
worker as a process of its own: test_worker_deployed.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import InfrastructureNotFound
from prefect.logging.handlers import APILogHandler
from prefect.states import AwaitingRetry, Cancelling, Pending, Running, Scheduled

from scalescope.slurm import job_queue
from scalescope.slurm.commands import CommandSilent
from scalescope_flows.work_pools.slurm import worker as worker_module
from scalescope_flows.work_pools.slurm.configuration import job_name
from scalescope_flows.work_pools.slurm.worker import SlurmWorker

pytestmark = [pytest.mark.usefixtures("prefect_server", "in_slurm"), pytest.mark.timeout(120)]
PATIENCE_S = 60.0


async def until(condition: Callable[[], Awaitable[Any]], seconds: float = PATIENCE_S) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := await condition()):
        assert time.monotonic() < deadline, "too slow"
        await asyncio.sleep(0.1)
    return found


class WorkerBench:
    """A worker of a fresh work pool in this process."""

    def __init__(self, slurm: Any, folder: Path, client: PrefectClient, pool: str) -> None:
        self.slurm, self.folder, self.client, self.pool = slurm, folder, client, pool

    def worker(self, name: str = "first") -> SlurmWorker:
        return SlurmWorker(work_pool_name=self.pool, name=name)

    async def scheduled(self, text: str, **variables: Any) -> UUID:
        """A flow run of a new deployment whose job runs a shell script."""
        script = self.folder / f"{uuid4().hex}.sh"
        script.write_text(text)
        given = {"command": f"bash {script}", "log_directory": str(self.folder), "poll_seconds": 0.2, "memory": "100M"}
        variables = given | variables
        flow = await self.client.create_flow_from_name("probe")
        deployment = await self.client.create_deployment(
            flow, name=uuid4().hex, work_pool_name=self.pool, job_variables=variables
        )
        return (await self.client.create_flow_run_from_deployment(deployment, state=Scheduled())).id

    async def read(self, run: UUID) -> FlowRun:
        return await self.client.read_flow_run(run)

    async def state(self, run: UUID) -> State[Any]:
        state = (await self.read(run)).state
        assert state is not None
        return state

    def jobs(self, run: UUID) -> list[list[str]]:
        """Number and state of a flow run's jobs, those that have ended included."""
        shown = self.slurm.run("squeue", "-h", "-t", "all", "-n", job_name(run), "-o", "%i %T")
        return [line.split() for line in shown.splitlines()]

    async def reaches(self, run: UUID, job_state: str) -> str:
        """Waits for a state of its job, and for Prefect to know the job; returns the job's number."""

        async def there() -> str:
            found = [number for number, state in self.jobs(run) if state == job_state]
            return found[0] if found and (await self.read(run)).infrastructure_pid == found[0] else ""

        return str(await until(there))


def on_a_bench(test: Callable[[WorkerBench], Coroutine[Any, Any, None]], slurm: Any, folder: Path) -> None:
    @asynccontextmanager
    async def bench() -> AsyncIterator[WorkerBench]:
        async with get_client() as client:
            yield WorkerBench(slurm, folder, client, f"pool-{uuid4().hex[:8]}")

    async def run() -> None:
        async with bench() as made:
            await test(made)

    asyncio.run(run())


@pytest.fixture
def bench(in_slurm: Any, tmp_path: Path) -> Callable[[Callable[[WorkerBench], Coroutine[Any, Any, None]]], None]:
    """Runs a coroutine function with a bench."""
    return lambda test: on_a_bench(test, in_slurm, tmp_path)


BenchTest = Callable[[Callable[[WorkerBench], Coroutine[Any, Any, None]]], None]


class TestRuns:
    def test_a_job_that_succeeds(self, bench: BenchTest, caplog: pytest.LogCaptureFixture) -> None:
        async def test(b: WorkerBench) -> None:
            command = "echo gpu $CUDA_VISIBLE_DEVICES in $PWD; echo $PROLOGUE, run $PREFECT__FLOW_RUN_ID >&2"
            async with b.worker() as worker:
                run = await b.scheduled(
                    command,
                    gres="gpu:2",
                    cpus=2,
                    partition="main",
                    prologue=["export PROLOGUE=sung"],
                    working_dir="/usr",
                )
                await worker.get_and_submit_flow_runs()
            flow_run = await b.read(run)
            [(job, state)] = b.jobs(run)
            assert state == "COMPLETED"
            assert flow_run.infrastructure_pid == job
            assert flow_run.labels["prefect.worker.type"] == "slurm"
            shown = b.slurm.run("scontrol", "-o", "show", "job", job)
            assert "NumCPUs=2 " in shown
            assert "gres:gpu:2" in shown
            assert f"Comment=prefect:{run} {flow_run.name}" in shown
            assert (b.folder / f"{run}-{job}.log").read_text().splitlines()[0] == "gpu 0,1 in /usr"

            await APILogHandler.aflush()
            from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId

            logs = await b.client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run])))
            told = [log.message for log in logs]
            assert "gpu 0,1 in /usr" in told
            assert f"sung, run {run}" in told
            assert any(f"Submitted as Slurm job {job}" in line for line in told)

        bench(test)

    def test_a_job_that_fails(self, bench: BenchTest) -> None:
        async def test(b: WorkerBench) -> None:
            async with b.worker() as worker:
                run = await b.scheduled("echo last words; exit 3")
                await worker.get_and_submit_flow_runs()
            state = await b.state(run)
            assert state.name == "Crashed"
            assert "exit status 3" in str(state.message)
            assert str(state.message).endswith("which ends\nlast words")

        bench(test)

    def test_a_flow_whose_job_ends_too_early(self, bench: BenchTest) -> None:
        """Its exit status says success, but the run has no final state."""

        async def test(b: WorkerBench) -> None:
            async with b.worker() as worker:
                run = await b.scheduled("", command="true prefect flow-run execute")
                await worker.get_and_submit_flow_runs()
            state = await b.state(run)
            assert state.is_crashed()
            assert "left its flow run unfinished" in str(state.message)

        bench(test)

    @pytest.mark.parametrize(
        ("how", "restarts", "state"),
        [("exit 1", 3, "AwaitingRetry"), ("exit 1", 0, "Crashed"), ("exec sleep 600", 3, "Cancelled")],
    )
    def test_a_run_that_gave_itself_back(self, bench: BenchTest, how: str, restarts: int, state: str) -> None:
        """It runs again where Slurm ended its job, not for ever, and not where somebody cancelled the job."""

        async def test(b: WorkerBench) -> None:
            async with b.worker() as worker:
                run = await b.scheduled(f"until [ -e {b.folder}/go ]; do sleep 0.1; done; {how}", restarts=restarts)
                await worker.get_and_submit_flow_runs()
                job = await b.reaches(run, "RUNNING")
                await b.client.set_flow_run_state(run, Running(), force=True)
                await b.client.set_flow_run_state(run, AwaitingRetry(), force=True)
                assert await worker.get_and_submit_flow_runs() == []  # its job has not ended
                (b.folder / "go").touch()
                if state == "Cancelled":
                    b.slurm.run("scancel", job)
            assert (await b.state(run)).name == state
            assert len(b.jobs(run)) == 1

        bench(test)

    def test_nothing_that_hides_the_job_for_a_while_ends_the_run(
        self, bench: BenchTest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A silent controller, a job that squeue does not show once, output that cannot be read."""
        look = job_queue.JobQueue.look
        troubles: list[Exception | None] = [CommandSilent("silence"), CommandSilent("silence"), None]

        async def sometimes(*arguments: Any, **options: Any) -> Any:
            if not troubles:
                return await look(*arguments, **options)
            trouble = troubles.pop()
            if trouble is not None:
                raise trouble
            return None

        async def test(b: WorkerBench) -> None:
            monkeypatch.setattr(job_queue.JobQueue, "look", sometimes)
            async with b.worker() as worker:
                run = await b.scheduled(
                    "rm $OUTPUT; mkdir $OUTPUT; exit 3", prologue=[f"OUTPUT=$(ls {b.folder}/*.log)", "export OUTPUT"]
                )
                await worker.get_and_submit_flow_runs()
            assert "exit status 3" in str((await b.state(run)).message)
            assert troubles == []

        bench(test)

    def test_the_script_holds_no_secret(self, bench: BenchTest) -> None:
        async def test(b: WorkerBench) -> None:
            async with b.worker() as worker:
                run = await b.scheduled(f"echo $TOKEN > {b.folder}/token; sleep 600", env={"TOKEN": "hush"})
                await worker.get_and_submit_flow_runs()
                job = await b.reaches(run, "RUNNING")
                script = b.slurm.run("scontrol", "write", "batch_script", job, "-")
                shown = b.slurm.run("scontrol", "show", "job", job)
                await until(lambda: asyncio.to_thread((b.folder / "token").exists))
                b.slurm.cancel_all()
            assert (b.folder / "token").read_text() == "hush\n"
            assert "exec bash" in script
            assert "hush" not in script + shown
            state = await b.state(run)
            assert state.is_crashed()
            assert "without Prefect" in str(state.message)

        bench(test)


class TestRefused:
    def test_sbatch_says_no(self, bench: BenchTest) -> None:
        async def test(b: WorkerBench) -> None:
            async with b.worker() as worker:
                runs = [await b.scheduled("true", partition="nowhere"), await b.scheduled("true", gres="gpu:9")]
                await worker.get_and_submit_flow_runs()
            states = [await b.state(run) for run in runs]
            assert [state.name for state in states] == ["Crashed", "Crashed"]
            assert "invalid partition specified: nowhere" in str(states[0].message)
            assert "set `partition`" in str(states[0].message)
            assert "node configuration is not available" in str(states[1].message)

        bench(test)

    def test_a_job_that_can_never_start(self, bench: BenchTest) -> None:
        async def test(b: WorkerBench) -> None:
            async with b.worker() as worker:
                run = await b.scheduled("true", partition="short")
                await worker.get_and_submit_flow_runs()
            state = await b.state(run)
            assert state.is_crashed()
            assert "PartitionTimeLimit" in str(state.message)
            assert [state for _, state in b.jobs(run)] == ["CANCELLED"]

        bench(test)

    def test_bad_variables(self, bench: BenchTest) -> None:
        async def test(b: WorkerBench) -> None:
            async with b.worker() as worker:
                run = await b.scheduled("true", directives=["--array=1-9"])
                await worker.get_and_submit_flow_runs()
            assert "--array=1-9" in str((await b.state(run)).message)
            assert b.jobs(run) == []

        bench(test)

    def test_a_controller_that_is_silent_for_a_while(self, bench: BenchTest, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = [CommandSilent("silence"), CommandSilent("silence")]
        submit = job_queue.submit

        async def sometimes(*arguments: Any) -> str:
            if answers:
                raise answers.pop()
            return await submit(*arguments)

        async def test(b: WorkerBench) -> None:
            monkeypatch.setattr(job_queue, "submit", sometimes)
            async with b.worker() as worker:
                run = await b.scheduled("true")
                await worker.get_and_submit_flow_runs()
            assert [state for _, state in b.jobs(run)] == ["COMPLETED"]

        bench(test)

    def test_a_job_that_arrived_though_sbatch_heard_nothing(
        self, bench: BenchTest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        submit = job_queue.submit

        async def deaf(*arguments: Any) -> str:
            await submit(*arguments)
            raise CommandSilent("silence")

        async def test(b: WorkerBench) -> None:
            monkeypatch.setattr(job_queue, "submit", deaf)
            async with b.worker() as worker:
                run = await b.scheduled(f"until [ -e {b.folder}/go ]; do sleep 0.1; done")
                await worker.get_and_submit_flow_runs()
                await b.reaches(run, "RUNNING")
                (b.folder / "go").touch()
            assert [state for _, state in b.jobs(run)] == ["COMPLETED"]

        bench(test)


class TestCancellation:
    def test_a_waiting_job(self, bench: BenchTest) -> None:
        async def test(b: WorkerBench) -> None:
            async with b.worker() as worker:
                run = await b.scheduled("true", partition="closed")
                await worker.get_and_submit_flow_runs()
                await b.reaches(run, "PENDING")
                await b.client.set_flow_run_state(run, Cancelling())
            assert (await b.state(run)).name == "Cancelled"
            assert [state for _, state in b.jobs(run)] == ["CANCELLED"]

        bench(test)

    def test_a_running_job_that_does_not_end_by_itself(self, bench: BenchTest) -> None:
        async def test(b: WorkerBench) -> None:
            async with b.worker() as worker:
                run = await b.scheduled(
                    f"trap '' TERM; touch {b.folder}/ready; while true; do sleep 0.1; done", cancel_seconds=0
                )
                await worker.get_and_submit_flow_runs()
                await b.reaches(run, "RUNNING")
                await until(lambda: asyncio.to_thread((b.folder / "ready").exists))  # else no trap is set yet
                await b.client.set_flow_run_state(run, Running(), force=True)
                await b.client.set_flow_run_state(run, Cancelling())
            assert (await b.state(run)).name == "Cancelled"
            assert [state for _, state in b.jobs(run)] == ["CANCELLED"]

        bench(test)

    def test_a_running_job_may_clean_up_first(self, bench: BenchTest) -> None:
        async def test(b: WorkerBench) -> None:
            async with b.worker() as worker:
                run = await b.scheduled(
                    f"trap 'sleep 3; touch {b.folder}/clean; exit 0' TERM; touch {b.folder}/ready; "
                    "while true; do sleep 0.1; done"
                )
                await worker.get_and_submit_flow_runs()
                job = await b.reaches(run, "RUNNING")
                await until(lambda: asyncio.to_thread((b.folder / "ready").exists))  # else no trap is set yet
                configuration = worker.job_configuration(poll_seconds=0.2)
                await worker.kill_infrastructure(job, configuration)
                assert (b.folder / "clean").exists()  # three seconds: Slurm's own patience here is two
                with pytest.raises(InfrastructureNotFound):
                    await worker.kill_infrastructure(job, configuration)
                foreign = b.slurm.submit("--job-name=simulation")
                for number in ("999999", foreign):  # its number may be another job's by now
                    with pytest.raises(InfrastructureNotFound):
                        await worker.kill_infrastructure(number, configuration)
                assert b.slurm.run("squeue", "-h", "-t", "R,PD", "-j", foreign, "-o", "%j") == "simulation"

        bench(test)

    def test_a_deleted_run(self, bench: BenchTest) -> None:
        async def test(b: WorkerBench) -> None:
            async with b.worker() as worker:
                run = await b.scheduled("sleep 600")
                await worker.get_and_submit_flow_runs()
                await b.reaches(run, "RUNNING")
                await b.client.delete_flow_run(run)
            assert [state for _, state in b.jobs(run)] in (["CANCELLED"], ["COMPLETING"])

        bench(test)


class TestAdoption:
    @staticmethod
    async def abandoned(b: WorkerBench, command: str) -> UUID:
        """A run whose job runs, and whose worker has stopped without a word."""
        worker = b.worker("first")
        await worker.__aenter__()
        run = await b.scheduled(command)
        await worker.get_and_submit_flow_runs()
        await b.reaches(run, "RUNNING")
        assert worker._runs_task_group is not None
        worker._runs_task_group.cancel_scope.cancel()
        await worker.__aexit__(None, None, None)
        return run

    def test_the_same_worker_again(self, bench: BenchTest) -> None:
        async def test(b: WorkerBench) -> None:
            run = await self.abandoned(b, f"until [ -e {b.folder}/go ]; do sleep 0.1; done; exit 3")
            assert (await b.state(run)).is_pending()
            async with b.worker("first") as worker:
                assert worker._watched == {run} or await until(
                    lambda: asyncio.to_thread(lambda: run in worker._watched)
                )
                (b.folder / "go").touch()
            assert "exit status 3" in str((await b.state(run)).message)

        bench(test)

    def test_a_neighbour_only_when_it_is_gone(self, bench: BenchTest, monkeypatch: pytest.MonkeyPatch) -> None:
        async def test(b: WorkerBench) -> None:
            run = await self.abandoned(b, "sleep 600")
            async with b.worker("second") as worker:
                assert await worker._orphans() == []
                monkeypatch.setattr(worker_module, "GONE_AFTER", 0)
                assert [orphan.id for orphan in await worker._orphans()] == [run]
                await worker.sync_with_backend()
                await until(lambda: asyncio.to_thread(lambda: run in worker._watched))
                b.slurm.cancel_all()
            flow_run = await b.read(run)
            assert flow_run.labels["prefect.worker.name"] == "second"
            assert flow_run.state is not None
            assert flow_run.state.is_crashed()

        bench(test)

    def test_a_job_that_ended_meanwhile(self, bench: BenchTest) -> None:
        async def test(b: WorkerBench) -> None:
            run = await self.abandoned(b, "sleep 600")
            b.slurm.cancel_all()
            async with b.worker("first"):
                pass
            assert "CANCELLED" in str((await b.state(run)).message)

        bench(test)

    def test_a_worker_that_died_before_it_had_submitted(self, bench: BenchTest) -> None:
        async def test(b: WorkerBench) -> None:
            async with b.worker("first"):
                pass
            run = await b.scheduled("true")
            await b.client.set_flow_run_state(run, Pending(), force=True)
            await b.client.update_flow_run_labels(run, {"prefect.worker.name": "first"})
            async with b.worker("first"):
                pass
            assert "before it had submitted" in str((await b.state(run)).message)

        bench(test)
