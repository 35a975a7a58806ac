"""Workloads that compute on a GPU if torch or CuPy sees one, else on the CPU with NumPy."""

from __future__ import annotations

import gzip
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.model.workload import OptionalPackage
from scalescope.workloads._common import check_close, fresh, require, wrong
from scalescope.workloads._file_work import Device, torch_with_gpu
from scalescope.workloads.arrays import Chunk, ramp, square
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client

ENCODED_MIB = 1  # MiB of each part of a batch before compression


@workload(
    "gpu-train",
    stresses="a GPU that is fed by one thread",
    packages=("dask", "numpy"),
    extra="arrays",
    uses=(OptionalPackage("torch", "torch", "computes on a GPU"),),
)
def gpu_train(
    client: Client,
    *,
    items: Annotated[int, Parameter("Batches.", minimum=1)] = 40,
    rows: Annotated[int, Parameter("Examples in a batch.", minimum=2)] = 1024,
    width: Annotated[int, Parameter("How many numbers each example and each answer has.", minimum=2)] = 256,
    steps: Annotated[int, Parameter("Steps of gradient descent on each batch.", minimum=1)] = 10,
    decode: Annotated[int, Parameter("MiB of data that are decompressed for each batch.", minimum=0)] = 0,
    hold_mib: Annotated[int, Parameter("MiB of additional GPU memory that each task holds.", minimum=0)] = 0,
    device: Device = "auto",
) -> dict[str, Any]:
    """Training steps over batches: decode, copy to the GPU, gradient descent."""
    require("numpy", "arrays")
    token = fresh()
    asked = {"rows": rows, "width": width, "steps": steps, "decode": decode, "hold_mib": hold_mib, "device": device}
    batches = client.map(train, range(items), key=[f"train-{token}-{item}" for item in range(items)], **asked)
    devices: Counter[str] = Counter()
    for item, (first, last, used) in enumerate(client.gather(batches)):
        if not last < first:
            raise wrong(f"the loss of batch {item} went from {first!r} to {last!r}")
        devices[used] += 1
    return {"batches": items, "devices": dict(devices)}


def train(
    item: int, *, rows: int, width: int, steps: int, decode: int, hold_mib: int, device: str
) -> tuple[float, float, str]:
    """One batch: loss before and after its steps, and the device."""
    import numpy as np

    for _ in range(decode):
        gzip.decompress(_encoded())
    inputs = np.random.default_rng(item).standard_normal((rows, width), dtype=np.float32)
    inputs /= np.float32(width**0.5)
    torch = None if device == "cpu" else torch_with_gpu(needed=device == "cuda")
    if torch is None:
        return *_descend(inputs, np.roll(inputs, 1, axis=1), np.zeros((width, width), np.float32), steps), "cpu"
    held = torch.empty(hold_mib * 2**20, dtype=torch.uint8, device="cuda")
    on_gpu = torch.from_numpy(inputs).to("cuda")
    losses = _descend(on_gpu, on_gpu.roll(1, 1), torch.zeros(width, width, device="cuda"), steps)
    del held
    return *losses, "cuda"


def _descend(inputs: Any, answers: Any, weights: Any, steps: int) -> tuple[float, float]:
    # The model must learn to roll the inputs by one. The learning rate is below the largest one that converges.
    rows, width = inputs.shape
    rate = width / rows / (1 + (width / rows) ** 0.5) ** 2
    first = (answers**2).mean()
    for _ in range(steps):
        weights = weights - rate * (inputs.T @ (inputs @ weights - answers))
    last = ((inputs @ weights - answers) ** 2).mean()
    return first.item(), last.item()


@lru_cache(maxsize=1)
def _encoded() -> bytes:
    import numpy as np

    return gzip.compress(np.random.default_rng(0).integers(0, 16, ENCODED_MIB * 2**20, dtype=np.uint8).tobytes(), 1)


@workload(
    "gpu-array",
    stresses="blocks that stay on a GPU",
    packages=("dask", "numpy"),
    extra="arrays",
    uses=(OptionalPackage("cupy", "gpu", "computes on a GPU"),),
)
def gpu_array(
    client: Client,
    *,
    items: Annotated[int, Parameter("Blocks along each side of the array.", minimum=1)] = 4,
    chunk: Chunk = 512,
) -> dict[str, Any]:
    """dask.array of CuPy blocks: elementwise functions, products and a reduction."""
    da = require("dask.array", "arrays")
    numbers, side = square(ramp_on_gpu, items, chunk), items * chunk
    ones = da.sin(numbers) ** 2 + da.cos(numbers) ** 2
    total = (ones @ ones).map_blocks(to_host, dtype=float).sum()
    on_gpu = numbers.map_blocks(is_on_gpu, dtype=bool, chunks=(1, 1)).sum()
    found, blocks = (float(each) for each in client.gather(client.compute([total, on_gpu])))
    check_close(found, float(side) ** 3)
    devices = {"cuda": int(blocks), "cpu": items**2 - int(blocks)}
    return {"rows": side, "devices": {name: count for name, count in devices.items() if count}}


def ramp_on_gpu(row: Any, column: Any) -> Any:
    """The rising numbers of a block, as a CuPy array if CuPy sees a GPU."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception:  # noqa: BLE001 - CuPy without a driver raises errors of its own
        return ramp(row, column)
    return cupy.asarray(ramp(row, column))


def to_host(block: Any) -> Any:
    return block.get() if hasattr(block, "get") else block


def is_on_gpu(block: Any) -> Any:
    import numpy as np

    return np.full((1, 1), hasattr(block, "get"))
