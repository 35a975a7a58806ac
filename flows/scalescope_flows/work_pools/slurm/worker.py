"""A Prefect worker that runs each flow run as one Slurm job."""

from __future__ import annotations

import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar

import anyio
import anyio.abc
import httpx
from anyio import to_thread
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.responses import WorkerFlowRunResponse
from prefect.exceptions import InfrastructureNotFound, ObjectNotFound
from prefect.workers.base import BaseWorker, BaseWorkerResult

from scalescope.errors import ClusterError
from scalescope.owner import make_folder
from scalescope.slurm import job_queue
from scalescope.slurm.commands import CommandSilent
from scalescope.slurm.job_output import JobOutput
from scalescope.slurm.job_queue import JobEnd, JobQueue
from scalescope.slurm.jobs import SlurmJob
from scalescope.waiting import PATIENCE_S
from scalescope_flows.work_pools.slurm.configuration import SlurmJobConfiguration, job_name

# Polling interval: most seconds; share of the time since the last change; largest random change, as a share
LONGEST_S, SHARE, JITTER = 15.0, 0.1, 0.2
GONE_AFTER = 3  # heartbeats that another worker must have missed before its jobs are adopted
_ACTIVE = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
_PAGE = 200


class SlurmWorkerResult(BaseWorkerResult):
    """How a flow run's job ended; `identifier` is the job's number."""


