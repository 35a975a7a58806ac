"""A whole night: measure the suite, judge its series, rerun what changed, search the causes, and report them.

A night that was stopped, even by SIGKILL, continues if it is started again with the same parameters within `RESUMED_H`.
"""

from __future__ import annotations

import logging
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from scalescope import environments
from scalescope.analysis.cost import Budget, Cost, spent
from scalescope.diagnosis.evidence import host_cpu
from scalescope.errors import InfrastructureError
from scalescope.model import parameters
from scalescope.model.environment import Environment
from scalescope.model.study import Study
from scalescope.model.sweep import digest
from scalescope.model.words import percent, plural
from scalescope.nightly import alerts, decisions, issues, missing_nights, night_record, plan, whole_suite
from scalescope.nightly.history import History
from scalescope.nightly.night_record import (
    Alert,
    AlertState,
    ChangeOutcome,
    Culprit,
    Judged,
    Night,
    NightRecord,
    SoftwareLock,
    TrackRecord,
)
from scalescope.nightly.parameters import NightlyParameters
from scalescope.nightly.reruns import Reruns
from scalescope.nightly.series import OTHERS, ChangeCandidate, candidates, drifts, measured
from scalescope.nightly.site import write_site
from scalescope.run import orchestrator, price_table, telemetry
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

RESUMED_H = 12.0  # hours after which a stopped night is not continued, because its environment is old
NOT_LOCKED = ("scalescope", "pip", "setuptools", "uv")  # present packages that no trial needs and an index may lack
COUNTED = {  # words of an outcome after a number of changes, if they are not its name
    ChangeOutcome.MACHINE: "due to the machine",
    ChangeOutcome.FASTER: "for the better",
    ChangeOutcome.WAITING: "left to the next night",
}

logger = logging.getLogger(__name__)


def check(given: Mapping[str, Any]) -> None:
    """Check a night as far as possible without saved clusters, the store and the package index."""
    asked, kept = _split(given)
    plan.check(asked, kept.store)


def run_nightly(given: Mapping[str, Any], runner: Runner | None = None) -> StudyResult:
    """Run the suite, and say which workloads got worse since earlier nights, by how much, and why."""
    rest, kept = _split(given)
    asked = plan.read(rest)
    jobs = plan.jobs(asked, kept.store)
    loaded, records = orchestrator.load_saved({"store": kept.store})
    with shown(runner) as runner, Store.open(loaded["store"], records) as store:
        report = OutputPath.of_report(kept.report, store, runner)
        site = OutputPath.of("site", asked.site, store, runner) if asked.site else None
        tracker = issues.tracker(asked.issues, asked.history, store, runner)
        study = _begin(store, asked, fresh=kept.fresh)
        runner.label(["study:nightly", f"history:{asked.history}", f"study:{study.id}"])
        past = [each for each in night_record.nights(store, asked.history) if each.study.created_at < study.created_at]
        night = NightInProgress(asked, study, past, store, runner, NightRecord.from_mapping(study.result))

        night.lock_software()
        runs = night.measure(jobs, (loaded["store"], records))
        night.amend(decisions=decisions.in_force(store, asked.history))
        night.amend(drifts=tuple(drifts(night.record, past)))
        every = candidates(night.record, past, asked.smallest_effect)
        night.amend(changed=tuple(each.series.id for each in every))
        new = [each for each in every if not each.answered]
        again = Reruns.begin(asked, study.id, night.record.lock, kept.store, runner)
        # Regressions and their causes come first, because the time for reruns may run out.
        night.rerun(again, [each for each in new if each.worse])
        night.raise_alerts(again)
        night.rerun(again, [each for each in new if not each.worse])
        night.trace_improvements(again)
        night.judge_suite()
        night.amend(track=TrackRecord.of([*(each.record for each in past), night.record]))
        resolved = alerts.resolve(store, past, night.record, asked)
        night.tell()
        if tracker:
            failed = runner.do(ISSUES, store, asked.history, tracker)
            night.amend(problems=(*night.record.problems, *failed))

        alarm = not night.record.measured or any(each.state in alerts.ONGOING for each in night.record.regressions)
        store.studies.finish(study.id, _line(night.record, resolved), night.record.to_mapping(), alarm=alarm)
        study = store.studies.get(study.id)
        if night.record.measured:
            runner.send(missing_nights.event(Night(study, night.record)))
        if telemetry.is_on():
            telemetry.send(_span(study, night.record))
        written = report.write(study.id, runner, partial(runner.do, REPORT, study, runs)) if report else None
        text = export.to_markdown(study, runs) + where_report(written, study.id)
        if site:
            page = runner.do(SITE, store, asked.history, site.made(asked.history))
            text += f"\n**History** of all nights: {WrittenFile.at(page, store).markdown()}\n"
        name = f"night of {asked.history}"
        rows = export.to_rows(study, runs)
        runner.publish(lambda: Publication(name, digest([name]), headline(study), text, rows))
    return StudyResult(study, tuple(runs))


