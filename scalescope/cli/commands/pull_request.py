"""`scalescope pull-request`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from scalescope.cli.carrying import carry_out
from scalescope.cli.options import GivenOptions, Json, Require, Verbose, option, options
from scalescope.cli.output import print_json, say, stdout
from scalescope.errors import InfrastructureError
from scalescope.run import syntax
from scalescope.run.parameters import Reported
from scalescope.studies.comparison.parameters import ComparisonParameters

if TYPE_CHECKING:
    from scalescope.pull_requests.answer import PullRequestAnswer

# Least change that is reported; more than for `compare`, because a comment interrupts people
LEAST = 0.05
# Parameters of a comparison that this command sets itself, or takes in another form
OWN = (
    *("values", "a", "b", "run", "environment", "others_code"),
    *("alpha", "smallest_effect", "metric", "report", "fresh"),
)


@options(ComparisonParameters, Reported, without=OWN)
def pull_request(
    asked: GivenOptions,
    axis: Annotated[
        list[str] | None,
        option(
            *("--axis", "-a"),
            metavar="NAME=VALUES",
            help="Sizes to compare at, as workers=4,16. All combinations are compared. Can be given several times.",
        ),
    ] = None,
    base: Annotated[
        str,
        option(
            metavar="REF",
            help="Branch or commit that the pull request goes to (default: what GitHub's and GitLab's variables say). "
            "The head is compared with the commit at which it left this branch.",
        ),
    ] = "",
    head: Annotated[str, typer.Option(metavar="REF", help="Branch or commit of the pull request.")] = "HEAD",
    requirements: Annotated[
        str,
        option(
            metavar="FILE",
            help="File of the repository that pins packages, as `uv pip compile` writes it: head and base each run "
            "with their own file (default: both run with this Python's packages).",
        ),
    ] = "",
    metric: Annotated[
        str,
        typer.Option(
            *("--metric", "-m"),
            metavar="NUMBER",
            help="Number to compare, as `compare` takes it: elapsed_s is the whole call, makespan_s its tasks alone.",
        ),
    ] = "elapsed_s",
    smallest_effect: Annotated[
        float, typer.Option(metavar="SHARE", min=0.0, max=0.99, help="Differences up to this share are not reported.")
    ] = LEAST,
    require: Require = None,
    output: Annotated[
        str,
        option("--output", "-o", metavar="FILE", help="File to keep the answer in, for --comment."),
    ] = "",
    markdown: Annotated[str, option(metavar="FILE", help="Also write the answer as Markdown.")] = "",
    code_quality: Annotated[str, option(metavar="FILE", help="Also write GitLab's report of code quality.")] = "",
    comment: Annotated[
        str,
        option(
            metavar="FILE",
            help="Run nothing: write the answer in this file (from --output) as a comment on the pull request. Needs a "
            "token in SCALESCOPE_GITHUB_TOKEN or SCALESCOPE_GITLAB_TOKEN; without one, nothing is done.",
        ),
    ] = "",
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Say whether a pull request makes a workload slower, and why: both commits run in interleaved pairs.

    In a GitHub job, the answer is added to the job's summary, and each line that is a cause gets a warning. Run
    --comment in a separate step: the code of the pull request must not see the token.
    """
    from scalescope.environments import git
    from scalescope.pull_requests import measuring
    from scalescope.pull_requests.answer import PullRequestAnswer, write_summary
    from scalescope.report import files

    if comment:
        _comment(PullRequestAnswer.read(comment))
        return
    study = asked.over()
    question = measuring.PullRequestQuestion(
        tuple(study.pop("workloads", ())),
        syntax.axes(axis or ()),
        {**study, "smallest_effect": smallest_effect, "metric": metric},
        git.root(os.getcwd()),
        base,
        head,
        requirements,
        tuple(require or ()),
        study.pop("minutes", ComparisonParameters.minutes),
    )
    found = carry_out("", {}, lambda _, runner: measuring.answer(question, runner), prefect=False, verbose=verbose)
    write_summary(found)
    for path, text in (
        (output, json.dumps(found.to_mapping())),
        (markdown, found.to_markdown()),
        (code_quality, json.dumps(found.code_quality())),
    ):
        if path:
            files.write(path, text, "answer")
    if as_json:
        print_json(found.to_mapping())
    else:
        _tell(found)
    raise typer.Exit(found.status)


def _tell(found: PullRequestAnswer) -> None:
    screen = stdout()
    screen.print(Text(found.line, style="bold red" if found.notices else "bold"))
    for each in (*found.reasons, *found.remarks):
        screen.print(Text(each))
    for notice in found.notices:
        screen.print(Text(f"{notice.file}:{notice.line}"))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        print("\n".join(found.annotations()))


def _comment(found: PullRequestAnswer) -> None:
    """Comment on the pull request; say why not if there is none, or if the token does not permit it."""
    from scalescope.pull_requests import comments

    where = comments.discussion()
    if where is None:
        say("No comment was written: this is not the CI job of a pull request.", "yellow")
        return
    try:
        done = where.tell(found.marker, found.to_markdown(), worth=found.changed)
    except InfrastructureError as error:
        if error.category != "token":
            raise
        say(f"No comment was written (the step that compared the commits printed the answer): {error.line}", "yellow")
        return
    say(f"Comment {done}." if done else "Nothing new to comment.")
