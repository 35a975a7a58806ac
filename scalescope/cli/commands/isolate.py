"""`scalescope isolate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from scalescope.cli.carrying import carry_out
from scalescope.cli.commands.sweep import run_sweep
from scalescope.cli.options import GivenOptions, Json, Prefect, Verbose, options
from scalescope.cli.output import print_json, say_error, stdout
from scalescope.errors import ExitStatus, UsageError
from scalescope.isolation.parameters import IsolationParameters
from scalescope.run import syntax
from scalescope.run.parameters import Storage

if TYPE_CHECKING:
    from scalescope.isolation.running import Isolated

OF_SWEEP = ("workload", "axes", "params", "cluster")


@options(IsolationParameters, Storage, of_sweep=OF_SWEEP)
def isolate(asked: GivenOptions, as_json: Json = False, prefect: Prefect = None, verbose: Verbose = False) -> None:
    """Find the smallest trial that still shows a problem, and a script that shows it without Scalescope.

    It removes one expensive part after the other (the cluster, real compute, file I/O, stages, workers, items), and
    keeps a removal only if the symptom stays. Ctrl-C stops it; the same command continues it.
    """
    from scalescope.isolation import running
    from scalescope.report.terminal import print_run

    given = {name: value for name, value in asked.given.items() if name not in OF_SWEEP}
    run = str(given.pop("run", ""))
    running.check({**given, "run": run or "latest"})
    sweep = _sweep(run, asked)
    if sweep:
        sweep |= {name: given[name] for name in ("store", "fresh") if name in given}
        given["store"] = sweep.get("store", "")
        result = run_sweep(sweep, prefect=prefect, verbose=verbose)
        run = result.run_id
        if not as_json:
            print_run(stdout(), result.run)
            stdout().print()
    given["run"] = run or "latest"
    isolated: Isolated = carry_out(
        "isolate", given, running.isolate, check=running.check, prefect=prefect, verbose=verbose
    )
    if as_json:
        print_json(isolated.to_mapping())
    else:
        _print(isolated)
    raise typer.Exit(ExitStatus.OK if isolated.confirmed else ExitStatus.FINDING)


def _sweep(run: str, asked: GivenOptions) -> dict[str, Any]:
    is_file = run.endswith((".yaml", ".yml"))
    options = [name for name in OF_SWEEP if name in asked.given]
    if not is_file and "workload" not in asked.given:
        if options or asked.cluster_options:
            raise UsageError("There is no workload to sweep", next_step="give --workload, or RUN without options")
        return {}
    if run and not is_file:
        raise UsageError(f"Both a run ({run!r}) and a sweep are given", next_step="give either RUN or --workload")
    only = GivenOptions({name: asked.given[name] for name in options}, asked.cluster_options)
    return only.over(syntax.read_file(Path(run)) if is_file else {})


def _print(result: Isolated) -> None:
    from scalescope.isolation import notebook

    console = stdout()
    console.print(notebook.render(result.isolation))
    finding = result.isolation.finding
    if finding is not None and finding.fix:
        console.print(Text.assemble(("Fix: ", "bold"), f"{finding.fix}."))
    if result.confirmed:
        assert result.confirmation is not None
        lines = result.reproducer.text.count("\n")
        console.print(Text(f"\nreproducer.py ({lines} lines) shows it without Scalescope:", style="bold green"))
        console.print(Text(result.confirmation.output))
    else:
        console.print()
        say_error(f"NO CONFIRMED REPRODUCER: {result.doubt}")
    console.print(Text(f"\nIn {result.folder}: {', '.join(result.files)}"))
