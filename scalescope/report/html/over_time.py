"""Charts over the time of one trial; each comes with a sentence and a table that say the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scalescope.analysis.attempts import Attempts, Floats
from scalescope.analysis.work_span import profile
from scalescope.analysis.worker_time import busy_by_worker
from scalescope.diagnosis.blame import CLIENT, OTHER, Blame, blame
from scalescope.diagnosis.evidence.gpu import gpus
from scalescope.diagnosis.observation import Observation
from scalescope.model.metrics import GPU_IDLE, GPU_PARTS
from scalescope.model.words import MISSING, percent, plural, seconds, size
from scalescope.report import worker_time
from scalescope.report.html import gantt, series
from scalescope.report.html.charts import Canvas, TrialCharts
from scalescope.report.html.series import Heat
from scalescope.report.html.stages import Groups
from scalescope.report.html.theme import stage_colour
from scalescope.report.table import ReportTable

TABLE_TIMES = 12  # rows (points in time) of the tables that accompany charts
TABLE_WORKERS = 10
SENTENCE = 4  # most charges named in a sentence
LATER = " Time spent waiting for late tasks is charged to the delay that made them late."
SAMPLED = ("computing", *GPU_IDLE)  # parts of GPU time that are known for each prefix
TEXTURES = {
    "dotted": "dotted: the task holds its thread and waits",
    "pale": "pale: an idle thread waits for tasks of this colour, or for tasks that these delayed",
}


@dataclass(frozen=True)
class TimeChart:
    """A chart over the time of a trial, and its content in words and numbers."""

    text: str  # the main result in a sentence or two
    table: ReportTable | None = None  # numbers of the chart at some times; None if another table of the page has them
    legend: tuple[tuple[str, str], ...] = ()  # colours and their meanings
    notice: str = ""  # a sentence on what was left out or merged
    open: bool = False  # True if the table is unfolded at first
    name: str = ""  # name of the figure in the canvas
    title: str = ""


@dataclass(frozen=True)
class TrialView:
    """A trial, and data that several of its charts need."""

    seen: Observation
    attempts: Attempts
    groups: Groups
    canvas: Canvas
    drawn: TrialCharts
    edges: Floats  # edges of the columns of heat maps, in seconds since the first task was known
    heat: Heat  # busy share of workers


@dataclass(frozen=True)
class ChartKind:
    """One chart of the page about a trial."""

    title: str
    # draws the chart and returns its words and numbers; None if the trial has no such chart
    build: Callable[[TrialView], TimeChart | None]


def draw(seen: Observation, attempts: Attempts, groups: Groups, canvas: Canvas) -> list[TimeChart]:
    edges = np.linspace(0.0, attempts.makespan, series.HEAT_COLUMNS + 1)
    heat = series.heat(attempts, busy_by_worker(attempts, edges), edges)
    view = TrialView(seen, attempts, groups, canvas, TrialCharts(canvas, attempts), edges, heat)
    built = {name: kind.build(view) for name, kind in CHARTS.items()}
    return [replace(chart, name=name, title=CHARTS[name].title) for name, chart in built.items() if chart]


def _names(seen: Observation, attempts: Attempts) -> list[str]:
    named = dict(zip(seen.column("workers", "worker"), seen.column("workers", "name"), strict=True))
    return [
        f"{named[address]} ({address})" if named.get(address) not in (None, "", address) else address
        for address in attempts.addresses
    ]


def _stage_names(groups: Groups, bars: gantt.Bars) -> list[tuple[str, str]]:
    """Colour and name of every code of `gantt.stage_codes`; the name is empty if the code is not used."""
    names = [groups.titles[stage.group] for stage in groups.largest(gantt.STAGES)]
    names += [""] * (gantt.STAGES - len(names)) + ["all other stages", "failed, lost or repeated"]
    present = set(np.unique(bars.stage).tolist())
    return [(stage_colour(code), name if code in present else "") for code, name in enumerate(names)]


def _styles(charged: Blame, groups: Groups) -> list[str]:
    codes = {OTHER: gantt.OTHER}
    for code, stage in enumerate(groups.largest(gantt.STAGES)):
        codes.setdefault(stage.prefix, code)
    names = dict.fromkeys(charge.name for charge in charged.charges if charge.of_tasks)
    free = iter(sorted(set(range(gantt.STAGES)) - {codes.get(name) for name in names}))
    return styles(charged, codes | {name: next(free) for name in names if name not in codes})


def styles(charged: Blame, codes: Mapping[str, int]) -> list[str]:
    """Colour and texture of each charge. `codes`: number of the colour of each prefix (`theme.stage_colour`)."""
    textures = {"ran": "", "held": " dotted", "idle": " pale", "idle, passed on": " pale"}
    return [
        stage_colour(codes[charge.name]) + textures[charge.state]
        if charge.of_tasks
        else f"{CLIENT if charge.of_client else charge.part} hatched"
        for charge in charged.charges
    ]


def _blame(view: TrialView) -> TimeChart:
    charged = blame(view.seen, series.BINS)
    styles_of = _styles(charged, view.groups)
    view.drawn.blame(charged, styles_of)
    charges, totals = charged.charges, [charge.total_s for charge in charged.charges]
    shares = [f"{tenths / 10:.1f} %" for tenths in worker_time.apportion(totals, 1000)]
    view.canvas.reading["charges"] = [
        [f"{charge.state}, {charge.text}", charge.total_s, share] for charge, share in zip(charges, shares, strict=True)
    ]
    order = sorted(range(len(charges)), key=lambda i: (charges[i].state == "ran", -totals[i]))
    cells = [(charges[i].text, charges[i].state, seconds(totals[i]), shares[i]) for i in order]
    cells.append(("all", MISSING, seconds(sum(totals)), "100.0 %"))
    worked = sum(charge.total_s for charge in charges if charge.state == "ran")
    worst = [f"{text} ({percent(lost / sum(totals))})" for text, (lost, _) in list(charged.lost.items())[:SENTENCE]]
    return TimeChart(
        f"Tasks ran for {percent(worked / sum(totals))} of the worker time. "
        + (f"Most of the rest is charged to {'; '.join(worst)}." if worst else "No thread was idle.")
        + (LATER if any(charge.passed_on for charge in charges) else ""),
        ReportTable.of(
            "What every thread-second is charged to", ("what", "thread", "thread-seconds", "share"), cells, 2
        ),
        charge_legend(charged, styles_of),
        open=True,
    )


def charge_legend(charged: Blame, styles: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Each colour or texture, and its meaning."""
    colours, others = {}, {}
    for style, charge in zip(styles, charged.charges, strict=True):
        if charge.of_tasks:
            colours[style.partition(" ")[0]] = charge.name
        else:
            others[style] = charge.text.partition(",")[0] if charge.name else charge.text
    used = [(f"ink {name}", text) for name, text in TEXTURES.items() if any(each.endswith(name) for each in styles)]
    return (*colours.items(), *used, *others.items())