class SlurmWorker(BaseWorker[SlurmJobConfiguration, Any, SlurmWorkerResult]):
    """Submits, watches and cancels the jobs of flow runs; adopts the jobs of workers that missed three heartbeats."""

    type = "slurm"
    job_configuration = SlurmJobConfiguration
    _display_name: ClassVar[str] = "Slurm"
    _description = "Run flows as Slurm jobs, with plain sbatch on a login node."

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.queue = JobQueue()
        self._watched: set[Any] = set()

    async def run(
        self,
        flow_run: FlowRun,
        configuration: SlurmJobConfiguration,
        task_status: anyio.abc.TaskStatus[Any] | None = None,
    ) -> SlurmWorkerResult:
        """Submit the job, and return when it has ended. Errors after the submission do not raise: the job goes on."""
        async with self._watching(flow_run):
            job_id = await self._submit(flow_run, configuration)
            output = configuration.output(flow_run.id, job_id)
            self.get_flow_run_logger(flow_run).info("Submitted as Slurm job %s; its output is in %s", job_id, output)
            if task_status is not None:
                task_status.started(job_id)
            return await _RunWatch(self, flow_run, job_id, configuration).until_end()

    async def kill_infrastructure(
        self, infrastructure_pid: str, configuration: SlurmJobConfiguration, grace_seconds: int = 30
    ) -> None:
        """Cancel a job, after SIGTERM if it runs; raises `InfrastructureNotFound` if it has already ended."""
        job = await self.queue.final(infrastructure_pid)
        if job.has_ended:
            raise InfrastructureNotFound(f"Slurm job {infrastructure_pid} has ended: {job.state}")
        if not job.is_pending:
            await self.queue.cancel(infrastructure_pid, "--full", "--signal=TERM")
            deadline = time.monotonic() + grace_seconds
            while time.monotonic() < deadline and not (await self.queue.final(infrastructure_pid)).has_ended:
                await anyio.sleep(min(1.0, configuration.poll_seconds))
        await self.queue.cancel(infrastructure_pid)

    async def sync_with_backend(self) -> None:
        await super().sync_with_backend()
        if self._work_pool is not None and self._runs_task_group is not None:
            try:
                for flow_run in await self._orphans():
                    self._runs_task_group.start_soon(self._adopt, flow_run)
            except (ClusterError, httpx.HTTPError) as error:
                self._logger.warning("Could not look for jobs of workers that have stopped: %s", error)

    async def _get_scheduled_flow_runs(self) -> list[WorkerFlowRunResponse]:
        found = await super()._get_scheduled_flow_runs()
        # A run that rescheduled itself is not submitted again before its job has ended and its end was judged.
        return [entry for entry in found if entry.flow_run.id not in self._watched]

    async def _submit(self, flow_run: FlowRun, configuration: SlurmJobConfiguration) -> str:
        try:
            make_folder(configuration.output_folder)
        except OSError as error:
            raise ClusterError(
                f"the folder of the jobs' output cannot be made: {error}",
                where=str(configuration.output_folder),
                next_step="set `log_directory` to a folder that the worker and the nodes can write to",
            ) from error
        environ = job_queue.submission_environment(os.environ, configuration.env)
        began, looks = time.monotonic(), 0
        while True:
            try:
                for _ in range(looks):  # twice: a controller that wakes up handles requests in any order
                    job = await self.queue.named(job_name(flow_run.id))
                    if job is not None and not job.has_ended:  # an earlier submission has arrived after all
                        return job.id
                    await anyio.sleep(configuration.poll_seconds)
                looks = 2
                return await job_queue.submit(configuration.options(flow_run.id), configuration.script(), environ)
            except CommandSilent as error:
                if time.monotonic() - began > PATIENCE_S:
                    raise
                self.get_flow_run_logger(flow_run).warning("%s", error)
            await anyio.sleep(configuration.poll_seconds)

    @asynccontextmanager
    async def _watching(self, flow_run: FlowRun) -> AsyncIterator[None]:
        self._watched.add(flow_run.id)
        self.queue.add(job_name(flow_run.id))
        try:
            yield
        finally:
            self._watched.discard(flow_run.id)
            self.queue.drop(job_name(flow_run.id))

    async def _orphans(self) -> list[FlowRun]:
        found: list[FlowRun] = []
        while True:
            page = await self.client.read_flow_runs(
                flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_ACTIVE))),
                work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[self._work_pool_name])),
                limit=_PAGE,
                offset=len(found),
            )
            found += page
            if len(page) < _PAGE:
                break
        found = [run for run in found if run.id not in self._watched | self._submitting_flow_run_ids]
        alive = (await self._alive() - {self.name}) if found else set()
        # A run without this label has just been taken by a worker.
        return [run for run in found if (owner := run.labels.get("prefect.worker.name")) and owner not in alive]

    async def _alive(self) -> set[str]:
        now = datetime.now(UTC)
        return {
            worker.name
            for worker in await self.client.read_workers_for_work_pool(self._work_pool_name)
            if worker.last_heartbeat_time is not None
            and (now - worker.last_heartbeat_time).total_seconds()
            < GONE_AFTER * (worker.heartbeat_interval_seconds or self.heartbeat_interval_seconds)
        }

    async def _adopt(self, flow_run: FlowRun) -> None:
        logger = self.get_flow_run_logger(flow_run)
        if flow_run.id in self._watched:
            return
        if self._limiter is not None:
            with suppress(anyio.WouldBlock):  # adopt it even above the limit, since its job runs already
                self._limiter.acquire_on_behalf_of_nowait(flow_run.id)
        try:
            async with self._watching(flow_run):
                job = await self.queue.named(job_name(flow_run.id))
                job_id = job.id if job is not None else flow_run.infrastructure_pid
                if job_id is None:
                    gone = "The worker ended before it had submitted the job. Run the flow again."
                    await self._propose_crashed_state(flow_run, gone)
                    return
                configuration = await self.job_configuration.resolve_for_flow_run(
                    flow_run,
                    client=self.client,
                    work_pool=self.work_pool,
                    worker_name=self.name,
                    worker_id=self.backend_id,
                )
                await self._give_worker_labels_to_flow_run(flow_run.id)
                await self.client.update_flow_run(flow_run.id, infrastructure_pid=job_id)
                logger.info("Worker '%s' watches Slurm job %s from now on", self.name, job_id)
                await _RunWatch(self, flow_run, job_id, configuration).until_end()
        except (ClusterError, ObjectNotFound, httpx.HTTPError, ValueError) as error:
            logger.warning("The Slurm job of this run cannot be watched now; the worker will try again: %s", error)
        finally:
            self._release_limit_slot(flow_run.id)


