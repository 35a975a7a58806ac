"""How far a run is, told to whoever listens: a terminal, the log and the page of an orchestrator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from scalescope.analysis.summary import label, varied
from scalescope.model.sweep import PlannedTrial, Sweep
from scalescope.model.trial import Trial, TrialState
from scalescope.model.words import duration, plural

AGAIN_S = 300.0
"""Seconds until a wait that goes on, for jobs in a queue say, is worth another line in the log."""


WORTH_WAITING_S = 30.0
"""Seconds that a run still takes, from which on it is said."""


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        done: Trials finished, those of earlier attempts included.
        total: Trials planned; 0 before that is known.
        text: The trial that has just finished, in a few words, or else what happens now.
        trial: The one that has just finished, if one has.
        notable: Whether its text deserves a line of its own, without a trial.
        left_s: Seconds that the others take, each as long as those before took on average; 0 where none has ended.
    """

    done: int
    total: int
    text: str
    trial: Trial | None = None
    notable: bool = False
    left_s: float = 0.0

    @property
    def left(self) -> str:
        """How long it still takes, in words; empty where that is no time, or unknown."""
        if self.left_s < WORTH_WAITING_S:
            return ""
        return f"about {self.left_s / 60:.0f} min left" if self.left_s >= 90 else f"about {self.left_s:.0f} s left"

    @property
    def line(self) -> str:
        """The text, and after a trial how long it still takes."""
        return f"{self.text} ({self.left})" if self.trial and self.left else self.text


Listener = Callable[[Progress], None]


class Meter:
    """Counts the trials of a run and tells how far it is.

    Attributes:
        titles: Trials in a few words (`200 workers, 199 items · 2/3`), by key.

    Args:
        sweep: The question.
        plan: All trials that are known so far.
        done: How many of them have finished.
        tell: Who wants to know.
    """

    def __init__(self, sweep: Sweep, plan: Sequence[PlannedTrial], *, done: int, tell: Listener) -> None:
        self._sweep = sweep
        self._plan = list(plan)
        self._done = done
        self._tell = tell
        self._lock = threading.Lock()
        self._said = self._noted = ""
        self._noted_at = 0.0
        self._began, self._before = time.monotonic(), done
        self._ends = 0.0
        self.titles: dict[str, str] = {}
        self.add(())

    def add(self, trials: Sequence[PlannedTrial]) -> None:
        """The run has grown."""
        self._plan += [planned for planned in trials if planned.key not in self.titles]
        names = varied(planned.point for planned in self._plan)
        self.titles = {planned.key: f"{label(planned.point, names)} · {self._turn(planned)}" for planned in self._plan}

    def says(self, text: str) -> None:
        """The driver begins something, or waits; what is said again and again is a wait, and worth a line."""
        again, self._said = text == self._said, text
        now = time.monotonic()
        notable = again and (text != self._noted or now - self._noted_at > AGAIN_S)
        if notable:
            self._noted, self._noted_at = text, now
        self._tell(Progress(self._done, len(self._plan), text, notable=notable, left_s=max(self._ends - now, 0.0)))

    def finished(self, trial: Trial) -> None:
        """A trial has ended, and is saved."""
        with self._lock:
            self._done += 1
            done, now = self._done, time.monotonic()
            left_s = (now - self._began) / (done - self._before) * (len(self._plan) - done)
            self._ends = now + left_s
        text = f"{self.titles[trial.key]}: {outcome(trial)}"
        self._tell(Progress(done, len(self._plan), text, trial, left_s=left_s))

    def _turn(self, planned: PlannedTrial) -> str:
        repeats = self._sweep.repeats
        if planned.warmup:
            return f"warm-up {planned.repeat + 1}/{self._sweep.warmups}"
        return f"{planned.repeat + 1}/{repeats}" if planned.repeat < repeats else f"repeat {planned.repeat + 1}"


current_meter: ContextVar[Meter | None] = ContextVar("scalescope_meter", default=None)
"""Of the run that is being carried out; clusters that share its trials count on it together."""


def outcome(trial: Trial) -> str:
    """A trial's result in a few words."""
    if trial.state is not TrialState.VALID:
        return f"{trial.state.value}: {trial.reason.partition(chr(10))[0]}"
    assert trial.metrics is not None
    return f"makespan {duration(trial.metrics.makespan_s)}, {plural(trial.metrics.workers_used, 'worker')} used"
