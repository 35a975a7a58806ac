"""Workloads of dask.array that reduce, move, cut and join blocks.

Numbers are functions of their row and column, so every result is known in advance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from scalescope.model.parameters import Parameter
from scalescope.workloads._common import check_close, check_same, fresh, require, wrong
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client

EXTRA = "arrays"
Blocks = Annotated[int, Parameter("Blocks along each side of the array.", minimum=1)]
Chunk = Annotated[int, Parameter("Rows, and columns, of a block of 8-byte numbers.", minimum=2)]
Rounds = Annotated[int, Parameter("Steps, one after another.", minimum=1)]
Method = Annotated[Literal["p2p", "tasks"], Parameter("How dask moves blocks: between workers, or in tasks.")]
made = partial(workload, packages=("dask", "numpy"), extra=EXTRA)


@made("array-matmul", stresses="compute, and blocks that travel between workers")
def array_matmul(
    client: Client,
    *,
    items: Annotated[int, Parameter("Blocks along each side of the matrices.", minimum=1)] = 4,
    chunk: Annotated[int, Parameter("Rows, and columns, of a block of 8-byte numbers.", minimum=1)] = 256,
    seed: Annotated[int, Parameter("Seed of the random matrices.", minimum=0)] = 0,
) -> dict[str, Any]:
    """dask.array product of two matrices."""
    da, np = (require(module, EXTRA) for module in ("dask.array", "numpy"))
    token = fresh()

    def random(which: int, dimensions: int) -> Any:
        return da.map_blocks(
            random_block,
            chunks=((chunk,) * items,) * dimensions,
            dtype=np.float64,
            meta=np.empty((0,) * dimensions),
            chunk=chunk,
            seed=[seed, which],
            token_of_run=token,
        )

    left, right, vector = random(0, 2), random(1, 2), random(2, 1)
    product, factors = client.gather(client.compute([(left @ right) @ vector, left @ (right @ vector)]))
    check_matmul(product, factors)
    return {"rows": items * chunk, "sum": float(product.sum())}


def random_block(*, chunk: int, seed: list[int], token_of_run: str, block_id: tuple[int, ...]) -> Any:
    """One block of random numbers in [0, 1). `token_of_run` keeps task keys apart from other runs."""
    import numpy as np

    return np.random.default_rng([*seed, *block_id]).random((chunk,) * len(block_id))


def check_matmul(product: Any, factors: Any) -> None:
    """Check that (AB)v = A(Bv) for random v (R. Freivalds, 1977). All numbers are positive, so rounding is small."""
    import numpy as np

    if product.shape != factors.shape or not np.allclose(product, factors, rtol=1e-9, atol=0):
        raise wrong("the product times a vector differs from its factors times that vector")


@made("array-reduction", stresses="reading memory, and the tree of a reduction")
def array_reduction(client: Client, *, items: Blocks = 4, chunk: Chunk = 512) -> dict[str, Any]:
    """Means of columns, and the standard deviation of all numbers, with dask.array."""
    side = items * chunk
    numbers = square(ramp, items, chunk)
    means, deviation = client.gather(client.compute([numbers.mean(axis=0), numbers.std()]))
    check_close(means, [1.5 * (side - 1) + column for column in range(side)])
    check_close(deviation, math.sqrt(10 * (side**2 - 1) / 12))
    return {"rows": side}


@made("array-stencil", stresses="slices of neighbours, and optimisation of deep graphs")
def array_stencil(client: Client, *, items: Blocks = 4, chunk: Chunk = 256, rounds: Rounds = 3) -> dict[str, Any]:
    """Every number becomes the mean of its four neighbours, by shifted dask arrays."""
    da = require("dask.array", EXTRA)

    def step(numbers: Any) -> Any:
        means = sum(da.roll(numbers, shift, axis) for shift in (-1, 1) for axis in (0, 1)) / 4
        return means.rechunk(numbers.chunks)  # without this, every step would cut the blocks smaller

    return _smoothed(client, step, items, chunk, rounds)


@made("array-overlap", stresses="exchange of borders between neighbours")
def array_overlap(client: Client, *, items: Blocks = 4, chunk: Chunk = 512, rounds: Rounds = 3) -> dict[str, Any]:
    """Every number becomes the mean of its four neighbours, by map_overlap of dask.array."""
    return _smoothed(
        client,
        lambda numbers: numbers.map_overlap(neighbours, depth=1, boundary="periodic", dtype=float),
        items,
        chunk,
        rounds,
    )


@made("array-mirror", version=2, stresses="pairs of blocks that lie far apart: transfer and memory")
def array_mirror(client: Client, *, items: Blocks = 6, chunk: Chunk = 512) -> dict[str, Any]:
    """Difference of a dask array and its mirror image, squared and added up."""
    side = items * chunk
    numbers = square(ramp, items, chunk).astype("int64")
    total = client.gather(client.compute(((numbers - numbers[::-1, ::-1]) ** 2).sum()))
    check_same([int(total) % 2**64], [10 * side**2 * (side**2 - 1) // 3 % 2**64])  # exact: int64 wraps around
    return {"rows": side}


@made("array-rechunk", stresses="all-to-all transfer of an array")
def array_rechunk(client: Client, *, items: Blocks = 8, chunk: Chunk = 128, method: Method = "p2p") -> dict[str, Any]:
    """Whole rows of a dask array become whole columns."""
    return _rechunked(client, [(chunk, -1), (-1, chunk)], items, chunk, method)


@made("array-oversplit", stresses="many small tasks and transfers")
def array_oversplit(
    client: Client,
    *,
    items: Blocks = 4,
    chunk: Chunk = 256,
    parts: Annotated[int, Parameter("Small blocks along each side of a block.", minimum=1)] = 4,
    method: Method = "tasks",
) -> dict[str, Any]:
    """Blocks of a dask array are cut into small ones, and joined again."""
    small = -(-chunk // parts)
    return _rechunked(client, [(small, small), (chunk, chunk)], items, chunk, method)


@made("array-qr", stresses="linear algebra, and a reduction of large blocks")
def array_qr(
    client: Client,
    *,
    items: Annotated[int, Parameter("Blocks, one below the other.", minimum=1)] = 8,
    chunk: Annotated[int, Parameter("Rows of a block.", minimum=64)] = 4096,
    columns: Annotated[int, Parameter("Columns.", minimum=1, maximum=64)] = 32,
) -> dict[str, Any]:
    """QR decomposition of a tall dask array."""
    da, np = (require(module, EXTRA) for module in ("dask.array", "numpy"))
    tall = da.map_blocks(
        noise, chunks=((chunk,) * items, (columns,)), dtype=float, meta=np.empty((0, 0)), token_of_run=fresh()
    )
    q, r = da.linalg.qr(tall)
    unit, error = client.gather(client.compute([q.T @ q, abs(q @ r - tall).max()]))
    check_close(unit, np.eye(columns))
    check_close(error, 0)
    return {"rows": items * chunk}


def square(function: Callable[..., Any], items: int, chunk: int, **arguments: Any) -> Any:
    """A dask array of `items` x `items` blocks whose numbers are `function(row, column)`."""
    da, np = (require(module, EXTRA) for module in ("dask.array", "numpy"))
    return da.map_blocks(
        block,
        function,
        chunks=((chunk,) * items,) * 2,
        dtype=float,
        meta=np.empty((0, 0)),
        chunk=chunk,
        token_of_run=fresh(),
        **arguments,
    )


def block(
    function: Callable[..., Any], *, chunk: int, token_of_run: str, block_id: tuple[int, ...], **given: Any
) -> Any:
    """One block. `token_of_run` keeps task keys apart from other runs."""
    import numpy as np

    rows, columns = (np.arange(chunk, dtype=float) + number * chunk for number in block_id)
    return function(rows[:, np.newaxis], columns[np.newaxis, :], **given)


def ramp(row: Any, column: Any) -> Any:
    return 3 * row + column


def wave(row: Any, column: Any, side: int) -> Any:
    """A wave along both axes; the mean of four neighbours is cos(2 pi / side) times the number in their middle."""
    import numpy as np

    return np.sin(2 * np.pi * row / side) * np.sin(2 * np.pi * column / side)


def neighbours(numbers: Any) -> Any:
    """Means of the four neighbours. Numbers at the edges are wrong, as rolling wraps around; they are cut off later."""
    import numpy as np

    return sum(np.roll(numbers, shift, axis) for shift in (-1, 1) for axis in (0, 1)) / 4


def noise(*, token_of_run: str, block_info: dict[Any, Any]) -> Any:
    import numpy as np

    about = block_info[None]
    return np.random.default_rng(about["chunk-location"][0]).random(about["chunk-shape"])


def _smoothed(client: Client, step: Callable[[Any], Any], items: int, chunk: int, rounds: int) -> dict[str, Any]:
    side = items * chunk
    numbers = square(wave, items, chunk, side=side)
    for _ in range(rounds):
        numbers = step(numbers)
    expected = math.cos(2 * math.pi / side) ** rounds * square(wave, items, chunk, side=side)
    check_close(client.gather(client.compute(abs(numbers - expected).max())), 0)
    return {"rows": side}


def _rechunked(client: Client, steps: list[tuple[int, int]], items: int, chunk: int, method: str) -> dict[str, Any]:
    import dask

    side = items * chunk
    with client.as_current(), dask.config.set({"array.rechunk.method": method}):
        numbers = square(ramp, items, chunk)
        for chunks in steps:
            numbers = numbers.rechunk(chunks) + 1
        sums = client.gather(client.compute(numbers.sum(axis=0)))
    check_close(sums, [3 * side * (side - 1) / 2 + side * (column + len(steps)) for column in range(side)])
    return {"rows": side, "blocks": numbers.npartitions}
