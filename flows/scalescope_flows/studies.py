"""The Prefect flows that answer questions by sweeps that grow: thin, around `scalescope.studies`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from prefect import get_run_logger, runtime, tags, task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import PrefectException
from pydantic import SkipValidation

import scalescope_blocks
from scalescope.model.study import Study
from scalescope.report import html
from scalescope.run.syntax import names_block, names_store
from scalescope.store.store import Store, SweepRun
from scalescope.studies import inquiry as inquiries
from scalescope.studies.comparison import plan as comparison
from scalescope.studies.comparison.parameters import ComparisonParameters
from scalescope.studies.inquiry import Answer, Inquiry
from scalescope.studies.parameters import StudyParameters
from scalescope.studies.release import plan as release
from scalescope.studies.release.parameters import ReleaseParameters
from scalescope.studies.report.html import write_study
from scalescope.studies.threshold import plan as threshold
from scalescope.studies.threshold.parameters import ThresholdParameters
from scalescope_flows import publishing
from scalescope_flows.local import local_flow
from scalescope_flows.sweep import carry_out, label_flow_run, retried


@dataclass(frozen=True)
class StudyResult:
    """What came of a study.

    Attributes:
        study_id: In the store; `scalescope show STUDY_ID` shows it.
        line: The answer in one sentence.
        alarm: Whether it is bad news, or there is none.
        result: All of it.
        runs: Ids of the runs that were made for it.
        store: Address of the store, without password.
    """

    study_id: str
    line: str
    alarm: bool
    result: Mapping[str, Any]
    runs: tuple[str, ...]
    store: str


# ------------------------------------------------------------------ tasks


@task(task_run_name="answer", timeout_seconds=600, cache_policy=NO_CACHE, persist_result=False)
def judge(inquiry: Inquiry, runs: Sequence[SweepRun]) -> Answer:
    """Answer the question."""
    return inquiry.answer(runs)


@task(
    task_run_name="publish {study.id}",
    **retried(httpx.HTTPError, PrefectException),
    timeout_seconds=120,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def publish(study: Study, runs: Sequence[SweepRun], report: str = "") -> None:
    """Show the answer in Prefect, as artifacts."""
    publishing.publish_study(study, runs, report)


@task(task_run_name="report {study.id}", timeout_seconds=600, cache_policy=NO_CACHE, persist_result=False)
def write_report(study: Study, runs: Sequence[SweepRun], path: str) -> None:
    """Write the report of a study."""
    write_study(Path(path), study, runs)


def _carry_out(
    ask: Callable[[Mapping[str, Any], str, str], Inquiry],
    given: Mapping[str, Any],
    store: str,
    fresh: bool,
    report: str,
) -> StudyResult:
    """Run all that a study needs, and answer it. What was measured before it was stopped is not measured again."""
    if report:
        html.check(Path(report))
    address, records = scalescope_blocks.store(store) if names_store(store) else (store, "")
    cluster = given["cluster"]
    saved = {"cluster": scalescope_blocks.cluster(str(cluster))} if names_block(cluster) else {}
    inquiry = ask({**given, **saved}, address, records)
    labels = [f"study:{inquiry.kind}", *(f"workload:{each.sweep.workload}" for each in inquiry.requests)]
    with ExitStack() as stack:
        opened = stack.enter_context(Store.open(address, records))
        study = opened.studies.begin(inquiry.kind, inquiry.question, follows=inquiry.follows, fresh=fresh)
        labels.append(f"study:{study.id}")
        stack.enter_context(tags(*labels))
        label_flow_run(labels)
        study, runs = inquiries.carry_out(
            opened, inquiry, study, lambda request: carry_out(request, opened)[0], judge=judge
        )
        if report:
            write_report(study, runs, report)
        published = publish(study, runs, report, return_state=True)
    logger = get_run_logger()
    if published.is_failed():
        logger.warning("The result could not be published as artifacts: %s", published.message)
    logger.info("%s", study.line)
    return StudyResult(study.id, study.line, study.alarm, study.result, study.runs, study.where)


def _name(what: str) -> Callable[[], str]:
    def name() -> str:
        given = runtime.flow_run.parameters
        return f"{what} of {given.get('workload') or given.get('run') or 'a sweep'}"

    return name


# ------------------------------------------------------------------ the flows


@local_flow(name="find-threshold", flow_run_name=_name("threshold"), persist_result=False)
def find_threshold(
    workload: SkipValidation[str] = "",
    axes: SkipValidation[dict[str, Any]] = {},  # noqa: B006 (never changed; an empty object in the UI's form)
    params: SkipValidation[dict[str, Any]] = {},  # noqa: B006
    metric: SkipValidation[str] = ThresholdParameters.metric,
    cluster: SkipValidation[str | dict[str, Any]] = "",
    environment: SkipValidation[str] = "",
    run: SkipValidation[str] = "",
    max_points: SkipValidation[int] = ThresholdParameters.max_points,
    max_repeats: SkipValidation[int] = ThresholdParameters.max_repeats,
    min_jump: SkipValidation[float] = ThresholdParameters.min_jump,
    minutes: SkipValidation[float] = StudyParameters.minutes,
    seed: SkipValidation[int] = 0,
    trial_timeout_s: SkipValidation[float] = 600.0,
    store: SkipValidation[str] = "",
    fresh: SkipValidation[bool] = False,
    report: SkipValidation[str] = "",
) -> StudyResult:
    """Find the exact values of an axis at which a metric jumps, with few trials instead of a grid.

    A search that was stopped continues when it is started again with the same parameters.

    Args:
        workload: What to run. Empty: that of the run.
        axes: The axis to search, with its range as 50..400 or 50..400:10; others with one value each, as workers.
        params: Workload parameters that hold for all points.
        metric: What may jump: tasks, workers_used, makespan_s, efficiency, ..., or a term of these.
        cluster: Where to run it, as for scale-sweep. Empty: that of the run, or else simulated.
        environment: Software to run it with, as for scale-sweep.
        run: A finished run whose worst point gives whatever is not given: its id, the beginning of it, or latest.
        max_points: Different values to measure at most.
        max_repeats: Trials of one value at most, where trials differ.
        min_jump: Smallest jump worth naming, as a share: 0.05 is 5 %.
        minutes: Minutes after which no further trial is begun; what was found by then is still given.
        seed: Of the simulated cluster.
        trial_timeout_s: Real seconds after which a trial is stopped and invalid.
        store: Where results are kept, as for scale-sweep.
        fresh: Begin anew, even where a search can be continued.
        report: Where to write the result as one HTML file; nowhere if empty.

    Returns:
        All jumps in the range.

    Raises:
        InvalidField: A parameter is not allowed; nothing was started.
        InfrastructureError: No cluster could be had, or too many were lost.
        StoreError: Results could not be kept.
    """
    given = {
        "workload": workload,
        "axes": axes,
        "params": params,
        "metric": metric,
        "cluster": cluster,
        "environment": environment,
        "run": run,
        "max_points": max_points,
        "max_repeats": max_repeats,
        "min_jump": min_jump,
        "minutes": minutes,
        "seed": seed,
        "trial_timeout_s": trial_timeout_s,
    }
    return _carry_out(threshold.ask, given, store, fresh, report)


@local_flow(name="find-release", flow_run_name=_name("release"), persist_result=False)
def find_release(
    workload: SkipValidation[str] = "",
    package: SkipValidation[str] = "",
    good: SkipValidation[str] = "",
    bad: SkipValidation[str] = ReleaseParameters.bad,
    before: SkipValidation[str] = "",
    after: SkipValidation[str] = "",
    metric: SkipValidation[str] = "",
    finding: SkipValidation[str] = "",
    values: SkipValidation[dict[str, Any]] = {},  # noqa: B006
    params: SkipValidation[dict[str, Any]] = {},  # noqa: B006
    cluster: SkipValidation[str | dict[str, Any]] = "",
    environment: SkipValidation[str] = "",
    run: SkipValidation[str] = "",
    max_environments: SkipValidation[int] = ReleaseParameters.max_environments,
    max_pairs: SkipValidation[int] = ReleaseParameters.max_pairs,
    smallest_effect: SkipValidation[float] = ReleaseParameters.smallest_effect,
    minutes: SkipValidation[float] = StudyParameters.minutes,
    seed: SkipValidation[int] = 0,
    trial_timeout_s: SkipValidation[float] = 600.0,
    store: SkipValidation[str] = "",
    fresh: SkipValidation[bool] = False,
    report: SkipValidation[str] = "",
) -> StudyResult:
    """Find the release of a package that moved a metric or brought a finding; or which package of two lock files did.

    Args:
        workload: What to run. Empty: that of the run.
        package: Whose releases are searched.
        good: A release that is known to be good.
        bad: A later one that is not.
        before: A lock file that is known to be good, in place of a package.
        after: The lock file that is not.
        metric: What moved, as workers_used or makespan_s; or what came to hold, as workers_used < 0.5 * workers.
        finding: Code of the finding that came up, in place of a metric.
        values: The point to measure: values of axes, as workers and items.
        params: Workload parameters.
        cluster: Where to run it, as for scale-sweep. Empty: that of the run, or else simulated.
        environment: Requirements that go with every release, as dask[distributed]==2024.8.0.
        run: A finished run whose worst point gives whatever is not given: its id, the beginning of it, or latest.
        max_environments: Releases to try at most.
        max_pairs: Pairs of trials of one release at most, where trials differ.
        smallest_effect: By how much the ends must differ in the metric, as a share: 0.03 is 3 %.
        minutes: Minutes after which no further trial is begun; what was found by then is still given.
        seed: Of the order within pairs, and of the simulated cluster.
        trial_timeout_s: Real seconds after which a trial is stopped and invalid.
        store: Where results are kept, as for scale-sweep.
        fresh: Begin anew, even where a search can be continued.
        report: Where to write the result as one HTML file; nowhere if empty.

    Returns:
        The first bad release, and the evidence.

    Raises:
        InvalidField: A parameter is not allowed; nothing was started.
        EnvironmentFailed: There is no such package or release.
        InfrastructureError: The index or a cluster could not be had.
        StoreError: Results could not be kept.
    """
    given = {
        "workload": workload,
        "package": package,
        "good": good,
        "bad": bad,
        "before": before,
        "after": after,
        "metric": metric,
        "finding": finding,
        "values": values,
        "params": params,
        "cluster": cluster,
        "environment": environment,
        "run": run,
        "max_environments": max_environments,
        "max_pairs": max_pairs,
        "smallest_effect": smallest_effect,
        "minutes": minutes,
        "seed": seed,
        "trial_timeout_s": trial_timeout_s,
    }
    return _carry_out(release.ask, given, store, fresh, report)


@local_flow(name="compare", flow_run_name=_name("comparison"), persist_result=False)
def compare(
    workloads: SkipValidation[list[str]] = [],  # noqa: B006
    a: SkipValidation[dict[str, Any]] = {},  # noqa: B006
    b: SkipValidation[dict[str, Any]] = {},  # noqa: B006
    metric: SkipValidation[str] = ComparisonParameters.metric,
    values: SkipValidation[dict[str, Any]] = {},  # noqa: B006
    params: SkipValidation[dict[str, Any]] = {},  # noqa: B006
    cluster: SkipValidation[str | dict[str, Any]] = "",
    environment: SkipValidation[str] = "",
    run: SkipValidation[str] = "",
    smallest_effect: SkipValidation[float] = ComparisonParameters.smallest_effect,
    max_pairs: SkipValidation[int] = ComparisonParameters.max_pairs,
    minutes: SkipValidation[float] = StudyParameters.minutes,
    seed: SkipValidation[int] = 0,
    trial_timeout_s: SkipValidation[float] = 600.0,
    store: SkipValidation[str] = "",
    fresh: SkipValidation[bool] = False,
    report: SkipValidation[str] = "",
) -> StudyResult:
    """Compare B with A in interleaved pairs of trials, until the answer is clear.

    Args:
        workloads: What to run; of several, each is compared for itself, and all are judged together. Empty: that of
            the run.
        a: What is particular to A: values of axes, as environment, cluster, npartitions or a Dask configuration key.
        b: What is particular to B.
        metric: What is compared: makespan_s, efficiency, tasks, ..., or a term of these.
        values: The point to measure: values of axes that both have, as workers and items.
        params: Workload parameters that both have.
        cluster: Where to run both, as for scale-sweep. Empty: that of the run, or else simulated.
        environment: Software to run both with, as for scale-sweep.
        run: A finished run whose worst point gives whatever is not given: its id, the beginning of it, or latest.
        smallest_effect: Differences up to it are called the same, as a share: 0.03 is 3 %.
        max_pairs: Pairs after which it is given up.
        minutes: Minutes after which no further trial is begun; what was found by then is still given.
        seed: Of the order within pairs, and of the simulated cluster.
        trial_timeout_s: Real seconds after which a trial is stopped and invalid.
        store: Where results are kept, as for scale-sweep.
        fresh: Begin anew, even where a comparison can be continued.
        report: Where to write the result as one HTML file; nowhere if empty.

    Returns:
        Whether B is slower or faster, by how much, and what could have been seen.

    Raises:
        InvalidField: A parameter is not allowed; nothing was started.
        InfrastructureError: No cluster could be had, or too many were lost.
        StoreError: Results could not be kept.
    """
    given = {
        "workloads": workloads,
        "a": a,
        "b": b,
        "metric": metric,
        "values": values,
        "params": params,
        "cluster": cluster,
        "environment": environment,
        "run": run,
        "smallest_effect": smallest_effect,
        "max_pairs": max_pairs,
        "minutes": minutes,
        "seed": seed,
        "trial_timeout_s": trial_timeout_s,
    }
    return _carry_out(comparison.ask, given, store, fresh, report)