def lock(asked: NightlyParameters, past: Sequence[Night]) -> SoftwareLock:
    """The software of a night: that of the last night if `pinned`, else the environment as it resolves now."""
    if asked.pinned and past and past[-1].record.lock.pins:
        last = past[-1].record.lock
        return SoftwareLock(last.pinned, last.pins)
    environment = Environment.parse(asked.environment)
    if environment.present or environment.python:
        built = environments.ensure(environment)
        pins = {name: version for name, version in built.packages.items() if name not in NOT_LOCKED}
        return SoftwareLock(environment.text, {"python": _minor(built.python_version), **pins})
    python = _minor(environment.python_version or platform.python_version())
    made = SoftwareLock(pins={"python": python, **environments.resolve(environment)})
    return replace(made, text=made.pinned)


def publish_site(store: Store, name: str, folder: str) -> str:
    """Write the pages of a history; return the address of the first."""
    return write_site(folder, History.read(store, name))


LOCK = RunStep("resolve", lock, retried=(InfrastructureError,), timeout_s=lambda *_: BUILD_TIMEOUT_S)
ISSUES = RunStep("issues", issues.bring_up_to_date)
SITE = RunStep("history", publish_site, timeout_s=lambda *_: JUDGE_TIMEOUT_S)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _split(given: Mapping[str, Any]) -> tuple[dict[str, Any], Reported]:
    parameters.reject_unknown(given, NightlyParameters, Reported)
    return parameters.part(NightlyParameters, given), parameters.check(Reported, parameters.part(Reported, given))


def _begin(store: Store, asked: NightlyParameters, *, fresh: bool) -> Study:
    question = {name: value for name, value in asdict(asked).items() if name not in ("site", "issues")}
    study = store.studies.begin("nightly", question, fresh=fresh)
    if datetime.now(UTC) - datetime.fromisoformat(study.created_at) > timedelta(hours=RESUMED_H):
        study = store.studies.begin("nightly", question, fresh=True)
    return study


