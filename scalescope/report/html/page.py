"""Texts and tables of the page about the sweep as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalescope import __version__
from scalescope.analysis.factors import FACTORS
from scalescope.analysis.knee import Knee
from scalescope.analysis.summary import PointSummary, label, settings, varied
from scalescope.model.environment import Environment
from scalescope.model.finding import Finding, Severity, Verdict
from scalescope.model.metrics import METRICS, WORKER_TIME, WORKING
from scalescope.model.trial import ran_what
from scalescope.model.words import capital, number, pairs, percent, plural, seconds, size
from scalescope.report import worker_time
from scalescope.report.cluster_lines import cluster_lines
from scalescope.report.run_tables import factors_table, to_measure
from scalescope.report.table import ReportTable
from scalescope.store.store import SweepRun

MOST_POINTS = 200  # most points in a table: nobody reads more
MOST_KNEES = 6  # most series with a chart; the points of the others are in the table
VERSIONS = ("python", "dask", "distributed")
# Terms in the order in which they appear in the report
TERMS: tuple[tuple[str, str], ...] = (
    ("Point, trial", "A point is one combination of settings; a trial is one measured run of it."),
    *(
        (metric.term, metric.help + (f" Column “{metric.title}”." if metric.rank is not None else ""))
        for metric in METRICS.values()
        if metric.term
    ),
    (
        "Speed-up, knee",
        "Throughput in units of one thread that is always busy; the ideal on P threads is P. The knee is the number of "
        "threads at which throughput stops growing. Its 95 % interval holds only if the fitted model is right.",
    ),
    (
        "Factors of the efficiency",
        "Each factor is a share of the threads’ time that the factors above it left: the share in which "
        + "; ".join(f"{factor.help} ({factor.title})" for factor in FACTORS.values())
        + ". Their product is the efficiency. Work inflation is the work that the same number of items took at "
        "the smallest size, divided by the work. The efficiency times the work inflation is the speed-up per thread. "
        "A factor below 0.8 is marked (!).",
    ),
    (
        "Worker time",
        "P × the time of the workload’s call: what was paid for. The parts below add up to all of it.",
    ),
)


@dataclass(frozen=True)
class WorkerTimeBar:
    """The worker time of one point."""

    label: str  # the point in words
    total: str  # thread-seconds
    parts: tuple[worker_time.WorkerTimeShare, ...]


@dataclass(frozen=True)
class FindingBlock:
    """A finding, with the texts that the page adds."""

    finding: Finding
    level: str  # style-sheet class: the severity, or `good`
    word: str  # one word for `level`
    facts: tuple[str, ...]  # confidence, points concerned and worker time lost


@dataclass(frozen=True)
class SpeedupChart:
    """A chart of speed-up against threads."""

    chart: str  # name of the figure
    title: str
    line: str  # the main result of the chart in a sentence
    legend: tuple[tuple[str, str], ...]  # colour and meaning
    factors: ReportTable | None  # factors of the efficiency, a column per size


def block(finding: Finding) -> FindingBlock:
    healthy = finding.code == "healthy"
    facts = []
    if finding.confidence < 1:
        facts.append(f"confidence {percent(finding.confidence)}")
    if len(finding.points) > 1:
        facts.append(f"at {plural(len(finding.points), 'point')}")
    if finding.lost_s > 0:
        facts.append(f"{seconds(finding.lost_s)} thread-seconds lost to it")
    level, word = ("good", "No fault found") if healthy else (str(finding.severity), finding.severity.word)
    return FindingBlock(finding, level, word, tuple(facts))


def evidence_value(value: float | int | str) -> str:
    """A number in four digits, or a text."""
    return number(value, 4) if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value


def provenance(run: SweepRun) -> list[tuple[str, str]]:
    """Where the numbers of a run come from: workload, versions, machine, time and order of trials."""
    facts: Mapping[str, Any] = next((trial.facts for trial in run.trials if trial.facts.get("cluster")), {})
    what, when = ran_what(run.trials), period(run.created_at, run.finished_at)
    if what:
        mine = [(capital(what), run.sweep.workload)]
        rest = [("When", when), ("Run", f"{run.id}, by Scalescope {__version__}" if run.id else "")]
    else:
        mine = [
            ("Workload", f"{run.sweep.workload}, version {run.workload_version}"),
            ("Parameters", pairs(_shared(run))),
        ]
        rest = [
            ("Trials", _trials(run)),
            ("Order", f"randomised and interleaved from seed {run.sweep.seed}"),
            ("When", when),
            ("Run", f"{run.id}, by Scalescope {__version__}"),
        ]
    found = [
        *mine,
        ("Cluster", " ".join(cluster_lines(run.sweep, run.trials)).removeprefix("Cluster: ")),
        ("Validated", _of(facts, "cluster").get("validated", "")),
        *((f"Versions, {label}" if label else "Versions", text) for label, text in _versions(run)),
        ("Host", _host(_of(facts, "host"))),
        *rest,
    ]
    return [(term, str(text)) for term, text in found if text]


def packages(run: SweepRun) -> list[tuple[str, list[tuple[str, str]]]]:
    """Label and package list of each environment in which trials ran."""
    found = [(label, _packages(facts)) for label, facts in _environments(run)]
    return [(label, sorted(known.items())) for label, known in found if known]


def _environments(run: SweepRun) -> list[tuple[str, Mapping[str, Any]]]:
    """Label and facts of each environment; the label is empty if there is only one."""
    found: dict[str, Mapping[str, Any]] = {}
    for trial in run.trials:
        if trial.facts.get("cluster"):
            found.setdefault(Environment.parse(trial.point.environment).label, trial.facts)
    if len(found) > 1:
        return list(found.items())
    return [("", next(iter(found.values()), run.facts))]


def _packages(facts: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(version) for name, version in _of(facts, "packages").items()}


def _of(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = facts.get(name)
    return found if isinstance(found, Mapping) else {}


def _shared(run: SweepRun) -> dict[str, Any]:
    """Settings that all points have in common."""
    points = [trial.point for trial in run.trials]
    if not points:
        return dict(run.sweep.params)
    names = varied(points)
    return {name: value for name, value in settings(points[0]).items() if name not in names and value is not None}


def _versions(run: SweepRun) -> Iterator[tuple[str, str]]:
    """For each environment, the versions of the packages that affect the measurements most."""
    for name, facts in _environments(run):
        known = _packages(facts)
        named = [f"{each} {facts[each]}" for each in VERSIONS if facts.get(each)]
        named += [f"{each} {known[each]}" for each in ("apache-beam", "numpy", "pandas", "torch") if each in known]
        yield name, ", ".join(named)


def _host(host: Mapping[str, Any]) -> str:
    """The machine in words, without its host name, since reports are sent to others."""
    parts = [str(host[name]) for name in ("cpu_model", "platform") if host.get(name)]
    if host.get("usable_cpus"):
        parts.insert(0, plural(int(host["usable_cpus"]), "usable core"))
    if host.get("memory_bytes"):
        parts.append(f"{size(host['memory_bytes'])} of memory")
    return ", ".join(parts)


def _trials(run: SweepRun) -> str:
    warmups = sum(trial.warmup for trial in run.trials)
    counted = sum(trial.counts for trial in run.trials)
    text = f"{counted:,} of {plural(run.planned, 'planned trial')} count, {run.sweep.repeats} per point"
    return text + (f", plus {plural(warmups, 'warm-up')}" if warmups else "") + f"; the run is {run.state.value}"


def period(created_at: str, finished_at: str) -> str:
    """Begin and end of a run in words; `finished_at` is empty if it has not finished."""
    begin, end = moment(created_at), moment(finished_at)
    return f"{begin.removesuffix(' UTC')} to {end}" if end else f"{begin}, not finished"


def moment(iso: str) -> str:
    """`2026-11-21 05:06:35 UTC` from an ISO 8601 time in UTC."""
    return f"{iso[:19].replace('T', ' ')} UTC" if iso else ""


def bars(summaries: Sequence[PointSummary]) -> list[WorkerTimeBar]:
    """Worker time of each measured point, by its parts."""
    names = varied(summary.point for summary in summaries)
    found = []
    for summary in summaries[:MOST_POINTS]:
        if summary.metrics is not None:
            parts = worker_time.worker_time_parts(summary.metrics)
            total = seconds(sum(part.seconds for part in parts))
            found.append(WorkerTimeBar(label(summary.point, names), total, parts))
    return found


def legend_parts(found: Sequence[WorkerTimeBar]) -> list[tuple[str, str]]:
    """Name and title of every part that occurs in any of the bars."""
    titles = {part.name: part.title for bar in found for part in bar.parts}
    return [(name, titles[name]) for name in WORKER_TIME if name in titles]


def speedup_chart(name: str, knee: Knee) -> SpeedupChart:
    legend = [("busy", "measured"), ("ideal", "ideal: every thread always busy")]
    if knee.fit is not None:
        band = ", with its knee and the 95 % interval" if knee.k is not None else ""
        legend.append(("fit", f"fitted model ({knee.fit.model.name}){band}"))
    line = knee.line
    if knee.low is not None and knee.high is not None:
        line += f" 95 % interval of the knee: {knee.low:,.0f} to {knee.high:,.0f} threads."
    return SpeedupChart(
        name, capital(knee.title), line + knee.falls + to_measure(knee), tuple(legend), factors_table(knee)
    )


def worst_why(worst: PointSummary, verdict: Verdict | None) -> str:
    """Why this point is shown (`worker_time.worst_point`)."""
    faults = [finding for finding in verdict.findings if finding.severity is not Severity.INFO] if verdict else []
    if any(worst.point.id in finding.points[:1] for finding in faults):
        return "the point that the verdict rests on"
    return "the point with the smallest busy share of its worker time"


def key_figures(worst: PointSummary | None) -> list[tuple[str, str, str]]:
    """The most important numbers of the point that the verdict is about: value, meaning, note."""
    if worst is None or worst.metrics is None:
        return []
    metrics, point = worst.metrics, worst.point
    wide = f"{seconds(metrics.work_s / point.threads)} s with every thread always busy"
    return [
        (f"{metrics.workers_used:,} of {point.workers:,}", "workers ran a task", ""),
        (percent(worst.share(*WORKING)), "of the worker time was busy", ""),
        (f"{seconds(metrics.makespan_s)} s", "makespan", wide),
        (f"{metrics.peak_runnable:,}", "tasks could run at once, at most", f"on {plural(point.threads, 'thread')}"),
    ]
