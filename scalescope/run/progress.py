"""How far a sweep is, told to all who want to know: the log, an artifact, and whoever listens in this process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
from prefect.artifacts import update_progress_artifact
from prefect.exceptions import PrefectException

from scalescope.analysis.summary import plural
from scalescope.model.sweep import PlannedTrial
from scalescope.model.trial import Trial, TrialState
from scalescope.run import engine
from scalescope.run.engine import Request

PROGRESS_EVERY_S = 2.0
"""Shortest time between two updates of the progress artifact: each costs the server some 20 ms of CPU."""

AGAIN_S = 300.0
"""Seconds until a wait that goes on, for jobs in a queue say, is worth another line in the log."""


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    Attributes:
        done: Trials finished, those of earlier attempts included.
        total: Trials planned.
        text: The trial that has just finished, in a few words, or else what happens now.
        trial: The one that has just finished, if one has.
        notable: Whether its text deserves a line of its own, without a trial.
    """

    done: int
    total: int
    text: str
    trial: Trial | None = None
    notable: bool = False


Listener = Callable[[Progress], None]
Logger = logging.Logger | logging.LoggerAdapter[Any]
current_listener: ContextVar[Listener | None] = ContextVar("scalescope_listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Have sweeps that run in this process meanwhile report their progress to `listener`."""
    token = current_listener.set(listener)
    try:
        yield
    finally:
        current_listener.reset(token)


class Meter:
    """Tells everybody how far a sweep is: the log, an artifact, and whoever listens in this process.

    Attributes:
        titles: Trials in a few words, by key.
    """

    def __init__(
        self,
        request: Request,
        *,
        done: int,
        logger: Logger,
        added: Sequence[PlannedTrial] = (),
        artifact: UUID | None = None,
        listener: Listener | None = None,
    ) -> None:
        self._request = request
        self._done = done
        self._logger = logger
        self._artifact = artifact
        self._listener = listener
        self._added = list(added)
        self.titles = engine.titles(request, added)
        self._lock = threading.Lock()
        self._next_update = 0.0
        self._said = self._noted = ""
        self._noted_at = 0.0

    def add(self, trials: Sequence[PlannedTrial]) -> None:
        """The sweep has grown."""
        self._added += [planned for planned in trials if planned.key not in self.titles]
        self.titles = engine.titles(self._request, self._added)

    @property
    def _total(self) -> int:
        return len(self._request.plan) + len(self._added)

    def says(self, text: str) -> None:
        """The driver begins something, or waits; a wait is for the log as well: it is what is said again and again."""
        again, self._said = text == self._said, text
        now = time.monotonic()
        notable = again and (text != self._noted or now - self._noted_at > AGAIN_S)
        if notable:
            self._noted, self._noted_at = text, now
            self._logger.info("%s", text)
        self._tell(text, notable=notable)

    def finished(self, trial: Trial) -> None:
        """A trial has ended, and is saved."""
        total = self._total
        with self._lock:
            self._done += 1
            done, now = self._done, time.monotonic()
            due = now >= self._next_update or done == total
            if due:
                self._next_update = now + PROGRESS_EVERY_S
        text = f"{self.titles[trial.key]}: {outcome(trial)}"
        level = logging.INFO if trial.state is TrialState.VALID else logging.WARNING
        self._logger.log(level, "%d/%d %s", done, total, text)
        if due and self._artifact is not None:
            self._update(100 * done / total)
        self._tell(text, trial)

    def _tell(self, text: str, trial: Trial | None = None, *, notable: bool = False) -> None:
        if self._listener is not None:
            self._listener(Progress(self._done, self._total, text, trial, notable))

    def _update(self, percent: float) -> None:
        assert self._artifact is not None
        try:
            update_progress_artifact(self._artifact, percent)
        except (httpx.HTTPError, PrefectException) as error:
            self._logger.warning("The progress artifact could not be updated: %s", error)


current_meter: ContextVar[Meter | None] = ContextVar("scalescope_meter", default=None)


def outcome(trial: Trial) -> str:
    """A trial's result in a few words."""
    if trial.state is not TrialState.VALID:
        return f"{trial.state.value}: {trial.reason.partition(chr(10))[0]}"
    assert trial.metrics is not None
    return f"makespan {trial.metrics.makespan_s:.3g} s, {plural(trial.metrics.workers_used, 'worker')} used"
