"""Workloads whose sizes that were not run are predicted: they compute, serialise and send, and none sleeps.

Each takes 5 to 40 seconds on one machine of a tenth of a core. Half are looked at only at the end (`UNSEEN`): of the
first four none, then three of each five, in the order of this file.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

# All of it here: an import in a function would take time of the client's first trial.
import dask
import dask.array as da
import dask.bag as db
import dask.dataframe
import flox  # noqa: F401
import numpy as np
import xarray  # noqa: F401
from distributed import as_completed, wait

from scalescope import workloads

if TYPE_CHECKING:
    from distributed import Client

CASES: list[str] = []


def case(function: Callable[[Client], Any]) -> Callable[[Client], Any]:
    CASES.append(function.__name__)
    return function


def numbers(seed: int, count: int) -> Any:
    return np.random.default_rng(seed).standard_normal(count)


def compute(cpu_s: float) -> None:
    """Keep a core busy until this thread has had so many seconds of it."""
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        sum(range(500))


# ------------------------------------------------------------------ one that scales, three that do not


@case
def burn(client: Client) -> None:
    """Equal tasks without data."""
    client.gather(client.map(compute, [0.04] * 48, pure=False))


@case
def spread(client: Client) -> None:
    """Each task of the second stage needs four results that lie elsewhere."""
    parts = client.map(numbers, range(48), count=262_144, pure=False)
    few = [[parts[(7 * i + 11 * k) % 48] for k in range(4)] for i in range(48)]
    client.gather([client.submit(first_sum, each, pure=False) for each in few])


def first_sum(arrays: list[Any]) -> float:
    return float(sum(each[0] for each in arrays))


@case
def reduce_tree(client: Client) -> None:
    """A binary tree of sums: half of the data travels at each level."""
    level = client.map(numbers, range(64), count=524_288, pure=False)
    while len(level) > 1:
        level = [client.submit(np.add, *level[i : i + 2], pure=False) for i in range(0, len(level), 2)]
    client.submit(first_sum, level, pure=False).result()


@case
def transpose(client: Client) -> None:
    """Whole rows become whole columns, by slices and concatenations in tasks."""
    with dask.config.set({"array.rechunk.method": "tasks", "array.rechunk.threshold": 64}):  # in one step
        rows = da.random.random((2816, 2816), chunks=(176, 2816)).persist()
        wait(rows)
        (rows.rechunk((2816, 176)) + 1).sum().compute()


# ------------------------------------------------------------------ of the suite's kinds


def suite(client: Client, name: str, **parameters: Any) -> Any:
    return workloads.load(name).run(client, **parameters)


@case
def matmul(client: Client) -> Any:
    return suite(client, "array-matmul", items=5, chunk=320)


@case
def reduction(client: Client) -> Any:
    return suite(client, "array-reduction", items=11, chunk=512)


@case
def rechunk(client: Client) -> Any:
    """All-to-all between workers, without tasks."""
    return suite(client, "array-rechunk", items=12, chunk=192)


@case
def overlap(client: Client) -> Any:
    return suite(client, "array-overlap", items=6, chunk=256, rounds=1)


@case
def qr(client: Client) -> Any:
    return suite(client, "array-qr", items=16, chunk=16_384)


@case
def shuffle(client: Client) -> Any:
    """A data frame, all-to-all between workers."""
    return suite(client, "dataframe-shuffle", items=12, rows=80_000)


@case
def groupby(client: Client) -> Any:
    return suite(client, "dataframe-groupby-many", items=12, rows=60_000, groups=50_000)


@case
def join(client: Client) -> Any:
    return suite(client, "dataframe-join", items=8, rows=40_000)


@case
def climatology(client: Client) -> Any:
    return suite(client, "xarray-climatology", items=16, side=40)


@case
def broadcast(client: Client) -> None:
    """An array that every worker gets from the client, and a task on each of its columns."""
    table = client.scatter(numbers(0, 2_097_152).reshape(1024, 2048), broadcast=True, hash=False)
    client.gather(client.map(column_spectrum, range(64), table=table, pure=False))


def column_spectrum(column: int, table: Any) -> float:
    return float(np.abs(np.fft.fft2(table[:, column : column + 128])).max())


@case
def word_count(client: Client) -> None:
    """A bag of texts: words are counted in each partition, and the counts merged in a tree."""
    texts = db.from_sequence(range(720), npartitions=24).map(text)
    found = texts.str.split().flatten().frequencies(split_every=4).topk(10, key=1).compute()
    assert len(found) == 10


def text(seed: int) -> str:
    rng = random.Random(seed)
    return " ".join(f"word{int(rng.paretovariate(0.6)) % 5000}" for _ in range(2000))


@case
def actors(client: Client) -> None:
    """Tasks compute parts and hand them to four actors, who add them up."""
    sums = [client.submit(Total, 65_536, actor=True, pure=False).result() for _ in range(4)]
    tasks = [client.submit(hand_over, seed, sums[seed % 4], pure=False) for seed in range(64)]
    client.gather(tasks)
    assert [each.count().result() for each in sums] == [16] * 4


class Total:
    def __init__(self, size: int) -> None:
        self.sum, self.parts = np.zeros(size), 0

    def add(self, part: Any) -> None:
        self.sum += part
        self.parts += 1

    def count(self) -> int:
        return self.parts


def hand_over(seed: int, total: Any) -> None:
    part = np.sort(numbers(seed, 262_144)).reshape(-1, 4).sum(axis=1)
    total.add(part).result()


# ------------------------------------------------------------------ others


@case
def stencil(client: Client) -> None:
    """Strips of a field; each round needs the edges of both neighbours."""
    strips = client.map(strip, range(16), pure=False)
    for _ in range(6):
        tops = client.map(edge, strips, at=0, pure=False)
        bottoms = client.map(edge, strips, at=-1, pure=False)
        strips = client.map(smooth, strips, bottoms[-1:] + bottoms[:-1], tops[1:] + tops[:1], pure=False)
    client.gather(client.map(np.mean, strips, pure=False))


def strip(seed: int) -> Any:
    return numbers(seed, 262_144).reshape(128, 2048)


def edge(field: Any, at: int) -> Any:
    return field[at].copy()


def smooth(field: Any, above: Any, below: Any) -> Any:
    padded = np.vstack([above, field, below])
    for _ in range(2):
        padded[1:-1] = (padded[:-2] + padded[2:] + np.roll(padded[1:-1], 1, 1) + np.roll(padded[1:-1], -1, 1)) / 4
    return padded[1:-1]


@case
def cholesky(client: Client) -> None:
    """Blocked Cholesky factorisation: a wide graph that narrows."""
    count, side = 9, 288
    blocks = {
        (i, j): client.submit(symmetric, i, j, count, side, pure=False) for i in range(count) for j in range(i + 1)
    }
    for k in range(count):
        blocks[k, k] = client.submit(np.linalg.cholesky, blocks[k, k], pure=False)
        for i in range(k + 1, count):
            blocks[i, k] = client.submit(below_diagonal, blocks[k, k], blocks[i, k], pure=False)
        for i in range(k + 1, count):
            for j in range(k + 1, i + 1):
                blocks[i, j] = client.submit(update, blocks[i, j], blocks[i, k], blocks[j, k], pure=False)
    client.gather([client.submit(np.trace, blocks[k, k], pure=False) for k in range(count)])


def symmetric(i: int, j: int, count: int, side: int) -> Any:
    block = np.random.default_rng([i, j]).random((side, side))
    return block @ block.T + np.eye(side) * side * side * count if i == j else block


def below_diagonal(factor: Any, block: Any) -> Any:
    return np.linalg.solve(factor, block.T).T


def update(block: Any, left: Any, right: Any) -> Any:
    return block - left @ right.T


@case
def kmeans(client: Client) -> None:
    """Rounds: centres go out, partial sums come back to the client, which moves the centres."""
    points = client.map(cloud, range(24), pure=False)
    centres = numbers(0, 64).reshape(8, 8)
    for _ in range(6):
        parts = client.gather(client.map(nearest, points, centres=centres, pure=False))
        sums, counts = (sum(part[i] for part in parts) for i in (0, 1))
        centres = sums / np.maximum(counts, 1)[:, None]


def cloud(seed: int) -> Any:
    return numbers(seed, 80_000).reshape(10_000, 8)


def nearest(points: Any, centres: Any) -> tuple[Any, Any]:
    own = ((points[:, None] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
    sums = np.array([points[own == each].sum(axis=0) for each in range(len(centres))])
    return sums, np.bincount(own, minlength=len(centres))


@case
def skewed(client: Client) -> None:
    """A search over parameters, some of which take many times as long."""
    rng = random.Random(1)
    client.gather(client.map(compute, [min(0.02 * rng.lognormvariate(0, 1), 0.4) for _ in range(60)], pure=False))


@case
def fan_in(client: Client) -> None:
    """All results of a stage go to one task, and what that returns goes to all of the next."""
    parts = client.map(numbers, range(32), count=262_144, pure=False)
    mean = client.submit(mean_of, parts, pure=False)
    client.gather(client.map(distance, parts, mean=mean, pure=False))


def mean_of(parts: list[Any]) -> Any:
    return np.mean(parts, axis=0)


def distance(part: Any, mean: Any) -> float:
    return float(np.abs(np.fft.fft(part - mean)).max())


@case
def gather_rounds(client: Client) -> None:
    """Each round the client fetches every result, and sends what it made of them with the next tasks."""
    state = np.zeros(65_536)
    for number in range(4):
        futures = [client.submit(perturbed, state, 100 * number + i, pure=False) for i in range(20)]
        state = np.mean(client.gather(futures), axis=0)


def perturbed(state: Any, seed: int) -> Any:
    return np.fft.ifft(np.fft.fft(state + numbers(seed, len(state)))).real + np.sort(numbers(seed, len(state)))


@case
def pipeline(client: Client) -> None:
    """Four stages of different length, each item on its own."""
    items = client.map(numbers, range(40), count=131_072, pure=False)
    for cpu_s in (0.004, 0.015, 0.008):
        items = client.map(staged, items, cpu_s=cpu_s, pure=False)
    client.gather(client.map(np.mean, items, pure=False))


def staged(values: Any, cpu_s: float) -> Any:
    compute(cpu_s)
    return values + 1


@case
def sample_sort(client: Client) -> None:
    """The client chooses splitters from samples; pieces travel to the partition that they belong to."""
    parts = client.map(numbers, range(12), count=600_000, pure=False)
    samples = np.sort(np.concatenate(client.gather(client.map(sample, parts, pure=False))))
    splitters = samples[len(samples) // 12 :: len(samples) // 12][:11]
    split = client.map(cut, parts, splitters=splitters, pure=False)
    pieces = [[client.submit(piece, each, i, pure=False) for each in split] for i in range(12)]
    edges = client.gather([client.submit(merged_edges, each, pure=False) for each in pieces])
    assert all(left[1] <= right[0] for left, right in pairwise(edges))


def sample(part: Any) -> Any:
    return part[::1000]


def cut(part: Any, splitters: Any) -> list[Any]:
    part = np.sort(part)
    return np.split(part, np.searchsorted(part, splitters))


def piece(pieces: list[Any], number: int) -> Any:
    return pieces[number]


def merged_edges(pieces: list[Any]) -> tuple[float, float]:
    merged = np.sort(np.concatenate(pieces))
    return float(merged[0]), float(merged[-1])


@case
def feedback(client: Client) -> None:
    """A search that keeps twelve tasks in flight: the next begins from the best result so far."""
    best, left = np.zeros(16_384), iter(range(12, 100))
    running = as_completed([client.submit(attempt, best, seed, pure=False) for seed in range(12)])
    for future in running:
        found = future.result()
        best = min(best, found, key=lambda each: float(np.abs(each).sum()))
        if (seed := next(left, None)) is not None:
            running.add(client.submit(attempt, best, seed, pure=False))


def attempt(start: Any, seed: int) -> Any:
    compute(0.012)
    return start + numbers(seed, len(start))


@case
def all_reduce(client: Client) -> None:
    """Rounds: parts are added up in a tree, and every task of the next round needs the sum."""
    total: Any = np.zeros(262_144)
    for number in range(4):
        parts = [client.submit(gradient, total, 100 * number + i, pure=False) for i in range(16)]
        while len(parts) > 1:
            parts = [client.submit(sum_of, parts[i : i + 4], pure=False) for i in range(0, len(parts), 4)]
        (total,) = parts
    client.submit(np.mean, total, pure=False).result()


def gradient(total: Any, seed: int) -> Any:
    return np.sort(total + numbers(seed, len(total)))


def sum_of(parts: list[Any]) -> Any:
    return np.sum(parts, axis=0)


SEEN = tuple(name for place, name in enumerate(CASES) if place < 4 or place % 5 in (0, 2))
UNSEEN = tuple(name for name in CASES if name not in SEEN)
