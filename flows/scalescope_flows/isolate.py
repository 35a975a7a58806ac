"""The Prefect flow that isolates a symptom: thin tasks around `scalescope.studies.isolation.search`."""

from __future__ import annotations

from typing import Any

from prefect import get_run_logger, runtime, tags, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed
from pydantic import SkipValidation

import scalescope_blocks
from scalescope.run.progress import Progress, current_listener
from scalescope.run.syntax import names_store
from scalescope.store.store import Store
from scalescope.studies.isolation import notebook, reproducer, search
from scalescope.studies.isolation.bench import Bench
from scalescope.studies.isolation.parameters import IsolationParameters
from scalescope.studies.isolation.reduce import Reading, Step
from scalescope.studies.isolation.removals import Setting
from scalescope.studies.isolation.reproducer import Confirmation
from scalescope.studies.isolation.search import Isolated
from scalescope_flows.local import local_flow
from scalescope_flows.sweep import scale_sweep

# ------------------------------------------------------------------ tasks


@task(task_run_name="{words}", cache_policy=NO_CACHE, persist_result=False)
def try_out(bench: Bench, words: str, setting: Setting) -> State[Reading]:
    """Measure one step; the task's state says whether the symptom stayed."""
    reading = bench.measure(setting)
    name = "Kept" if reading.shows else "Not measured" if reading.problem else "Put back"
    return Completed(name=name, message=reading.text, data=reading)


@task(task_run_name="confirm the reproducer", cache_policy=NO_CACHE, persist_result=False)
def confirm(text: str) -> Confirmation:
    """Run the script in a fresh process."""
    return reproducer.confirm(text)


@task(task_run_name="publish {result.run_id}", timeout_seconds=120, cache_policy=NO_CACHE, persist_result=False)
def publish(result: Isolated) -> None:
    """Show notebook and bug report in Prefect, as artifacts."""
    for name in ("notebook", "bug-report"):
        text = (result.folder / f"{name}.md").read_text(encoding="utf-8")
        key = f"scalescope-{name}-{result.isolation.sweep.id}"
        create_markdown_artifact(text, key=key, description=notebook.ending(result.isolation))


# ------------------------------------------------------------------ the flow


def _flow_run_name() -> str:
    given = runtime.flow_run.parameters
    return f"isolate {given.get('metric') or given.get('finding') or 'the first finding'}"


@local_flow(name="isolate", flow_run_name=_flow_run_name, persist_result=False)
def isolate(
    run: SkipValidation[str] = "latest",
    sweep: SkipValidation[dict[str, Any]] = {},  # noqa: B006 (never changed; an empty object in the UI's form)
    finding: SkipValidation[str] = "",
    metric: SkipValidation[str] = "",
    store: SkipValidation[str] = "",
    max_trials: SkipValidation[int] = IsolationParameters.max_trials,
    minutes: SkipValidation[float] = IsolationParameters.minutes,
    folder: SkipValidation[str] = "isolated",
    fresh: SkipValidation[bool] = False,
) -> Isolated:
    """Find the smallest trial that still shows a symptom, and a script that shows it without Scalescope.

    Expensive things are removed one by one, and a removal is kept only while the symptom stays: a real cluster, real
    compute and file I/O, settings, stages, workers and items. Every step is a run in the store, so that an isolation
    that was stopped continues when it is started again with the same parameters.

    Args:
        run: A finished run: its id, the beginning of it, or latest.
        sweep: Parameters of the flow scale-sweep; it is run first, and its run is taken.
        finding: Code of the finding to look into. Empty: the first of the verdict that accuses anything.
        metric: A comparison in its place, such as workers_used < 0.5 * workers, or efficiency < 0.6.
        store: Where results are kept: a path, a database URL, or a saved block. Empty: as for scale-sweep.
        max_trials: Trials that may be run.
        minutes: Minutes after which no further trial is begun; what was found by then is still given.
        folder: Where notebook, reproducer, bug report and report are written.
        fresh: Measure anew what an earlier isolation of the same question has measured.

    Returns:
        The isolated trial, the script, and whether it was seen to show the symptom.

    Raises:
        InvalidField: A parameter is not allowed, or the run has no such symptom.
        UsageError: There is no such run.
        StoreError: Results could not be kept.
    """
    asked = search.check(
        {"finding": finding, "metric": metric, "max_trials": max_trials, "minutes": minutes, "folder": folder}
    )
    if sweep:
        run = scale_sweep(**{**sweep, "store": store}).run_id
    address, records = scalescope_blocks.store(store) if names_store(store) else (store, "")
    with Store.open(address, records) as opened:
        origin = opened.run(run)
        with tags(f"run:{origin.id}", f"workload:{origin.sweep.workload}"):
            teller = _Teller(asked.max_trials)
            result = search.isolate(
                opened,
                origin,
                asked,
                address=(address, records),
                fresh=fresh,
                step=_step,
                confirm=confirm,
                tried=teller.tried,
                says=teller.says,
            )
            published = publish(result, return_state=True)
    logger = get_run_logger()
    if published.is_failed():
        logger.warning("The result could not be published as artifacts: %s", published.message)
    logger.info("%s", notebook.ending(result.isolation))
    return result


def _step(bench: Bench, words: str, setting: Setting) -> Reading:
    reading: Reading = try_out(bench, words, setting).result()
    return reading


class _Teller:
    """Tells whoever listens in this process, and the log, how far an isolation is."""

    def __init__(self, total: int) -> None:
        self.done = 0
        self._total = total
        self._listener = current_listener.get()
        self._logger = get_run_logger()

    def says(self, text: str) -> None:
        """The driver begins something."""
        if self._listener is not None:
            self._listener(Progress(self.done, self._total, text))

    def tried(self, step: Step[Setting]) -> None:
        """A step has ended, and is saved."""
        self.done += 1
        line = notebook.line(step)
        self._logger.info("%d. %s", self.done, line)
        if self._listener is not None:
            self._listener(Progress(self.done, self._total, line, notable=True))