@dataclass
class NightInProgress:
    """A night while it runs. Each stage stores its result at once; a continued night skips what is stored."""

    asked: NightlyParameters
    study: Study
    past: Sequence[Night]  # earlier nights of the history, oldest first
    store: Store
    runner: Runner
    record: NightRecord  # stored result of this night so far

    def amend(self, **parts: Any) -> None:
        self.record = night_record.amend(self.store, self.study.id, **parts)

    def lock_software(self) -> None:
        if not self.record.lock.pins:
            self.amend(lock=self.runner.do(LOCK, self.asked, self.past))

    def measure(self, jobs: Sequence[plan.SuiteJob], addresses: tuple[str, str]) -> list[SweepRun]:
        """Run all jobs within the budget, each on its own cluster; those measured longest ago come first.

        `addresses`: of the store, and of its raw records.
        """
        jobs = plan.ordered(jobs, self.past)
        prices, cost = price_table.load(), Cost()
        budget = self.asked.budget
        limits = Budget.from_mapping(budget, prices, [job.cluster for job in jobs]).limits if budget else {}
        runs: list[SweepRun] = []
        problems = plan.left_out(self.asked)
        ended, failed, planned = "", None, 0
        turns = [(turn, job) for turn in range(self.asked.rounds) for job in jobs if turn < plan.rounds(job)]
        self._say(plan.expected(self.study, turns, self.past))
        for number, (turn, job) in enumerate(turns, 1):
            name = f"{job.entry.workload} on {job.cluster.kind}"
            used = {"core_hours": cost.core_hours, "money": cost.money or 0.0, "hours": cost.time_s / 3600}
            left = {limit: most - used[limit] for limit, most in limits.items()}
            if any(each <= 0 for each in left.values()):
                ended = f"the budget is used up: {len(runs)} of {len(turns)} runs were made"
                break
            self._say(f"{name}: run {number} of {len(turns)}")
            request = job.request(self.record.lock, turn, left, *addresses)
            planned += sum(not each.warmup for each in request.plan)
            try:
                run = run_of(self.study, request, self.store, self.runner)
            except InfrastructureError as error:
                logger.warning("%s: run %d of %d: %s", name, number, len(turns), error)
                problems.append(f"{name}: {error.line}")
                failed = error
                continue
            runs.append(run)
            cost += spent(run.sweep, run.trials, prices)
            if reason := because([each for each in run.trials if not each.counts and not each.warmup]):
                problems.append(f"{name}:{reason}")
            if run.state is RunState.STOPPED:
                ended = f"the budget does not allow more: {len(runs)} of {len(turns)} runs were made"
                break
        if failed is not None and not runs:
            raise failed
        states = Counter(str(trial.state) for run in runs for trial in run.trials if not trial.warmup)
        self.amend(
            measured=tuple(measured(runs, self.asked.metric)),
            trials={"planned": planned, **states},
            problems=tuple(dict.fromkeys(problems)),
            ended_early=ended,
        )
        return runs

    def rerun(self, again: Reruns, changed: Sequence[ChangeCandidate]) -> None:
        for found in changed:
            if any(each.series.id == found.series.id for each in self.record.judged):
                continue
            series = found.series
            before, after = map(series.written, (found.before, found.after))
            self._say(f"Looking into {series.words}: {series.metric} {before} → {after}")
            judged = again.judge(found)
            self._say(f"{judged.outcome.capitalize()}. {judged.reason}")
            self.amend(judged=(*self.record.judged, judged))

    def raise_alerts(self, again: Reruns) -> None:
        """Raise an alert for each cause of a confirmed regression, or extend the alert that its cause already has."""
        covered = {series for alert in self.record.regressions for series in alert.series}
        confirmed = [each for each in self.record.judged if each.outcome is ChangeOutcome.CONFIRMED]
        for found, good, changes in self._causes(again, [each for each in confirmed if each.series.id not in covered]):
            known = alerts.known(self.past, alerts.alert_id(self.asked.history, found))
            if known is None:
                alert = alerts.new(self.asked, self.study.id, found, changes, (good.record.lock, self.record.lock))
                self.amend(alerts=[again.try_script(alert)])
            elif known.state is not AlertState.FALSE:
                others = tuple(each for each in changes if each.series.id not in known.series)
                known = replace(known, changes=(*known.changes, *others))
                night_record.amend(self.store, known.night, alerts=[known])
                if known.state in alerts.ONGOING:
                    self.amend(standing=[replace(known, told=False)])

    def trace_improvements(self, again: Reruns) -> None:
        """Search for the cause of each confirmed improvement."""
        confirmed = [each for each in self.record.judged if each.outcome is ChangeOutcome.FASTER and not each.since]
        for found, _, changes in self._causes(again, confirmed):
            since = found.line if found.package else found.changed
            ids = {each.series.id for each in changes}
            traced = [replace(each, since=since) if each.series.id in ids else each for each in self.record.judged]
            self.amend(judged=tuple(traced))

    def _causes(self, again: Reruns, confirmed: Sequence[Judged]) -> list[tuple[Culprit, Night, list[Judged]]]:
        """Causes of confirmed changes, each with the last good night and the changes that it explains."""
        nights = {night.id: night for night in self.past}
        found: list[tuple[Culprit, Night, list[Judged]]] = []
        for change in sorted(confirmed, key=lambda each: -each.size):
            good = nights[change.good]
            self._say(f"Searching for the cause of the change of {change.series.words}")
            for culprit, other, changes in found:
                if other.record.lock.pins == good.record.lock.pins and again.explains(culprit, change, good):
                    changes.append(change)
                    break
            else:
                culprit = again.culprit(change, good)
                self._say(f"Brought by {culprit.line}" if culprit.found else f"The cause: {culprit.line}")
                found.append((culprit, good, [change]))
        return found

    def judge_suite(self) -> None:
        """Look for a change of the suite as a whole; raise an alert for it unless its cause already has one."""
        if any(whole_suite.is_suite(each.series) for each in self.record.judged):
            return
        for found in whole_suite.judge(self.record, self.past):
            self._say(f"The suite as a whole: {found.judged.reason}")
            self.amend(judged=(*self.record.judged, found.judged))
            every = [alert for night in self.past for alert in night.record.alerts if alert.state in alerts.ONGOING]
            known = any(alerts.explains(each, found.changed) for each in (*every, *self.record.alerts))
            if found.judged.outcome is ChangeOutcome.SUITE and not known:
                alert = alerts.of_suite(self.asked, self.study.id, found, self.record.lock)
                self.amend(alerts=[alert] if alerts.known(self.past, alert.id) is None else [])

    def tell(self) -> None:
        """Report each alert once, by an event and by a page."""
        for kind in ("alerts", "standing"):
            for alert in getattr(self.record, kind):
                if not alert.told:
                    self.runner.send(alerts.event(alert, self.asked.history, self.study.id))
                    self.runner.publish(lambda alert=alert: alerts.publication(alert))  # type: ignore[misc]
                    self.amend(**{kind: [replace(alert, told=True)]})

    def _say(self, text: str) -> None:
        self.runner.tell(Progress(0, 0, text, notable=True))


