"""Builds the HTML report of a run, and writes pages to files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from scalescope.analysis import knee
from scalescope.analysis.summary import label, varied
from scalescope.errors import UsageError
from scalescope.model.metrics import OTHER_CLUSTER, PARTS
from scalescope.model.trial import ran_what
from scalescope.report import files, links, run_tables, worker_time
from scalescope.report.html import embed, page, theme
from scalescope.store.store import SweepRun

if TYPE_CHECKING:
    from scalescope.report.html.charts import Canvas
    from scalescope.report.html.trial import ReadTables

Target = TypeVar("Target", str, Path)


def check(place: str | Path) -> None:
    """Raise an error if the report could not be written to `place`; called before measuring begins."""
    files.check(place, "report")


def render(run: SweepRun, read: ReadTables, *, trial: str = "", followed_by: Sequence[str] = ()) -> str:
    """The report of a run, finished or not, as one self-contained HTML file.

    `trial`: key of the trial to show in detail, by default the one that the verdict is about. `followed_by`: ids of the
    studies that the run led to (`Studies.following`).

    Raises:
        UsageError: There is no such trial.
    """
    from scalescope.report.html import charts
    from scalescope.report.html import trial as trials

    keys = [each.key for each in run.trials]
    if trial and trial not in keys:
        raise UsageError(
            f"Run {run.id} has no trial {trial!r}", next_step="It has: " + (", ".join(keys[:10]) or "none") + "."
        )
    verdict = run_tables.verdict_of(run)
    summaries = run_tables.points(run.trials)
    canvas = charts.Canvas()
    series = []
    for i, found in enumerate(knee.of_sweep(run.sweep, run.trials)[: page.MOST_KNEES]):
        charts.scaling(canvas, f"knee-{i}", found)
        series.append(page.speedup_chart(f"knee-{i}", found))
    detail = trials.build(run, summaries, read, canvas, trial)
    bars = page.bars(summaries)
    worst = worker_time.worst_point(summaries, verdict)
    where = label(worst.point, varied(summary.point for summary in summaries)) if worst else ""
    findings = [page.block(finding) for finding in verdict.findings]
    points, legend = run_tables.points_table(summaries, most=page.MOST_POINTS)
    return fill(
        "report.html.j2",
        canvas,
        run=run,
        verdict=findings[0] if findings else None,
        trust=verdict.trust,
        doubt=verdict.doubt,
        tracebacks=run_tables.tracebacks(run.trials),
        line=verdict.line,
        findings=findings,
        figures=page.key_figures(worst),
        figures_of=f"{where}: {page.worst_why(worst, verdict)}" if worst and len(summaries) > 1 else "",
        provenance=page.provenance(run),
        packages=page.packages(run),
        links=links.of_run(run, followed_by)[: links.MOST_LINKS],
        points=points if summaries else None,
        legend=legend,
        bars=bars,
        parts=page.legend_parts(bars),
        series=series,
        trial=detail,
        reasons=run_tables.reasons(summaries),
        warnings=run_tables.warnings(summaries),
        own=ran_what(run.trials),
        terms=page.TERMS[1:] if ran_what(run.trials) else page.TERMS,
        worker_time=[
            (name, part.title, part.help)
            for name, part in PARTS.items()
            if name != OTHER_CLUSTER or any(each.name == name for bar in bars for each in bar.parts)
        ],
    )


def fill(template: str, canvas: Canvas, *, package: str = __package__, script: str = "", **given: Any) -> str:
    """Fill a page template with `given`, charts, styles, scripts and the content security policy.

    `template` and the optional `script` are files of `package`; templates that it includes are files of this package.
    """
    import jinja2

    from scalescope.report.html import charts

    scripts = [charts.bokeh_script(), _file("report.js")] if canvas.figures else []
    scripts += [_file(script, package)] if script else []
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _file(name, package) if name == template else _file(name)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_together,
    )
    environment.filters |= {"coded": embed.coded, "safe_link": embed.safe_link, "value": page.evidence_value}
    return environment.get_template(template).render(
        **given,
        light=theme.LIGHT,
        dark=theme.DARK,
        css=embed.raw(_file("report.css")),
        scripts=[embed.raw(script) for script in scripts],
        policy=embed.policy(scripts),
        data=embed.script_json(canvas.to_json()),
    )


def write(
    place: Target, run: SweepRun, read: ReadTables, *, trial: str = "", followed_by: Sequence[str] = ()
) -> Target:
    return save(place, lambda: render(run, read, trial=trial, followed_by=followed_by))


def save(place: Target, make: Callable[[], str]) -> Target:
    check(place)
    files.write(place, make(), "report")
    return place


def _together(value: object) -> object:
    """Keep each number and its percent sign on one line."""
    return value.replace(" %", "\u00a0%") if type(value) is str else value


def _file(name: str, package: str = __package__) -> str:
    return (resources.files(package) / name).read_text(encoding="utf-8")