def _parallelism(view: TrialView) -> TimeChart:
    attempts, levels = view.attempts, profile(view.attempts)
    view.drawn.parallelism(levels)
    times = np.linspace(0.0, attempts.makespan, TABLE_TIMES + 1)[:-1]
    columns = [series.at(step, times) for step in (levels.provisioned, levels.runnable, levels.running)]
    cells = [(seconds(float(time)), *(f"{level:,}" for level in at)) for time, *at in zip(times, *columns, strict=True)]
    heads = ("at s", "threads there", "tasks runnable", "tasks running")
    mean = float((attempts.stop - attempts.start).sum()) / attempts.makespan
    return TimeChart(
        f"{mean:,.3g} tasks ran at once on average, {levels.running.peak:,} at most, on "
        f"{plural(levels.provisioned.peak, 'thread')}; at most {plural(levels.runnable.peak, 'task')} could have run "
        "at once.",
        ReportTable.of("Parallelism over time", heads, tuple(cells), 0),
        (("ideal", "threads there"), ("not_assigned", "runnable tasks: waiting or running"), ("busy", "tasks running")),
    )


def _heat(view: TrialView) -> TimeChart:
    heat, names = view.heat, _names(view.seen, view.attempts)
    view.drawn.heat("heat", heat)
    # Names of the workers in each row, which the page's script shows
    view.canvas.reading |= {"workers": [names[worker] for worker in heat.order], "workers_per_row": heat.workers}
    idle = int((heat.busy == 0).sum())
    shown, cut = list(range(len(heat.order))), ""
    if len(shown) > 2 * TABLE_WORKERS:
        shown = shown[:TABLE_WORKERS] + shown[-TABLE_WORKERS:]
        cut = f"The {TABLE_WORKERS} busiest and the {TABLE_WORKERS} idlest."
    cells = tuple((names[heat.order[i]], percent(float(heat.busy[i]))) for i in shown)
    averaged = f"Each row is the average of {heat.workers} workers." if heat.workers > 1 else ""
    never = f"{idle:,} of {plural(len(heat.order), 'worker')} never ran a task" if idle else "Every worker ran a task"
    middle = float(np.median(heat.busy))
    half = f", half of the workers at least {percent(middle)}" if middle >= 0.01 else ""
    return TimeChart(
        f"{never}; the busiest was busy {percent(float(heat.busy.max(initial=0)))} of the time{half}. The busiest is "
        "on top.",
        ReportTable.of("Busy share of workers, the busiest first", ("worker", "busy"), cells, notice=cut),
        (("heat-low", "idle"), ("heat-high", "busy")),
        averaged,
    )


