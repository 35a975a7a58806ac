"""Progress of a run, for a terminal, the log or the page of an orchestrator."""

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

AGAIN_S = 300.0  # seconds between two lines in the log about the same wait, such as for jobs in a queue
WORTH_WAITING_S = 30.0  # shortest remaining time, in seconds, that is shown


@dataclass(frozen=True)
class Progress:
    """Progress of a run."""

    done: int  # trials finished, in earlier attempts too
    total: int  # trials planned; 0: not known yet
    text: str  # a few words about the trial that has just finished, or else about the current step
    trial: Trial | None = None  # the trial that has just finished, if any
    notable: bool = False  # True if the text deserves a line in the log though no trial has finished
    kept: bool = False  # True if the text also stays on the terminal
    left_s: float = 0.0  # seconds for the remaining trials, at the average speed so far; 0: unknown

    @property
    def left(self) -> str:
        """Remaining time in words; empty if short or unknown."""
        if self.left_s < WORTH_WAITING_S:
            return ""
        return f"about {self.left_s / 60:.0f} min left" if self.left_s >= 90 else f"about {self.left_s:.0f} s left"

    @property
    def line(self) -> str:
        return f"{self.text} ({self.left})" if self.trial and self.left else self.text


Listener = Callable[[Progress], None]


class Meter:
    """Counts the trials of a run and tells a listener."""

    def __init__(self, sweep: Sweep, plan: Sequence[PlannedTrial], *, done: int, tell: Listener) -> None:
        self._sweep, self._plan, self._done, self._tell = sweep, list(plan), done, tell
        self._lock = threading.Lock()
        self._said = self._noted = ""
        self._began, self._before = time.monotonic(), done
        self._noted_at = self._ends = 0.0
        self.titles: dict[str, str] = {}  # `200 workers, 199 items · 2/3` by key of a trial
        self.add(())

    def add(self, trials: Sequence[PlannedTrial]) -> None:
        self._plan += [planned for planned in trials if planned.key not in self.titles]
        names = varied(planned.point for planned in self._plan)
        self.titles = {planned.key: f"{label(planned.point, names)} · {self._turn(planned)}" for planned in self._plan}

    def says(self, text: str) -> None:
        """Report the phase that the driver begins; the same text again means a wait, which gets a line in the log."""
        again, self._said = text == self._said, text
        now = time.monotonic()
        notable = again and (text != self._noted or now - self._noted_at > AGAIN_S)
        if notable:
            self._noted, self._noted_at = text, now
        self._tell(Progress(self._done, len(self._plan), text, notable=notable, left_s=max(self._ends - now, 0.0)))

    def finished(self, trial: Trial) -> None:
        with self._lock:
            self._done += 1
            done, now = self._done, time.monotonic()
            left_s = (now - self._began) / (done - self._before) * (len(self._plan) - done)
            self._ends = now + left_s
        self._tell(Progress(done, len(self._plan), f"{self.titles[trial.key]}: {outcome(trial)}", trial, left_s=left_s))

    def _turn(self, planned: PlannedTrial) -> str:
        repeats = self._sweep.repeats
        if planned.warmup:
            return f"warm-up {planned.repeat + 1}/{self._sweep.warmups}"
        return f"{planned.repeat + 1}/{repeats}" if planned.repeat < repeats else f"repeat {planned.repeat + 1}"


# Meter of the run that is being carried out, shared by all its clusters
current_meter: ContextVar[Meter | None] = ContextVar("scalescope_meter", default=None)


def outcome(trial: Trial) -> str:
    if trial.state is not TrialState.VALID:
        return f"{trial.state.value}: {trial.reason.partition(chr(10))[0]}"
    assert trial.metrics is not None
    return f"makespan {duration(trial.metrics.makespan_s)}, {plural(trial.metrics.workers_used, 'worker')} used"
