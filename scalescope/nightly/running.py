"""A whole night: the suite is run, its series are judged, changes are rerun, their causes searched and told.

A night is a study with ordinary runs. What was stopped, even by SIGKILL, continues when it is started again with the
same parameters within `RESUMED_H`; later, a new night begins.
"""

from __future__ import annotations

import logging
import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from scalescope import environments
from scalescope.analysis.cost import Budget, Cost, spent
from scalescope.errors import InfrastructureError
from scalescope.model import parameters
from scalescope.model.environment import Environment
from scalescope.model.study import Study, StudyKind
from scalescope.model.sweep import digest
from scalescope.model.words import plural
from scalescope.nightly import alerts, night_record, plan, reruns
from scalescope.nightly.history import AlertState
from scalescope.nightly.night_record import Alert, ChangeOutcome, Culprit, Judged, Night, NightRecord, SoftwareLock
from scalescope.nightly.parameters import NightlyParameters
from scalescope.nightly.reading import read
from scalescope.nightly.series import ChangeCandidate, candidates, drifts, measured
from scalescope.nightly.site import write_site
from scalescope.run import orchestrator, price_table
from scalescope.run.output_paths import OutputPath, WrittenFile
from scalescope.run.parameters import Reported
from scalescope.run.progress import Progress
from scalescope.run.progress_bar import shown
from scalescope.run.runner import Publication, Runner, RunStep
from scalescope.run.sweep import BUILD_TIMEOUT_S, JUDGE_TIMEOUT_S, where_report
from scalescope.store.schema import RunState
from scalescope.store.store import Store, SweepRun
from scalescope.studies.planning import because
from scalescope.studies.report import export, headline
from scalescope.studies.running import REPORT, StudyResult, run_of

RESUMED_H = 12.0
"""Hours after which a night that was stopped is not continued: it would compare an old environment."""

NOT_LOCKED = ("scalescope", "pip", "setuptools", "uv")
"""Packages of the present environment that no trial needs, and that an index may not have."""

logger = logging.getLogger(__name__)


def check(given: Mapping[str, Any]) -> None:
    """Check a night as far as that is possible without saved clusters, the store and the package index.

    Raises:
        ScalescopeError: The first thing that is wrong.
    """
    asked, kept = _split(given)
    plan.check(asked, kept.store)


def run_nightly(given: Mapping[str, Any], runner: Runner | None = None) -> StudyResult:
    """Run the suite, and say which workload got worse since earlier nights, by how much, and because of what.

    Args:
        given: Parameters of the night and of `Reported` by name.
        runner: Carries out the steps; by default this process, with a bar on a terminal and in a notebook.

    Raises:
        InvalidField: A parameter is not allowed; nothing was started.
        EnvironmentFailed: There can be no such environment.
        InfrastructureError: Not one cluster could be opened, or the environment could not be had.
        StoreError: Results could not be kept.
    """
    rest, kept = _split(given)
    asked = plan.read(rest)
    jobs = plan.jobs(asked, kept.store)
    address, records = orchestrator.saved_store(kept.store)
    with shown(runner) as runner, Store.open(address, records) as store:
        place = OutputPath.of_report(kept.report, store, runner)
        site = OutputPath.of("site", asked.site, store, runner) if asked.site else None
        question = {name: value for name, value in asdict(asked).items() if name != "site"}
        night = _begin(store, question, fresh=kept.fresh)
        runner.label([f"study:{StudyKind.NIGHTLY}", f"history:{asked.history}", f"study:{night.id}"])
        past = [each for each in night_record.nights(store, asked.history) if each.study.created_at < night.created_at]
        tonight = _locked(store, night, past, asked, runner)
        tonight, runs = _measure(store, (address, records), night, plan.ordered(jobs, past), tonight, runner)
        until = time.monotonic() + 60 * asked.minutes
        bench = reruns.Reruns(asked, night.id, tonight.lock, kept.store, runner, until)
        tonight = night_record.amend(store, night.id, drifts=tuple(drifts(tonight, past)))
        changed = candidates(tonight, past, asked.smallest_effect)
        tonight = _judge(store, bench, [each for each in changed if each.worse], tonight)
        tonight = _raise(store, bench, past, tonight)
        tonight = _judge(store, bench, [each for each in changed if not each.worse], tonight)
        tonight = _trace_improvements(store, bench, past, tonight)
        resolved = alerts.resolve(store, past, tonight, asked)
        tonight = _tell(store, night, tonight, asked, runner)
        alarm = any(each.state in alerts.ONGOING for each in tonight.alerts)
        store.studies.finish(night.id, _line(tonight, resolved), tonight.to_mapping(), alarm=alarm)
        night = store.studies.get(night.id)
        written = (
            place.write(night.id, runner, lambda address: runner.do(REPORT, night, runs, address)) if place else None
        )
        text = export.to_markdown(night, runs) + where_report(written, night.id)
        if site:
            page = runner.do(SITE, store, asked.history, site.made(asked.history))
            text += f"\n**History** of all nights: {WrittenFile.at(page, store).markdown()}\n"
        name = f"night of {asked.history}"
        rows = export.to_rows(night, runs)
        runner.publish(lambda: Publication(name, digest([name]), headline(night), text, rows))
    return StudyResult(night.id, night.line, night.alarm, night.result, night.runs, night.where)


