"""The commands of studies, such as `find-threshold` and `compare`, made from `STUDIES`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import typer

from scalescope.cli.carrying import carry_out
from scalescope.cli.commands.show import show_study
from scalescope.cli.detached import Detach, detach
from scalescope.cli.options import Brief, GivenOptions, Json, Prefect, Verbose, options
from scalescope.errors import ExitStatus
from scalescope.run.parameters import Reported
from scalescope.studies import STUDIES


def study_command(kind: str) -> Callable[..., None]:
    study = STUDIES[kind]

    @options(study.parameters, Reported)
    def command(
        asked: GivenOptions,
        brief: Brief = False,
        as_json: Json = False,
        detached: Detach = False,
        prefect: Prefect = None,
        verbose: Verbose = False,
    ) -> None:
        from scalescope.studies import running

        if detached:
            detach(as_json=as_json)
        result = carry_out(
            study.command,
            asked.over(),
            partial(running.run_study, kind),
            check=partial(running.check, kind),
            prefect=prefect,
            verbose=verbose,
        )
        if form := asked.given.get("form"):
            print(result.code(form), end="")
            raise typer.Exit(ExitStatus.FINDING if result.alarm else ExitStatus.OK)
        show_study(result.study, result.runs, brief=brief, as_json=as_json)

    command.__doc__ = f"{study.summary}\n\nFor example: scalescope {study.command} {study.example}"
    return command
