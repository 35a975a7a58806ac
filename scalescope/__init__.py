"""Scalescope finds where a Dask or Beam-on-Dask workload stops scaling, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import Any

__version__ = "0.1.0"


def diagnose(client: Any = None, name: str = "") -> Any:
    """Record what a cluster does while a block of code runs, and print what is wrong, and why.

    ```
    with scalescope.diagnose(client) as found:
        frame.groupby("name").x.mean().compute()
    found.findings, found.tasks, found.report("report.html")
    ```

    The client can be connected to any Dask cluster of distributed 2023.5 or later. The default is the client of
    the running Prefect flow (`DaskTaskRunner`), or else Dask's current client. With an asynchronous client, use
    `async with`. An exception of the block is re-raised after the diagnosis. By default, the name of the block is the
    line where it begins.
    """
    return resolve_name("scalescope.own_code.diagnose:diagnose")(client, name)


def check(collection: Any, *, workers: int = 0, threads: int = 1, memory: float = 0.0) -> Any:
    """Say what a Dask collection, or what a function returns, will cost; nothing is computed.

    ```
    found = scalescope.check(frame.groupby("name").x.mean(), workers=8, threads=2)
    found.tasks, found.cap, found.largest_block, found.findings
    assert scalescope.check(x).tasks < 10_000
    ```

    Lines of your code, and sizes of arrays behind your own functions, are known if you give a function. With
    `workers`, the tasks are also scheduled on that many workers, in virtual time, which gives `found.memory`. `memory`
    is the memory limit of each worker, in bytes.
    """
    return resolve_name("scalescope.checking.check:check")(collection, workers=workers, threads=threads, memory=memory)


def fix(
    script: str = "",
    arguments: Sequence[str] = (),
    *,
    workload: str = "",  # function that a sweep measures in place of a script, as `my_job.py:run`
    values: Mapping[str, Any] | None = None,  # values of the workload's point, as {"workers": 8}
    budget_s: float | None = None,  # seconds for the runs of one patch; None: five times the script's own time
    side_effects: bool = False,  # True: the script may write outside of its folder and connect to other machines
) -> Any:
    """Patch a script where a finding has a remedy, and prove that it is faster and does the same.

    ```
    found = scalescope.fix("score.py", ["--n", "20"])
    found.patch, found.settings, found.times, found.proven, found.withdrawn, found.left
    ```

    The script runs several times, in copies of its folder; nothing of yours is written. Raises `UsageError` instead
    of letting the script reach beyond its folder, unless `side_effects` allows that.
    """
    asked = resolve_name("scalescope.fixing.parameters:FixParameters")(
        script=script, arguments=list(arguments), workload=workload, values=dict(values or {})
    )
    subject = resolve_name("scalescope.fixing.subject:Subject").asked(asked)
    return resolve_name("scalescope.fixing.running:fix")(subject, budget_s=budget_s, side_effects=side_effects)


def size(run: str = "latest", **asked: Any) -> Any:
    """Choose a cluster from a recorded run: workers, threads and memory. Options are those of `scalescope size`.

    ```
    found = scalescope.size("latest", cores=64, deadline="20m")
    found.line, found.result["chosen"], found.result["unsure"], found.code("slurm")
    ```
    """
    return resolve_name("scalescope.studies.running:run_study")("size", {"run": run, **asked})


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext scalescope`: adds the magics `%%scalescope [CLIENT]` and `%scalescope`."""
    resolve_name("scalescope.own_code.notebook_magic:register")(shell)
