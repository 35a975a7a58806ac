"""`scalescope job-script`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from scalescope.cli import main as cli
from scalescope.clusters.jobqueue.base_spec import JobQueueSpec
from scalescope.errors import UsageError
from scalescope.model.cluster import ClusterSpec, cluster_spec
from scalescope.run import syntax


@cli.app.command("job-script", epilog=cli.STATUSES)
def job_script(
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster",
            "-c",
            metavar="KIND",
            help="slurm (the default), pbs, lsf, sge, htcondor, oar, moab, or a saved TYPE/NAME.",
        ),
    ] = "slurm",
    cluster_option: Annotated[
        list[str] | None, typer.Option("--cluster-option", metavar="NAME=VALUE", help="A field of the cluster.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Workers of the cluster.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each worker.")] = 1,
    as_json: cli.Json = False,
) -> None:
    """Show the job script of a cluster. Nothing is submitted.

    What is known only when a sweep runs is in capitals: LABEL, FOLDER, SCHEDULER.
    """
    data: dict[str, Any] = {}
    syntax.merge_cluster(data, cluster, syntax.params("--cluster-option", cluster_option or ()))
    spec = _spec(data["cluster"])
    if not isinstance(spec, JobQueueSpec):
        raise UsageError(
            f"a {spec.kind} cluster has no jobs", next_step="give a batch system, such as `--cluster slurm`"
        )
    spec.check_size(workers, threads)
    text = _text(spec, workers, threads)
    jobs = -(-workers // spec.job_workers)
    if as_json:
        cli._print_json({"cluster": spec.to_mapping(), "jobs": jobs, "job_script": text})
    else:
        print(text)


def _spec(given: object) -> ClusterSpec:
    if not syntax.names_block(given):
        return cluster_spec(given)
    cli._start_prefect(verbose=False)

    import scalescope_blocks

    return scalescope_blocks.cluster(str(given))


def _text(spec: JobQueueSpec, workers: int, threads: int) -> str:
    try:
        from scalescope.clusters.jobqueue import script

        return script.text(spec, workers, threads)
    except ImportError as error:
        raise UsageError(
            "job scripts cannot be written here", cause=str(error), next_step="install `scalescope[slurm]`"
        ) from error