def lock(asked: NightlyParameters, past: Sequence[Night]) -> SoftwareLock:
    """The software of a night: that of the last one, or what the environment is now.

    Raises:
        EnvironmentFailed: There can be no such environment.
        EnvironmentUnavailable: It could not be had here and now.
    """
    if asked.pinned and past and past[-1].record.lock.pins:
        last = past[-1].record.lock
        return SoftwareLock(last.pinned, last.pins)
    environment = Environment.parse(asked.environment)
    if environment.present or environment.python:
        built = environments.ensure(environment)
        pins = {name: version for name, version in built.packages.items() if name not in NOT_LOCKED}
        return SoftwareLock(environment.text, {"python": _minor(built.python_version), **pins})
    pins = {"python": _minor(environment.python_version or platform.python_version())}
    made = SoftwareLock(pins={**pins, **environments.resolve(environment)})
    return replace(made, text=made.pinned)


def publish_site(store: Store, name: str, folder: str) -> str:
    """Write the pages of a history; return the address of the first.

    Raises:
        UsageError: What it needs is not installed.
        StoreError: They cannot be written.
    """
    return write_site(folder, read(store, name))


LOCK = RunStep("resolve", lock, retried=(InfrastructureError,), timeout_s=lambda *_: BUILD_TIMEOUT_S)


SITE = RunStep("history", publish_site, timeout_s=lambda *_: JUDGE_TIMEOUT_S)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _split(given: Mapping[str, Any]) -> tuple[dict[str, Any], Reported]:
    parameters.reject_unknown(given, NightlyParameters, Reported)
    kept = parameters.check(Reported, parameters.part(Reported, given))
    return parameters.part(NightlyParameters, given), kept


def _begin(store: Store, question: Mapping[str, Any], *, fresh: bool) -> Study:
    """A new night, or the one that was stopped not long ago."""
    night = store.studies.begin(StudyKind.NIGHTLY, question, fresh=fresh)
    age = datetime.now(UTC) - datetime.fromisoformat(night.created_at)
    if age > timedelta(hours=RESUMED_H):
        night = store.studies.begin(StudyKind.NIGHTLY, question, fresh=True)
    return night


def _locked(store: Store, night: Study, past: Sequence[Night], asked: NightlyParameters, runner: Runner) -> NightRecord:
    """What is kept of the night, with its lock: a night that continues has one already."""
    kept = NightRecord.from_mapping(night.result)
    if kept.lock.pins:
        return kept
    return night_record.amend(store, night.id, lock=runner.do(LOCK, asked, past))


# ------------------------------------------------------------------ measuring


def _measure(
    store: Store,
    addresses: tuple[str, str],
    night: Study,
    jobs: Sequence[plan.SuiteJob],
    tonight: NightRecord,
    runner: Runner,
) -> tuple[NightRecord, list[SweepRun]]:
    """Run all jobs, round after round, each on a cluster of its own, within the budget.

    Raises:
        InfrastructureError: Not one cluster could be opened.
        StoreError: Results could not be kept.
    """
    asked = jobs[0].asked
    table, cost = price_table.load(), Cost()
    limits = Budget.from_mapping(asked.budget, table, [job.cluster for job in jobs]).limits if asked.budget else {}
    runs: list[SweepRun] = []
    problems = plan.left_out(asked)
    ended, failed, planned = "", None, 0
    turns = [(turn, job) for turn in range(asked.rounds) for job in jobs if turn < plan.rounds(job)]
    for number, (turn, job) in enumerate(turns, 1):
        text = f"{job.entry.workload} on {job.cluster.kind}: run {number} of {len(turns)}"
        used = {"core_hours": cost.core_hours, "money": cost.money or 0.0, "hours": cost.time_s / 3600}
        left = {name: limit - used[name] for name, limit in limits.items()}
        if any(each <= 0 for each in left.values()):
            ended = f"the budget is used up: {len(runs)} of {len(turns)} runs were made"
            break
        runner.tell(Progress(0, 0, text, notable=True))
        request = job.request(tonight.lock, turn, left, *addresses)
        planned += sum(not each.warmup for each in request.plan)
        try:
            run = run_of(night, request, store, runner)
        except InfrastructureError as error:
            logger.warning("%s: %s", text, error)
            problems.append(f"{job.entry.workload} on {job.cluster.kind}: {error.line}")
            failed = error
            continue
        runs.append(run)
        cost += spent(run.sweep, run.trials, table)
        if reason := because([each for each in run.trials if not each.counts and not each.warmup]):
            problems.append(f"{job.entry.workload} on {job.cluster.kind}:{reason}")
        if run.state is RunState.STOPPED:
            ended = f"the budget does not allow more: {len(runs)} of {len(turns)} runs were made"
            break
    if failed is not None and not runs:
        raise failed
    states = Counter(str(trial.state) for run in runs for trial in run.trials if not trial.warmup)
    kept = night_record.amend(
        store,
        night.id,
        measured=tuple(measured(runs, asked.metric)),
        trials={"planned": planned, **states},
        problems=tuple(dict.fromkeys(problems)),
        ended_early=ended,
    )
    return kept, runs


