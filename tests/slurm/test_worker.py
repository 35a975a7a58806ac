"""The worker of work pools of type slurm, on a real Slurm with a real Prefect server.

Jobs run small shell commands in place of flows, so that what Slurm does to a job is seen alone. Deployed flows, the
worker as a process of its own: test_worker_deployed.py.
"""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable
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

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
PATIENCE_S = 200.0


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
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


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def bench(prefect_server: None, in_slurm: Any, tmp_path: Path) -> AsyncIterator[WorkerBench]:
    async with get_client() as client:
        yield WorkerBench(in_slurm, tmp_path, client, f"pool-{uuid4().hex[:8]}")


class TestRunning:
    async def test_a_flow_run_gets_its_job_options_environment_and_output(self, bench: WorkerBench) -> None:
        command = "echo gpu $CUDA_VISIBLE_DEVICES in $PWD; echo $PROLOGUE, run $PREFECT__FLOW_RUN_ID >&2"
        logs, prologue = bench.folder / "logs", ["export PROLOGUE=sung"]
        given = {"partition": "main", "prologue": prologue, "working_dir": "/usr", "log_directory": str(logs)}
        async with bench.worker() as worker:
            run = await bench.scheduled(command, gres="gpu:2", cpus=2, **given)
            await worker.get_and_submit_flow_runs()
        flow_run = await bench.read(run)
        [(job, state)] = bench.jobs(run)
        assert state == "COMPLETED"
        assert flow_run.infrastructure_pid == job
        assert flow_run.labels["prefect.worker.type"] == "slurm"
        shown = bench.slurm.run("scontrol", "-o", "show", "job", job)
        assert "NumCPUs=2 " in shown
        assert "gres:gpu:2" in shown
        assert f"Comment=prefect:{run} {flow_run.name}" in shown
        assert (logs / f"{run}-{job}.log").read_text().splitlines()[0] == "gpu 0,1 in /usr"
        assert stat.S_IMODE(logs.stat().st_mode) == 0o700

        await APILogHandler.aflush()
        from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId

        sent = await bench.client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run])))
        told = [log.message for log in sent]
        assert "gpu 0,1 in /usr" in told
        assert f"sung, run {run}" in told
        assert any(f"Submitted as Slurm job {job}" in line for line in told)

    @pytest.mark.parametrize(
        ("command", "given", "says"),
        [
            ("echo last words; exit 3", {}, ("exit status 3", "which ends\nlast words")),
            ("", {"command": "true prefect flow-run execute"}, ("left its flow run unfinished",)),
        ],
    )
    async def test_a_failed_job_or_an_unfinished_flow_run_is_set_to_crashed_with_its_reason(
        self, bench: WorkerBench, command: str, given: dict[str, Any], says: tuple[str, ...]
    ) -> None:
        async with bench.worker() as worker:
            run = await bench.scheduled(command, **given)
            await worker.get_and_submit_flow_runs()
        state = await bench.state(run)
        assert state.name == "Crashed"
        assert [text for text in says if text not in str(state.message)] == []

    @pytest.mark.parametrize(
        ("how", "restarts", "state"),
        [
            ("exit 1", 3, "AwaitingRetry"),
            pytest.param("exit 1", 0, "Crashed", marks=pytest.mark.thorough),
            ("exec sleep 600", 3, "Cancelled"),
        ],
    )
    async def test_a_rescheduled_flow_run_runs_again_unless_cancelled_or_out_of_restarts(
        self, bench: WorkerBench, how: str, restarts: int, state: str
    ) -> None:
        """It runs again if Slurm ended its job, at most `restarts` times, and not if the job was cancelled."""
        async with bench.worker() as worker:
            run = await bench.scheduled(f"until [ -e {bench.folder}/go ]; do sleep 0.1; done; {how}", restarts=restarts)
            await worker.get_and_submit_flow_runs()
            job = await bench.reaches(run, "RUNNING")
            await bench.client.set_flow_run_state(run, Running(), force=True)
            await bench.client.set_flow_run_state(run, AwaitingRetry(), force=True)
            assert await worker.get_and_submit_flow_runs() == []  # its job has not ended
            (bench.folder / "go").touch()
            if state == "Cancelled":
                bench.slurm.run("scancel", job)
        assert (await bench.state(run)).name == state
        assert len(bench.jobs(run)) == 1

    async def test_a_job_that_cannot_be_seen_for_a_while_does_not_end_its_flow_run(
        self, bench: WorkerBench, monkeypatch: pytest.MonkeyPatch
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

        monkeypatch.setattr(job_queue.JobQueue, "look", sometimes)
        async with bench.worker() as worker:
            run = await bench.scheduled(
                "rm $OUTPUT; mkdir $OUTPUT; exit 3", prologue=[f"OUTPUT=$(ls {bench.folder}/*.log)", "export OUTPUT"]
            )
            await worker.get_and_submit_flow_runs()
        assert "exit status 3" in str((await bench.state(run)).message)
        assert troubles == []

    async def test_the_job_script_holds_no_secret(self, bench: WorkerBench) -> None:
        async with bench.worker() as worker:
            run = await bench.scheduled(f"echo $TOKEN > {bench.folder}/token; sleep 600", env={"TOKEN": "hush"})
            await worker.get_and_submit_flow_runs()
            job = await bench.reaches(run, "RUNNING")
            script = bench.slurm.run("scontrol", "write", "batch_script", job, "-")
            shown = bench.slurm.run("scontrol", "show", "job", job)
            await until(lambda: asyncio.to_thread((bench.folder / "token").exists))
            bench.slurm.cancel_all()
        assert (bench.folder / "token").read_text() == "hush\n"
        assert "exec bash" in script
        assert "hush" not in script + shown
        state = await bench.state(run)
        assert state.is_crashed()
        assert "CANCELLED" in str(state.message)


class TestRefusals:
    async def test_a_job_refused_by_sbatch_crashes_its_flow_run_with_the_reason(self, bench: WorkerBench) -> None:
        async with bench.worker() as worker:
            runs = [await bench.scheduled("true", partition="nowhere"), await bench.scheduled("true", gres="gpu:9")]
            await worker.get_and_submit_flow_runs()
        states = [await bench.state(run) for run in runs]
        assert [state.name for state in states] == ["Crashed", "Crashed"]
        assert "invalid partition specified: nowhere" in str(states[0].message)
        assert "set `partition`" in str(states[0].message)
        assert "configuration is not available" in str(states[1].message)

    async def test_a_job_that_can_never_start_is_cancelled(self, bench: WorkerBench) -> None:
        async with bench.worker() as worker:
            run = await bench.scheduled("true", partition="short")
            await worker.get_and_submit_flow_runs()
        state = await bench.state(run)
        assert state.is_crashed()
        assert "PartitionTimeLimit" in str(state.message)
        assert [state for _, state in bench.jobs(run)] == ["CANCELLED"]

    async def test_a_job_is_found_although_sbatch_returned_no_answer(
        self, bench: WorkerBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        submit = job_queue.submit

        async def deaf(*arguments: Any) -> str:
            await submit(*arguments)
            raise CommandSilent("silence")

        monkeypatch.setattr(job_queue, "submit", deaf)
        async with bench.worker() as worker:
            run = await bench.scheduled(f"until [ -e {bench.folder}/go ]; do sleep 0.1; done")
            await worker.get_and_submit_flow_runs()
            await bench.reaches(run, "RUNNING")
            (bench.folder / "go").touch()
        assert [state for _, state in bench.jobs(run)] == ["COMPLETED"]


class TestCancellation:
    async def test_cancelling_a_flow_run_cancels_its_waiting_job(self, bench: WorkerBench) -> None:
        async with bench.worker() as worker:
            run = await bench.scheduled("true", partition="closed")
            await worker.get_and_submit_flow_runs()
            await bench.reaches(run, "PENDING")
            await bench.client.set_flow_run_state(run, Cancelling())
        assert (await bench.state(run)).name == "Cancelled"
        assert [state for _, state in bench.jobs(run)] == ["CANCELLED"]

    @pytest.mark.thorough
    async def test_cancelling_a_flow_run_kills_a_job_that_ignores_sigterm(self, bench: WorkerBench) -> None:
        async with bench.worker() as worker:
            run = await bench.scheduled(
                f"trap '' TERM; touch {bench.folder}/ready; while true; do sleep 0.1; done", cancel_seconds=0
            )
            await worker.get_and_submit_flow_runs()
            await bench.reaches(run, "RUNNING")
            await until(lambda: asyncio.to_thread((bench.folder / "ready").exists))  # before that the trap is not set
            await bench.client.set_flow_run_state(run, Running(), force=True)
            await bench.client.set_flow_run_state(run, Cancelling())
        assert (await bench.state(run)).name == "Cancelled"
        assert [state for _, state in bench.jobs(run)] == ["CANCELLED"]

    async def test_a_cancelled_job_may_clean_up_first(self, bench: WorkerBench) -> None:
        async with bench.worker() as worker:
            run = await bench.scheduled(
                f"trap 'sleep 3; touch {bench.folder}/clean; exit 0' TERM; touch {bench.folder}/ready; "
                "while true; do sleep 0.1; done"
            )
            await worker.get_and_submit_flow_runs()
            job = await bench.reaches(run, "RUNNING")
            await until(lambda: asyncio.to_thread((bench.folder / "ready").exists))  # before that the trap is not set
            configuration = worker.job_configuration(poll_seconds=0.2)
            await worker.kill_infrastructure(job, configuration)
            assert (bench.folder / "clean").exists()  # after 3 s, although this Slurm kills after 2 s
            with pytest.raises(InfrastructureNotFound):
                await worker.kill_infrastructure(job, configuration)
            foreign = bench.slurm.submit("--job-name=simulation")
            for number in ("999999", foreign):  # the id may belong to another job by now
                with pytest.raises(InfrastructureNotFound):
                    await worker.kill_infrastructure(number, configuration)
            assert bench.slurm.run("squeue", "-h", "-t", "R,PD", "-j", foreign, "-o", "%j") == "simulation"

    async def test_deleting_a_flow_run_cancels_its_job(self, bench: WorkerBench) -> None:
        async with bench.worker() as worker:
            run = await bench.scheduled("sleep 600")
            await worker.get_and_submit_flow_runs()
            await bench.reaches(run, "RUNNING")
            await bench.client.delete_flow_run(run)
        assert [state for _, state in bench.jobs(run)] in (["CANCELLED"], ["COMPLETING"])


class TestAdoption:
    @staticmethod
    async def abandoned(bench: WorkerBench, command: str) -> UUID:
        """A flow run whose job runs and whose worker stopped without a message."""
        worker = bench.worker("first")
        await worker.__aenter__()
        run = await bench.scheduled(command)
        await worker.get_and_submit_flow_runs()
        await bench.reaches(run, "RUNNING")
        assert worker._runs_task_group is not None
        worker._runs_task_group.cancel_scope.cancel()
        await worker.__aexit__(None, None, None)
        return run

    async def test_a_restarted_worker_adopts_its_earlier_job(self, bench: WorkerBench) -> None:
        run = await self.abandoned(bench, f"until [ -e {bench.folder}/go ]; do sleep 0.1; done; exit 3")
        assert (await bench.state(run)).is_pending()
        async with bench.worker("first") as worker:
            assert worker._watched == {run} or await until(lambda: asyncio.to_thread(lambda: run in worker._watched))
            (bench.folder / "go").touch()
        assert "exit status 3" in str((await bench.state(run)).message)

    @pytest.mark.thorough
    async def test_a_worker_adopts_the_job_of_another_only_once_that_is_gone(
        self, bench: WorkerBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = await self.abandoned(bench, "sleep 600")
        async with bench.worker("second") as worker:
            assert await worker._orphans() == []
            monkeypatch.setattr(worker_module, "GONE_AFTER", 0)
            assert [orphan.id for orphan in await worker._orphans()] == [run]
            await worker.sync_with_backend()
            await until(lambda: asyncio.to_thread(lambda: run in worker._watched))
            bench.slurm.cancel_all()
        flow_run = await bench.read(run)
        assert flow_run.labels["prefect.worker.name"] == "second"
        assert flow_run.state is not None
        assert flow_run.state.is_crashed()

    async def test_a_flow_run_whose_worker_died_before_submission_is_set_to_crashed(self, bench: WorkerBench) -> None:
        async with bench.worker("first"):
            pass
        run = await bench.scheduled("true")
        await bench.client.set_flow_run_state(run, Pending(), force=True)
        await bench.client.update_flow_run_labels(run, {"prefect.worker.name": "first"})
        async with bench.worker("first"):
            pass
        assert "before it had submitted" in str((await bench.state(run)).message)
