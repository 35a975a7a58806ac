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

# Name given to clients that Beam opens, so that they can be told from ours and closed
CLIENT_NAME = "scalescope-beam"


BeamPartitions = Annotated[
    int | Literal["items"] | None,
    Parameter(
        "Partitions, or 'items' for one per item; null uses Beam's rule (since 2.63, 128 items in each).", minimum=1
    ),
]


def run_pipeline(client: Client, build: Callable[[Any, Any], object], partitions: dict[str, int]) -> list[Any]:
    """Run a pipeline to its end on Beam's DaskRunner; return the elements of the last collection.

    `build(apache_beam, pipeline)` adds the transforms. `partitions` are options of Beam.
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
                cause="the Dask runner of this release always lets Dask choose the partitions",
                next_step=f"leave out {name}, or use Beam 2.63 or newer",
            )
    return [f"--dask_{name}={value}" for name, value in partitions.items()]


@contextmanager
def _beam_clients_closed() -> Iterator[None]:
    """Close the clients that Beam's runner opens: each becomes the default client, and Beam never closes it."""
    import distributed

    try:
        yield
    finally:
        for client in list(distributed.Client._instances):
            if client.id.startswith(f"Client-{CLIENT_NAME}-"):
                client.close()


@contextmanager
def own_receivers(address: str) -> Iterator[None]:
    """Give each task of Beam's Dask runner a list of its own for output, if the cluster is in this process.

    Beam gives one list to the tasks of all partitions of a ParDo, and each task appends its output to this list. Tasks
    sent over a network get copies; tasks in one process share the list and would also return the output of others.
    """
    if not address.startswith("inproc://"):
        yield
        return
    with root_logger_kept():
        from apache_beam.runners.dask import transform_evaluator

    name = "apply_dofn_to_bundle"
    original = getattr(transform_evaluator, name, None)
    if original is None:  # older versions of Beam share no list
        yield
        return
    from scalescope.workloads import _beam_dofns

    setattr(transform_evaluator, name, _beam_dofns.apply_dofn_to_bundle)
    try:
        yield
    finally:
        setattr(transform_evaluator, name, original)


def around(workload: Workload, address: str) -> AbstractContextManager[None]:
    """Context for running a user's workload on the cluster at `address`; it changes something only if Beam is used."""
    used = any(name.partition(".")[0] == "apache_beam" for name in (*workload.modules, *sys.modules))
    if not used or importlib.util.find_spec("apache_beam") is None:
        return nullcontext()
    return own_receivers(address)
