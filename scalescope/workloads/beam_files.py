"""`beam-files`: one file per item through Apache Beam on Dask: read, compute, write."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scalescope.model.fields import Scalar
from scalescope.model.parameters import Parameter
from scalescope.model.workload import OptionalPackage, Simpler
from scalescope.workloads._beam import BeamPartitions, run_pipeline
from scalescope.workloads._common import (
    Directory,
    PartitionSize,
    check_same,
    folder_of_run,
    fresh,
    partitions,
    require,
    wrong,
)
from scalescope.workloads._file_work import Device, result_path, sum_of_square
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client

TOLERANCE = 1e-3  # relative error: single-precision errors add up, and a GPU may use a shorter mantissa (TF32: 10 bits)
STAGES = 3  # read, compute, write


def sleeping(params: Mapping[str, Scalar], work_s: float) -> dict[str, Scalar]:
    """Parameters with which the tasks of `beam-pardo` sleep as long as those of this workload worked (`work_s`)."""
    items = params["items"]
    assert isinstance(items, int)
    same = {name: params[name] for name in ("items", "npartitions", "partition_size")}
    return {**same, "stages": STAGES, "seconds": float(f"{work_s / (max(items, 1) * STAGES):.3g}")}


@workload(
    "beam-files",
    stresses="files, compute and Beam's partitions",
    packages=("apache-beam", "dask", "numpy"),
    extra="beam",
    uses=(OptionalPackage("torch", "torch", "computes on a GPU"),),
    simpler=(Simpler("beam-pardo", "file I/O and matrix products (it sleeps as long as they took)", sleeping),),
)
def beam_files(
    client: Client,
    *,
    items: Annotated[int, Parameter("Files.", minimum=0)] = 100,
    kib: Annotated[int, Parameter("Size of each file in KiB.", minimum=1)] = 64,
    size: Annotated[int, Parameter("Rows, and columns, of the matrix that is squared for each file.", minimum=1)] = 256,
    device: Device = "auto",
    directory: Directory = None,
    npartitions: BeamPartitions = None,
    partition_size: PartitionSize = None,
) -> dict[str, Any]:
    """Apache Beam on Dask over files: read, multiply matrices on CPU or GPU, write."""
    chosen = partitions(items, npartitions, partition_size)
    require("numpy", "arrays")
    with folder_of_run(directory) as folder:
        paths = [str(folder / f"{item:06d}.bin") for item in range(items)]
        expected = {}
        for item, path in enumerate(paths):
            content = random.Random(item).randbytes(kib * 1024)
            Path(path).write_bytes(content)
            expected[result_path(path)] = sum_of_square(content, size)

        def build(beam: Any, pipeline: Any) -> None:
            from scalescope.workloads._beam_dofns import Compute, Read, Write

            token = fresh()
            (
                pipeline
                | "create" >> beam.Create(paths)
                | "read" >> beam.ParDo(Read(token))
                | "compute" >> beam.ParDo(Compute(size, device, token))
                | "write" >> beam.ParDo(Write(token))
            )

        written = run_pipeline(client, build, chosen)
        return {"files": items, "devices": check(written, expected)}


def check(written: Iterable[str], expected: Mapping[str, float]) -> dict[str, int]:
    """Check that every result was written once with the right sum; return the number of files per device."""
    check_same(sorted(written), sorted(expected))
    devices: Counter[str] = Counter()
    for path, total in expected.items():
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise wrong(f"the result {path} cannot be read: {error}") from error
        if not abs(found["sum"] - total) <= TOLERANCE * total:
            raise wrong(f"the result {path} is {found['sum']!r} instead of {total!r}")
        devices[found["device"]] += 1
    return dict(devices)
