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
from scalescope.model.extras import install_command
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

    Values known only when a sweep runs are in capitals: LABEL, FOLDER, SCHEDULER, NAMESPACE. Comments at the end show
    every field, where its value comes from, and which parts of your site's configuration are left out.
    """
    given = asked.over({"cluster": "slurm"})
    if syntax.names_blocks(given):
        start_prefect()
    spec = cluster_spec(orchestrator.load_saved(given)[0]["cluster"])
    spec.check_size(workers, threads)
    text = _text(spec, workers, threads)
    jobs = -(-workers // getattr(spec, "job_workers", 1))
    left_out, notes = dict(spec.site_config().left_out), spec.notes(threads)
    origins = _origins(spec)
    if as_json:
        told = {"origins": origins, "left_out": left_out, "notes": notes}
        print_json({"cluster": spec.to_mapping(), "jobs": jobs, "job_script": text, **told})
        return
    print(text)
    fields = [f"{name} = {value!r}  ({origins[name]})" for name, value in spec.to_mapping().items() if name in origins]
    _comment("Fields, and where their values come from:", fields)
    _comment("Left out of Dask's configuration:", [f"{key}: {why}" for key, why in left_out.items()])
    _comment("Note:", notes)


def _origins(spec: ClusterSpec) -> dict[str, str]:
    """Origin of each field's value: `given`, a file or the environment, or `default`."""
    known = declared(type(spec))
    found = {each.name: "default" if getattr(spec, each.name) == each.default else "given" for each in known}
    return found | spec.of_site()


def _comment(title: str, lines: list[str]) -> None:
    if lines:
        print("\n".join([f"# {title}", *(f"#   {line}" for line in lines)]))


def _text(spec: ClusterSpec, workers: int, threads: int) -> str:
    try:
        text = clusters.build(spec).submission(workers, threads)
    except ImportError as error:
        next_step = install_command(spec.extra)
        raise UsageError("job scripts cannot be written here", cause=str(error), next_step=next_step) from error
    if not text:
        next_step = "give a batch system or Kubernetes, such as `--cluster slurm`"
        raise UsageError(f"a {spec.kind} cluster has no jobs", next_step=next_step)
    return text
