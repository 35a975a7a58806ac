"""`array-matmul`: a product of two matrices in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.workloads._common import fresh, require, wrong
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client

NAME = "array-matmul"


def run(
    client: Client,
    *,
    items: Annotated[int, Parameter("Blocks along each side of the matrices.", minimum=1)] = 4,
    chunk: Annotated[int, Parameter("Rows, and columns, of a block of 8-byte numbers.", minimum=1)] = 256,
    seed: Annotated[int, Parameter("Seed of the random matrices.", minimum=0)] = 0,
) -> dict[str, Any]:
    """dask.array product of two matrices."""
    da = require("dask.array", workload=NAME, extra="arrays")
    np = require("numpy", workload=NAME, extra="arrays")
    token = fresh()

    def random(which: int, dimensions: int) -> Any:
        return da.map_blocks(
            block,
            chunks=((chunk,) * items,) * dimensions,
            dtype=np.float64,
            meta=np.empty((0,) * dimensions),
            chunk=chunk,
            seed=[seed, which],
            token_of_run=token,
        )

    left, right, vector = random(0, 2), random(1, 2), random(2, 1)
    product, factors = client.gather(client.compute([(left @ right) @ vector, left @ (right @ vector)]))
    check(product, factors)
    return {"rows": items * chunk, "sum": float(product.sum())}


def block(*, chunk: int, seed: list[int], token_of_run: str, block_id: tuple[int, ...]) -> Any:
    """One block of random numbers in [0, 1). `token_of_run` keeps task keys apart from other runs."""
    import numpy as np

    return np.random.default_rng([*seed, *block_id]).random((chunk,) * len(block_id))


def check(product: Any, factors: Any) -> None:
    """(AB)v = A(Bv) for random v (R. Freivalds, 1977). All numbers are positive, so rounding stays small."""
    import numpy as np

    if product.shape != factors.shape or not np.allclose(product, factors, rtol=1e-9, atol=0):
        raise wrong(NAME, "the product times a vector differs from its factors times that vector")


WORKLOAD = workload(
    NAME, stresses="compute, and blocks that travel between workers", packages=("dask", "numpy"), extra="arrays"
)(run)
