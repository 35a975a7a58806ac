"""`scalescope show`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from scalescope.cli.carrying import read_store
from scalescope.cli.options import Brief, DefaultGroup, Json, Require, RunOrStudy, StoreAddress, option
from scalescope.cli.output import exit_statuses, print_brief, print_json, print_table, say, stdout
from scalescope.errors import ExitStatus, UsageError
from scalescope.model.finding import Severity, Verdict
from scalescope.model.study import Study
from scalescope.model.trial import Trial, TrialState
from scalescope.model.words import percent, plural
from scalescope.store.store import ENDED
from scalescope.store.studies import is_study

if TYPE_CHECKING:
    from scalescope.report.brief import BriefAnswer
    from scalescope.report.links import RelatedLink
    from scalescope.store.store import Store, SweepRun
    from scalescope.studies.requirement import Requirement

LINE = 90  # most characters of an answer in the list
WIDE = 100  # least width of a terminal, in characters, for which the list has all its columns


app = typer.Typer(
    cls=DefaultGroup, help="Show the result of a sweep or a study. `show RUN` is short for `show result RUN`."
)
OneRun = Annotated[str, typer.Argument(metavar="[RUN]", help="Run: an id, the start of an id, or `latest`.")]


@app.command(
    epilog=exit_statuses(
        *(ExitStatus.FINDING, ExitStatus.FAILED),
        finding="a critical finding, a --require is not met, or a study with bad news or no answer",
    )
)
def result(
    run: RunOrStudy = "latest",
    store: StoreAddress = "",
    finding: Annotated[
        str,
        option(metavar="ID", help="One finding with all its evidence; --brief has ids."),
    ] = "",
    require: Require = None,
    brief: Brief = False,
    as_json: Json = False,
) -> None:
    """Show the result of a sweep or a study."""
    from scalescope.studies.requirement import requirement

    required = [requirement(text) for text in require or ()]
    if required and is_study(run):
        raise UsageError("--require judges only runs", next_step="give the id of a run, or no id for the latest run")
    with read_store(store) as opened:
        if is_study(run):
            study = opened.studies.get(run)
            if finding:
                raise UsageError("a study has no findings", next_step="give the id of one of its runs")
            show_study(study, [opened.run(each) for each in study.runs], brief=brief, as_json=as_json)
        found = opened.run(run)
        if finding:
            _show_finding(found, finding, as_json=as_json)
            return
        followed_by = opened.studies.following(found.id)
        raise typer.Exit(show_run(found, required, followed_by, brief=brief, as_json=as_json))


@app.command("list", epilog=exit_statuses())
def list_runs(
    store: StoreAddress = "",
    all_runs: Annotated[bool, typer.Option("--all", help="Also list the runs of studies.")] = False,
    as_json: Json = False,
) -> None:
    """List the newest runs and studies."""
    with read_store(store) as opened:
        _list(opened, all_runs=all_runs, as_json=as_json)


@app.command(epilog=exit_statuses())
def compare(run: OneRun, other: OneRun, store: StoreAddress = "") -> None:
    """Show two runs side by side."""
    if studies := [each for each in (run, other) if is_study(each)]:
        next_step = f"`scalescope show {studies[0]}` lists its runs"
        raise UsageError(f"`compare` shows two runs, but {studies[0]} is a study", next_step=next_step)
    from scalescope.report.terminal import render_comparison

    with read_store(store) as opened:
        runs = opened.run(run), opened.run(other)
        first, second = (f"{each.id} {each.sweep.workload}" for each in runs)
        stdout().print(render_comparison(*runs, (first, second), width=stdout().width))


@app.command(epilog=exit_statuses())
def log(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text to search for; case does not matter.")],
    run: OneRun = "latest",
    store: StoreAddress = "",
    as_json: Json = False,
) -> None:
    """Search the recorded logs: last records of workers that died; on Kubernetes, logs and events of all pods."""
    with read_store(store) as opened:
        _log(opened.run(run), opened, text, as_json=as_json)


def show_run(
    run: SweepRun,
    required: Sequence[Requirement] = (),
    followed_by: tuple[str, ...] = (),
    *,
    brief: bool = False,
    as_json: bool,
) -> int:
    """Show a run and its requirements; return the exit status."""
    from scalescope.report import links
    from scalescope.report.run_tables import verdict_of
    from scalescope.studies import requirement

    verdict = verdict_of(run)
    answers = requirement.judge(required, run.trials)
    if brief:
        print_brief(_brief(run, [answer.line for answer in answers]), as_json=as_json)
    elif as_json:
        from scalescope.report.export import to_json

        linked = {"study": run.study, "followed_by": list(followed_by)}
        judged = {"requirements": [asdict(answer) for answer in answers]} if answers else {}
        print_json({**_identity(run), **linked, **judged, **to_json(run.sweep, run.trials, verdict)})
    else:
        from scalescope.report.terminal import print_run

        if reason := run.facts.get(ENDED):
            stdout().print(Text(f"This run ended early: {reason}\n", style="red"))
        print_run(stdout(), run)
        for answer in answers:
            style = "bold green" if answer.status is ExitStatus.OK else "bold red"
            stdout().print(Text(f"\n{answer.line}", style=style))
        _print_links(links.of_run(run, followed_by))
        say(f"\nRun {run.id} in {run.where}", "dim")
    return requirement.status(answers) if answers else status_of(run.trials, verdict)


def status_of(trials: Sequence[Trial], verdict: Verdict) -> ExitStatus:
    """Exit status without requirements: FAILED or INFRASTRUCTURE if no trial is valid and no cause is known."""
    states = {trial.state for trial in trials if not trial.warmup}
    known = bool(verdict.findings) and not verdict.findings[0].limits_trust and TrialState.INVALID in states
    if states and TrialState.VALID not in states and not known:
        return ExitStatus.FAILED if TrialState.FAILED in states else ExitStatus.INFRASTRUCTURE
    return ExitStatus.FINDING if verdict.severity is Severity.HIGH else ExitStatus.OK


def _brief(run: SweepRun, notes: Sequence[str]) -> BriefAnswer:
    from scalescope.report.brief import of_run

    ended = [f"This run ended early: {run.facts[ENDED]}"] if run.facts.get(ENDED) else []
    return of_run(run, run.id, notes=(*ended, *notes))


def _show_finding(run: SweepRun, name: str, *, as_json: bool) -> None:
    from scalescope.report import brief
    from scalescope.report.run_tables import verdict_of

    found = dict(brief.named(verdict_of(run).findings))
    if name not in found:
        known = ", ".join(found) or "none"
        raise UsageError(f"run {run.id} has no finding {name!r}", next_step=f"its findings: {known}")
    finding = found[name]
    if as_json:
        print_json({"id": name, "run": run.id, **finding.to_mapping()})
        return
    stdout().print(Text(finding.line, style="bold"))
    at = f"{finding.place.file}:{finding.place.line}" if finding.place else ""
    facts = [("Place", at), ("Severity", finding.severity.word), ("Confidence", percent(finding.confidence))]
    facts += [("Points", ", ".join(finding.points)), ("More", finding.link)]
    stdout().print(Text("\n".join(f"{term}: {text}" for term, text in facts if text)))
    print_table(("evidence", "value", "from"), [(each.what, str(each.value), each.source) for each in finding.evidence])


def show_study(study: Study, runs: Sequence[SweepRun], *, brief: bool = False, as_json: bool) -> None:
    """Show a study, and exit with its status."""
    from scalescope.studies.report import headline, sheet

    if brief:
        from scalescope.report.brief import of_answer
        from scalescope.studies.report.common import workload

        shown = sheet(study, runs)
        notes = [*(note.text for note in shown.notes), *filter(None, [": ".join(filter(None, shown.code))])]
        about = f"{study.kind} of {workload(study)}"
        print_brief(of_answer(about, headline(study), id=study.id, table=shown.table, notes=notes), as_json=as_json)
    elif as_json:
        from scalescope.studies.report.export import to_json

        print_json(to_json(study))
    else:
        from scalescope.report import links
        from scalescope.studies.report.terminal import render

        stdout().print(render(study, runs))
        if text := sheet(study, runs).code[1]:
            heading, _ = sheet(study, runs).code
            stdout().print(Text(f"\n{heading}", style="bold"), Text(f"\n{text}", "dim"), sep="", soft_wrap=True)
        _print_links(links.of_study(study))
        say(f"\nStudy {study.id} in {study.where}", "dim")
    raise typer.Exit(ExitStatus.FINDING if study.alarm else ExitStatus.OK)


def _print_links(found: tuple[RelatedLink, ...]) -> None:
    from scalescope.report.links import lines

    if found:
        stdout().print(Text("\n".join(["", *lines(found)])), soft_wrap=True)


# ------------------------------------------------------------------ log records


def _log(run: SweepRun, store: Store, text: str, *, as_json: bool) -> None:
    found = []
    for trial in run.trials:
        logs = (store.tables(trial) if trial.records else {}).get("logs", {})
        for row in zip(*(logs.get(name, ()) for name in ("time", "worker", "level", "text")), strict=True):
            if text.lower() in row[3].lower():
                found.append((trial.key, datetime.fromtimestamp(row[0], UTC).isoformat(" ", "milliseconds"), *row[1:]))
    titles = ("trial", "time", "worker", "level", "text")
    if as_json:
        print_json([dict(zip(titles, row, strict=True)) for row in found])
    elif found:
        print_table(titles, found, whole=(0,))
    else:
        say(f"No log record of run {run.id} has {text!r}.", "dim")


# ------------------------------------------------------------------ the list


def _list(store: Store, *, all_runs: bool, as_json: bool) -> None:
    from scalescope.studies.report.export import identity

    found: list[SweepRun | Study] = [*store.runs(own=not all_runs, trials=False), *store.studies.newest()]
    found.sort(key=lambda each: datetime.fromisoformat(each.created_at), reverse=True)
    if as_json:
        print_json([identity(each) if isinstance(each, Study) else _identity(each) for each in found])
        return
    rows = [_study_row(each) if isinstance(each, Study) else _run_row(each) for each in found]
    titles = ("run or study", "workload", "cluster", "trials", "state", "finding or answer")
    wide = stdout().width >= WIDE
    kept = [i for i, title in enumerate(titles) if wide or title not in ("cluster", "trials")]
    # ids are never shortened, so that they can be copied
    print_table([titles[i] for i in kept], [[row[i] for i in kept] for row in rows], whole=(0,))


def _run_row(run: SweepRun) -> tuple[str, ...]:
    trials = f"{run.saved}/{run.planned}"
    worst = f"{run.verdict.findings[0].severity.word}: {run.verdict.findings[0].code}" if run.verdict else ""
    return (run.id, run.sweep.workload, run.sweep.cluster.kind, trials, run.state.value, worst)


def _study_row(study: Study) -> tuple[str, ...]:
    from scalescope.studies.report.common import workload

    cluster = study.question.get("cluster") or ""
    kind = str(cluster.get("kind", "")) if isinstance(cluster, dict) else str(cluster)
    state = "answered" if study.finished_at else "not finished"
    answer = shorten(study.line, LINE, placeholder=" …")
    return (study.id, workload(study), kind, plural(len(study.runs), "run"), state, answer)


def _identity(run: SweepRun) -> dict[str, Any]:
    return {
        "run": run.id,
        "state": run.state.value,
        "workload": run.sweep.workload,
        "planned": run.planned,
        "finished": run.saved,
        "created_at": run.created_at,
        "finished_at": run.finished_at,
        "verdict_line": run.verdict.line if run.verdict else None,
        "store": run.where,
    }