def _span(study: Study, record: NightRecord) -> telemetry.Span:
    told = tuple(
        (
            "scalescope.alert",
            {
                "scalescope.alert.id": alert.id,
                "scalescope.alert.line": alerts.line(alert),
                "scalescope.culprit.package": alert.culprit.package,
                "scalescope.culprit.release": alert.culprit.bad,
            },
        )
        for alert in record.alerts
    )
    about = {"scalescope.night.id": study.id, "scalescope.history": str(study.question["history"])}
    return telemetry.Span("night", study.created_at, study.finished_at, about, events=told)


def _line(tonight: NightRecord, resolved: Sequence[Alert]) -> str:
    found = [alerts.line(each) for each in tonight.alerts]
    found += [f"{alerts.line(each)} (alert {each.id} of {each.night} is still open)" for each in tonight.standing]
    first = f"Regression: {'; '.join(found)}." if found else "No regression."
    first = first if tonight.measured else "Nothing was measured."
    loaded = [taken for each in tonight.measured if (taken := each.host.get(OTHERS, 0.0)) >= host_cpu.OTHERS]
    if loaded:
        series = f"{len(loaded):,} of {len(tonight.measured):,} series"
        first = f"The host was loaded: other processes took up to {percent(max(loaded))} of it during {series}. {first}"
    counts = Counter(each.outcome for each in tonight.judged)
    parts = [f"{len(tonight.measured):,} series measured"]
    told = (ChangeOutcome.CONFIRMED, ChangeOutcome.SUITE)
    others = [each for each in ChangeOutcome if counts[each] and each not in told]
    parts += [f"{plural(counts[each], 'change')} {COUNTED.get(each, each)}" for each in others]
    parts += [plural(len(tonight.drifts), "slow drift")] if tonight.drifts else []
    parts += [f"{plural(len(resolved), 'alert')} resolved"] if resolved else []
    parts += [plural(len(tonight.problems), "problem")] if tonight.problems else []
    parts += [tonight.ended_early] if tonight.ended_early else []
    return f"{first} {', '.join(parts)}."
