"""The computation of `beam-files` on the content of a file, for workers, and for the client to check results."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from scalescope.errors import UsageError
from scalescope.model.parameters import Parameter
from scalescope.workloads._common import require

Device = Annotated[Literal["auto", "cpu", "cuda"], Parameter("Device that computes: auto is a GPU if torch sees one.")]


def result_path(path: str) -> str:
    return f"{path}.json"


def matrix(content: bytes, size: int) -> Any:
    """A `size` x `size` matrix of float32 from 0 to 1 that repeats the bytes of a file."""
    import numpy as np

    return np.resize(np.frombuffer(content, dtype=np.uint8), (size, size)).astype(np.float32) / np.float32(255)


def square_and_sum(factor: Any, device: str) -> tuple[float, str]:
    """Square a matrix (2 n³ operations) and add up the result; return the sum and the device.

    `cpu` uses numpy, `cuda` uses torch, `auto` uses torch if it is installed and sees a GPU, else numpy.
    """
    torch = None if device == "cpu" else torch_with_gpu(needed=device == "cuda")
    if torch is None:
        return float((factor @ factor).sum(dtype="float64")), "cpu"
    on_device = torch.from_numpy(factor).to("cuda")
    return float((on_device @ on_device).sum(dtype=torch.float64).item()), "cuda"


def sum_of_square(content: bytes, size: int) -> float:
    """The sum of `matrix` squared, computed fast: column sums times row sums, since rows repeat."""
    import numpy as np

    period = min(len(content) // math.gcd(len(content), size), size)  # number of rows after which rows repeat
    rows = np.resize(np.frombuffer(content, dtype=np.uint8), (period, size))
    repeats, rest = divmod(size, period)
    columns = repeats * rows.sum(axis=0, dtype=np.int64) + rows[:rest].sum(axis=0, dtype=np.int64)
    return float(columns @ np.resize(rows.sum(axis=1, dtype=np.float64), size)) / 255**2


def torch_with_gpu(*, needed: bool) -> Any:
    """The module torch; None if it is not installed or sees no GPU. `needed`: raise an error instead."""
    try:
        torch = require("torch", "torch")
    except UsageError:
        if needed:
            raise
        return None
    if torch.cuda.is_available():
        return torch
    if needed:
        raise UsageError(
            f"the workload needs a GPU, but torch {torch.__version__} sees none on this worker",
            where="params.device",
            cause="a worker without a GPU, or a torch built without CUDA",
            next_step="use device auto or cpu, or workers with a GPU",
        )
    return None