# ------------------------------------------------------------------ judging


def _judge(store: Store, bench: reruns.Reruns, changed: Sequence[ChangeCandidate], tonight: NightRecord) -> NightRecord:
    """Look into changes, in their order; what an earlier attempt has answered stays."""
    for found in changed:
        if any(each.series.id == found.series.id for each in tonight.judged):
            continue
        words = f"{found.series.words}: {found.series.metric} {found.before:.4g} → {found.after:.4g}"
        bench.runner.tell(Progress(0, 0, f"Looking into {words}", notable=True))
        judged = reruns.judge(bench, found)
        bench.runner.tell(Progress(0, 0, f"{judged.outcome.capitalize()}. {judged.reason}", notable=True))
        tonight = night_record.amend(store, bench.night, judged=(*tonight.judged, judged))
    return tonight


def _raise(store: Store, bench: reruns.Reruns, past: Sequence[Night], tonight: NightRecord) -> NightRecord:
    """Raise an alert for each cause of what was confirmed."""
    covered = {series for alert in tonight.alerts for series in alert.series}
    confirmed = [each for each in tonight.judged if each.outcome is ChangeOutcome.CONFIRMED]
    confirmed = [each for each in confirmed if each.series.id not in covered]
    for found, good, changes in _causes(bench, past, confirmed):
        known = alerts.known(past, alerts.cause(bench.asked.history, found))
        if known is None:
            alert = alerts.new(bench.asked, bench.night, found, changes, (good.record.lock, tonight.lock))
            tonight = night_record.amend(store, bench.night, alerts=[reruns.tried(bench, alert)])
        elif known.state is not AlertState.FALSE:
            others = tuple(each for each in changes if each.series.id not in known.series)
            night_record.amend(store, known.night, alerts=[replace(known, changes=(*known.changes, *others))])
    return tonight


def _trace_improvements(store: Store, bench: reruns.Reruns, past: Sequence[Night], tonight: NightRecord) -> NightRecord:
    """Search what brought each improvement that was confirmed."""
    confirmed = [each for each in tonight.judged if each.outcome is ChangeOutcome.FASTER and not each.since]
    for found, _, changes in _causes(bench, past, confirmed):
        since = found.line if found.package else found.changed
        ids = {each.series.id for each in changes}
        told = tuple(replace(each, since=since) if each.series.id in ids else each for each in tonight.judged)
        tonight = night_record.amend(store, bench.night, judged=told)
    return tonight


def _causes(
    bench: reruns.Reruns, past: Sequence[Night], confirmed: Sequence[Judged]
) -> list[tuple[Culprit, Night, list[Judged]]]:
    """What brought confirmed changes, each with the last good night and the changes that it explains."""
    nights = {night.id: night for night in past}
    found: list[tuple[Culprit, Night, list[Judged]]] = []
    for change in sorted(confirmed, key=lambda each: -each.size):
        good = nights[change.good]
        bench.runner.tell(Progress(0, 0, f"Searching what brought it to {change.series.words}", notable=True))
        for culprit, other, changes in found:
            same = other.record.lock.pins == good.record.lock.pins
            if same and reruns.explains(bench, culprit, change, good):
                changes.append(change)
                break
        else:
            culprit = reruns.culprit(bench, change, good)
            bench.runner.tell(Progress(0, 0, f"Brought by {culprit.line}", notable=True))
            found.append((culprit, good, [change]))
    return found


def _tell(store: Store, night: Study, tonight: NightRecord, asked: NightlyParameters, runner: Runner) -> NightRecord:
    """Tell of each alert once: an event, and a page."""

    def told(alert: Alert) -> Alert:
        runner.send(alerts.event(alert, asked.history))
        runner.publish(lambda: alerts.publication(alert))
        return replace(alert, told=True)

    for alert in tonight.alerts:
        if not alert.told:
            tonight = night_record.amend(store, night.id, alerts=[told(alert)])
    return tonight


def _line(tonight: NightRecord, resolved: Sequence[Alert]) -> str:
    """The night in one or two sentences."""
    raised = [alerts.line(each) for each in tonight.alerts]
    first = f"Regression: {'; '.join(raised)}." if raised else "No regression."
    counts = {each: sum(judged.outcome is each for judged in tonight.judged) for each in ChangeOutcome}
    parts = [f"{len(tonight.measured):,} series measured"]
    parts += [f"{number} {each}" for each, number in counts.items() if number and each is not ChangeOutcome.CONFIRMED]
    parts += [plural(len(tonight.drifts), "slow drift")] if tonight.drifts else []
    parts += [f"{plural(len(resolved), 'alert')} resolved"] if resolved else []
    parts += [plural(len(tonight.problems), "problem")] if tonight.problems else []
    parts += [tonight.ended_early] if tonight.ended_early else []
    return f"{first} {', '.join(parts)}."