def _gpu(view: TrialView) -> TimeChart | None:
    divided = gpus(view.seen)
    utilisation = series.gpu(view.seen.tables, view.attempts, view.edges, view.heat) if divided else None
    if divided is None or utilisation is None:
        return None
    view.drawn.heat("gpu", utilisation)
    heads = ("tasks", "GPU busy", "memory at most", *(GPU_PARTS[part].title for part in SAMPLED))
    cells = [
        (name, percent(use.utilisation), size(use.memory_peak), *(seconds(use.seconds[part]) for part in SAMPLED))
        for name, use in sorted(divided.prefixes.items(), key=lambda item: -sum(item[1].seconds.values()))
    ]
    total = divided.total()
    rest = ", ".join(f"{GPU_PARTS[part].title} {seconds(total[part])} s" for part in GPU_PARTS if total[part] > 0)
    busy = [card.busy for card in divided.cards.values()]
    return TimeChart(
        f"A kernel ran {percent(divided.busy)} of the time on {plural(len(busy), 'GPU')} (from {percent(min(busy))} to "
        f"{percent(max(busy))}). Busy threads: {rest}. Rows are the workers above; workers may share a GPU.",
        ReportTable.of("Thread-seconds of tasks while the GPU computed, or the reason why it was idle", heads, cells),
        (("heat-low", "idle"), ("heat-high", "a kernel ran")),
        open=True,
    )


def _gantt(view: TrialView) -> TimeChart:
    attempts, order = view.attempts, view.heat.order
    lines = gantt.rows_of(attempts, order)
    bars = gantt.bars(attempts, lines.of_attempt, gantt.stage_codes(attempts, view.groups))
    view.drawn.gantt(bars, len(lines.worker))
    stages, place = _stage_names(view.groups, bars), np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    # Names for rows and colours, which the page's script shows
    view.canvas.reading |= {"rows": place[lines.worker].tolist(), "stages": [name for _, name in stages]}
    idle = len(attempts.addresses) - len(np.unique(lines.worker))
    without = f" {plural(idle, 'worker')} without a task {'is' if idle == 1 else 'are'} left out." if idle else ""
    text = (
        f"{plural(bars.tasks, 'task')} on {plural(len(lines.worker), 'thread')}, in the order of the workers above; "
        f"the stages and their times are in the table below.{without}"
    )
    return TimeChart(
        text,
        legend=tuple((colour, name) for colour, name in stages if name),
        notice=_drawn(bars),
    )


def _drawn(bars: gantt.Bars) -> str:
    if not bars.merged_below_s:
        return ""
    text = (
        f"{bars.tasks:,} tasks are drawn as {len(bars.row):,} bars (at most {gantt.MOST_BARS:,}): tasks shorter than "
        f"{seconds(bars.merged_below_s)} s that follow each other closely on a thread share a bar."
    )
    return text + (f" Shortest tasks that are left out: {bars.left_out:,}." if bars.left_out else "")


def _memory(view: TrialView) -> TimeChart | None:
    memory = series.memory(view.seen.tables, view.attempts)
    if memory is None:
        return None
    view.drawn.memory(memory)

    def most(values: Floats) -> str:
        return size(float(values.max(initial=0)))

    heads = ("at s", "workers", "managed", "spilled", "fullest worker", "scheduler")
    columns = (memory.rss, memory.managed, memory.spilled, memory.highest, memory.scheduler)
    at = np.linspace(0, len(memory.time) - 1, TABLE_TIMES).astype(int)
    cells = tuple(
        (seconds(float(memory.time[i])), *(f"{float(column[i]) / 2**30:,.3g}" for column in columns)) for i in at
    )
    spilled = f", and {most(memory.spilled)} were spilled" if memory.spilled.any() else "; nothing was spilled"
    return TimeChart(
        f"{memory.processes:,} worker process{'' if memory.processes == 1 else 'es'} held at most {most(memory.rss)} "
        f"together, the fullest {most(memory.highest)}{spilled}.",
        ReportTable.of("Memory over time, GiB", heads, cells, 0),
        (
            ("busy", "all workers, resident"),
            ("transfer", "results they hold (managed)"),
            ("spill", "results on disk"),
            ("not_assigned", "the fullest worker"),
            ("ideal", "scheduler"),
        ),
    )


# The charts in the order of the page, by the names of their figures
CHARTS: Mapping[str, ChartKind] = {
    "blame": ChartKind("For whom threads waited", _blame),
    "parallelism": ChartKind("Parallelism", _parallelism),
    "heat": ChartKind("Busy workers", _heat),
    "gantt": ChartKind("What each thread ran", _gantt),
    "gpu": ChartKind("GPUs", _gpu),
    "memory": ChartKind("Memory", _memory),
}
