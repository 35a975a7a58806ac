"""How a symptom is isolated, without a word of Prefect: check, choose, search, hand over.

The flow in `scalescope_flows.isolate` hands its tasks in as functions; with the plain ones of this module the same
isolation runs without any orchestrator, which is how most of it is tested.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from scalescope import workloads
from scalescope.analysis.summary import order
from scalescope.diagnosis.verdict import diagnose
from scalescope.errors import InvalidField, StoreError
from scalescope.model import fields
from scalescope.model.finding import Finding
from scalescope.model.sweep import digest
from scalescope.model.trial import Trial
from scalescope.store.store import Store, SweepRun
from scalescope.studies.isolation import bug_report, notebook, reproducer
from scalescope.studies.isolation.bench import Bench, graph_of
from scalescope.studies.isolation.reduce import Reading, Step, reduce
from scalescope.studies.isolation.removals import Setting, numbers, removals
from scalescope.studies.isolation.reproducer import Confirmation, Reproducer
from scalescope.studies.isolation.result import Isolation, Seen
from scalescope.studies.symptom import (
    MetricSymptom,
    Symptom,
    finding_symptom,
    first_finding,
    metric_symptom,
    worst_showing,
)

MAX_TRIALS, MINUTES = 80, 30.0
"""What an isolation may cost unless another budget is given."""


@dataclass(frozen=True)
class Asked:
    """A question that has been checked, as far as that is possible without the run.

    Attributes:
        finding: Code of the finding to look into; empty for the first of the verdict.
        metric: A comparison of numbers in its place.
        max_trials: Trials that may be run.
        minutes: Minutes after which no further trial is begun.
        folder: Where the files go.
        fresh: Measure anew what an earlier isolation of the same question has measured.
    """

    finding: str
    metric: MetricSymptom | None
    max_trials: int
    minutes: float
    folder: Path
    fresh: bool


@dataclass(frozen=True)
class Isolated:
    """What came of it.

    Attributes:
        run_id: The run that it began with.
        isolation: The smallest trial, and the way to it.
        reproducer: The script, or why there is none.
        confirmation: What came of running the script; None where there is none.
        folder: Where the files are.
        files: Their names.
    """

    run_id: str
    isolation: Isolation
    reproducer: Reproducer
    confirmation: Confirmation | None
    folder: Path
    files: tuple[str, ...] = field(default_factory=tuple)

    @property
    def confirmed(self) -> bool:
        """Whether there is a script that was seen to show the symptom."""
        return self.confirmation is not None and self.confirmation.confirmed

    @property
    def doubt(self) -> str:
        """Why there is no confirmed script; empty when there is one."""
        if self.confirmation is None:
            return self.reproducer.problem
        return self.confirmation.problem


def check(
    *,
    finding: object = "",
    metric: object = "",
    max_trials: object = MAX_TRIALS,
    minutes: object = MINUTES,
    folder: object = "isolated",
    fresh: object = False,
) -> Asked:
    """Check what can be checked without the run.

    Raises:
        InvalidField: The first thing that is wrong.
    """
    for name, value in (("finding", finding), ("metric", metric), ("folder", folder)):
        if not isinstance(value, str):
            raise InvalidField(name, value, "text")
    if finding and metric:
        raise InvalidField("metric", metric, "nothing, since a finding is given")
    return Asked(
        str(finding),
        metric_symptom(str(metric)) if metric else None,
        fields.integer("max_trials", max_trials, minimum=1, maximum=10_000),
        fields.number("minutes", minutes, minimum=0.01, maximum=7 * 24 * 60),
        Path(fields.text("folder", folder)).expanduser(),
        fields.boolean("fresh", fresh),
    )


@dataclass(frozen=True)
class Chosen:
    """What is looked for, and where the search begins.

    Attributes:
        symptom: What must stay.
        finding: That it stands for; None where it is a comparison of numbers.
        trial: To begin with.
    """

    symptom: Symptom
    finding: Finding | None
    trial: Trial


def choose(origin: SweepRun, asked: Asked) -> Chosen:
    """The symptom, and the trial to begin with.

    Raises:
        InvalidField: The run has no such symptom.
    """
    if asked.metric is not None:
        return Chosen(asked.metric, None, worst_showing(asked.metric, origin.sweep, origin.trials))
    verdict = origin.verdict or diagnose(origin.sweep, origin.trials)
    about = first_finding(verdict, asked.finding)
    symptom, start = finding_symptom(origin.sweep, origin.trials, about)
    return Chosen(symptom, about, start)


def measure(bench: Bench, words: str, setting: Setting) -> Reading:
    """Measure one step."""
    return bench.measure(setting)


def search(
    store: Store,
    origin: SweepRun,
    asked: Asked,
    chosen: Chosen,
    *,
    address: tuple[str, str] = ("", ""),
    step: Callable[[Bench, str, Setting], Reading] = measure,
    tried: Callable[[Step[Setting]], None] = lambda step: None,
    says: Callable[[str], None] = lambda text: None,
) -> Isolation:
    """Find the smallest trial that still shows the symptom. Whatever happens, nothing of a cluster is left.

    Args:
        store: Where the steps are kept.
        origin: The run that it begins with.
        asked: The budget, and where files of graphs go.
        chosen: What is looked for.
        address: Of the store, and of its raw records.
        step: Measures one step: `measure`, or a task around it.
        tried: Told of every step as it ends.
        says: Told in a sentence whenever the driver begins something.

    Raises:
        StoreError: A step could not be saved.
    """
    symptom, trial = chosen.symptom, chosen.trial
    start = Setting.of(origin.sweep, trial.point, workloads.load(origin.sweep.workload))
    budget = _Budget(asked, tried)
    with Bench(
        store,
        address=address[0],
        records=address[1],
        isolation=digest([origin.id, symptom.words, trial.key, time.time() if asked.fresh else 0]),
        symptom=symptom,
        start=(start, trial),
        folder=asked.folder,
        says=says,
    ) as bench:
        reduction = reduce(
            start,
            moves=[*removals(start, workloads.load, bench.work_s), *bench.moves()],
            numbers=numbers(),
            measure=lambda words, setting: step(bench, words, setting),
            spent=budget.spent,
            tried=budget.tried,
        )
        seen = sorted((each for each in origin.trials if not each.warmup), key=lambda each: order(each.point))
        return Isolation(
            run_id=origin.id,
            sweep=origin.sweep,
            seen=tuple(Seen(each, symptom.shows(origin.sweep, each)) for each in seen),
            finding=chosen.finding,
            symptom=symptom.words,
            start=trial,
            reduction=reduction,
            trial=bench.trial(reduction.state),
            notes=tuple(bench.notes),
        )


class _Budget:
    """Counts trials and minutes."""

    def __init__(self, asked: Asked, tried: Callable[[Step[Setting]], None]) -> None:
        self._asked = asked
        self._tell = tried
        self._done = 0
        self._until = time.monotonic() + 60 * asked.minutes

    def tried(self, step: Step[Setting]) -> None:
        """A step has ended, and is saved."""
        self._done += 1
        self._tell(step)

    def spent(self) -> str:
        """Why no further step may begin; empty while one may."""
        if self._done >= self._asked.max_trials:
            return f"all {self._asked.max_trials} trials of --max-trials were used"
        if time.monotonic() >= self._until:
            return f"the {self._asked.minutes:g} minutes of --minutes were over"
        return ""


def hand_over(
    isolation: Isolation,
    symptom: Symptom,
    folder: Path,
    *,
    confirm: Callable[[str], Confirmation] = reproducer.confirm,
) -> Isolated:
    """Write the script, run it, and write what is known.

    Raises:
        StoreError: The files cannot be written.
    """
    written = reproducer.write(isolation, symptom, graph_of(isolation.setting))
    confirmation = confirm(written.text) if written.text else None
    confirmed = confirmation is not None and confirmation.confirmed
    files = {
        "notebook.md": notebook.to_markdown(isolation),
        "bug-report.md": bug_report.write(isolation, written, confirmation),
        "isolation.json": json.dumps(isolation.to_mapping(), indent=2),
    }
    scripts = {True: "reproducer.py", False: "unconfirmed-reproducer.py"}
    with _writing(folder):
        for name in scripts.values():  # of an earlier isolation
            (folder / name).unlink(missing_ok=True)
        if written.text:
            files[scripts[confirmed]] = written.text
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    return Isolated(isolation.run_id, isolation, written, confirmation, folder, tuple(files))


def prepare(folder: Path) -> None:
    """Make the folder, where it is not there; what cannot be written later is refused now.

    Raises:
        StoreError: It cannot be made.
    """
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"Could not write the result: {error}", where=str(folder), next_step="Give another --folder."
        ) from error