class _RunWatch:
    def __init__(
        self, worker: SlurmWorker, flow_run: FlowRun, job_id: str, configuration: SlurmJobConfiguration
    ) -> None:
        self._worker, self._flow_run, self._job_id, self._configuration = worker, flow_run, job_id, configuration
        self._logger = worker.get_flow_run_logger(flow_run)
        self._output = JobOutput(configuration.output(flow_run.id, job_id), self._logger.info)
        self._streams = configuration.stream_output
        self._told = ""
        self._misses = 0
        self._changed_at = time.monotonic()

    async def until_end(self) -> SlurmWorkerResult:
        trouble = ""
        while True:
            try:
                result = await self._once()
            except (ClusterError, httpx.HTTPError) as error:
                result = None
                if str(error) != trouble:  # log each problem once; the job itself goes on
                    self._logger.warning("Slurm job %s cannot be watched now: %s", self._job_id, error)
                trouble = str(error)
            if result is not None:
                return result
            await anyio.sleep(self._interval())

    async def _once(self) -> SlurmWorkerResult | None:
        try:
            return await self._look()
        except ObjectNotFound:
            self._logger.info("The flow run was deleted, so its Slurm job %s is cancelled", self._job_id)
            await self._worker.queue.cancel(self._job_id)
            return self._result(0)

    async def _look(self) -> SlurmWorkerResult | None:
        job = await self._worker.queue.look(self._job_id, max_age_s=self._configuration.poll_seconds / 2)
        self._misses = 0 if job is not None else self._misses + 1
        if job is None and self._misses < job_queue.MISSES:
            return None
        if job is None or job.has_ended:
            last = await self._worker.queue.final(self._job_id, job)
            return await self._ended(last) if last.has_ended else None
        self._tell(job)
        await self._stream()
        if reason := job_queue.cannot_start(job):
            await self._worker.queue.cancel(self._job_id)
            await self._worker._propose_crashed_state(self._flow_run, reason)
            return self._result(1)
        return await self._cancelled(job)

    async def _cancelled(self, job: SlurmJob) -> SlurmWorkerResult | None:
        flow_run = await self._worker.client.read_flow_run(self._flow_run.id)
        state = flow_run.state
        if state is None or not state.is_cancelling():
            return None
        self._changed_at = time.monotonic()
        since = (datetime.now(UTC) - state.timestamp).total_seconds()
        if not job.is_pending and since < self._configuration.cancel_seconds:
            return None  # wait: the flow's process also sees the cancellation, and cleans up
        await self._worker.queue.cancel(self._job_id)
        if not job.is_pending:
            return None  # go on watching until the job has ended
        message = f"Slurm job {self._job_id} was cancelled while it waited."
        await self._worker._mark_flow_run_as_cancelled(flow_run, {"message": message})
        return self._result(0)

    async def _ended(self, job: SlurmJob) -> SlurmWorkerResult:
        await self._stream(to_end=True)
        how = job_queue.end(job)
        flow_run = await self._worker.client.read_flow_run(self._flow_run.id)
        state = flow_run.state
        if state is not None and state.is_cancelling():
            await self._worker._mark_flow_run_as_cancelled(flow_run, {"message": how.text})
        elif state is None or state.is_running() or state.is_pending():
            return await self._crashed(how)
        elif state.is_scheduled() and job.state == "CANCELLED":
            updates = {"type": StateType.CANCELLED, "message": f"Slurm job {job.id} was cancelled with scancel."}
            await self._worker._mark_flow_run_as_cancelled(flow_run, updates)
        elif state.is_scheduled() and how.status and flow_run.run_count > self._configuration.restarts:
            return await self._crashed(
                replace(how, text=f"{how.text} Starts of this run: {flow_run.run_count}; `restarts` allows no more.")
            )
        return self._result(0)

    async def _crashed(self, how: JobEnd) -> SlurmWorkerResult:
        if how.status == 0 and not self._configuration.is_using_a_runner:
            return self._result(0)  # without Prefect's runner, the command itself sets the run's state
        text = how.text if how.status else f"{how.text}, but left its flow run unfinished"
        tail = self._output.tail()
        text += f"\nOutput: {self._output.path}" + (f", which ends\n{tail}" if tail else "")
        await self._worker._propose_crashed_state(self._flow_run, text)
        return self._result(how.status or 1)

    async def _stream(self, *, to_end: bool = False) -> None:
        if not self._streams:
            return
        try:
            await to_thread.run_sync(lambda: self._output.follow(to_end=to_end))
        except OSError as error:
            self._streams = False
            self._logger.warning("The job's output cannot be shown here: %s", error)

    def _tell(self, job: SlurmJob) -> None:
        text = job_queue.progress(job)
        if text != self._told:
            self._logger.info("%s", text)
            self._told, self._changed_at = text, time.monotonic()

    def _interval(self) -> float:
        idle = (time.monotonic() - self._changed_at) * SHARE
        return max(self._configuration.poll_seconds, min(idle, LONGEST_S)) * random.uniform(1 - JITTER, 1 + JITTER)

    def _result(self, status: int) -> SlurmWorkerResult:
        return SlurmWorkerResult(identifier=self._job_id, status_code=status)
