"""Runs Apache Beam pipelines on the cluster of a client, with any Beam from 2.47 on."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Literal

from scalescope.errors import UsageError
from scalescope.model.parameters import Parameter
from scalescope.model.workload import Workload
from scalescope.workloads._common import require, root_logger_kept

if TYPE_CHECKING:
    from distributed import Client

# Name of Beam's own client: tells it from ours in the scheduler's log, so that it can be closed
CLIENT_NAME = "scalescope-beam"


BeamPartitions = Annotated[
    int | Literal["items"] | None,
    Parameter(
        "Partitions, or 'items' for one per item; null takes Beam's rule (since 2.63, 128 items in each).", minimum=1
    ),
]


def run_pipeline(client: Client, build: Callable[[Any, Any], object], partitions: dict[str, int]) -> list[Any]:
    """Run a pipeline to its end on Beam's DaskRunner; return the elements of the last collection.

    `build` adds the transforms, given the module `apache_beam` and a pipeline. `partitions` are options of Beam.
    """
    with root_logger_kept():
        beam = require("apache_beam", "beam")
        runner = require("apache_beam.runners.dask.dask_runner", "beam")
    flags = [
        f"--dask_client_address={client.scheduler.address}",
        f"--dask_client_name={CLIENT_NAME}",
        *_partition_flags(beam, runner, partitions),
    ]
    pipeline = beam.Pipeline(runner=runner.DaskRunner(), options=beam.options.pipeline_options.PipelineOptions(flags))
    build(beam, pipeline)
    with _beam_clients_closed(), own_receivers(client.scheduler.address):
        result = pipeline.run()
        with result.client.as_current():  # `wait_until_finish` expects Beam's client to be the default
            result.wait_until_finish()
            return list(result.client.gather(result.futures[-1]))


def _partition_flags(beam: Any, runner: Any, partitions: dict[str, int]) -> list[str]:
    known = runner.DaskOptions([])
    for name in partitions:
        if not hasattr(known, name):
            raise UsageError(
                f"Apache Beam {beam.__version__} has no option --dask_{name}",
                where=f"params.{name}",
                cause="its Dask runner always lets Dask choose the partitions",
                next_step=f"leave out {name}, or use Beam 2.63 or newer",
            )
    return [f"--dask_{name}={value}" for name, value in partitions.items()]


@contextmanager
def _beam_clients_closed() -> Iterator[None]:
    """Beam's runner opens a client of its own, makes it the default, and never closes it."""
    import distributed

    try:
        yield
    finally:
        for client in list(distributed.Client._instances):
            if client.id.startswith(f"Client-{CLIENT_NAME}-"):
                client.close()


@contextmanager
def own_receivers(address: str) -> Iterator[None]:
    """Give each task of Beam's Dask runner receivers of its own on an in-process cluster.

    Beam puts one list into the tasks of all partitions of a ParDo, to which each appends what it emits. Tasks that
    travel over a network get copies; tasks in one process share the list and would pass on what others emitted.
    """
    if not address.startswith("inproc://"):
        yield
        return
    with root_logger_kept():
        from apache_beam.runners.dask import transform_evaluator

    name = "apply_dofn_to_bundle"
    original = getattr(transform_evaluator, name, None)
    if original is None:  # older Beams keep no such list
        yield
        return
    from scalescope.workloads import _beam_dofns

    setattr(transform_evaluator, name, _beam_dofns.apply_dofn_to_bundle)
    try:
        yield
    finally:
        setattr(transform_evaluator, name, original)


def around(workload: Workload, address: str) -> AbstractContextManager[None]:
    """The context that a user's own workload must run in on the cluster with this address, if it uses Beam."""
    used = any(name.partition(".")[0] == "apache_beam" for name in (*workload.modules, *sys.modules))
    if not used or importlib.util.find_spec("apache_beam") is None:
        return nullcontext()
    return own_receivers(address)
