"""Carries out the steps of a run as Prefect tasks, and publishes progress and results as artifacts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

import httpx
from prefect import get_run_logger, runtime
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.client.schemas.objects import State, TaskRun
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.context import FlowRunContext, SyncClientContext
from prefect.events import emit_event
from prefect.events.worker import EventsWorker
from prefect.exceptions import PrefectException, TerminationSignal
from prefect.futures import as_completed
from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Cancelled, Completed, Failed
from prefect.task_engine import run_task_sync
from prefect.tasks import Task, exponential_backoff
from pydantic_core import PydanticSerializationError

from scalescope.errors import ScalescopeError
from scalescope.model.trial import TrialState
from scalescope.report.screen import stderr
from scalescope.report.table import markdown_text
from scalescope.run.progress import Listener, Progress
from scalescope.run.progress_bar import bar
from scalescope.run.runner import BACKOFF_S, JITTER, RETRIES, Event, Publication, Runner, RunStep, results
from scalescope_flows import log, server

R = TypeVar("R")
# Seconds between updates of the progress artifact; an update costs the server about 20 ms of CPU
PROGRESS_EVERY_S = 2.0
TOLD_AFTER_S = 10.0  # longest wait, in seconds, until the server has received an event or knows of a new task
STOPPED = (KeyboardInterrupt, TerminationSignal)  # exceptions that stop a run, raised at any point of the main thread
ASKED_AGAIN_S = 60.0  # seconds for which nothing is sent to a server that did not answer
ANSWER_S = 10.0  # longest wait, in seconds, for an answer while the run measures
# Errors of Prefect's engine if the server goes away while a task is reported; the second is raised when the engine asks
# whether the task may start, and hides the real reason
NO_ANSWER = (httpx.TransportError, ConcurrencySlotAcquisitionError)
UNREACHABLE = (httpx.HTTPError, PrefectException)  # errors after which the server may answer the next time


def is_away(error: BaseException | None) -> bool:
    """Whether a client's error means that the server or its database does not answer."""
    return isinstance(error, httpx.TransportError) or (
        isinstance(error, httpx.HTTPStatusError) and error.response.is_server_error
    )


