"""Puts the report together."""

from __future__ import annotations

from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from scalescope.analysis import knee
from scalescope.analysis.summary import summarise
from scalescope.analysis.verdict import diagnose
from scalescope.analysis.worker_time import TITLES
from scalescope.errors import UsageError
from scalescope.report import rows
from scalescope.report.files import replacing
from scalescope.report.html import embed, page, theme
from scalescope.report.html.glossary import PARTS, TERMS
from scalescope.store.store import SweepRun

if TYPE_CHECKING:
    from scalescope.report.html.trial import ReadTables


def check(path: Path) -> None:
    """Refuse, before hours of measuring, what could not be written afterwards.

    Raises:
        UsageError: A package is missing, or the file has no folder to be in.
    """
    _check_packages()
    if path.is_dir():
        raise UsageError(f"The report needs a file, and {path} is a folder", next_step=f"Give {path / 'report.html'}.")
    if not path.absolute().parent.is_dir():
        raise UsageError(
            f"There is no folder {path.absolute().parent} for the report", next_step="Make it, or give another place."
        )


def _check_packages() -> None:
    for package in ("bokeh", "jinja2"):
        if find_spec(package) is None:
            raise UsageError(
                f"The report needs the package {package}",
                cause="Scalescope was installed without the extra for reports.",
                next_step='pip install "scalescope[report]"',
            )


def render(run: SweepRun, read: ReadTables, *, trial: str = "") -> str:
    """The report of a run as one HTML file that needs nothing else.

    Args:
        run: As the store returns it; unfinished and failed ones too.
        read: Reads the raw records of a trial, such as `Store.tables`.
        trial: Key of the trial to look into; the one that the verdict rests on where empty.

    Raises:
        UsageError: Bokeh is not installed, or there is no such trial.
    """
    _check_packages()
    import jinja2

    from scalescope.report.html import charts
    from scalescope.report.html import trial as trials

    keys = [each.key for each in run.trials]
    if trial and trial not in keys:
        raise UsageError(
            f"Run {run.id} has no trial {trial!r}", next_step="It has: " + (", ".join(keys[:10]) or "none") + "."
        )
    verdict = run.verdict or diagnose(run.sweep, run.trials)
    summaries = summarise(run.trials)
    canvas = charts.Canvas()
    knees = knee.of_sweep(run.sweep, run.trials)
    for i, found in enumerate(knees[: page.MOST_KNEES]):
        charts.scaling(canvas, f"knee-{i}", found)
    detail = trials.build(run, summaries, read, canvas, trial)
    bars = page.bars(summaries)
    worst = rows.worst_point(summaries, verdict)
    findings = page.blocks(verdict)
    files = {name: _file(name) for name in ("report.css", "report.js", "report.html.j2")}
    scripts = [charts.bokeh_script(), files["report.js"]] if canvas.figures else []
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_together
    )
    environment.filters["coded"] = embed.coded
    return environment.from_string(files["report.html.j2"]).render(
        run=run,
        verdict=findings[0] if findings else None,
        line=verdict.line,
        findings=findings,
        figures=page.key_figures(worst),
        figures_of=page.worst_text(worst, summaries, verdict) if worst and len(summaries) > 1 else "",
        provenance=page.provenance(run),
        packages=page.packages(run),
        points=page.points_table(summaries) if summaries else None,
        legend=page.legend(summaries) if summaries else "",
        bars=bars,
        parts=page.legend_parts(bars),
        series=page.series(knees),
        trial=detail,
        reasons=rows.reasons(summaries),
        warnings=rows.warnings(summaries),
        terms=TERMS,
        worker_time=[(part, TITLES[part], text) for part, text in PARTS.items()],
        light=theme.LIGHT,
        dark=theme.DARK,
        css=embed.raw(files["report.css"]),
        scripts=[embed.raw(script) for script in scripts],
        policy=embed.policy(scripts),
        data=embed.script_json(canvas.to_json()),
    )


def write(path: Path, run: SweepRun, read: ReadTables, *, trial: str = "") -> Path:
    """Write the report of a run; a reader of the file sees the old one or the whole new one.

    Args:
        path: Of the file; its folder must exist.
        run: As `render`.
        read: As `render`.
        trial: As `render`.

    Raises:
        UsageError: As `render`.
        StoreError: The file cannot be written.
    """
    check(path)
    text = render(run, read, trial=trial)
    with replacing(path, "report") as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return path


def _together(value: object) -> object:
    """No line break between a number and its percent sign."""
    return value.replace(" %", "\u00a0%") if type(value) is str else value


def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
