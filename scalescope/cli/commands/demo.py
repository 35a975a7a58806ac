"""`scalescope demo`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from scalescope.cli.carrying import interrupted, open_store
from scalescope.cli.options import option
from scalescope.cli.output import progress, say, stdout
from scalescope.owner import make_folder
from scalescope.store.store import SweepRun


def demo(
    folder: Annotated[Path, typer.Option(help="Folder for everything that the demonstration writes.")] = Path(".demo"),
    report: Annotated[str, option(metavar="FILE", help="Also write the first sweep as one HTML file.")] = "",
) -> None:
    """Find out why Apache Beam on 300 Dask workers is no faster than on 3: about a minute, all on this machine."""
    from scalescope.cli import demonstration
    from scalescope.report import html
    from scalescope.run import orchestrator_load
    from scalescope.run.runner import Runner
    from scalescope.run.sweep import run_sweep

    if report:
        html.check(report)
    make_folder(folder)
    address = str(folder.absolute() / "scalescope.db")

    def carry(data: Mapping[str, Any]) -> SweepRun:
        clusters = 1 if data is demonstration.REAL else max(1, len(orchestrator_load.cores()))
        given = {**data, "store": address, "parallel_clusters": clusters, "fresh": True}
        with interrupted(), progress() as listener:
            result = run_sweep(given, Runner(listener))
        with open_store(address) as store:
            return store.run(result.run_id)

    shown = demonstration.show(stdout(), carry)
    if report:
        with open_store(address) as store:
            html.write(report, shown, store.tables)
        say(f"\nThe first sweep as a report: {report}", "dim")
    say(
        f"\nResults are kept in {folder}. See more with:\n  scalescope show {shown.id} --store {address}\n"
        f"  scalescope report {shown.id} --store {address}\n"
        "and sweep a function of your own:\n  scalescope sweep -w my_job.py:run -a workers=1,4,16",
        "dim",
    )