current_listener: ContextVar[Listener | None] = ContextVar("scalescope_listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Inside the block, flows of this process also report their progress to `listener`."""
    token = current_listener.set(listener)
    try:
        yield
    finally:
        current_listener.reset(token)


@contextmanager
def shown() -> Iterator[None]:
    """On a terminal or in a notebook, draw a bar instead of log lines, unless there is a listener or a parent flow."""
    console = stderr()
    if current_listener.get() is not None or FlowRunContext.get() is not None or not console.is_watched:
        yield
        return
    with bar(console) as listener, listening(listener), log.silent():
        if server.is_needed():
            listener(Progress(0, 0, server.STARTS))
        yield


class TaskRunner(Runner):
    """Runs each step of a flow run as a task. Tasks get no arguments, because Prefect would search them for futures."""

    def __init__(self) -> None:
        super().__init__(current_listener.get() or (lambda progress: None))
        self._stopped: BaseException | None = None
        self._labels: set[str] = set()
        self._artifact: UUID | None = None
        self._next_update = self._asked_again = 0.0
        self._showing = threading.Lock()  # held while the artifact is updated: parallel clusters share it

    def __reduce__(self) -> tuple[type[TaskRunner], tuple[()]]:
        """Pickle without the state of this process, because parts of a run may be sent to other processes."""
        return (TaskRunner, ())

    @property
    def keeps_folder(self) -> bool:
        return runtime.deployment.id is None

    def do(self, step: RunStep[R], *arguments: Any) -> R:
        """Carry out a step as a task, or, while the server does not answer, without one; raises the step's error."""
        if not self._answers():
            return super().do(step, *arguments)
        run, ends = uuid4(), [_cancelled()]
        try:
            state: State[R] = run_task_sync(  # type: ignore[assignment]  # a state, because of `return_type`
                self._task(step, arguments, ends.append), task_run_id=run, parameters={}, return_type="state"
            )
        except STOPPED as signal:
            _set_state(run, ends[-1])
            raise signal
        except PydanticSerializationError as error:
            if not any(signal.__name__ in str(error) for signal in STOPPED):
                raise
            _set_state(run, ends[-1])  # the serializer turned a signal into this error
            raise KeyboardInterrupt from error
        except NO_ANSWER as error:  # from the engine: errors of the step itself are in `state`
            self._is_away(error)
            if len(ends) == 1:
                return super().do(step, *arguments)
            state = ends[-1]
        if self._stopped is not None:
            raise self._stopped
        result: R = state.result()
        return result

    def together(self, step: RunStep[R], many: Sequence[tuple[Any, ...]], stop: Callable[[], None]) -> list[R]:
        futures = [self._task(step, arguments).submit() for arguments in many]
        return results(futures, lambda: as_completed(futures), stop)

    def tell(self, progress: Progress) -> None:
        trial = progress.trial
        if trial is not None or progress.notable:
            level = logging.WARNING if trial and trial.state is not TrialState.VALID else logging.INFO
            get_run_logger().log(level, "%s%s", f"{progress.done}/{progress.total} " if trial else "", progress.line)
        if progress.total:
            with self._showing:
                self._show(progress)
        super().tell(progress)

    def label(self, labels: Sequence[str]) -> None:
        """Add tags to the flow run and to later tasks; they replace tags of the same kind copied from another run."""
        self._labels.update(labels)
        kinds = {label.partition(":")[0] for label in self._labels}
        others = {tag for tag in runtime.flow_run.tags if tag.partition(":")[0] not in kinds or ":" not in tag}
        try:
            with get_client(sync_client=True) as client:
                client.update_flow_run(UUID(runtime.flow_run.id), tags=others | self._labels)
        except UNREACHABLE as error:
            get_run_logger().warning("The run could not be tagged: %s", error)

    def publish(self, make: Callable[[], Publication]) -> None:
        """Create artifacts; a failure is only logged, since the result is in the store."""
        page: list[Publication] = []

        def create() -> None:
            made = page[0] if page else make()
            line = markdown_text(f"{made.line} ({made.title})")  # pages show descriptions as Markdown
            if not page:
                create_markdown_artifact(made.markdown, key=made.key, description=line)
                page.append(made)  # kept, because a retry must not make the publication again
            if made.rows:
                create_table_artifact(list(made.rows), key=f"{made.key}-table", description=line)

        if not self._answers():
            get_run_logger().warning("The result could not be published as artifacts: the server does not answer")
            return
        try:
            self.do(RunStep("publish", create, retried=UNREACHABLE, timeout_s=lambda: 120.0))
        except Exception as error:  # noqa: BLE001 - any error costs only the artifacts, not the run
            get_run_logger().warning("The result could not be published as artifacts: %r", error)

    def send(self, event: Event) -> None:
        """Send an event, and wait up to `TOLD_AFTER_S` until the server has it."""
        resource = {"prefect.resource.id": event.resource, "prefect.resource.name": event.title}
        emit_event(event.name, resource, payload=event.payload, id=uuid5(NAMESPACE_URL, event.identity))
        sent = threading.Thread(target=EventsWorker.instance().wait_until_empty, daemon=True)
        sent.start()
        sent.join(TOLD_AFTER_S)
        if sent.is_alive():
            get_run_logger().warning("The server has not taken the event yet: %s", event.title)

    def _show(self, progress: Progress) -> None:
        percent, now = 100 * progress.done / progress.total, time.monotonic()
        if now < self._asked_again or (now < self._next_update and progress.done < progress.total):
            return
        self._next_update = now + PROGRESS_EVERY_S
        try:
            with _impatient() as client:
                if self._artifact is not None:
                    client.update_artifact(self._artifact, ArtifactUpdate(data=percent))
                    return
                artifact = create_progress_artifact(percent, description="Trials that have finished")
            assert isinstance(artifact, UUID)  # not a coroutine, since the caller is not async
            self._artifact = artifact
        except UNREACHABLE as error:
            if is_away(error):
                self._is_away(error)
            else:
                get_run_logger().warning("The progress artifact could not be updated: %s", error)

    def _answers(self) -> bool:
        """Whether the server answers; if it does not, each message would delay the run by a minute."""
        if time.monotonic() < self._asked_again:
            return False
        with _impatient() as client:
            error = client.api_healthcheck()
        if isinstance(error, httpx.TransportError):
            self._is_away(error)
            return False
        return True

    def _is_away(self, error: Exception) -> None:
        self._asked_again = time.monotonic() + ASKED_AGAIN_S
        why = error.__cause__ if isinstance(error, ConcurrencySlotAcquisitionError) else error
        text = "The Prefect server does not answer (%s): the run goes on without it for %g s"
        get_run_logger().warning(text, why, ASKED_AGAIN_S)

    def _task(
        self, step: RunStep[R], arguments: tuple[Any, ...], ended: Callable[[State[Any]], object] = lambda state: None
    ) -> Task[[], Any]:
        def carry_out() -> Any:
            state: State[Any]
            try:
                result = step.call(*arguments)
            except ScalescopeError as error:
                state = Failed(message=error.line, data=error)
            except STOPPED as signal:
                self._stopped = signal
                state = _cancelled()
            else:
                name, message = step.outcome(result) if step.outcome else ("Completed", "")
                state = Completed(name=name, message=message or None, data=result)
            ended(state)
            return state if step.outcome or not state.is_completed() else result

        def again(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
            return step.is_retried(state.result(raise_on_failure=False))

        title = step.title(*arguments) if step.title else step.name
        return Task(
            fn=carry_out,
            name=step.name,
            task_run_name=lambda: title,  # a function, because Prefect would interpret braces in a text
            tags=sorted(self._labels),
            retries=RETRIES if step.retried else 0,
            retry_delay_seconds=exponential_backoff(backoff_factor=BACKOFF_S),
            retry_jitter_factor=JITTER,
            retry_condition_fn=again,
            timeout_seconds=step.timeout_s(*arguments) if step.timeout_s else None,
            cache_policy=NO_CACHE,
            persist_result=False,
        )


@contextmanager
def _impatient() -> Iterator[SyncPrefectClient]:
    """A client that gives up after `ANSWER_S` without retries; it replaces the client of the flow run."""
    limits: dict[Any, Any] = {PREFECT_CLIENT_MAX_RETRIES: 0, PREFECT_API_REQUEST_TIMEOUT: ANSWER_S}
    with temporary_settings(limits), SyncClientContext(httpx_settings={"timeout": ANSWER_S}) as context:
        yield context.client


def _cancelled() -> State[Any]:
    return Cancelled(message="stopped before it was finished")


def _set_state(task_run: UUID, state: State[Any]) -> None:
    """Correct the state of a task that Prefect reports as crashed because a signal hit Prefect's own code."""
    until = time.monotonic() + TOLD_AFTER_S
    try:
        with get_client(sync_client=True) as client:
            while True:
                try:
                    client.set_task_run_state(task_run, state, force=True)
                    return
                except httpx.HTTPStatusError as error:
                    # The server learns of tasks from events, so it may not know this task yet.
                    if error.response.status_code != httpx.codes.NOT_FOUND or time.monotonic() > until:
                        raise
                time.sleep(0.1)
    except UNREACHABLE as error:
        get_run_logger().warning("A step that was stopped may be shown as Crashed: %s", error)
