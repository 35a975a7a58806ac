"""The steps of a run, and who carries them out: this process, or an orchestrator that shows and retries them.

A step is a plain function with what an orchestrator may do about it, as data. `Direct` calls it; the Prefect flows have
a runner of their own, which makes a task of each.
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

RETRIES, BACKOFF_S, JITTER = 2, 2.0, 0.5
"""How often a step is tried again, the first pause in seconds (each further one is twice as long), and the share by
which pauses are drawn out at random, so that several runs do not try again together."""

MAX_TITLE = 80
"""Characters of a title that the key of a page takes."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunStep(Generic[R]):
    """One step of a run.

    Attributes:
        name: Of the step, such as `provision`.
        call: Does it.
        title: From the same arguments, what is done, in a few words; by default the name.
        retried: Errors after which it is tried again; trying again helps with nothing else.
        timeout_s: From the same arguments, seconds after which something is very wrong: later than every limit that
            the step itself keeps. None where there is no such limit.
        outcome: From the result, a name for how it ended (`Invalid`) and why; a step that returns has completed.
    """

    name: str
    call: Callable[..., R]
    title: Callable[..., str] | None = None
    retried: tuple[type[Exception], ...] = ()
    timeout_s: Callable[..., float] | None = None
    outcome: Callable[[R], tuple[str, str]] | None = None

    def is_retried(self, error: object) -> bool:
        """Whether it is tried again after an error: not where that will last (`ends_run`)."""
        return isinstance(error, self.retried) and not getattr(error, "ends_run", False)


@dataclass(frozen=True)
class Publication:
    """A result as a page of the orchestrator.

    Attributes:
        title: What it is of, in a few words.
        identity: Tells it from others with the same title; later versions of the same page share both.
        line: It in one sentence.
        markdown: All of it.
        rows: Its table, a mapping of headings to cells for each row.
    """

    title: str
    identity: str
    line: str
    markdown: str
    rows: Sequence[dict[str, str]] = ()

    @property
    def key(self) -> str:
        """Title and identity as lower-case words with dashes between them."""
        return re.sub("[^a-z0-9]+", "-", f"{self.title[:MAX_TITLE]} {self.identity}".lower()).strip("-")


@dataclass(frozen=True)
class Event:
    """Something that others may act on: an orchestrator that has events sends it.

    Attributes:
        name: What happened, as `scalescope.regression.confirmed`.
        resource: What it happened to, as `scalescope.alert.a1b2c3`.
        title: That for people.
        identity: The same event again has the same.
        payload: All that is needed to act, as JSON carries it.
    """

    name: str
    resource: str
    title: str
    identity: str
    payload: dict[str, Any]


class Result(Protocol):
    """What a run returns, however it was asked for."""

    @property
    def outcome(self) -> tuple[str, str]:
        """A name for how it ended, empty where nothing is wrong, and its line."""


class Future(Protocol[R_co]):
    """What will have a result: this process has futures of its own, an orchestrator others."""

    def result(self) -> R_co:
        """Wait for it; what was raised is raised here."""


def results(
    futures: Sequence[Future[R]], ended: Callable[[], Iterable[Future[R]]], stop: Callable[[], None]
) -> list[R]:
    """The results of steps that are carried out at the same time.

    Args:
        futures: Of the steps.
        ended: Gives the same as they end, so that the first error counts, whichever step raises it.
        stop: Called before the first error, or a signal, is raised here.
    """
    try:
        for future in ended():
            future.result()
        return [future.result() for future in futures]
    except BaseException:
        stop()
        raise


class Runner:
    """Carries out steps in this process.

    Args:
        listener: Told how far the run is.
    """

    def __init__(self, listener: Listener = lambda progress: None) -> None:
        self._listener = listener

    @property
    def keeps_folder(self) -> bool:
        """Whether the working folder outlives the run."""
        return True

    def do(self, step: RunStep[R], *arguments: Any) -> R:
        """Carry out a step; what it raises is raised here."""
        for attempt in range(RETRIES):
            try:
                return step.call(*arguments)
            except step.retried as error:
                if not step.is_retried(error):
                    raise
                pause = BACKOFF_S * 2**attempt * (1 + JITTER * random.random())
                logger.warning("%s: %s; tried again in %.0f s", step.name, error, pause)
                reason = str(error).partition("\n")[0]
                self.tell(Progress(0, 0, f"{step.name}: {reason}; trying again", notable=True))
                time.sleep(pause)
        return step.call(*arguments)

    def together(self, step: RunStep[R], many: Sequence[tuple[Any, ...]], stop: Callable[[], None]) -> list[R]:
        """Carry out a step with several sets of arguments at the same time.

        Args:
            step: To carry out.
            many: Its arguments.
            stop: Ends all of them early; called before the first error, or a signal, is raised here.
        """
        with ThreadPoolExecutor(len(many), thread_name_prefix=f"scalescope-{step.name}") as pool:
            futures = [pool.submit(copy_context().run, self.do, step, *arguments) for arguments in many]
            return results(futures, lambda: as_completed(futures), stop)

    def tell(self, progress: Progress) -> None:
        """Say how far the run is."""
        self._listener(progress)

    def label(self, labels: Sequence[str]) -> None:
        """Mark the run with `name:value` labels, by which an orchestrator finds it."""

    def publish(self, make: Callable[[], Publication]) -> None:
        """Show a result in the orchestrator's pages; `make` is called only where there are some."""

    def send(self, event: Event) -> None:
        """Send an event, where the orchestrator has such."""
