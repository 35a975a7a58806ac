"""`scalescope doctor` and `scalescope calibrate`."""

from __future__ import annotations

from dataclasses import asdict

import typer

from scalescope.cli.options import Json
from scalescope.cli.output import print_json, print_table, say
from scalescope.errors import ExitStatus


def doctor(as_json: Json = False) -> None:
    """Show what is installed, what needs it, and what this host can emulate. Status 3: an essential part is broken."""
    from scalescope.cli import host_checks as checks

    found = checks.all_checks()
    if as_json:
        print_json([asdict(check) for check in found])
    else:
        rows = [(each.mark, each.name, each.found if each.works else f"{each.purpose}: {each.found}") for each in found]
        print_table(("", "what", "found"), rows)
    broken = any(check.essential and not check.works for check in found)
    raise typer.Exit(ExitStatus.INFRASTRUCTURE if broken else ExitStatus.OK)


def calibrate(as_json: Json = False) -> None:
    """Measure the time that scheduler and workers of this host spend on a task, for use by simulated clusters."""
    from scalescope.clusters.simulated import calibration

    measured = calibration.measure()
    path = measured.save()
    if as_json:
        print_json(measured.to_mapping() | {"file": str(path)})
    else:
        print(f"scheduler: {measured.scheduler_us} us per task transition; worker: {measured.worker_us} us per task")
        say(f"Kept in {path}; simulated clusters of this user use it from now on. Delete the file to undo.", "dim")
