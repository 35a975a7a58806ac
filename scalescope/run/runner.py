"""The steps of a run, and who carries them out: this process, or an orchestrator that shows and retries them.

`Runner` calls a step here; the Prefect flows use `TaskRunner`, which makes a task of each.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from scalescope.run.progress import Listener, Progress

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

# Retries of a step; first pause in seconds, which doubles each time; largest random lengthening of a pause, as a share,
# so that several runs do not try again together
RETRIES, BACKOFF_S, JITTER = 2, 2.0, 0.5
MAX_TITLE = 80  # most characters of a title in the key of a page

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunStep(Generic[R]):
    """A step, and how an orchestrator shows and retries it. Callables except `outcome` take the arguments of `call`."""

    name: str  # name, such as `provision`
    call: Callable[..., R]
    title: Callable[..., str] | None = None  # description in a few words; by default the name
    retried: tuple[type[Exception], ...] = ()  # errors after which trying again can help
    timeout_s: Callable[..., float] | None = None  # time limit in seconds, above every limit that the step itself keeps
    # maps the result to the name of the step's final state, such as `Invalid`, and a reason; by default, a step that
    # returns is `Completed`
    outcome: Callable[[R], tuple[str, str]] | None = None

    def is_retried(self, error: object) -> bool:
        """Whether to retry after an error; not if the error would come again (`ends_run`)."""
        return isinstance(error, self.retried) and not getattr(error, "ends_run", False)


@dataclass(frozen=True)
class Publication:
    """A result as a page of the orchestrator; later versions of a page have the same title and identity."""

    title: str  # subject, in a few words
    identity: str  # distinguishes pages with the same title
    line: str  # the result in one sentence
    markdown: str
    rows: Sequence[dict[str, str]] = ()  # rows of its table: cells by heading

    @property
    def key(self) -> str:
        return re.sub("[^a-z0-9]+", "-", f"{self.title[:MAX_TITLE]} {self.identity}".lower()).strip("-")


@dataclass(frozen=True)
class Event:
    """Something that others may act on, for orchestrators that have events."""

    name: str  # kind of event, as `scalescope.regression.confirmed`
    resource: str  # the thing concerned, as `scalescope.alert.a1b2c3`
    title: str  # name of the resource for people
    identity: str  # equal if the same event is sent again
    payload: dict[str, Any]  # all data needed to act; JSON can carry it


class Result(Protocol):
    """Result of a flow."""

    @property
    def outcome(self) -> tuple[str, str]:
        """Name of the flow's final state, empty if nothing is wrong; and the result in one line."""


class Future(Protocol[R_co]):
    """A running step: a future of this process or of an orchestrator."""

    def result(self) -> R_co:
        """Wait for the result; re-raises the step's error."""


def results(
    futures: Sequence[Future[R]], ended: Callable[[], Iterable[Future[R]]], stop: Callable[[], None]
) -> list[R]:
    """Results of parallel steps. `ended` yields futures as they end; `stop` is called before an error is re-raised."""
    try:
        for future in ended():
            future.result()
        return [future.result() for future in futures]
    except BaseException:
        stop()
        raise


class Runner:
    """Carries out steps in this process."""

    def __init__(self, listener: Listener = lambda progress: None) -> None:
        self._listener = listener

    @property
    def keeps_folder(self) -> bool:
        """Whether the working folder outlives the run."""
        return True

    def do(self, step: RunStep[R], *arguments: Any) -> R:
        """Carry out a step; re-raises its error."""
        for attempt in range(RETRIES):
            try:
                return step.call(*arguments)
            except step.retried as error:
                if not step.is_retried(error):
                    raise
                pause = BACKOFF_S * 2**attempt * (1 + JITTER * random.random())
                logger.warning("%s: %s; it is tried again in %.0f s", step.name, error, pause)
                reason = str(error).partition("\n")[0]
                self.tell(Progress(0, 0, f"{step.name}: {reason}; trying again", notable=True))
                time.sleep(pause)
        return step.call(*arguments)

    def together(self, step: RunStep[R], many: Sequence[tuple[Any, ...]], stop: Callable[[], None]) -> list[R]:
        """Carry out a step with many sets of arguments in parallel; `stop` ends all steps early, after an error."""
        with ThreadPoolExecutor(len(many), thread_name_prefix=f"scalescope-{step.name}") as pool:
            futures = [pool.submit(copy_context().run, self.do, step, *arguments) for arguments in many]
            return results(futures, lambda: as_completed(futures), stop)

    def tell(self, progress: Progress) -> None:
        self._listener(progress)

    def label(self, labels: Sequence[str]) -> None:
        """Mark the run with `name:value` labels, by which an orchestrator finds it."""

    def publish(self, make: Callable[[], Publication]) -> None:
        """Show a result in the orchestrator's pages; `make` is called only if it has pages."""

    def send(self, event: Event) -> None:
        """Send an event, if the orchestrator has events."""
