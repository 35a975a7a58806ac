"""`beam-files`: one file per item through Apache Beam on Dask: read, compute, write."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalescope.errors import InvalidField, UsageError
from scalescope.model.fields import Scalar
from scalescope.model.workload import Parameter, Simpler, Workload
from scalescope.workloads._beam import beam_partition_parameters, run_pipeline
from scalescope.workloads._common import check_same, fresh, partitions, require, wrong

if TYPE_CHECKING:
    from distributed import Client

NAME = "beam-files"
DEVICES = ("auto", "cpu", "cuda")
TOLERANCE = 1e-3
"""Relative; single precision adds up, and a GPU may use a shorter mantissa (TF32: 10 bits)."""


def run(
    client: Client,
    *,
    items: int = 100,
    kib: int = 64,
    size: int = 256,
    device: str = "auto",
    directory: str | None = None,
    npartitions: int | str | None = None,
    partition_size: int | None = None,
) -> dict[str, Any]:
    """Write files, send them through a pipeline, compare what came out, and remove them.

    Raises:
        UsageError: A package is missing; Beam is too old for a partition option; workers do not see the files.
        InvalidField: The directory is not there, or both partition options are given.
        WrongAnswer: A file was not processed, or its result is false.
    """
    chosen = partitions(items, npartitions, partition_size)
    require("numpy", workload=NAME, distribution="numpy", extra="arrays")
    if directory is not None and not Path(directory).is_dir():
        raise InvalidField("params.directory", directory, "a folder that exists, seen by the client and every worker")
    folder = Path(tempfile.mkdtemp(prefix="scalescope-beam-files-", dir=directory)).resolve()
    try:
        paths = [str(folder / f"{item:06d}.bin") for item in range(items)]
        expected = {}
        for item, path in enumerate(paths):
            content = random.Random(item).randbytes(kib * 1024)
            Path(path).write_bytes(content)
            expected[result_path(path)] = sum_of_square(matrix(content, size))

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

        written = run_pipeline(client, build, workload=NAME, partitions=chosen)
        return {"files": items, "devices": check(written, expected)}
    finally:
        shutil.rmtree(folder)


def result_path(path: str) -> str:
    """Where the result of one file is written."""
    return f"{path}.json"


def matrix(content: bytes, size: int) -> Any:
    """A `size` x `size` matrix of single-precision numbers from 0 to 1 that repeats the bytes of a file."""
    import numpy as np

    return np.resize(np.frombuffer(content, dtype=np.uint8), (size, size)).astype(np.float32) / np.float32(255)


def square_and_sum(factor: Any, device: str) -> tuple[float, str]:
    """Square a matrix, 2 n³ floating-point operations, and add up the elements of the result.

    Args:
        factor: Square matrix.
        device: `cpu` takes numpy, `cuda` takes torch, `auto` takes torch where it is installed and sees a GPU.

    Returns:
        The sum and the device that computed it.

    Raises:
        UsageError: `cuda` was asked for, and there is no torch or no GPU.
    """
    torch = None if device == "cpu" else _torch_with_gpu(needed=device == "cuda")
    if torch is None:
        return float((factor @ factor).sum(dtype="float64")), "cpu"
    on_device = torch.from_numpy(factor).to("cuda")
    return float((on_device @ on_device).sum(dtype=torch.float64).item()), "cuda"


def sum_of_square(factor: Any) -> float:
    """The same sum by n² operations: column sums times row sums."""
    return float(factor.sum(axis=0, dtype="float64") @ factor.sum(axis=1, dtype="float64"))


def _torch_with_gpu(*, needed: bool) -> Any:
    """Torch, or None where it cannot use a GPU and need not."""
    try:
        torch = require("torch", workload=NAME, distribution="torch", extra="torch")
    except UsageError:
        if needed:
            raise
        return None
    if torch.cuda.is_available():
        return torch
    if needed:
        raise UsageError(
            f"workload {NAME!r} was asked to compute on a GPU, and torch {torch.__version__} sees none on this worker",
            where="params.device",
            cause="a worker without a GPU, or a torch built without CUDA",
            next_step="take device auto or cpu, or workers with a GPU",
        )
    return None


def check(written: Iterable[str], expected: Mapping[str, float]) -> dict[str, int]:
    """Every result was written once and holds the right sum.

    Returns:
        Files per device.

    Raises:
        WrongAnswer: One is missing, unexpected or false.
    """
    check_same(NAME, sorted(written), sorted(expected))
    devices: Counter[str] = Counter()
    for path, total in expected.items():
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise wrong(NAME, f"the result {path} cannot be read: {error}") from error
        if not abs(found["sum"] - total) <= TOLERANCE * total:
            raise wrong(NAME, f"the result {path} is {found['sum']!r} instead of {total!r}")
        devices[found["device"]] += 1
    return dict(devices)


STAGES = 3
"""Read, compute, write."""


def sleeping(params: Mapping[str, Scalar], work_s: float) -> dict[str, Scalar]:
    """The parameters of `beam-pardo` that sleep as long as this workload worked."""
    items = params["items"]
    assert isinstance(items, int)
    same = {name: params[name] for name in ("items", "npartitions", "partition_size")}
    return {**same, "stages": STAGES, "seconds": float(f"{work_s / (max(items, 1) * STAGES):.3g}")}


WORKLOAD = Workload(
    name=NAME,
    version=1,
    summary="Apache Beam on Dask over files: read, multiply matrices on CPU or GPU, write.",
    run=run,
    parameters=(
        Parameter("items", 100, "Files.", "int", minimum=0),
        Parameter("kib", 64, "Size of each file in KiB.", "int", minimum=1),
        Parameter("size", 256, "Rows, and columns, of the matrix that is squared for each file.", "int", minimum=1),
        Parameter("device", "auto", "What computes: auto is a GPU where torch sees one.", "str", choices=DEVICES),
        Parameter(
            "directory",
            None,
            "Folder for the files, seen by the client and every worker; null is this machine's temporary folder.",
            "str",
            optional=True,
        ),
        *beam_partition_parameters(),
    ),
    packages=("apache-beam", "dask", "numpy"),
    simpler=(Simpler("beam-pardo", "file I/O and matrix products (it sleeps as long as they took)", sleeping),),
)
