"""`scalescope job-script`."""

from __future__ import annotations

from typing import Annotated

import typer

from scalescope import clusters
from scalescope.cli.carrying import start_prefect
from scalescope.cli.options import GivenOptions, Json, options
from scalescope.cli.output import print_json
from scalescope.errors import UsageError
from scalescope.model.cluster import ClusterSpec, cluster_spec
from scalescope.model.parameters import declared
from scalescope.model.sweep import Sweep
from scalescope.run import orchestrator, syntax

NOT_THE_CLUSTER = tuple(each.name for each in declared(Sweep) if each.name != "cluster")


@options(Sweep, without=NOT_THE_CLUSTER)
def job_script(
    asked: GivenOptions,
    workers: Annotated[int, typer.Option(min=1, help="Workers of the cluster.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each worker.")] = 1,
    as_json: Json = False,
) -> None:
    """Show the job script of a cluster, or its manifest on Kubernetes. Nothing is submitted.

    Values that are known only when a sweep runs are in capitals: LABEL, FOLDER, SCHEDULER, NAMESPACE.
    """
    given = asked.over({"cluster": "slurm"})
    if syntax.names_blocks(given):
        start_prefect()
    spec = cluster_spec(orchestrator.load_saved(given)[0]["cluster"])
    spec.check_size(workers, threads)
    text = _text(spec, workers, threads)
    jobs = -(-workers // getattr(spec, "job_workers", 1))
    if as_json:
        print_json({"cluster": spec.to_mapping(), "jobs": jobs, "job_script": text})
    else:
        print(text)


def _text(spec: ClusterSpec, workers: int, threads: int) -> str:
    try:
        text = clusters.build(spec).submission(workers, threads)
    except ImportError as error:
        next_step = f"install `scalescope[{spec.extra}]`"
        raise UsageError("job scripts cannot be written here", cause=str(error), next_step=next_step) from error
    if not text:
        next_step = "give a batch system or Kubernetes, such as `--cluster slurm`"
        raise UsageError(f"a {spec.kind} cluster has no jobs", next_step=next_step)
    return text
