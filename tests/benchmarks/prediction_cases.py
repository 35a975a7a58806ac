"""Workloads whose sizes that were not run are predicted: they compute, serialise and send, and none sleeps.

Each takes 5 to 60 seconds on one machine of a tenth of a core. Each set was written, by another one, after what the
sets before had taught was built in, and without knowing how predictions are made.
"""

from __future__ import annotations

import heapq
import json
import math
import random
import statistics
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from decimal import Decimal, localcontext
from functools import partial
from itertools import combinations, pairwise
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any

# All of it here: an import in a function would take time of the client's first trial.
import dask
import dask.array as da
import dask.bag as db
import dask.dataframe
import flox  # noqa: F401
import numpy as np
import pandas as pd
import xarray
from distributed import Queue, Semaphore, as_completed, worker_client
from scipy import integrate, ndimage, optimize, signal, sparse
from scipy.cluster import hierarchy
from scipy.stats import qmc

if TYPE_CHECKING:
    from distributed import Client

Case = Callable[["Client"], Any]


def noted_in(names: list[str]) -> Callable[[Case], Case]:
    """A decorator that adds the name of a workload."""

    def noted(function: Case) -> Case:
        names.append(function.__name__)
        return function

    return noted


NAMES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh")
SETS: dict[str, list[str]] = {name: [] for name in NAMES}
first, second, third, fourth, fifth, sixth, seventh, eighth, ninth, tenth, eleventh = map(noted_in, SETS.values())


def numbers(seed: int, count: int) -> Any:
    return np.random.default_rng(seed).standard_normal(count)


@first
def spectral_filter(client: Client) -> None:
    """A field is filtered by Fourier transforms of both axes, there and back: two transpositions."""
    side, width = 1280, 80
    rows = da.random.default_rng(0).random((side, side), chunks=(width, -1))
    columns = da.fft.fft(da.fft.fft(rows, axis=1).rechunk((-1, width)), axis=0)
    low = da.exp(-((da.fft.fftfreq(side, chunks=-1)[:, None] * 8) ** 2))
    filtered = da.fft.ifft(da.fft.ifft(columns * low, axis=0).rechunk((width, -1)), axis=1).real
    assert abs(filtered.mean().compute() - 0.5) < 0.01


@first
def alignment(client: Client) -> None:
    """Two sequences are aligned block by block: a wavefront, as a block needs those above and to the left of it."""
    count = 10
    matches = {(i, j): client.submit(match, i, j, pure=False) for i in range(count) for j in range(count)}
    blocks: dict[tuple[int, int], Any] = {}  # all are kept, as for tracing the way back
    for i in range(count):
        for j in range(count):
            above, left = blocks.get((i - 1, j)), blocks.get((i, j - 1))
            blocks[i, j] = client.submit(aligned, matches[i, j], above, left, pure=False)
    best = max(client.gather([client.submit(np.max, blocks[count - 1, j], pure=False) for j in range(count)]))
    assert best > 0


def match(i: int, j: int) -> Any:
    first, second = (np.random.default_rng(seed).integers(4, size=512) for seed in ([0, i], [1, j]))
    return np.where(first[:, None] == second, 3, -1).astype(np.int8)


def aligned(matches: Any, above: Any, left: Any) -> Any:
    side, gap = len(matches), 2
    scores = np.zeros((side + 1, side + 1), np.int16)
    if above is not None:
        scores[0] = above[-1]
    if left is not None:
        scores[:, 0] = left[:, -1]
    gaps = gap * np.arange(side + 1, dtype=np.int16)
    for row in range(side):
        here = scores[row + 1]
        np.maximum(scores[row, :-1] + matches[row], scores[row, 1:] - gap, out=here[1:])
        here[:] = np.maximum.accumulate(here + gaps) - gaps
    return scores


@first
def quadtree(client: Client) -> None:
    """A field is refined where it is steep: what a tile shows decides whether four are made of it."""
    coarse = [(x / 2, y / 2, 0.5) for x in range(-2, 2) for y in range(-2, 2)]
    tiles, leaves, running = {}, [], as_completed(with_results=True)
    new = [(client.submit(front, None, 0, *corner, pure=False), corner) for corner in coarse]
    while new or tiles:
        for tile, corner in new:
            steep = client.submit(np.ptp, tile, pure=False)
            tiles[steep] = tile, corner
            running.add(steep)
        steep, change = next(running)
        tile, (x, y, width) = tiles.pop(steep)
        new = []
        if change > 0.5 and width > 0.2:
            half = width / 2
            corners = [(x + half * (quarter % 2), y + half * (quarter // 2), half) for quarter in range(4)]
            new = [(client.submit(front, tile, i, *corner, pure=False), corner) for i, corner in enumerate(corners)]
        else:
            leaves.append(client.submit(np.float32, tile, pure=False))
    assert 60 < len(client.gather(leaves)) < 100


def front(parent: Any, quarter: int, x: float, y: float, width: float) -> Any:
    """Steps across a circle, which begin from a quarter of the coarser tile."""
    side = 256
    at = (np.arange(side) + 0.5) / side * width
    target = np.tanh(40 * (np.hypot(x + at - 0.1, (y + at - 0.2)[:, None]) - 0.5))
    if parent is None:
        return target
    rows, columns = (slice(side // 2 * part, side // 2 * (part + 1)) for part in divmod(quarter, 2))
    field = parent[rows, columns].repeat(2, axis=0).repeat(2, axis=1)
    for _ in range(12):
        field += 0.5 * (target - field)
    return field


@first
def halving(client: Client) -> None:
    """A search over parameters, on scattered data: each rung trains the better half of the models twice as long."""
    folds = client.scatter([training_data(seed) for seed in range(4)], hash=False)
    models = [(rate, np.zeros((4, 64))) for rate in np.geomspace(0.001, 4, 16)]
    for steps in (40, 80, 160):
        futures = [
            client.submit(trained, weights[i], folds[i], folds[i - 1], rate, steps, pure=False)
            for rate, weights in models
            for i in range(4)
        ]
        results = client.gather(futures)
        losses = np.reshape([loss for _, loss in results], (-1, 4)).mean(axis=1)
        weights = np.reshape([each for each, _ in results], (-1, 4, 64))
        models = [(models[i][0], weights[i]) for i in np.argsort(losses)[: len(models) // 2]]


def training_data(seed: int) -> tuple[Any, Any]:
    features = numbers(seed, 256_000).reshape(4000, 64)
    return features, features @ numbers(99, 64) + numbers(seed + 100, 4000) > 0


def trained(weights: Any, data: Any, held_out: Any, rate: float, steps: int) -> tuple[Any, float]:
    """Logistic regression by gradient descent, and its loss on other data."""
    features, labels = (each.copy() for each in data)  # what arrives may lie unaligned, which is slow to multiply
    for _ in range(steps):
        errors = 1 / (1 + np.exp(-(features @ weights))) - labels
        weights = weights - rate / len(labels) * (errors @ features)
    signs = np.where(held_out[1], 1, -1)
    return weights, float(np.logaddexp(0, -signs * (held_out[0] @ weights)).mean())


@first
def event_logs(client: Client) -> None:
    """Logs of very different length: their lines are parsed, filtered and folded by user."""
    lengths = [int(350 * 1.18**i) for i in range(20)]
    random.Random(0).shuffle(lengths)
    events = db.from_sequence(lengths, npartitions=20).map(log_lines).flatten().map(json.loads)
    sums = events.filter(is_sale).foldby("user", add_sale, (0, 0.0), add_sales, (0, 0.0), split_every=4)
    assert len(sums.compute()) > 1000


def log_lines(count: int) -> list[str]:
    rng = random.Random(count)
    return [
        json.dumps({"user": f"user-{rng.randrange(20_000):08}", "kind": rng.choice(KINDS), "sum": rng.random()})
        for _ in range(count)
    ]


KINDS = ("sale", "sale", "sale", "view")


def is_sale(event: dict[str, Any]) -> bool:
    return bool(event["kind"] == "sale")


def add_sale(total: tuple[int, float], event: dict[str, Any]) -> tuple[int, float]:
    return total[0] + 1, total[1] + event["sum"]


def add_sales(left: tuple[int, float], right: tuple[int, float]) -> tuple[int, float]:
    return left[0] + right[0], left[1] + right[1]


@first
def rolling(client: Client) -> None:
    """A time series by weeks: windows of two days reach into the week before, and hours of the day are averaged."""
    weeks = list(pd.date_range("2026-01-05", periods=13, freq="7D"))
    readings = dask.dataframe.from_map(week_of_readings, weeks[:-1], divisions=weeks)
    smooth = readings.map_overlap(windowed, pd.Timedelta("2D"), 0)
    assert len(smooth.groupby("hour").mean().compute()) == 24


def week_of_readings(start: Any) -> Any:
    index = pd.date_range(start, periods=60_480, freq="10s")
    values = numbers(start.dayofyear, 4 * len(index)).reshape(-1, 4)
    return pd.DataFrame(values, index=index, columns=list("abcd"))


def windowed(readings: Any) -> Any:
    window = readings.rolling("2D")
    spread = (window.max() - window.min()) / window.std()
    return (readings - window.mean()).join(spread, rsuffix="_spread").assign(hour=readings.index.hour)


@first
def pagerank(client: Client) -> None:
    """Rounds over blocks of links: each group of pages gives to every other, and the client looks at the change."""
    count, pages = 5, 60_000
    links = {(i, j): client.submit(links_between, i, j, pages, pure=False) for i in range(count) for j in range(count)}
    ranks = [client.submit(np.full, pages, 1 / (count * pages), pure=False) for _ in range(count)]
    changes = []
    for _ in range(4):
        given = [
            [client.submit(give, ranks[i], links[i, j], count, pure=False) for i in range(count)] for j in range(count)
        ]
        before, ranks = ranks, [client.submit(take, each, pure=False) for each in given]
        changes.append(sum(client.gather(client.map(moved, before, ranks, pure=False))))
    assert changes == sorted(changes, reverse=True)


def links_between(i: int, j: int, pages: int) -> Any:
    """Four links of each page, most to few pages."""
    return (np.random.default_rng([i, j]).random((pages, 4)) ** 3 * pages).astype(np.int32)


def give(ranks: Any, links: Any, count: int) -> Any:
    share = ranks / (count * links.shape[1])
    return np.bincount(links.ravel(), np.repeat(share, links.shape[1]), len(ranks))


def take(given: list[Any]) -> Any:
    return 0.15 / (len(given) * len(given[0])) + 0.85 * np.sum(given, axis=0)


def moved(before: Any, after: Any) -> float:
    return float(np.abs(after - before).sum())


@first
def mosaic(client: Client) -> None:
    """Scenes that overlap are unpacked and cut, and what covers a tile of the picture is blended, two by two."""
    scenes = {(i, j): dask.delayed(scene)(4 * i + j) for i in range(4) for j in range(4)}
    tiles = []
    for i in range(4):
        for j in range(4):
            layers = [
                dask.delayed(quarter_of)(scenes[(i - down) % 4, (j - right) % 4], down, right)
                for down in range(2)
                for right in range(2)
            ]
            while len(layers) > 1:
                layers = [dask.delayed(blend)(*layers[k : k + 2]) for k in range(0, len(layers), 2)]
            tiles.append(dask.delayed(stretched)(*layers))
    assert {tile.shape for tile in client.gather(client.compute(tiles))} == {(256, 256, 3)}


def scene(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    packed = zlib.compress(rng.integers(0, 64, (512, 512, 3), dtype=np.uint8).tobytes(), 1)
    picture = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(512, 512, 3).astype(np.float32)
    return np.sqrt(picture) + np.linspace(0, rng.random(), 512, dtype=np.float32)[:, None, None]


def quarter_of(picture: Any, down: int, right: int) -> Any:
    return picture[256 * down : 256 * (down + 1), 256 * right : 256 * (right + 1)].copy()


def blend(left: Any, right: Any) -> Any:
    """By contrast, each picture in units of its own spread."""
    left, right = ((each - each.mean(axis=(0, 1))) / each.std(axis=(0, 1)) for each in (left, right))
    weight = 1 / (1 + np.exp(np.abs(right) - np.abs(left)))
    return weight * left + (1 - weight) * right


def stretched(picture: Any) -> Any:
    low, high = np.percentile(picture, [2, 98], axis=(0, 1))
    return (np.clip((picture - low) / (high - low), 0, 1) * 255).astype(np.uint8)


@first
def shortest_paths(client: Client) -> None:
    """Blocked Floyd-Warshall: in each round one block is closed, then its row and column, then all the others."""
    count, side = 5, 192
    blocks = {(i, j): client.submit(roads, i, j, side, pure=False) for i in range(count) for j in range(count)}
    for k in range(count):
        others = [i for i in range(count) if i != k]
        pivot = blocks[k, k] = client.submit(closed, blocks[k, k], pure=False)
        for i in others:
            blocks[k, i] = client.submit(shorter, blocks[k, i], pivot, blocks[k, i], pure=False)
            blocks[i, k] = client.submit(shorter, blocks[i, k], blocks[i, k], pivot, pure=False)
        for i in others:
            for j in others:
                blocks[i, j] = client.submit(shorter, blocks[i, j], blocks[i, k], blocks[k, j], pure=False)
    longest = client.gather(client.map(np.max, list(blocks.values()), pure=False))
    assert 0 < max(longest) < 1


def roads(i: int, j: int, side: int) -> Any:
    lengths = np.random.default_rng([i, j]).random((side, side))
    return np.where(np.eye(side), 0, lengths) if i == j else lengths


def closed(block: Any) -> Any:
    block = block.copy()
    return shorten(block, block, block)


def shorter(block: Any, left: Any, right: Any) -> Any:
    return shorten(block.copy(), left, right)


def shorten(block: Any, left: Any, right: Any) -> Any:
    by_way = np.empty_like(block)
    for k in range(len(block)):
        np.add(left[:, k, None], right[k], out=by_way)
        np.minimum(block, by_way, out=block)
    return block


@first
def growing_joins(client: Client) -> None:
    """A tree of joins whose tables grow: each has the columns of both, and the last one those of all."""
    tables = [dask.delayed(measured_by)(seed) for seed in range(16)]
    while len(tables) > 1:
        tables = [dask.delayed(joined)(*tables[i : i + 2]) for i in range(0, len(tables), 2)]
    counts = dask.delayed(len)(tables[0]), dask.delayed(correlations)(tables[0])
    rows, found = client.gather(client.compute(list(counts)))
    assert rows == 60_000
    assert found.shape == (32, 32)


def measured_by(seed: int) -> Any:
    """Two means for most of the keys."""
    keys = np.random.default_rng(seed).integers(60_000, size=150_000)
    raw = pd.DataFrame({"key": keys, f"a{seed}": numbers(seed, len(keys)), f"b{seed}": numbers(seed + 1, len(keys))})
    return raw.groupby("key").mean().reset_index().sample(frac=1, random_state=seed)


def joined(left: Any, right: Any) -> Any:
    return left.merge(right, on="key", how="outer")


def correlations(table: Any) -> Any:
    return np.corrcoef(table.drop(columns="key").fillna(0), rowvar=False)


@second
def option_prices(client: Client) -> None:
    """Options are priced by simulation: each gets another batch of paths until its own error is small enough."""
    options = [(strike, volatility / 10) for strike in (0.8, 0.9, 1.0, 1.1) for volatility in range(1, 7)]
    payoffs: list[list[Any]] = [[] for _ in options]
    batches = {client.submit(simulated, *each, [i, 0], pure=False): i for i, each in enumerate(options)}
    running = as_completed(list(batches), with_results=True)
    for batch, found in running:
        i = batches.pop(batch)
        payoffs[i].append(found)
        if np.std(payoffs[i]) > 0.00085 * np.size(payoffs[i]) ** 0.5:
            following = client.submit(simulated, *options[i], [i, len(payoffs[i])], pure=False)
            batches[following] = i
            running.add(following)
    prices = np.reshape([np.mean(each) for each in payoffs], (4, 6))
    assert np.all(np.diff(prices, axis=0) < 0)


def simulated(strike: float, volatility: float, seed: list[int]) -> Any:
    """What calls on the mean of a price pay."""
    steps = np.random.default_rng(seed).standard_normal((8000, 32)) * volatility / 32**0.5 - volatility**2 / 64
    return np.maximum(np.exp(np.cumsum(steps, axis=1)).mean(axis=1) - strike, 0)


@second
def dead_reckoning(client: Client) -> None:
    """A ship's moves are added up, soundings get the last place before them, and charts are drawn of longer parts."""
    days, watches = (list(range(0, 1_600_001, width)) for width in (160_000, 100_000))
    moves = dask.dataframe.from_map(moves_from, days[:-1], divisions=days)
    soundings = dask.dataframe.from_map(soundings_from, watches[:-1], divisions=watches)
    placed = dask.dataframe.merge_asof(soundings, moves.cumsum(), left_index=True, right_index=True)
    charts = placed.repartition(npartitions=6).map_partitions(charted, clear_divisions=True).compute()
    assert charts["count"].sum() == 16 * 40_000


def moves_from(start: int) -> Any:
    values = numbers(start, 80_000).reshape(-1, 2)
    return pd.DataFrame(values, index=np.arange(start, start + 160_000, 4), columns=["east", "north"])


def soundings_from(start: int) -> Any:
    """Depths, and what a running median makes of them."""
    seconds = np.sort(np.random.default_rng(start + 1).integers(start, start + 100_000, 40_000))
    raw = 50 + numbers(start + 2, 40_000)
    depth = pd.Series(raw).rolling(15, min_periods=1).median().to_numpy()
    return pd.DataFrame({"raw": raw, "depth": depth}, index=seconds)


def charted(placed: Any) -> Any:
    cells = placed["east"] // 50 * 1000 + placed["north"] // 50
    return placed.groupby(cells)["depth"].agg(["median", "max", "count"])


@second
def online_learning(client: Client) -> None:
    """Batches are prepared side by side, but a model learns from one after the other, and is tested now and then."""
    test, *batches = client.map(prepared, range(74), pure=False)
    model = client.submit(untrained, 256, pure=False)
    errors = []
    for number, batch in enumerate(batches):
        model = client.submit(learned, model, batch, pure=False)
        if number % 12 == 0:
            errors.append(client.submit(error_of, model, test, pure=False))
    first, *_, last = client.gather(errors)
    assert last < first / 2


def prepared(seed: int) -> tuple[Any, Any]:
    """Spectra of noises, and how loud each of them is."""
    loudness = numbers(seed + 1000, 96)
    spectra = np.abs(np.fft.rfft(numbers(seed, 96 * 4096).reshape(96, 4096) * np.exp(loudness)[:, None]))
    features = np.log(spectra[:, 1:].reshape(96, 256, 8).mean(axis=2))
    features[:, 0] = 1
    return features, loudness


def untrained(size: int) -> tuple[Any, Any]:
    return np.zeros(size), np.eye(size)


def learned(model: tuple[Any, Any], batch: tuple[Any, Any]) -> tuple[Any, Any]:
    """Recursive least squares."""
    weights, spread, features, labels = (each.copy() for each in (*model, *batch))
    crossed = spread @ features.T
    gain = np.linalg.solve(np.eye(len(labels)) + features @ crossed, crossed.T).T
    return weights + gain @ (labels - features @ weights), spread - gain @ crossed.T


def error_of(model: tuple[Any, Any], test: tuple[Any, Any]) -> float:
    weights, features, labels = model[0].copy(), test[0].copy(), test[1]
    return float(np.abs(features @ weights - labels).mean())


@second
def nested_search(client: Client) -> None:
    """Cross validation on two levels: the task of each fold submits by itself a search within the other folds."""
    folds = client.map(regression_data, range(5), pure=False)
    tasks = [client.submit(chosen, folds[:i] + folds[i + 1 :], folds[i], pure=False) for i in range(5)]
    assert max(client.gather(tasks)) < 0.3


def regression_data(seed: int) -> tuple[Any, Any]:
    features = numbers(seed, 25_600).reshape(800, 32)
    return features, np.sin(features @ numbers(99, 32) / 6)


def chosen(folds: list[Any], held_out: tuple[Any, Any]) -> float:
    widths = np.geomspace(0.01, 0.4, 5)
    with worker_client() as client:
        parts = client.scatter(folds, hash=False)
        found = client.gather(
            [client.submit(validated, parts, i, each, pure=False) for each in widths for i in range(4)]
        )
    best = widths[np.reshape(found, (-1, 4)).mean(axis=1).argmin()]
    return tested(fitted(folds, best), held_out, best)


def validated(folds: list[Any], number: int, width: float) -> float:
    return tested(fitted(folds[:number] + folds[number + 1 :], width), folds[number], width)


def fitted(folds: list[Any], width: float) -> Any:
    """Ridge regression on random waves."""
    features, targets = (np.concatenate(each) for each in zip(*folds, strict=True))
    waves = waves_of(features, width)
    return np.linalg.solve(waves.T @ waves + 0.01 * np.eye(waves.shape[1]), waves.T @ targets)


def waves_of(features: Any, width: float) -> Any:
    return np.cos((width * features) @ numbers(7, 32 * 128).reshape(32, 128) + np.arange(128))


def tested(weights: Any, fold: tuple[Any, Any], width: float) -> float:
    return float(((waves_of(fold[0], width) @ weights - fold[1]) ** 2).mean())


@second
def confidence_bands(client: Client) -> None:
    """Forty curves from resamples of each of a few tables, and their percentiles where all of a table's have come."""
    tables = client.map(incomes, range(8), pure=False)
    curves = [[client.submit(resampled, table, seed, pure=False) for seed in range(40)] for table in tables]
    bands = client.gather([client.submit(band, each, pure=False) for each in curves])
    assert all((low <= high).all() for low, high in bands)


def incomes(seed: int) -> Any:
    return np.exp(numbers(seed, 80_000))


def resampled(table: Any, seed: int) -> Any:
    """A Lorenz curve: the share of all income that the poorer ones have."""
    drawn = np.sort(table[np.random.default_rng(seed).integers(len(table), size=len(table))])
    return np.cumsum(drawn)[::10] / drawn.sum()


def band(curves: list[Any]) -> Any:
    return np.percentile(curves, [5, 95], axis=0)


@second
def fractal(client: Client) -> None:
    """A picture whose tiles take a few steps or hundreds, shaded by the ranks of all its points."""
    x, y = da.linspace(-2, 0.5, 1024, chunks=128), da.linspace(-1.25, 1.25, 1024, chunks=128)
    counts = da.map_blocks(escape_times, x[None, :], y[:, None], dtype=np.int32).persist()
    seen, _ = da.histogram(counts, bins=np.arange(602))
    ranks = np.cumsum(seen.compute()) / counts.size
    picture = counts.map_blocks(shaded, ranks=ranks, dtype=np.uint8).compute()
    assert 0.2 < (picture == 255).mean() < 0.3


def escape_times(x: Any, y: Any) -> Any:
    grid = x + 1j * y
    points, values, where = grid.ravel(), grid.ravel(), np.arange(grid.size)
    counts = np.full(grid.size, 600, np.int32)
    for step in range(600):
        values = values * values + points
        inside = values.real**2 + values.imag**2 < 4
        if not inside.all():
            counts[where[~inside]] = step
            points, values, where = points[inside], values[inside], where[inside]
    return counts.reshape(grid.shape)


def shaded(counts: Any, ranks: Any) -> Any:
    return (255 * ranks[counts]).astype(np.uint8)


@second
def particle_filter(client: Client) -> None:
    """Particles follow a pendulum: at each sight of it the client decides which blocks the new ones are drawn from."""
    count, target = 16, np.array([[1.0], [0.0], [1.0]])
    blocks = client.map(first_particles, range(count), pure=False)
    for step in range(6):
        target = swung(target, 0.0, [step, 99])
        moved = [client.submit(swung, each, target[0, 0], [step, i], pure=False) for i, each in enumerate(blocks)]
        edges = np.cumsum([0, *client.gather(client.map(total_weight, moved, pure=False))])
        edges *= count / edges[-1]
        blocks = []
        for i in range(count):
            shares = np.diff(np.clip(edges, i, i + 1))
            sources = [moved[k] for k in np.flatnonzero(shares)]
            blocks.append(client.submit(redrawn, sources, shares[shares > 0], [step, i, 1], pure=False))
    means = client.gather(client.map(np.mean, blocks, axis=1, pure=False))
    assert abs(np.mean(means, axis=0)[0] - target[0, 0]) < 0.3


def first_particles(number: int) -> Any:
    """Angles, speeds and weights."""
    angles = number / 4 - 2 + 0.3 * numbers(number, 20_000)
    return np.stack([angles, numbers(number + 50, 20_000), np.ones(20_000)])


def swung(particles: Any, seen: float, seed: list[int]) -> Any:
    rng = np.random.default_rng(seed)
    angles, speeds, _ = particles
    for _ in range(12):
        speeds = speeds - 0.05 * np.sin(angles) + 0.02 * rng.standard_normal(len(speeds))
        angles = angles + 0.05 * speeds
    return np.stack([angles, speeds, 1 / (1 + ((angles - seen) / 0.1) ** 2)])


def total_weight(particles: Any) -> float:
    return float(particles[2].sum())


def redrawn(blocks: list[Any], shares: Any, seed: list[int]) -> Any:
    """As many as in one block, from each its share by weight."""
    rng, count = np.random.default_rng(seed), blocks[0].shape[1]
    sizes = np.diff(np.round(np.cumsum([0, *shares]) * count)).astype(int)
    drawn = [
        block[:, rng.choice(count, size, p=block[2] / block[2].sum())]
        for block, size in zip(blocks, sizes, strict=True)
    ]
    return np.concatenate(drawn, axis=1)


@second
def tomography(client: Client) -> None:
    """Groups of projections are filtered, and every strip of the volume is built from all of them."""
    groups = [dask.delayed(sharpened)(dask.delayed(shadows)(number)) for number in range(16)]
    strips = [dask.delayed(back_projected)(groups, number) for number in range(24)]
    volume = client.compute(dask.delayed(stacked)(strips)).result()
    assert volume.shape == (8, 384, 384)


def angles_of(group: int) -> Any:
    return np.pi / 128 * (group + 16 * np.arange(8))


def shadows(group: int) -> Any:
    """Projections of forty balls, at eight angles, on eight rows of detectors."""
    rng = np.random.default_rng(0)
    (x, y, z), radius = rng.uniform(-0.6, 0.6, (3, 40)), rng.uniform(0.05, 0.3, 40)
    angles, rows = angles_of(group)[:, None, None, None], np.linspace(-0.6, 0.6, 8)[:, None, None]
    aside = np.linspace(-1, 1, 512)[:, None] - x * np.cos(angles) - y * np.sin(angles)
    return np.sqrt(np.maximum(radius**2 - (rows - z) ** 2 - aside**2, 0)).sum(axis=-1)


def sharpened(group: Any) -> Any:
    return np.fft.irfft(np.fft.rfft(group) * np.arange(257), n=512)


def back_projected(groups: list[Any], number: int) -> Any:
    x = np.linspace(-0.65, 0.65, 384)
    y = x[16 * number : 16 * (number + 1), None]
    strip = np.zeros((8, 16 * 384))
    for i, group in enumerate(groups):
        for angle, rows in zip(angles_of(i), group, strict=True):
            places = ((x * np.cos(angle) + y * np.sin(angle) + 1) * 255.5).ravel()
            before = places.astype(int)
            part = places - before
            strip += (1 - part) * rows.take(before, axis=1) + part * rows.take(before + 1, axis=1)
    return strip.reshape(8, 16, 384).astype(np.float32)


def stacked(strips: list[Any]) -> Any:
    return np.concatenate(strips, axis=1)


@third
def kmer_counts(client: Client) -> None:
    """A graph by hand: words of bases are counted in samples, and each range of words is added up from all of these."""
    samples, ranges = 16, 16
    graph: dict[Any, Any] = {("counts", i): (words_counted, i) for i in range(samples)}
    for j in range(ranges):
        for i in range(samples):
            graph["range", i, j] = (words_between, ("counts", i), j / ranges, (j + 1) / ranges)
        graph["trusted", j] = (trusted, [("range", i, j) for i in range(samples)])
    graph["all"] = (sum, [("trusted", j) for j in range(ranges)])
    assert 49_000 < client.get(graph, "all") < 51_000


def words_counted(sample: int) -> tuple[Any, Any]:
    """The words of fifteen bases in reads of one genome, of which every hundredth base is wrong."""
    rng, genome = np.random.default_rng([sample, 1]), np.random.default_rng(0).integers(4, size=50_000, dtype=np.int32)
    reads = genome[rng.integers(len(genome) - 99, size=4000)[:, None] + np.arange(100)]
    reads = np.where(rng.random(reads.shape) < 0.01, rng.integers(4, size=reads.shape, dtype=np.int32), reads)
    words = np.zeros((len(reads), 86), np.int32)
    for start in range(15):
        words = 4 * words + reads[:, start : start + 86]
    return np.unique(words, return_counts=True)


def words_between(counted: tuple[Any, Any], low: float, high: float) -> tuple[Any, Any]:
    words, counts = counted
    first, last = np.searchsorted(words, [low * 4**15, high * 4**15])
    return words[first:last].copy(), counts[first:last].copy()


def trusted(parts: list[tuple[Any, Any]]) -> int:
    """How many words are too frequent for an error."""
    words, counts = (np.concatenate(each) for each in zip(*parts, strict=True))
    _, places = np.unique(words, return_inverse=True)
    return int((np.bincount(places, counts) > 20).sum())


@third
def text_search(client: Client) -> None:
    """An index stays on the workers, and is asked again and again: each question has words that the last one found."""
    articles = db.from_sequence(range(600), npartitions=12).map(article)
    index = client.compute([dask.delayed(indexed)(part) for part in articles.to_delayed()])
    question, seen = ["w40", "w50"], set()
    for _ in range(40):
        hits = [hit for part in client.gather(client.map(asked, index, words=question, pure=False)) for hit in part]
        _, number, *question = max(hit for hit in hits if hit[1] not in seen)
        seen.add(number)
    assert len(seen) == 40


def article(number: int) -> tuple[int, list[str]]:
    rng = random.Random(number)
    return number, [f"w{int(rng.paretovariate(0.5)) % 20_000}" for _ in range(800)]


def indexed(articles: list[tuple[int, list[str]]]) -> Any:
    """Where each word is, and how often; and the rarest words of each article."""
    places: dict[str, Counter[int]] = {}
    for number, words in articles:
        for word in words:
            places.setdefault(word, Counter())[number] += 1
    rarest = {number: sorted(set(words), key=lambda word: (len(places[word]), word))[:60] for number, words in articles}
    return places, rarest


def asked(index: Any, words: list[str]) -> list[Any]:
    places, rarest = index
    scores = dict.fromkeys(rarest, 0.0)
    for word in words:
        for number, count in places.get(word, {}).items():
            scores[number] += np.log1p(count) * np.log(1 + 50 / len(places[word]))
    best = sorted(scores, key=lambda number: (scores[number], number))[-40:]
    return [(scores[number], number, *rarest[number][::4]) for number in best]


@third
def conjugate_gradients(client: Client) -> None:
    """Linear equations in arrays of small blocks: the client builds each round from two sums that it awaits."""
    side, width = 1500, 250
    random_parts = da.random.default_rng(0).standard_normal((side, side), chunks=width)
    matrix = ((random_parts + random_parts.T) / (8 * side) ** 0.5 + 2 * da.eye(side, chunks=width)).persist()
    residual = direction = da.ones(side, chunks=width).persist()
    solution, squared = da.zeros(side, chunks=width), float(side)
    for _ in range(8):
        product = (matrix @ direction).persist()
        length = squared / (direction @ product).compute()
        solution, residual = dask.persist(solution + length * direction, residual - length * product)
        before, squared = squared, float((residual @ residual).compute())
        direction = (residual + squared / before * direction).persist()
    assert abs(matrix @ solution - 1).max().compute() < 1e-3


@third
def web_sessions(client: Client) -> None:
    """Requests are brought together by visitor and cut into sessions: of one visitor, a robot, are a quarter of all."""
    requests = dask.dataframe.from_map(requests_of, range(20))
    sessions = requests.shuffle("visitor", npartitions=20, shuffle_method="tasks").map_partitions(sessions_in)
    entries = sessions.groupby("entry")[["pages", "seconds", "clicks"]].sum(split_out=1).compute()
    assert entries["clicks"].sum() == 20 * 16_000


def requests_of(hour: int) -> Any:
    rng, count = np.random.default_rng(hour), 16_000
    visitors = np.where(rng.random(count) < 0.25, 77, rng.integers(30_000, size=count))
    pages = (rng.pareto(1, count) * 10).astype(int) % 500
    at = np.sort(hour * 3600 + rng.integers(3600, size=count))
    return pd.DataFrame({"visitor": visitors, "at": at, "page": pages, "taken": rng.random(count)})


def sessions_in(requests: Any) -> Any:
    """A session ends where its visitor asks for nothing in ten minutes, or after fifty pages."""
    requests = requests.sort_values(["visitor", "at", "taken"])
    visits = requests.groupby("visitor")
    paused = visits["at"].diff().fillna(3600) > 600
    number = (paused | (visits.cumcount() % 50 == 0)).cumsum()
    grouped = requests.groupby(number)
    found = grouped.agg(entry=("page", "first"), pages=("page", "nunique"), clicks=("page", "size"))
    return found.assign(seconds=grouped["at"].max() - grouped["at"].min())


@third
def backtests(client: Client) -> None:
    """Trading rules are fitted to two years of a share and tried in the third, year after year, share by share."""
    gains = []
    for share in range(24):
        prices = dask.delayed(prices_of)(share)
        years = [dask.delayed(traded)(prices, year, dask.delayed(best_rule)(prices, year)) for year in range(3, 9)]
        gains.append(dask.delayed(sum)(years))
    gained = client.gather(client.compute(gains))
    assert np.mean(gained) > 0


def prices_of(share: int) -> Any:
    """Nine years whose trends last for a while."""
    noise = 0.01 * numbers(share, 9 * 252)
    return np.cumsum(noise + pd.Series(noise).ewm(span=40).mean().to_numpy())


def best_rule(prices: Any, year: int) -> tuple[int, int]:
    rules = [(fast, slow) for fast in (2, 5, 10, 20) for slow in (30, 60, 90)]
    return max(rules, key=lambda rule: sum(traded(prices, past, rule) for past in (year - 2, year - 1)))


def traded(prices: Any, year: int, rule: tuple[int, int]) -> float:
    """What is gained by holding while the faster mean is above the slower one."""
    known = pd.Series(prices[252 * (year - 1) : 252 * (year + 1)])
    fast, slow = (known.rolling(span).mean() for span in rule)
    held = (fast > slow).shift(fill_value=False)
    return float((known.diff() * held)[252:].sum())


@third
def recommendations(client: Client) -> None:
    """Users' and items' factors in turn: the client collects what all users say of every item, and sends items out."""
    ratings = client.map(ratings_by, range(16), pure=False)
    items, errors = numbers(3, 15_000).reshape(1500, 10), []
    for _ in range(4):
        sent = client.scatter(items, broadcast=True, hash=False)
        parts = client.gather(client.map(equations, ratings, items=sent, pure=False))
        left, right, error = (sum(each) for each in zip(*parts, strict=True))
        items = np.linalg.solve(left, right[..., None])[..., 0]
        errors.append(error)
    assert errors[-1] < errors[0] / 10


def ratings_by(group: int) -> tuple[Any, Any]:
    """Ratings by three hundred users of a fifth of the items, and where they are."""
    likings = numbers(group, 3000).reshape(300, 10) @ numbers(99, 15_000).reshape(10, 1500)
    known = np.random.default_rng(group).random(likings.shape) < 0.2
    return (likings * known).astype(np.float32), known


def equations(ratings: tuple[Any, Any], items: Any) -> tuple[Any, Any, float]:
    """For the factors of the items, after those of the users have been fitted."""
    likings, known = (each.astype(float) for each in ratings)
    left, right = normal(likings, known, items.copy())
    users = np.linalg.solve(left, right[..., None])[..., 0]
    return *normal(likings.T, known.T, users), float(((likings - known * (users @ items.T)) ** 2).sum())


def normal(likings: Any, known: Any, factors: Any) -> tuple[Any, Any]:
    squares = (factors[:, :, None] * factors[:, None]).reshape(len(factors), -1)
    size = factors.shape[1]
    return (known @ squares).reshape(-1, size, size) + 0.01 * np.eye(size), likings @ factors


@third
def pulse_search(client: Client) -> None:
    """The client makes a recording of many channels, and sends each piece to be searched; ten are on their way."""
    running, found = as_completed(with_results=True), []
    for number in range(48):
        piece = client.scatter(recording(number), hash=False)
        running.add(client.submit(strongest_pulse, piece, number, pure=False))
        if number >= 10:
            found.append(next(running)[1])
    found += [result for _, result in running]
    assert sorted(number for strength, number in found if strength > 8) == list(range(5, 48, 9))


def recording(number: int) -> Any:
    channels = np.random.default_rng(number).standard_normal((64, 4096), dtype=np.float32)
    if number % 9 == 5:  # a pulse, which is later in lower channels
        channels[np.arange(64), 1000 + 11 * np.arange(64)] += 3
    return channels


def strongest_pulse(channels: Any, number: int) -> tuple[float, int]:
    totals = [sum(np.roll(row, -delay * i) for i, row in enumerate(channels)) for delay in range(24)]
    return max(float((total.max() - total.mean()) / total.std()) for total in totals), number


@third
def tempering(client: Client) -> None:
    """Six magnets are actors: after each round the client may swap the temperatures of two neighbours."""
    colds = np.linspace(0.38, 0.5, 6)
    magnets = [client.submit(Magnet, seed, actor=True, pure=False).result() for seed in range(6)]
    rng, history = random.Random(0), []
    for number in range(24):
        running = [magnet.swept(cold, 8) for magnet, cold in zip(magnets, colds, strict=True)]
        energies = [each.result() for each in running]
        order = np.argsort(colds)
        history.append([energies[i] for i in order])
        for i, j in zip(order[number % 2 :: 2], order[number % 2 + 1 :: 2], strict=False):
            if rng.random() < np.exp(min((colds[j] - colds[i]) * (energies[j] - energies[i]), 0.0)):
                colds[[i, j]] = colds[[j, i]]
    assert np.all(np.diff(np.mean(history[12:], axis=0)) < 0)


class Magnet:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.spins = np.ones((160, 160), np.int8)
        self.colours = np.indices(self.spins.shape).sum(axis=0) % 2

    def swept(self, cold: float, sweeps: int) -> float:
        """The energy after so many sweeps over the two colours of a chessboard."""
        for colour in (0, 1) * sweeps:
            around = self.around()
            flipped = self.rng.random(around.shape) < np.exp(-2 * cold * self.spins * around)
            self.spins[flipped & (self.colours == colour)] *= -1
        return -float((self.spins * self.around()).sum()) / 2

    def around(self) -> Any:
        return sum(np.roll(self.spins, step, axis) for step in (-1, 1) for axis in (0, 1))


@third
def weather_ensemble(client: Client) -> None:
    """Forecasts run side by side, until one task corrects all of them by what has been measured; at last, quantiles."""
    members = [dask.delayed(disturbed)(number) for number in range(16)]
    for day in range(5):
        forecasts = [dask.delayed(forecast)(member) for member in members]
        corrected = dask.delayed(assimilated)(forecasts, day)
        members = [corrected[number] for number in range(16)]
    arrays = [da.from_delayed(member, (120, 120), dtype=float) for member in members]
    ensemble = xarray.DataArray(da.stack(arrays), dims=("member", "y", "x")).chunk(member=-1, y=30)
    _, middle, _ = ensemble.quantile([0.1, 0.5, 0.9], "member").compute()
    assert abs(middle - weather(5)).mean() < 0.15


def weather(day: int) -> Any:
    """Waves that move on by eight places each day."""
    places = np.arange(120) / 120 * 2 * np.pi
    return np.sin(3 * (places - 8 * day / 120 * 2 * np.pi)) * np.cos(2 * places)[:, None]


def disturbed(number: int) -> Any:
    return weather(0) + np.kron(numbers(number, 64).reshape(8, 8), np.ones((15, 15))) / 2


def forecast(field: Any) -> Any:
    for _ in range(64):  # an eighth of a place each
        left, right = np.roll(field, 1, axis=1), np.roll(field, -1, axis=1)
        field = field + (left - right) / 16 + (left + right - 2 * field) / 128
        field = field + 0.001 * (np.roll(field, 1, axis=0) + np.roll(field, -1, axis=0) - 2 * field)
    return field


def assimilated(fields: list[Any], day: int) -> Any:
    """An ensemble Kalman filter with a measurement at every hundredth place."""
    states = np.stack(fields).reshape(len(fields), -1)
    at = np.arange(50, states.shape[1], 100)
    rng = np.random.default_rng(day)
    measured = weather(day + 1).ravel()[at] + 0.1 * rng.standard_normal((len(fields), len(at)))
    spread = (states - states.mean(axis=0)) / (len(fields) - 1) ** 0.5
    seen = spread[:, at]
    gain = np.linalg.solve(seen.T @ seen + 0.01 * np.eye(len(at)), (measured - states[:, at]).T).T @ seen.T
    return (states + gain @ spread).reshape(-1, *fields[0].shape)


@third
def ray_casting(client: Client) -> None:
    """A picture of balls and their reflections: the client puts each tile in its place when it comes."""
    picture = np.zeros((12, 40, 16, 40, 3), np.uint8)
    tiles = client.map(cast, range(192), pure=False)
    places = {tile.key: divmod(number, 16) for number, tile in enumerate(tiles)}
    for batch in as_completed(tiles, with_results=True).batches():
        for tile, colours in batch:
            row, column = places[tile.key]
            picture[row, :, column] = colours
    assert 0.2 < (picture.sum(axis=-1) > 300).mean() < 0.8


def cast(number: int) -> Any:
    rng = np.random.default_rng(0)
    centres, colours = rng.uniform((-4, -3, 4), (4, 3, 9), (20, 3)), rng.random((20, 3))
    row, column = divmod(number, 16)
    y, x = np.mgrid[40 * row : 40 * (row + 1), 40 * column : 40 * (column + 1)].reshape(2, -1)
    rays = unit(np.stack([(x - 320) / 400, (y - 240) / 400, np.ones(len(x))], axis=1))
    starts, light, left = np.zeros_like(rays), np.zeros_like(rays), np.ones(len(rays))
    for _ in range(3):
        between = starts[:, None] - centres
        along = (rays[:, None] * between).sum(axis=2)
        inside = along**2 - (between**2).sum(axis=2) + 0.5
        ways = np.where(inside > 0, -along - np.sqrt(np.maximum(inside, 0)), np.inf)
        ways[ways < 1e-6] = np.inf
        nearest_ball, way = ways.argmin(axis=1), ways.min(axis=1)
        hit = np.isfinite(way)
        light[~hit] += (left * (0.5 - 0.5 * rays[:, 1]))[~hit, None]
        left[~hit] = 0
        starts = starts + np.where(hit, way, 0)[:, None] * rays
        normals = unit(starts - centres[nearest_ball])
        bright = left * np.maximum(normals @ unit(np.array([1.0, -1.0, -1.0])), 0.1)
        light += bright[:, None] * colours[nearest_ball]
        left *= 0.4
        rays = rays - 2 * (rays * normals).sum(axis=1)[:, None] * normals
    return (255 * np.clip(light, 0, 1)).astype(np.uint8).reshape(40, 40, 3)


def unit(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@fourth
def population_structure(client: Client) -> None:
    """People are told apart by the main components of the variants in their genes, found by a randomised SVD."""
    people, variants = (300,) * 4, (1000,) * 14
    genes = da.map_blocks(genotypes, chunks=(people, variants), dtype=np.float32, meta=np.empty((0, 0), np.float32))
    genes = genes.persist()
    scaled = (genes - genes.mean(axis=0)) / (genes.std(axis=0) + 0.1)
    left, strengths, _ = da.linalg.svd_compressed(scaled, k=6, n_power_iter=2, seed=0)
    places, strengths = dask.compute(left * strengths, strengths)
    centres = np.stack([places[origin::4, :3].mean(axis=0) for origin in range(4)])
    nearest = ((places[:, None, :3] - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert np.mean(nearest == np.arange(1200) % 4) > 0.95
    assert strengths[2] > 1.5 * strengths[3]


def genotypes(block_id: tuple[int, int]) -> Any:
    """How often each variant is in the genes of each person: of four origins in turn."""
    rare = np.random.default_rng([1, block_id[1]]).uniform(0.05, 0.5, 1000)
    shift = np.random.default_rng([2, block_id[1]]).normal(0, 0.06, (4, 1000))
    shares = np.clip(rare + shift, 0.01, 0.99)[np.arange(300) % 4]
    drawn = np.random.default_rng(block_id).random((2, 300, 1000))
    return (drawn < shares).sum(axis=0).astype(np.float32)


@fourth
def stock_trades(client: Client) -> None:
    """Trades, reported by brokers in any order, are sorted by time and compared with the quote before each of them."""
    trades = dask.dataframe.from_map(trades_by, range(14))
    hours = [3_600_000 * hour for hour in range(9)]
    quotes = dask.dataframe.from_map(quotes_in, hours[:-1], divisions=hours)
    priced = dask.dataframe.merge_asof(
        trades.set_index("at"), quotes, left_index=True, right_index=True, by="share", direction="backward"
    )
    priced["paid"] = (priced["price"] - priced["middle"]).abs() * priced["pieces"]
    costs = priced.groupby("share")[["paid", "pieces"]].sum().compute()
    assert costs["pieces"].sum() == 14 * sum(range(1, 11)) * 2500
    assert ((costs["paid"] / costs["pieces"] - 0.02).abs() < 0.005).all()


def middle_of(share: Any, at: Any) -> Any:
    return 100 + share + np.sin(at / 3_600_000 + share)


def trades_by(broker: int) -> Any:
    rng, count = np.random.default_rng(broker), 25_000
    at, share = rng.integers(60_000, 28_800_000, count), rng.integers(40, size=count)
    price = middle_of(share, at) + rng.choice([-0.02, 0.02], count)
    return pd.DataFrame({"at": at, "share": share, "price": price, "pieces": np.arange(count) % 10 + 1})


def quotes_in(start: int) -> Any:
    """Each share's every two seconds."""
    at, share = (each.ravel() for each in np.meshgrid(np.arange(0, 3_600_000, 2000) + start, range(40), indexing="ij"))
    return pd.DataFrame({"share": share, "middle": middle_of(share, at)}, index=pd.Index(at, name="at"))


@fourth
def docking(client: Client) -> None:
    """Many small molecules are tried in the pocket of a protein; the best few, known when all are in, once more."""
    pocket = client.scatter(pocket_grid(), broadcast=True, hash=False)
    best: list[tuple[float, int]] = []
    for _, result in as_completed(client.map(docked, range(900), pocket=pocket, poses=4), with_results=True):
        best = sorted([*best, result])[:20]
    again = client.gather(client.map(docked, [number for _, number in best], pocket=pocket, poses=100))
    assert all(closer[0] <= before[0] for closer, before in zip(again, best, strict=True))
    assert len({number for _, number in again}) == 20


def pocket_grid() -> Any:
    """The energy of an atom at each place of a cube."""
    return ndimage.gaussian_filter(np.random.default_rng(0).standard_normal((64, 64, 64)), 3).astype(np.float32)


def docked(number: int, pocket: Any, poses: int) -> tuple[float, int]:
    """The lowest energy of a molecule among so many turns, each of which is moved about."""
    rng, pocket = np.random.default_rng(number), pocket.copy()  # what arrives may lie unaligned, which is slow to read
    atoms = rng.normal(0, 4, (24 + number % 17, 3))
    lowest = np.inf
    for _ in range(poses):
        turn, _ = np.linalg.qr(rng.standard_normal((3, 3)))
        placed = (atoms @ turn)[None] + rng.uniform(24, 40, (12, 1, 3))
        energies = ndimage.map_coordinates(pocket, placed.T, order=1, mode="nearest").sum(axis=0)
        lowest = min(lowest, float(energies.min()))
    return lowest, number


@fourth
def marine_heatwaves(client: Client) -> None:
    """Sea temperatures come by the year; each place's whole series is searched for five warm days after one another."""
    years = [da.from_delayed(dask.delayed(sea_year)(year), (365, 60, 80), np.float32) for year in range(12)]
    sea = xarray.DataArray(da.concatenate(years), dims=("time", "lat", "lon"), coords={"lat": np.linspace(-59, 59, 60)})
    days = xarray.apply_ufunc(
        heatwave_days,
        sea.chunk(time=-1, lat=10, lon=20),
        input_core_dims=[["time"]],
        output_core_dims=[["year"]],
        dask="parallelized",
        output_dtypes=[np.int32],
        dask_gufunc_kwargs={"output_sizes": {"year": 12}},
    )
    by_year = days.weighted(np.cos(np.deg2rad(days.lat))).mean(("lat", "lon")).to_numpy()
    assert int(by_year.argmax()) == 7
    assert by_year[7] > 20 > by_year.mean()


def sea_year(year: int) -> Any:
    """Seasons and noise; one summer is too warm."""
    day = np.arange(365)
    noise = np.random.default_rng(year).standard_normal((365, 60, 80), dtype=np.float32)
    warm = 4 * (year == 7) * np.exp(-(((day - 200) / 20) ** 2))
    return (noise + (15 - 8 * np.cos(day / 58) + warm)[:, None, None]).astype(np.float32)


def heatwave_days(series: Any) -> Any:
    days = series.reshape(*series.shape[:-1], -1, 365)
    near = np.concatenate([np.roll(days, step, axis=-1) for step in range(-4, 5, 2)], axis=-2)
    warm = (days > np.quantile(near, 0.85, axis=-2, keepdims=True)).reshape(series.shape)
    runs = ndimage.minimum_filter1d(warm.astype(np.int8), 5, axis=-1)
    return ndimage.maximum_filter1d(runs, 5, axis=-1).reshape(days.shape).sum(axis=-1, dtype=np.int32)


@fourth
def runoff_calibration(client: Client) -> None:
    """A river's model is fitted to what was measured: scipy's evolution asks for one generation after the other."""
    truth = (0.3, 0.08, 120.0, 0.6)
    rain = np.random.default_rng(0).gamma(0.2, 20, 3000).tolist()
    measured = client.scatter((rain, flow(truth, rain)), broadcast=True, hash=False)

    def generation(_: Any, points: Any) -> list[float]:
        return client.gather(client.map(misfit, list(points), measured=measured, pure=False))  # type: ignore[no-any-return]

    bounds = [(0.01, 0.9), (0.01, 0.3), (20, 300), (0.1, 1)]
    found = optimize.differential_evolution(
        misfit, bounds, popsize=8, maxiter=20, rng=1, polish=False, updating="deferred", workers=generation
    )
    assert found.fun < 0.05


def flow(parameters: Any, rain: list[float]) -> Any:
    """Soil that overflows, drains into a quick and a slow store, and dries in summer."""
    quick_rate, slow_rate, room, split = map(float, parameters)
    soil = quick = slow = 0.0
    flows = []
    for day, water in enumerate(rain):
        soil += water - min(soil, 2.0 if day % 365 > 180 else 0.5)
        over = max(soil - room, 0.0) + 0.02 * soil
        soil -= over
        quick += split * over
        slow += (1 - split) * over
        flows.append(quick_rate * quick + slow_rate * slow)
        quick -= quick_rate * quick
        slow -= slow_rate * slow
    return np.array(flows)


def misfit(parameters: Any, measured: tuple[list[float], Any]) -> float:
    rain, flows = measured
    return float(((flow(parameters, rain) - flows) ** 2).sum() / ((flows - flows.mean()) ** 2).sum())


@fourth
def near_duplicates(client: Client) -> None:
    """News that papers have copied with few changes are found: those that share part of a fingerprint are compared."""
    news = db.from_sequence(range(1600), npartitions=10).map(news_text).map(shingles)
    groups = news.map(by_bands).flatten().groupby(lambda each: each[0], shuffle="tasks")
    pairs = groups.starmap(alike).flatten().distinct().compute()
    expected = {(number - 3, number) for number in range(1600) if number % 10 == 7}
    assert set(pairs) == expected


def news_text(number: int) -> tuple[int, list[str]]:
    """Every tenth is one that came three before, of which some words have been changed."""
    rng = random.Random(number - 3 if number % 10 == 7 else number)
    words = [f"word{int(rng.paretovariate(0.7)) % 9000}" for _ in range(350)]
    if number % 10 == 7:
        for place in range(number % 30, 350, 60):
            words[place] = "changed"
    return number, words


def shingles(text: tuple[int, list[str]]) -> tuple[int, Any]:
    number, words = text
    hashes = {zlib.crc32(" ".join(words[i : i + 3]).encode()) for i in range(len(words) - 2)}
    return number, np.array(sorted(hashes), np.uint64)


def by_bands(text: tuple[int, Any]) -> list[Any]:
    """Minimal hashes by 24 functions, three to a band."""
    number, hashes = text
    factors, offsets = np.random.default_rng(0).integers(1, 2**31, (2, 24, 1), dtype=np.uint64)
    lowest = ((hashes * factors + offsets) % np.uint64(4_294_967_291)).min(axis=1).reshape(8, 3)
    small = hashes.astype(np.uint32)
    return [(zlib.crc32(bytes([band]) + row.tobytes()), number, small) for band, row in enumerate(lowest)]


def alike(_: int, texts: list[Any]) -> list[tuple[int, int]]:
    ordered = sorted(texts, key=lambda each: each[1])
    return [
        (left[1], right[1])
        for left, right in combinations(ordered, 2)
        if left[1] < right[1] and len(np.intersect1d(left[2], right[2])) > 0.5 * len(left[2])
    ]


@fourth
def station_pairs(client: Client) -> None:
    """What seismometers record is whitened, and that of each correlated with all others, for the speed of the waves."""
    spectra = [dask.delayed(whitened)(dask.delayed(ground_noise)(station)) for station in range(24)]
    lags = [
        dask.delayed(lag_between)(spectra[first], spectra[second], 7 * (second - first))
        for first, second in combinations(range(24), 2)
    ]
    speed = dask.delayed(np.polyfit)(dask.delayed(np.array)(lags)[:, 0], dask.delayed(np.array)(lags)[:, 1], 1)
    slope, _ = client.compute(speed).result()
    assert abs(slope - 3) < 0.05


def ground_noise(station: int) -> Any:
    """Twelve days; the waves go three samples a kilometre, and stations are seven kilometres from each other."""
    waves = np.random.default_rng(99).standard_normal((12, 32_768), dtype=np.float32)
    own = np.random.default_rng(station).standard_normal((12, 32_768), dtype=np.float32)
    return np.roll(waves, 21 * station, axis=1) + 2 * own


def whitened(record: Any) -> Any:
    spectrum = np.fft.rfft(np.sign(record - record.mean(axis=1, keepdims=True)), axis=1)
    level = ndimage.uniform_filter1d(np.abs(spectrum), 41, axis=1)
    return (spectrum / level).astype(np.complex64)


def lag_between(first: Any, second: Any, distance: int) -> tuple[float, float]:
    """How much later the waves come to the second, by the middle of what the days say."""
    together = np.fft.irfft(first.conj() * second, axis=1)
    return float(distance), float(np.median(np.abs(together[:, :2000]).argmax(axis=1)))


@fourth
def cell_counting(client: Client) -> None:
    """Cells on a slide are outlined tile by tile, and one task joins those that lie on the edges of tiles."""
    slide = da.map_blocks(slide_tile, chunks=((256,) * 7,) * 2, dtype=np.float32, meta=np.empty((0, 0), np.float32))
    smooth = slide.map_overlap(ndimage.gaussian_filter, depth=12, boundary="reflect", sigma=3).persist()
    counts, edges = da.histogram(smooth, bins=64, range=(-0.5, 1.5))
    threshold = edges[np.searchsorted(np.cumsum(counts.compute()), 7 * 7 * 256**2 * 0.915)]
    tiles = (smooth > threshold).to_delayed()
    labelled = [[dask.delayed(ndimage.label, nout=2)(tile) for tile in row] for row in tiles]
    borders = [[dask.delayed(border)(labels, count) for labels, count in row] for row in labelled]
    names = dask.delayed(joined_names, nout=49)(borders)
    parts = zip(smooth.to_delayed().ravel(), [labels for row in labelled for labels, _ in row], names, strict=True)
    cells = dask.delayed(cell_sizes)([dask.delayed(measured_cells)(*each) for each in parts]).compute()
    assert len(cells) == 28**2


def slide_tile(block_id: tuple[int, int]) -> Any:
    """Round cells at about every 64th place, in noise."""
    rng, noise = np.random.default_rng(7), np.random.default_rng(block_id)
    at = np.stack(np.mgrid[32:1792:64, 32:1792:64], axis=-1).reshape(-1, 2) + rng.uniform(-14, 14, (28**2, 2))
    tile = noise.normal(0, 0.2, (256, 256))
    y, x = np.ogrid[256 * block_id[0] : 256 * (block_id[0] + 1), 256 * block_id[1] : 256 * (block_id[1] + 1)]
    for (row, column), radius in zip(at, rng.uniform(8, 13, 28**2), strict=True):
        if abs(row - y.mean()) < 145 and abs(column - x.mean()) < 145:
            tile += (y - row) ** 2 + (x - column) ** 2 < radius**2
    return tile.astype(np.float32)


def border(labels: Any, count: int) -> tuple[Any, ...]:
    return labels[0], labels[-1], labels[:, 0], labels[:, -1], count


def joined_names(borders: list[list[Any]]) -> list[Any]:
    """For each tile the names of its cells in the whole slide, nought for what is none."""
    counts = np.array([[each[4] for each in row] for row in borders])
    starts = np.cumsum(np.r_[1, counts.ravel()])[:-1].reshape(counts.shape)
    pairs = [np.empty((2, 0), int)]
    for i, j in np.ndindex(counts.shape):
        for ii, jj, mine, its in ((i + 1, j, 1, 0), (i, j + 1, 3, 2)):
            if ii < len(counts) and jj < len(counts):
                here, there = borders[i][j][mine], borders[ii][jj][its]
                both = (here > 0) & (there > 0)
                pairs.append(np.stack([here[both] - 1 + starts[i, j], there[both] - 1 + starts[ii, jj]]))
    links, size = np.concatenate(pairs, axis=1), int(counts.sum()) + 1
    _, names = sparse.csgraph.connected_components(sparse.coo_array((np.ones(links.shape[1]), links), (size, size)))
    return [np.r_[0, names[start : start + n]] for start, n in zip(starts.ravel(), counts.ravel(), strict=True)]


def measured_cells(tile: Any, labels: Any, names: Any) -> Any:
    own = names[labels].ravel()
    return pd.DataFrame({"pixels": np.bincount(own), "light": np.bincount(own, tile.ravel())}).query("pixels > 0")[1:]


def cell_sizes(tables: list[Any]) -> Any:
    return pd.concat(tables).groupby(level=0).sum().query("pixels > 60")


@fourth
def twin_primes(client: Client) -> None:
    """Primes below a thousand millions are sieved, three ranges for each worker, and twins are counted."""
    edges = np.linspace(0, 10**9, 3 * sum(client.nthreads().values()) + 1).astype(int) // 2 * 2
    ranges = client.gather(client.map(sieved, edges[:-1].tolist(), edges[1:].tolist(), pure=False))
    counts, twins, firsts, lasts = zip(*ranges, strict=True)
    seams = sum(after - before == 2 for before, after in zip(lasts[:-1], firsts[1:], strict=True))
    assert (sum(counts) + 1, sum(twins) + seams) == (50_847_534, 3_424_506)


def sieved(low: int, high: int) -> tuple[int, int, int, int]:
    """How many odd primes and twins are there, the first prime and the last."""
    count = twins = first = last = 0
    small = 1 + 2 * np.flatnonzero(odd_primes(0, 32_000, list(range(3, 180, 2))))
    for start in range(low, high, 4_000_000):
        found = start + 1 + 2 * np.flatnonzero(odd_primes(start, min(start + 4_000_000, high), small.tolist()))
        gaps = np.diff(found, prepend=last)
        count, twins = count + len(found), twins + int((gaps == 2).sum())
        first, last = first or int(found[0]), int(found[-1])
    return count, twins, first, last


def odd_primes(low: int, high: int, small: list[int]) -> Any:
    """Whether low + 1, low + 3 and so on are primes."""
    prime = np.ones((high - low) // 2, bool)
    prime[0] = low > 0
    for divisor in small:
        multiple = max(divisor * divisor, (low // divisor + 1) * divisor)
        prime[(multiple + divisor * (multiple % 2 == 0) - low) // 2 :: divisor] = False
    return prime


@fourth
def smart_meters(client: Client) -> None:
    """Half a year of meter readings, a table a month: the largest users first, then at which hours these pay what."""
    readings = dask.dataframe.from_map(month_of_readings, range(6))
    homes = pd.DataFrame({"meter": [f"M{i:04}" for i in range(50)], "tariff": ["flat", "night"] * 25})
    used = readings.groupby("meter")["kwh"].sum().compute()
    large = used[used > used.quantile(0.75)].index.tolist()
    theirs = readings[readings["meter"].isin(large)].merge(homes, on="meter")
    hour = theirs["at"].dt.hour.rename("hour")
    night = (theirs["tariff"] == "night") & ((hour < 6) | (hour >= 22))
    theirs["paid"] = theirs["kwh"] * (0.3 - 0.18 * night.astype(float))
    bills = theirs.groupby([theirs["tariff"], hour])[["kwh", "paid"]].agg(["sum", "std"]).compute()
    assert bills.shape == (48, 4)
    assert np.isclose(bills["kwh", "sum"].sum(), used[large].sum())


def month_of_readings(month: int) -> Any:
    """Lines of text from the meters, one every half an hour: its number and what it has counted."""
    at = pd.date_range(f"2026-{month + 1:02}-01", periods=30 * 48, freq="30min")
    rng = np.random.default_rng(month)
    kwh = rng.gamma(2, 0.1, (50, len(at))) * np.linspace(0.5, 2, 50)[:, None]
    lines = [f"M{meter:04};{value:.3f}" for meter in range(50) for value in kwh[meter]]
    fields = pd.Series(lines).str.split(";", expand=True)
    return pd.DataFrame({"meter": fields[0], "at": np.tile(at, 50), "kwh": fields[1].astype(float)})


@fifth
def burnt_pancakes(client: Client) -> None:
    """How many flips do stacks of pancakes need? Four actors know which stacks have been seen, and tasks tell them."""
    shelves = client.gather([client.submit(Shelf, actor=True, pure=False) for _ in range(4)])
    tell(shelves, stack_codes(np.arange(7)[None]))
    counts: list[int] = []
    while new := sum(each.result() for each in [shelf.turn() for shelf in shelves]):
        counts.append(new)
        client.gather([client.submit(flip_all, shelves, i, k, pure=False) for i in range(4) for k in range(3)])
    assert (len(counts), sum(counts)) == (15, 2**7 * 5040)


class Shelf:
    """A quarter of all stacks, by their codes: those seen, those that were new at last, and what has come since."""

    def __init__(self) -> None:
        self.seen = self.latest = np.empty(0, np.uint32)
        self.coming: list[Any] = []

    def add(self, codes: Any) -> None:
        self.coming.append(codes)

    def third_of(self, number: int) -> Any:
        return self.latest[number::3]

    def turn(self) -> int:
        codes = np.unique(np.concatenate(self.coming))
        self.latest = codes[~np.isin(codes, self.seen, assume_unique=True)]
        self.seen, self.coming = np.concatenate([self.seen, self.latest]), []
        return len(self.latest)


def tell(shelves: list[Any], codes: Any) -> None:
    for sent in [shelf.add(codes[codes % 1009 % 4 == i]) for i, shelf in enumerate(shelves)]:
        sent.result()


def stack_codes(stacks: Any) -> Any:
    """The number of a pancake is seven more where its burnt side is up."""
    return (stacks @ 14 ** np.arange(7)).astype(np.uint32)


def flip_all(shelves: list[Any], shelf: int, number: int) -> None:
    codes = shelves[shelf].third_of(number).result()
    stacks = codes[:, None].astype(np.int64) // 14 ** np.arange(7) % 14
    flipped = []
    for size in range(1, 8):
        turned = stacks.copy()
        turned[:, :size] = (stacks[:, :size][:, ::-1] + 7) % 14
        flipped.append(stack_codes(turned))
    tell(shelves, np.unique(np.concatenate(flipped)))


@fifth
def mesh_bisection(client: Client) -> None:
    """A mesh is cut in two again and again: a task cuts its part, submits both halves as tasks and waits for them."""
    mesh = client.submit(holed_mesh, 200, pure=False)
    parts, crossing = client.submit(bisected, mesh, 5, pure=False).result()
    sizes = [size for size, _ in parts]
    assert len(sizes) == 32 == sum(size - min(sizes) in (0, 1) for size in sizes)
    assert crossing < sum(sizes) / 10


def holed_mesh(side: int) -> Any:
    """Neighbouring points of a grid of triangles, without those in a few round holes."""
    y, x = np.mgrid[:side, :side]
    centres = np.random.default_rng(0).uniform(0, side, (6, 2))
    solid = np.all([np.hypot(y - row, x - column) > side / 15 for row, column in centres], axis=0).ravel()
    at = np.arange(side * side).reshape(side, side)
    pairs = [(at[1:], at[:-1]), (at[:, 1:], at[:, :-1]), (at[1:, 1:], at[:-1, :-1])]
    one, other = (np.concatenate([pair[i].ravel() for pair in pairs]) for i in (0, 1))
    graph = sparse.coo_array((np.ones(len(one)), (one, other)), (side * side, side * side)).tocsr()
    return (graph + graph.T)[solid][:, solid]


def bisected(graph: Any, depth: int) -> tuple[list[tuple[int, float]], int]:
    """The sizes of the parts and their slowest swings, and how many neighbours have been cut from each other."""
    size = graph.shape[0]
    laplacian = (sparse.diags_array(graph.sum(axis=0)) - graph).tocsc()
    values, vectors = sparse.linalg.eigsh(laplacian, k=2, sigma=-0.001, v0=numbers(depth, size))
    if depth == 0:
        return [(size, float(values[1]))], 0
    order = vectors[:, 1].argsort()
    left, right = order[: size // 2], order[size // 2 :]
    with worker_client() as client:
        halves = [graph[half][:, half] for half in (left, right)]
        found = client.gather([client.submit(bisected, half, depth - 1, pure=False) for half in halves])
    return found[0][0] + found[1][0], found[0][1] + found[1][1] + int(graph[left][:, right].sum())


@fifth
def spectral_lines(client: Client) -> None:
    """One task for each worker takes spectra off a queue until told to stop; bad fits are put on it once more."""
    waiting, done = Queue(client=client), Queue(client=client)
    tasks = [client.submit(fit_from, waiting, done, pure=False) for _ in range(sum(client.nthreads().values()))]
    for number in range(150):
        waiting.put((number, 1))
    lines: dict[int, int] = {}
    while len(lines) < 150:
        number, count, error = done.get()
        if error > 1.1 and count < 5:
            waiting.put((number, count + 1))
        else:
            lines[number] = count
    for _ in tasks:
        waiting.put(None)
    assert sum(client.gather(tasks)) == sum(lines.values())
    assert np.mean([count == 1 + number % 4 for number, count in lines.items()]) > 0.95


def fit_from(waiting: Any, done: Any) -> int:
    """How many fits have been made here."""
    fits = 0
    while job := waiting.get():
        (number, count), begin = job, np.empty(0)
        x, light = spectrum_of(number)
        for _ in range(count):  # each line begins where most is left of the light
            rest = np.convolve(light - lines_at(begin, x), np.ones(50) / 50, "same")
            begin = np.r_[begin, x[rest.argmax()], rest.max(), 0.5]
        found = optimize.least_squares(lambda trial, x=x, light=light: lines_at(trial, x) - light, begin, max_nfev=60)
        done.put((number, count, float(2 * found.cost / len(x))))
        fits += 1
    return fits


def spectrum_of(number: int) -> tuple[Any, Any]:
    """One to four lines in noise."""
    rng, x, count = np.random.default_rng(number), np.linspace(0, 20, 4000), 1 + number % 4
    places = 2 + 16 * (np.arange(count) + rng.uniform(0.2, 0.8, count)) / count
    lines = np.stack([places, rng.uniform(3, 8, count), rng.uniform(0.3, 0.6, count)], axis=1)
    return x, lines_at(lines.ravel(), x) + rng.standard_normal(len(x))


def lines_at(parameters: Any, x: Any) -> Any:
    places, heights, widths = parameters.reshape(-1, 3, 1).swapaxes(0, 1)
    return (heights * np.exp(-(((x - places) / widths) ** 2))).sum(axis=0)


@fifth
def drought_index(client: Client) -> None:
    """Rain by the day is added up by month and half a year; each place is dry by what is usual there in that month."""
    days = pd.date_range("2000-01-01", "2011-12-31")
    lengths = tuple(np.bincount(days.year - 2000).tolist())
    rain = da.map_blocks(rain_in, chunks=(lengths, (20, 20), (96,)), dtype=np.float32, meta=np.empty((0,) * 3, "f4"))
    daily = xarray.DataArray(rain, dims=("time", "lat", "lon"), coords={"time": days})
    monthly = xarray.Dataset({"rain": daily, "wet_days": (daily > 1).astype(np.float32)}).resample(time="MS").sum()
    half_years = monthly.chunk(time=-1, lat=10).rolling(time=6).sum().isel(time=slice(5, None)).chunk(time=-1, lat=5)
    index = half_years.map_blocks(unusual, template=half_years)
    dry = (index < -1).mean(("lat", "lon")).compute().groupby("time.year").mean().to_dataframe()
    assert dry["rain"].idxmax() == 2009
    assert dry["rain"].max() > 0.5 > 2 * dry["wet_days"].mean()


def unusual(values: Any) -> Any:
    months = values.groupby("time.month")
    return ((months - months.mean()).groupby("time.month") / months.std()).drop_vars("month")


def rain_in(block_id: tuple[int, int, int], block_info: Any = None) -> Any:
    """A year of it; in one there is little."""
    shape = block_info[None]["chunk-shape"]
    rng = np.random.default_rng(block_id)
    storms = rng.standard_exponential(shape, np.float32) * (rng.random(shape, np.float32) < 0.3)
    season = (6 if block_id[0] == 9 else 10) * (1 + 0.6 * np.cos(np.arange(shape[0]) / 58))
    return (storms * season[:, None, None]).astype(np.float32)


@fifth
def robust_regression(client: Client) -> None:
    """Wrong measurements count less and less: least squares by a tree of QR decompositions, weighted anew each time."""
    knots, rows = 40, (13_000,) * 20
    places = da.random.default_rng(1).random(sum(rows), chunks=(rows,))
    basis = da.map_blocks(bumps, places, knots, chunks=(rows, (knots,)), new_axis=1, dtype=float).persist()
    measured = da.map_blocks(faulty, places, dtype=float).persist()
    weights = da.ones(sum(rows), chunks=(rows,))
    for _ in range(4):
        found = da.linalg.lstsq(basis * weights[:, None], measured * weights)[0].compute()
        weights = (1 / da.sqrt(da.maximum(abs(measured - basis @ found), 0.02))).persist()
    at = np.linspace(0.1, 0.9, 200)
    assert np.abs(bumps(at, knots) @ found - hidden_curve(at)).max() < 0.1


def bumps(places: Any, knots: int) -> Any:
    return np.exp(-((places[:, None] * (knots - 1) - np.arange(knots)) ** 2))


def hidden_curve(places: Any) -> Any:
    return np.sin(9 * places) + places**2


def faulty(places: Any) -> Any:
    """Every fifth measurement is much too large."""
    rng, count = np.random.default_rng(int(places[0] * 1e9)), len(places)
    return hidden_curve(places) + rng.normal(0, 0.05, count) + (rng.random(count) < 0.2) * rng.exponential(5, count)


@fifth
def largest_orders(client: Client) -> None:
    """Two large tables of a shop are joined, each shuffled for it, and the open orders that bring most are found."""
    people = pd.DataFrame({"customer": range(3000), "segment": ["home", "office", "shop", "school"] * 750})
    orders = dask.dataframe.from_map(orders_in, range(12))
    items = dask.dataframe.from_map(items_in, range(16))
    ours = orders[orders["day"] < 70].merge(people[people["segment"] == "shop"], on="customer")
    sold = items[items["shipped"] > 70].merge(ours, on="order", how="inner", shuffle_method="p2p")
    sold["paid"] = sold["price"] * (1 - sold["discount"])
    best = sold.groupby(["order", "day"])["paid"].sum(split_out=4).reset_index().nlargest(10, "paid").compute()
    assert best["order"].tolist()[:5] == [193_478, 190_586, 232_566, 165_562, 16_646]


def orders_in(part: int) -> Any:
    """Each with a customer, a day and what was said."""
    rng, order = np.random.default_rng(part), np.arange(part, 240_000, 12)
    remarks = [f"please ring {number:012}" for number in rng.integers(10**12, size=len(order))]
    days = rng.integers(100, size=len(order))
    return pd.DataFrame({"order": order, "customer": order % 3000, "day": days, "remark": remarks})


def items_in(part: int) -> Any:
    rng, count = np.random.default_rng([part, 1]), 70_000
    order, shipped = rng.integers(240_000, size=count), rng.integers(170, size=count)
    names = [f"article {number:05} in a box" for number in rng.integers(99_999, size=count)]
    price, discount = np.round(rng.gamma(2, 30, count), 2), rng.integers(10, size=count) / 100
    return pd.DataFrame({"order": order, "shipped": shipped, "price": price, "discount": discount, "name": names})


@fifth
def tokeniser(client: Client) -> None:
    """Byte pairs: a bag's most frequent pairs of neighbours are counted, become one each, and so on in rounds."""
    words = db.from_sequence(range(16), npartitions=16).map_partitions(word_list).persist()
    vocabulary: list[tuple[str, str]] = []
    for _ in range(8):
        counts = words.reduction(pair_counts, merged_counts, split_every=4).compute()
        best = sorted(counts, key=lambda pair: (-counts[pair], pair))
        pairs = best[:1] + [pair for pair in best[1:4] if not set(pair) & set(best[0])]
        vocabulary += pairs
        words = words.map_partitions(join_pairs, pairs).persist()
    tokens = words.map(lambda word: len(word[0]) * word[1]).sum().compute()
    letters = words.map(lambda word: len("".join(word[0])) * word[1]).sum().compute()
    assert len(vocabulary) == len(set(vocabulary)) >= 16
    assert tokens < 0.8 * letters


def word_list(parts: Iterable[int]) -> list[tuple[tuple[str, ...], int]]:
    """Words as tuples of letters, and how often each is in a part of the text."""
    rng, syllables = random.Random(next(iter(parts))), [a + b + c for a in "bdklmnst" for b in "aeiou" for c in "nr "]
    text: Counter[str] = Counter()
    for _ in range(5000):
        length = 2 + int(rng.paretovariate(1.5)) % 4
        text["".join(syllables[int(120 * rng.random() ** 2)] for _ in range(length)).replace(" ", "")] += 1
    return [(tuple(word), count) for word, count in text.items()]


def pair_counts(words: Iterable[tuple[tuple[str, ...], int]]) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for letters, count in words:
        for pair in pairwise(letters):
            counts[pair] += count
    return counts


def merged_counts(parts: Iterable[Counter[tuple[str, str]]]) -> Counter[tuple[str, str]]:
    return sum(parts, Counter())


def join_pairs(words: Iterable[Any], pairs: list[tuple[str, str]]) -> list[Any]:
    wanted, joined_words = set(pairs), []
    for letters, count in words:
        tokens = [letters[0]]
        for letter in letters[1:]:
            if (tokens[-1], letter) in wanted:
                tokens[-1] += letter
            else:
                tokens.append(letter)
        joined_words.append((tuple(tokens), count))
    return joined_words


@fifth
def code_search(client: Client) -> None:
    """Random codes are tried, most of which soon prove bad; the rest is cancelled when the first fifty are known."""
    tries = client.map(rows_until_bad, range(600), pure=False)
    results: dict[str, int] = {}
    sizes: list[int] = []
    running = as_completed(tries, with_results=True)
    while sizes.count(22) < 50:
        while tries[len(sizes)].key not in results:
            task, size = next(running)
            results[task.key] = size
        sizes.append(results[tries[len(sizes)].key])
    client.cancel(tries[len(sizes) :])
    assert len(sizes) == 305


def rows_until_bad(number: int) -> int:
    """With how many rows two words of the code still differ by six bits or more."""
    rng, words = np.random.default_rng(number), np.zeros(1, np.uint64)
    for row in range(22):
        more = words ^ np.uint64(2 ** (row + 19) + int(rng.integers(2**19)))
        if np.bitwise_count(more).min() < 6:
            return row
        words = np.concatenate([words, more])
    return 22


@fifth
def federated_learning(client: Client) -> None:
    """Some of the hospitals learn from their own patients in each round; models go out and are averaged by a tree."""
    sites = client.map(patients_of, range(12), pure=False)
    inner, outer = numbers(1, 512 * 512).reshape(512, 512).astype(np.float32) / 23, np.zeros((512, 16), np.float32)
    model, rng, losses = client.scatter((inner, outer, 0.0), hash=False), random.Random(0), []
    for _ in range(7):
        models = [client.submit(learned_at, model, site, pure=False) for site in rng.sample(sites, 8)]
        while len(models) > 1:
            models = [client.submit(averaged, *models[i : i + 2], pure=False) for i in range(0, len(models), 2)]
        model = models[0]
        losses.append(client.submit(loss_of, model, pure=False).result())
    assert losses[-1] < 0.5 * losses[0]


def patients_of(site: int) -> tuple[Any, Any]:
    """Some have many more than others."""
    features = numbers(site, 512 * (150 + 30 * site)).reshape(-1, 512).astype(np.float32)
    hidden = np.tanh(features @ numbers(99, 512 * 32).reshape(512, 32) / 16)
    return features, (hidden @ numbers(98, 32 * 16).reshape(32, 16)).astype(np.float32)


def learned_at(model: tuple[Any, Any, float], patients: tuple[Any, Any]) -> tuple[Any, Any, float]:
    """A few steps of gradient descent, and the loss at the last."""
    inner, outer, features, targets = (each.copy() for each in (*model[:2], *patients))
    for _ in range(6):
        hidden = np.tanh(features @ inner)
        errors = hidden @ outer - targets
        back = (errors @ outer.T) * (1 - hidden**2) / len(targets)
        outer = outer - 0.03 * (hidden.T @ errors) / len(targets)
        inner = inner - 0.03 * (features.T @ back)
    return inner, outer, float((errors**2).mean())


def averaged(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((one + other) / 2 for one, other in zip(left, right, strict=True))


def loss_of(model: tuple[Any, Any, float]) -> float:
    return model[2]


@fifth
def dam_break(client: Client) -> None:
    """Water runs on after a dam has broken: ten strips of a basin, each of which needs the rims of its neighbours."""
    strips = [dask.delayed(still_water)(number) for number in range(10)]
    levels = []
    for _ in range(12):
        upper, lower = [strip[:, :5] for strip in strips], [strip[:, -5:] for strip in strips]
        above, below = [dask.delayed(mirrored)(upper[0]), *lower[:-1]], [*upper[1:], dask.delayed(mirrored)(lower[-1])]
        strips = [dask.delayed(run_on)(*each) for each in zip(strips, above, below, strict=True)]
        levels.append(dask.delayed(np.sum)([dask.delayed(volume_of)(strip) for strip in strips]))
    assert np.allclose(client.gather(client.compute(levels)), 10 * 48 * 512 + 5 * 48 * 100 * 0.5)


def still_water(number: int) -> Any:
    """Depth, and how much flows along and across; it is deeper behind the dam."""
    water = np.zeros((3, 48, 512))
    water[0] = 1 + 0.5 * (number < 5) * (abs(np.arange(512) - 249.5) < 50)
    return water


def mirrored(rim: Any) -> Any:
    return rim[:, ::-1] * np.array([1.0, 1.0, -1.0])[:, None, None]


def run_on(strip: Any, above: Any, below: Any) -> Any:
    """Five steps, each of which uses up a row of the rims."""
    water = np.concatenate([above, strip, below], axis=1)
    for _ in range(above.shape[1]):
        depth, along, across = water
        pressed, both = 0.5 * depth**2, along * across / depth
        right = np.stack([along, along**2 / depth + pressed, both])
        down = np.stack([across, both, across**2 / depth + pressed])
        around = np.roll(water, 1, axis=2) + np.roll(water, -1, axis=2)
        flows = np.roll(right, -1, axis=2) - np.roll(right, 1, axis=2)
        mean = (around[:, 1:-1] + water[:, :-2] + water[:, 2:]) / 4
        water = mean - 0.1 * (flows[:, 1:-1] + down[:, 2:] - down[:, :-2])
    return water


def volume_of(strip: Any) -> float:
    return float(strip[0].sum())


@sixth
def flow_modes(client: Client) -> None:
    """A flow behind a cylinder is split into its waves: singular vectors of its snapshots, then their frequencies."""
    parts, points, times, speeds = 32, 1800, 144, (0.2, 0.5, 0.9)
    rank = 2 * len(speeds)
    pieces = [dask.delayed(wake_snapshots)(part, points, times, speeds) for part in range(parts)]
    flow = da.concatenate([da.from_delayed(piece, (points, times), dtype=float) for piece in pieces]).persist()
    left, sizes, right = da.linalg.svd(flow[:, :-1])
    left, sizes, right = dask.persist(left[:, :rank], sizes[:rank], right[:rank])
    step = (left.T @ flow[:, 1:] @ right.T / sizes).compute()
    found = np.sort(np.abs(np.angle(np.linalg.eigvals(step))))[::2]
    assert np.allclose(found, speeds, atol=0.02)
    rest = flow[:, :-1] - (left * sizes) @ right
    assert 0.09 < rest.std().compute() < 0.11


def wake_snapshots(part: int, points: int, times: int, speeds: tuple[float, ...]) -> Any:
    """Three waves that travel along the wake, and noise."""
    x, t = part + np.linspace(0, 1, points)[:, None], np.arange(times)
    flow = 0.1 * np.random.default_rng(part).standard_normal((points, times))
    for size, number, speed in zip((1, 0.7, 0.5), (1.3, 2.9, 4.1), speeds, strict=True):
        flow += size * np.cos(number * x - speed * t)
    return flow


@sixth
def insured_losses(client: Client) -> None:
    """Storms' gusts are joined with insured houses, for the losses of each year and then those of each house."""
    parts, storms, regions = 10, 140, 4
    gusts = dask.dataframe.from_map(storm_gusts, range(parts), storms=storms)
    houses = dask.dataframe.from_map(insured_houses, range(regions))
    hit = gusts.merge(houses, on="cell", shuffle_method="tasks")
    hit["loss"] = hit["value"] * ((hit["gust"] - hit["stands"]) / 40).clip(0, 1) ** 3
    of_year = hit.groupby("year")["loss"].sum().compute()
    of_house = hit.groupby("house")["loss"].sum(split_out=4, shuffle_method="tasks").compute()
    assert len(of_year) == parts * storms // 20
    assert len(of_house) <= 3600 * regions
    assert np.isclose(of_year.sum(), of_house.sum())


def storm_gusts(part: int, storms: int) -> Any:
    """Gusts in the 400 cells around each storm; there are twenty storms a year."""
    rng, near = np.random.default_rng(part), np.arange(-10, 10)
    x, y = rng.integers(10, 50, (2, storms, 1, 1))
    strength = rng.gumbel(30, 5, (storms, 1, 1)) * np.exp(-np.hypot(near[:, None], near) / 8)
    gust = strength + rng.normal(size=strength.shape)
    cell = (x + near[:, None]) * 60 + y + near
    year = (np.arange(storms) + part * storms) // 20
    return pd.DataFrame({"year": year.repeat(near.size**2), "cell": cell.ravel(), "gust": gust.ravel()})


def insured_houses(region: int) -> Any:
    """One in each of 60 times 60 cells: its value, and the gust it stands."""
    rng, count = np.random.default_rng(region), 3600
    values, stands = rng.lognormal(12, 0.5, count), rng.uniform(15, 30, count)
    houses = np.arange(count) + region * count
    return pd.DataFrame({"house": houses, "cell": rng.permutation(count), "value": values, "stands": stands})


@sixth
def rna_folding(client: Client) -> None:
    """The most base pairs of a strand of RNA: a block of the table of intervals needs those left of it and below it."""
    blocks, side = 14, 112
    strands = [dask.delayed(rna_strand)(seed, side) for seed in range(blocks)]
    table: dict[tuple[int, int], Any] = {}
    for width in range(blocks):
        for i in range(blocks - width):
            j = i + width
            row, column = [table[i, k] for k in range(i, j)], [table[k, j] for k in range(i + 1, j + 1)]
            table[i, j] = dask.delayed(folded_block)(strands[i : j + 1], row, column)
    most = table[0, blocks - 1][0, -1].compute()
    assert blocks * side / 7 < most <= blocks * side / 2


def rna_strand(seed: int, side: int) -> Any:
    """Bases from 0 to 3, of which those pair whose sum is 3."""
    return np.random.default_rng(seed).integers(4, size=side)


def folded_block(strands: list[Any], row: list[Any], column: list[Any]) -> Any:
    """Pairs of the intervals that start at each base of the first strand, and one after it, and end in the last."""
    side, width = len(strands[0]), len(row)
    gap = np.arange(side) - np.arange(side)[:, None]
    best = np.full((side + 1, side), -(10**6))
    if row:
        best[-1] = column[0][0]
        first = with_pair(strands[0][:, None], strands[0], gap, row[0][1:])
    else:
        np.fill_diagonal(best, 0)
    for k in range(1, width):
        ends = with_pair(strands[0][:, None], strands[k], k * side + gap, row[k][1:])
        for i in range(side):
            best[i] = np.maximum(best[i], (ends[i][:, None] + column[k - 1][1:]).max(axis=0))
    last = column[-1] if row else best
    for i in reversed(range(side)):
        ends = with_pair(strands[0][i], strands[-1], width * side + gap[i], best[i + 1])
        options = [best[i], best[i + 1], (ends[:, None] + last[1:]).max(axis=0)]
        if row:
            options.append((first[i][:, None] + best[1:]).max(axis=0))
        best[i] = np.max(options, axis=0)
    return best


def with_pair(left: Any, right: Any, gap: Any, inside: Any) -> Any:
    """One pair more than inside, where these bases pair and are not too near."""
    return np.where((left + right == 3) & (gap > 3), inside + 1, -(10**6))


@sixth
def refuse_site(client: Client) -> None:
    """The best site of an incinerator, near to customers but far from homes: squares that cannot hold it are cut."""
    count, parts, most = 2500, 16, 400
    slack = 0.0038 * count
    places = client.scatter(weighted_places(count), broadcast=True, hash=False)
    squares = [(-np.inf, x / 8, y / 8, 1 / 8) for x in range(8) for y in range(8)]
    best, tried, running = np.inf, 0, as_completed(with_results=True)
    while squares or running.count():
        while squares and running.count() < 32:
            bound, *square = heapq.heappop(squares)
            if bound < best - slack and tried < most:
                running.add(client.submit(split_square, places, best, *square, parts, pure=False))
                tried += 1
        if running.count():
            _, (lowest, smaller) = next(running)
            best = min(best, lowest)
            for each in smaller:
                heapq.heappush(squares, each)
    assert 64 <= tried <= most
    assert 0 < best < count / 2


def weighted_places(count: int) -> Any:
    """Places in the unit square, and what each mile from them costs."""
    rng = np.random.default_rng(11)
    return np.stack([rng.random(count), rng.random(count), np.where(rng.random(count) < 0.7, 1, -1)])


def split_square(places: Any, best: float, x: float, y: float, width: float, parts: int) -> Any:
    """The lowest cost at the middles of a square's squares, and those of them that may hold a lower one."""
    at_x, at_y, cost = places
    half = width / parts / 2
    corners = np.arange(parts) * 2 * half
    across, along = np.abs(x + half + corners[:, None] - at_x), np.abs(y + half + corners[:, None] - at_y)
    bounds = miles_off(across - half, along - half) @ np.maximum(cost, 0)
    bounds += miles_off(across + half, along + half) @ np.minimum(cost, 0)
    lowest = float((miles_off(across, along) @ cost).min())
    kept = np.argwhere(bounds < min(best, lowest))
    return lowest, [(float(bounds[i, j]), x + float(corners[i]), y + float(corners[j]), 2 * half) for i, j in kept]


def miles_off(across: Any, along: Any) -> Any:
    return np.sqrt(np.maximum(across, 0)[:, None] ** 2 + np.maximum(along, 0) ** 2)


@sixth
def shopping_baskets(client: Client) -> None:
    """Goods that are often bought together: sets of two to four are counted whose smaller sets are found often."""
    tills, count, least = 16, 2000, 128
    receipts = db.from_sequence(range(tills), npartitions=tills).map(till_receipts, count).flatten().persist()
    sold = dict(receipts.foldby(itemgetter("shop"), with_goods_of, 0, add, 0).compute())
    bought = receipts.pluck("goods").flatten().frequencies().compute()
    assert sum(sold.values()) == sum(number for _, number in bought)
    often = {(good,) for good, number in bought if number >= least}
    for size in (2, 3, 4):
        counted = partial(sets_bought, size=size, often=often)
        counts = receipts.pluck("goods").map_partitions(counted).fold(add).compute()
        often = {goods for goods, number in counts.items() if number >= least}
    assert len(often) >= 90
    kinds = receipts.groupby(itemgetter("customer"), shuffle="tasks").map(kinds_of_goods)
    assert 10 < kinds.max().compute() <= len(bought)


def till_receipts(till: int, count: int) -> list[dict[str, Any]]:
    """Some goods are bought more than others, and in half of the receipts is most of one of 20 menus of five goods."""
    rng, receipts = random.Random(till), []
    for _ in range(count):
        goods = {int(rng.expovariate(0.02)) for _ in range(rng.randint(2, 9))}
        if rng.random() < 0.5:
            goods.update(good for good in range(rng.randrange(20), 100, 20) if rng.random() < 0.8)
        receipts.append({"shop": till % 5, "customer": rng.randrange(2000), "goods": sorted(goods)})
    return receipts


def with_goods_of(total: int, receipt: dict[str, Any]) -> int:
    return total + len(receipt["goods"])


def sets_bought(baskets: Iterable[list[int]], size: int, often: set[tuple[int, ...]]) -> list[Any]:
    known = {good for goods in often for good in goods}
    sets: Counter[tuple[int, ...]] = Counter()
    for goods in baskets:
        for some in combinations([good for good in goods if good in known], size):
            if some[1:] in often and some[:-1] in often:
                sets[some] += 1
    return [sets]


def kinds_of_goods(purchases: tuple[int, list[dict[str, Any]]]) -> int:
    return len({good for receipt in purchases[1] for good in receipt["goods"]})


@sixth
def brain_activation(client: Client) -> None:
    """Scans of a brain are smoothed, and each voxel's course is compared with when pictures were shown before it."""
    runs, volumes, shape, delays = 15, 16, (20, 56, 56), 8
    shown = np.arange(runs * volumes) // 12 % 2
    seen = np.reshape(np.roll(shown, 3), (runs, volumes))
    pieces = [dask.delayed(brain_scans)(run, seen[run], shape) for run in range(runs)]
    scans = da.concatenate([da.from_delayed(piece, (volumes, *shape), dtype=np.float32) for piece in pieces])
    smooth = scans.map_blocks(smoothed_scans, dtype=np.float32, meta=np.empty((0, 0, 0, 0), np.float32))
    brain = xarray.DataArray(smooth, dims=("time", "z", "y", "x"))
    with dask.config.set({"array.rechunk.method": "tasks"}):
        courses = (brain / brain.mean("time") - 1).chunk(time=-1, z=1)
    match = xarray.apply_ufunc(
        delayed_matches,
        courses,
        input_core_dims=[["time"]],
        output_core_dims=[["delay"]],
        dask="parallelized",
        output_dtypes=[np.float32],
        dask_gufunc_kwargs={"output_sizes": {"delay": delays}},
        kwargs={"shown": shown, "delays": delays},
    )
    strength, delay = dask.compute(match.max("delay"), match.argmax("delay", skipna=False))
    assert strength[:, 20:32, 20:32].mean() > 0.5 > strength[:, :8, :8].mean()
    assert (delay[:, 20:32, 20:32] == 3).mean() > 0.9


def brain_scans(run: int, seen: Any, shape: tuple[int, ...]) -> Any:
    """Noise, and in a part of the brain an answer to what was seen."""
    scans = 100 + 2 * np.random.default_rng(run).standard_normal((len(seen), *shape), dtype=np.float32)
    scans[:, :, 16:36, 16:36] += 3 * seen[:, None, None, None]
    return scans


def smoothed_scans(scans: Any) -> Any:
    return ndimage.gaussian_filter(scans, (0, 1.5, 1.5, 1.5))


def delayed_matches(courses: Any, shown: Any, delays: int) -> Any:
    """Correlations of each course with what was shown some scans before."""
    courses = signal.detrend(courses, axis=-1)
    courses /= courses.std(axis=-1, keepdims=True)
    before = np.stack([np.roll(shown, delay) for delay in range(delays)], axis=-1)
    before = (before - before.mean(axis=0)) / before.std(axis=0)
    return courses @ before.astype(np.float32) / len(shown)


@sixth
def bus_headways(client: Client) -> None:
    """Buses' reports are sorted by time for how late they run, then by stop for the gaps between one and the next."""
    lines, trips, stops = 12, 3000, 30
    passes = dask.dataframe.from_map(stop_passes, range(lines), lines=lines, trips=trips, stops=stops)
    ordered = passes.set_index("at", shuffle_method="tasks")
    latest = ordered["late"].rolling(2000).mean().max().compute()
    assert 300 < latest < 2000
    by_stop = passes.shuffle("stop", npartitions=8, shuffle_method="tasks")
    gaps = by_stop.map_partitions(gaps_at_stops, meta={"stop": "i8", "gap": "f8"})
    table = gaps.groupby("stop")["gap"].agg(["count", "mean", "std"]).compute()
    assert table["count"].sum() == lines * (trips * stops - 10)
    assert (table["mean"] > 0).all()


def stop_passes(line: int, lines: int, trips: int, stops: int) -> Any:
    """When a line's trips pass its stops, most of which are also those of the next lines, in the order of reports."""
    rng = np.random.default_rng(line)
    starts = rng.uniform(0, 2_000_000, (trips, 1))
    late = rng.gamma(2, 15, (trips, stops)).cumsum(axis=1)
    at = starts + 90 * np.arange(stops) + late
    stop = np.broadcast_to((10 * line + np.arange(stops)) % (10 * lines), at.shape)
    frame = pd.DataFrame({"stop": stop.ravel(), "at": at.ravel(), "late": late.ravel()})
    return frame.iloc[rng.permutation(len(frame))]


def gaps_at_stops(passes: Any) -> Any:
    passes = passes.sort_values(["stop", "at"])
    passes["gap"] = passes.groupby("stop")["at"].diff()
    return passes.dropna()[["stop", "gap"]]


@sixth
def reservoir_levels(client: Client) -> None:
    """Levels of a reservoir under many scenarios of rain: all spans' effects are joined first, by a prefix sum."""
    spans, days, scenarios, capacity = 64, 90, 5000, 60.0
    gains = [dask.delayed(span_gains)(span, days, scenarios) for span in range(spans)]
    effects = [dask.delayed(span_effect)(gain, capacity) for gain in gains]
    before = [None, *effects_so_far(effects)[:-1]]
    bands = [dask.delayed(level_bands)(gain, effect, capacity) for gain, effect in zip(gains, before, strict=True)]
    levels = np.concatenate(dask.compute(*bands))
    assert levels.shape == (spans * days, 3)
    assert 0 <= levels.min() <= levels.max() <= capacity
    assert (np.diff(levels, axis=1) > -0.001).all()


def span_gains(span: int, days: int, scenarios: int) -> Any:
    """What flows in, some days after rain, less what is drawn."""
    rain = np.random.default_rng(span).gamma(0.5, 4, (days, scenarios))
    season = 1 + 0.5 * np.sin((span * days + np.arange(days)) * 2 * np.pi / 365)
    return (signal.lfilter([0.3], [1, -0.7], rain * season[:, None], axis=0) - 2).astype(np.float32)


def span_effect(gains: Any, capacity: float) -> Any:
    """What a span does to any level before it: a shift, and then a lowest and a highest level."""
    shift, low, high = (np.full(gains.shape[1], level, np.float32) for level in (0, 0, capacity))
    for gain in gains:
        shift += gain
        low, high = np.clip(low + gain, 0, capacity), np.clip(high + gain, 0, capacity)
    return np.stack([shift, low, high])


def effects_so_far(effects: list[Any]) -> list[Any]:
    """The effect of each span and all before it."""
    if len(effects) == 1:
        return effects
    joined = dask.delayed(joined_effects)
    odd = effects_so_far([joined(*pair) for pair in zip(effects[::2], effects[1::2], strict=False)])
    even = [effects[0], *(joined(*pair) for pair in zip(odd, effects[2::2], strict=False))]
    return [(odd if i % 2 else even)[i // 2] for i in range(len(effects))]


def joined_effects(first: Any, second: Any) -> Any:
    shift, low, high = second
    return np.stack([first[0] + shift, *(np.clip(bound + shift, low, high) for bound in first[1:])])


def level_bands(gains: Any, effect: Any, capacity: float) -> Any:
    """Three percentiles of each day's levels, from half full at the start of all."""
    level = np.full(gains.shape[1], capacity / 2, np.float32)
    if effect is not None:
        level = np.clip(level + effect[0], effect[1], effect[2])
    levels = np.empty_like(gains)
    for day, gain in enumerate(gains):
        level = levels[day] = np.clip(level + gain, 0, capacity)
    return np.percentile(levels, [5, 50, 95], axis=1).T


@sixth
def star_deblurring(client: Client) -> None:
    """A photograph of stars through the air is made sharp by Richardson and Lucy's rounds, until it changes little."""
    strips, rows, columns, rounds = 8, 256, 2048, 8
    form: dict[str, Any] = {"boundary": "none", "dtype": np.float32, "meta": np.empty((0, 0), np.float32)}
    pieces = [dask.delayed(strip_of_stars)(strip, rows, columns) for strip in range(strips)]
    sky = da.concatenate([da.from_delayed(piece, (rows, columns), dtype=np.float32) for piece in pieces])
    light = sky.map_overlap(through_air, depth=(8, 0), **form)
    seen = light.map_blocks(photons_counted, dtype=form["dtype"], meta=form["meta"]).persist()
    image = seen
    for _ in range(rounds):
        sharper = da.map_overlap(deblurred, image, seen, depth=(16, 0), **form)
        image, change = dask.persist(sharper, abs(sharper - image).max())
        if change.compute() < 5:
            break
    before, after = dask.compute(seen.max(), image.max())
    assert after > before


def strip_of_stars(strip: int, rows: int, columns: int) -> Any:
    rng, stars = np.random.default_rng(strip), 900
    sky = np.full((rows, columns), 10, np.float32)
    sky[rng.integers(rows, size=stars), rng.integers(columns, size=stars)] += 200 * rng.pareto(1.5, stars)
    return sky


def through_air(light: Any) -> Any:
    return ndimage.gaussian_filter(light, 2)


def photons_counted(light: Any, block_id: Any = None) -> Any:
    return np.random.default_rng(block_id[0]).poisson(light).astype(np.float32)


def deblurred(image: Any, seen: Any) -> Any:
    return image * through_air(seen / np.maximum(through_air(image), 0.001))


@sixth
def grid_outages(client: Client) -> None:
    """A power grid's worst outages: an area's task studies, for each of its worst, a second outage of any line."""
    buses, areas, studied = 400, 24, 64
    grid = client.submit(power_grid, buses, pure=False)
    single = client.submit(angles_after, grid, pure=False)
    worst = client.submit(np.max, single, axis=0, pure=False).result()
    limit = float(np.sort(worst)[-studied])
    reports = [client.submit(area_report, area, areas, grid, single, limit, pure=False) for area in range(areas)]
    numbers, overloads = zip(*client.gather(reports), strict=True)
    assert studied <= sum(numbers) <= len(worst)
    assert 0 < np.sum(overloads, axis=0).max() <= sum(numbers) * len(worst)


def power_grid(buses: int) -> Any:
    """Lines between buses that are near and less near, their strength, and what each bus takes in or out."""
    rng, each = np.random.default_rng(3), np.arange(buses)
    first, second = np.tile(each, 2), np.concatenate([each + 1, each + 17]) % buses
    power = rng.normal(size=buses)
    return first, second, rng.uniform(5, 15, len(first)), power - power.mean()


def angles_after(grid: Any, out: int | None = None) -> Any:
    """The angle over each line after an outage of each one, where one may be out already."""
    first, second, usual, power = grid
    strength = usual.copy()
    if out is not None:
        strength[out] = 0
    links = np.zeros((len(power), len(power)))
    np.add.at(links, (first, second), strength)
    links += links.T
    inverse = np.linalg.inv(np.diag(links.sum(axis=0)) - links + 1 / len(power))
    across = inverse[first] - inverse[second]
    flow = strength * (across @ power)
    share = strength[:, None] * (across[:, first] - across[:, second])
    after = flow[:, None] + share / (1 - np.diag(share)) * flow
    np.fill_diagonal(after, 0)
    return (np.abs(after) / usual[:, None]).astype(np.float32)


def area_report(area: int, areas: int, grid: Any, single: Any, limit: float) -> Any:
    """How many outages of its lines are among the worst, and how many second ones then overload each line."""
    lines = [line for line in range(area, len(single), areas) if single[:, line].max() >= limit]
    with worker_client() as inner:
        futures = [inner.submit(overloads_after, grid, line, limit, pure=False) for line in lines]
        return len(lines), sum((each.sum(axis=1) for each in inner.gather(futures)), np.zeros(len(single)))


def overloads_after(grid: Any, line: int, limit: float) -> Any:
    return angles_after(grid, line) > limit


@seventh
def crop_greenness(client: Client) -> None:
    """A year of pictures of fields is freed of specks, and each place's course gives the day when it is greenest."""
    dates = 24
    chunks = ((4,) * (dates // 4), (192,) * 2, (192,) * 2)
    pictures = da.map_blocks(greenness, chunks=chunks, dtype=np.float32, meta=np.empty((0, 0, 0), np.float32))
    clean = pictures.map_overlap(without_specks, depth={0: 0, 1: 2, 2: 2}, boundary="reflect", dtype=np.float32)
    courses = clean.rechunk((-1, 64, 64))
    days = courses.map_blocks(greenest_day, drop_axis=0, dtype=np.float32)
    green = (courses.max(axis=0) > 0.7).mean()
    middle, spread, share = dask.compute(days.mean(), days.std(), green)
    assert abs(middle - 190) < 3
    assert 5 < spread < 40
    assert share > 0.9


def greenness(block_info: Any = None) -> Any:
    (first, last), (top, bottom), (left, right) = block_info[None]["array-location"]
    random = np.random.default_rng([first, top, left])
    day = np.arange(first, last)[:, None, None] * 365 / 24
    peak = 175 + 30 * np.arange(top, bottom)[:, None] / 384
    course = 0.5 + 0.3 * np.cos((day - peak) * (2 * np.pi / 365)) + np.zeros(right - left)
    specks = random.random(course.shape) < 0.03
    return np.where(specks, 0, course + random.normal(0, 0.05, course.shape)).astype(np.float32)


def without_specks(pictures: Any) -> Any:
    return ndimage.median_filter(pictures, size=(1, 3, 3))


def greenest_day(courses: Any) -> Any:
    angles = np.arange(len(courses)) * (2 * np.pi / len(courses))
    waves = np.stack([np.ones_like(angles), np.cos(angles), np.sin(angles), np.cos(2 * angles), np.sin(2 * angles)], 1)
    flat = courses.reshape(len(courses), -1).astype(float)
    factors = np.linalg.lstsq(waves, flat, rcond=None)[0]
    fine = np.arange(0, 365, 1) * (2 * np.pi / 365)
    year = factors[1:2].T * np.cos(fine) + factors[2:3].T * np.sin(fine)
    return year.argmax(axis=1).reshape(courses.shape[1:]).astype(np.float32)


@seventh
def ore_kriging(client: Client) -> None:
    """Ore between drill holes: equations of how alike these are, solved by Cholesky's blocks, then a map is made."""
    count, width = 1600, 200
    random = np.random.default_rng(5)
    holes = random.random((count, 2)) * 10
    grades = ore(holes) + random.normal(0, 0.05, count)
    places = da.from_array(holes, chunks=(width, 2))
    alike = da.blockwise(likeness, "ij", places, "ik", places, "jl", dtype=float, concatenate=True)
    lower = da.linalg.cholesky(alike + 0.01 * da.eye(count, chunks=width), lower=True)
    half = da.linalg.solve_triangular(lower, da.from_array(grades, chunks=width), lower=True)
    weights = da.linalg.solve_triangular(lower.T, half, lower=False).persist()
    points = np.stack(np.meshgrid(np.linspace(1, 9, 120), np.linspace(1, 9, 120)), -1).reshape(-1, 2)
    targets = da.from_array(points, chunks=(600, 2))
    near = da.blockwise(likeness, "ij", targets, "ik", places, "jl", dtype=float, concatenate=True)
    estimates = near.dot(weights).compute()
    assert np.abs(estimates - ore(points)).mean() < 0.1


def ore(places: Any) -> Any:
    return np.sin(places[:, 0]) * np.cos(1.5 * places[:, 1])


def likeness(some: Any, others: Any) -> Any:
    squares = (some**2).sum(1)[:, None] + (others**2).sum(1) - 2 * some @ others.T
    scaled = np.sqrt(np.maximum(squares, 0)) * np.sqrt(3)
    return (1 + scaled) * np.exp(-scaled)


@seventh
def hospital_returns(client: Client) -> None:
    """Stays in hospitals are brought together by patient: after which illnesses do most come back within a month?"""
    parts, length = 24, 16_000
    stays = dask.dataframe.from_map(hospital_stays, range(parts), length=length, meta=hospital_stays(0, 10))
    by_patient = stays.shuffle("patient")
    returns = by_patient.map_partitions(with_return, meta=with_return(hospital_stays(0, 10)))
    illnesses = pd.DataFrame({"illness": range(400), "chapter": [i % 20 for i in range(400)]})
    joined = returns.merge(illnesses, on="illness")
    chapters = joined.groupby("chapter").agg({"back": "mean", "cost": "sum", "days": "mean", "patient": "count"})
    result = chapters.compute()
    assert result.patient.sum() == parts * length
    assert result.back.between(0.05, 0.5).all()
    assert result.back.idxmax() == 7


def hospital_stays(part: int, length: int) -> Any:
    random = np.random.default_rng([part, 31])
    days = random.geometric(0.2, length)
    illness = random.integers(400, size=length)
    patient = random.integers(120_000, size=length)
    # heart failures are of patients who come often
    patient = np.where(illness % 20 == 7, patient % 6_000, patient)
    admitted = random.integers(730, size=length)
    cost = np.round(days * random.gamma(3, 300, length), 2)
    return pd.DataFrame({"patient": patient, "admitted": admitted, "days": days, "illness": illness, "cost": cost})


def with_return(stays: Any) -> Any:
    stays = stays.sort_values(["patient", "admitted"])
    following = stays.groupby("patient").admitted.shift(-1)
    return stays.assign(back=(following - stays.admitted - stays.days).between(-30, 30))


@seventh
def flight_delays(client: Client) -> None:
    """Flights of a year, a table for each twenty days: delays by airport and hour, and what weather adds."""
    parts, length = 18, 16_000
    flights = dask.dataframe.from_map(flights_of, range(parts), length=length, meta=flights_of(0, 10))
    flights = flights.assign(late=flights.delay > 15, hour=flights.minute // 60)
    airports = pd.DataFrame({"origin": range(150), "region": [f"region {i % 9}" for i in range(150)]})
    weather = weather_of(days=360)
    joined = flights.merge(airports, on="origin").merge(weather, on=["origin", "day"])
    by_airport, by_hour, by_storm = dask.compute(
        joined.groupby(["region", "origin"]).delay.agg(["mean", "std", "count"]),
        joined.groupby("hour").late.mean(),
        joined.groupby("storm").delay.mean(),
    )
    assert by_airport["count"].sum() == parts * length
    assert by_hour.loc[20] > by_hour.loc[8]
    assert by_storm.loc[True] > by_storm.loc[False] + 5


def weather_of(days: int) -> Any:
    origin, day = (axis.ravel() for axis in np.mgrid[:150, :days])
    return pd.DataFrame({"origin": origin, "day": day, "storm": (origin * 7 + day) % 11 == 0})


def flights_of(part: int, length: int) -> Any:
    random = np.random.default_rng([part, 47])
    day = part * 20 + random.integers(20, size=length)
    origin = random.integers(150, size=length)
    minute = random.integers(5 * 60, 23 * 60, size=length)
    airline = random.integers(12, size=length)
    storm = (origin * 7 + day) % 11 == 0
    delay = random.normal(0, 12, length) + minute / 100 + airline / 2 + 12 * storm
    return pd.DataFrame({"day": day, "origin": origin, "minute": minute, "airline": airline, "delay": delay})


@seventh
def mail_circles(client: Client) -> None:
    """Mails of a firm, without its newsletters: who writes to whom and how fast, and who joins most of the others?"""
    boxes = db.from_sequence(range(24), npartitions=24)
    mails = boxes.map(mail_box).flatten().map(json.loads).filter(personal)
    ties = mails.map(ties_of).flatten()
    counts = ties.foldby(itemgetter(0), counted, 0, add, 0, split_every=4)
    friends = counts.filter(often).map(itemgetter(0)).foldby(itemgetter(0), counted, 0, add, 0)
    words = mails.pluck("text").map(str.split).map(Counter).fold(both_counts, initial=Counter())
    most, common, number = dask.compute(friends.topk(5, key=itemgetter(1)), words, mails.count())
    assert number == 24 * 400 * 9 // 10
    assert most[0][1] >= most[-1][1] > 5
    assert common.most_common(1)[0][0] == "word0"


def mail_box(box: int) -> list[str]:
    random = np.random.default_rng([box, 3])
    count = 400
    senders = (random.pareto(1.2, count) * 20).astype(int) % 300
    words = (random.pareto(1, (count, 30)) * 5).astype(int) % 2000
    to = random.integers(1, 20, (count, 3))
    return [
        json.dumps(
            {
                "from": int(sender),
                "to": [int(sender + step) % 300 for step in steps],
                "kind": "newsletter" if number % 10 == 0 else "mail",
                "text": " ".join(f"word{word}" for word in text),
            }
        )
        for number, (sender, steps, text) in enumerate(zip(senders, to, words, strict=True))
    ]


def personal(mail: Any) -> bool:
    return bool(mail["kind"] != "newsletter")


def ties_of(mail: Any) -> list[Any]:
    return [((mail["from"], other), len(mail["text"])) for other in mail["to"]]


def counted(total: int, _: Any) -> int:
    return total + 1


def often(tie: Any) -> bool:
    return bool(tie[1] >= 3)


def both_counts(some: Any, others: Any) -> Any:
    return some + others


@seventh
def virus_descent(client: Client) -> None:
    """How likely are three family trees of forty viruses? From the leaves to the root of each, in four parts."""
    leaves, parts = 40, 4
    tree = family_tree(leaves)
    order = np.random.default_rng(2).permutation(leaves)
    swapped = np.arange(leaves)
    swapped[:4] = [2, 3, 0, 1]
    alignments = [dask.delayed(evolved)(tree, leaves, part, 2800) for part in range(parts)]
    seen = [[dask.delayed(leaf_table)(sites, leaf) for leaf in range(leaves)] for sites in alignments]
    chances = []
    for names in (np.arange(leaves), swapped, order):
        of_parts = []
        for tables in seen:
            nodes = {leaf: tables[name] for leaf, name in enumerate(names)}
            for node, ((left, near), (right, far)) in tree.items():
                nodes[node] = dask.delayed(joined_table)(nodes[left], near, nodes[right], far)
            of_parts.append(dask.delayed(root_chance)(nodes[max(tree)]))
        chances.append(dask.delayed(sum)(of_parts))
    right, near_by, wrong = client.gather(client.compute(chances))
    assert right > near_by > wrong


def family_tree(leaves: int) -> dict[int, Any]:
    """Each inner node's two children and the lengths of the branches to them; the root is the last."""
    random = np.random.default_rng(11)
    living, tree = list(range(leaves)), {}
    for node in range(leaves, 2 * leaves - 1):
        pair = [living.pop(random.integers(len(living))) for _ in range(2)]
        tree[node] = tuple((child, float(random.uniform(0.05, 0.3))) for child in pair)
        living.append(node)
    return tree


RATES = (0.2, 0.6, 1.1, 2.1)


def changes(length: float, rate: float) -> Any:
    """Jukes and Cantor's chances of a base to become another."""
    other = (1 - np.exp(-4 / 3 * length * rate)) / 4
    return np.full((4, 4), other, np.float32) + np.eye(4, dtype=np.float32) * np.float32(1 - 4 * other)


def evolved(tree: dict[int, Any], leaves: int, part: int, sites: int) -> Any:
    random = np.random.default_rng([part, 17])
    rates = random.integers(len(RATES), size=sites)
    bases = {max(tree): random.integers(4, size=sites)}
    for node in sorted(tree, reverse=True):
        for child, length in tree[node]:
            chances = np.stack([changes(length, rate) for rate in RATES])[rates, bases[node]].cumsum(axis=1)
            bases[child] = np.minimum((random.random(sites)[:, None] > chances).sum(axis=1), 3)
    return np.stack([bases[leaf] for leaf in range(leaves)]).astype(np.int8)


def leaf_table(alignment: Any, leaf: int) -> Any:
    return np.repeat(np.eye(4, dtype=np.float32)[alignment[leaf]][None], len(RATES), axis=0), 0.0


def joined_table(left: Any, near: float, right: Any, far: float) -> Any:
    sides = [
        np.stack([table.astype(float) @ changes(length, rate) for table, rate in zip(tables, RATES, strict=True)])
        for (tables, _), length in ((left, near), (right, far))
    ]
    product = sides[0] * sides[1]
    scale = product.max(axis=(0, 2))
    return (product / scale[:, None]).astype(np.float32), left[1] + right[1] + float(np.log(scale).sum())


def root_chance(table: Any) -> float:
    return float(np.log(table[0].mean(axis=(0, 2))).sum() + table[1])


@seventh
def wind_farm(client: Client) -> None:
    """Turbines stand in each other's wake: when a layout's yield has come, a change of the best so far is tried."""
    count, tries, at_once = 24, 96, 12
    random = np.random.default_rng(8)
    starts = [random.random((count, 2)) * 3000 for _ in range(at_once)]
    first = [client.submit(farm_yield, layout, pure=False) for layout in starts]
    layouts = dict(zip(first, starts, strict=True))
    running = as_completed(first, with_results=True)
    best, best_layout, known, submitted = 0.0, starts[0], [], at_once
    for future, energy in running:
        layout = layouts.pop(future)
        known.append(energy)
        if energy > best:
            best, best_layout = energy, layout
        if submitted < tries:
            changed = best_layout.copy()
            moved = random.integers(count, size=2)
            changed[moved] = np.clip(changed[moved] + random.normal(0, 400, (2, 2)), 0, 3000)
            following = client.submit(farm_yield, changed, pure=False)
            layouts[following] = changed
            running.add(following)
            submitted += 1
    assert len(known) == tries
    assert max(known[:at_once]) < best < 1


def farm_yield(layout: Any) -> float:
    """The share of the free wind's energy that is left, over all directions and three speeds."""
    angles = np.deg2rad(np.arange(0, 360, 2))
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    apart = layout[None, :, None] - layout[None, None]  # from the second to the first
    along = (apart * directions[:, None, None]).sum(-1)
    across = np.abs(apart[..., 0] * directions[:, None, None, 1] - apart[..., 1] * directions[:, None, None, 0])
    total = 0.0
    for thrust, share in ((0.8, 0.3), (0.75, 0.5), (0.5, 0.2)):
        radius = 50 + 0.06 * np.maximum(along, 0)
        deficit = np.where((along > 1) & (across < radius), (1 - np.sqrt(1 - thrust)) * (50 / radius) ** 2, 0)
        speed = 1 - np.sqrt((deficit**2).sum(axis=2))
        weights = 1 + 0.8 * np.cos(angles - 0.7)
        total += share * float(((np.maximum(speed, 0) ** 3).mean(axis=1) * weights).sum() / weights.sum())
    return total


@seventh
def soil_types(client: Client) -> None:
    """Pixels from the air are put in ten kinds of soil by k-means: in each round all blocks get the new centres."""
    kinds, blocks = 10, 20
    pixels = client.map(soil_pixels, range(blocks), pure=False)
    centres = first_centres(client.submit(np.take, pixels[0], range(2000), axis=0, pure=False).result(), kinds)
    errors: list[float] = []
    for _ in range(15):
        sent = client.scatter(centres, broadcast=True)
        sums = client.gather(client.map(nearest_sums, pixels, centres=sent, pure=False))
        counts = sum(count for count, _, _ in sums)
        centres = sum(total for _, total, _ in sums) / np.maximum(counts, 1)[:, None]
        errors.append(sum(error for _, _, error in sums))
        if len(errors) > 1 and errors[-1] > errors[-2] * 0.9999:
            break
    assert errors[-1] < errors[0]
    assert counts.sum() == blocks * 20_000


def soil_pixels(block: int) -> Any:
    truth = np.random.default_rng(4).random((10, 6))
    random = np.random.default_rng([block, 23])
    return (truth[random.integers(10, size=20_000)] + random.normal(0, 0.12, (20_000, 6))).astype(np.float32)


def first_centres(sample: Any, kinds: int) -> Any:
    random = np.random.default_rng(1)
    chosen = [sample[0]]
    for _ in range(kinds - 1):
        far = np.min([((sample - centre) ** 2).sum(axis=1) for centre in chosen], axis=0)
        chosen.append(sample[random.choice(len(sample), p=far / far.sum())])
    return np.stack(chosen)


def nearest_sums(pixels: Any, centres: Any) -> Any:
    squares = ((pixels[:, None] - centres.astype(np.float32)) ** 2).sum(axis=2)
    kind = squares.argmin(axis=1)
    counts = np.bincount(kind, minlength=len(centres))
    totals = [np.bincount(kind, weights=band, minlength=len(centres)) for band in pixels.T]
    return counts, np.stack(totals, axis=1), float(squares.min(axis=1).sum())


@seventh
def exam_timetables(client: Client) -> None:
    """Each faculty's task collects its exams' clashes, and submits six searches for a timetable; the best is kept."""
    planned = client.gather(client.map(faculty_plan, range(10), pure=False))
    assert all(0 <= after < before for before, after, _ in planned)
    assert all(len(set(slots)) <= 9 for _, _, slots in planned)


def faculty_plan(faculty: int) -> Any:
    random = np.random.default_rng([faculty, 9])
    exams, slots = 60 + 4 * faculty, 9
    clashes = np.zeros((exams, exams), int)
    for _ in range(600):
        taken = random.choice(exams, 4, replace=False)
        clashes[np.ix_(taken, taken)] += 1
    np.fill_diagonal(clashes, 0)
    start = random.integers(slots, size=exams)
    with worker_client() as client:
        sent = client.scatter(clashes)
        seeds = [faculty * 100 + number for number in range(6)]
        found = client.gather(client.map(tabu_search, seeds, clashes=sent, start=start, slots=slots, pure=False))
    after, plan = min(found, key=itemgetter(0))
    return clashing(clashes, start), after, plan.tolist()


def clashing(clashes: Any, plan: Any) -> int:
    return int((clashes * (plan[:, None] == plan)).sum()) // 2


def tabu_search(seed: int, clashes: Any, start: Any, slots: int) -> Any:
    random = np.random.default_rng(seed)
    exams = len(start)
    plan = np.where(random.random(exams) < 0.3, random.integers(slots, size=exams), start)
    costs = clashes @ np.eye(slots, dtype=int)[plan]  # of each exam in each slot
    barred = np.zeros((exams, slots), int)
    now = clashing(clashes, plan)
    best, best_plan = now, plan.copy()
    for step in range(700):
        gains = costs - costs[np.arange(exams), plan][:, None]
        gains[np.arange(exams), plan] = 10**6
        gains[(barred > step) & (now + gains >= best)] += 10**5
        exam, slot = divmod(int(gains.argmin()), slots)
        old = plan[exam]
        now += int(costs[exam, slot] - costs[exam, old])
        costs[:, old] -= clashes[exam]
        costs[:, slot] += clashes[exam]
        plan[exam] = slot
        barred[exam, old] = step + 8 + random.integers(6)
        if now < best:
            best, best_plan = now, plan.copy()
    return best, best_plan


@seventh
def heart_beats(client: Client) -> None:
    """Hearts' currents are cleaned, beats unlike the usual one are marked, and the client gets all curves to draw."""
    hearts = range(28)
    cleaned = client.map(cleaned_current, client.map(heart_current, hearts, pure=False), pure=False)
    peaks = client.map(heart_peaks, cleaned, pure=False)
    usual = client.map(usual_beat, cleaned, peaks, pure=False)
    common = client.submit(partial(np.mean, axis=0), usual, pure=False)
    odd = client.map(odd_beats, cleaned, peaks, common=common, pure=False)
    curves, places, marks = client.gather([cleaned, peaks, odd])
    assert sum(curve.nbytes for curve in curves) == len(hearts) * 150_000 * 4
    assert all(550 < len(place) < 650 for place in places)
    assert 0.05 < np.mean(np.concatenate(marks)) < 0.15


def heart_current(heart: int) -> Any:
    """Ten minutes at 250 Hz, with the breath, the mains and noise; one beat of ten is a wide one."""
    random = np.random.default_rng([heart, 61])
    length = 150_000
    beats = np.cumsum(random.normal(250, 8, 598)).astype(int)
    wide = random.random(len(beats)) < 0.1
    around = np.arange(-60, 60)
    curve = np.zeros(length + 200)
    for kind, width in ((False, 4), (True, 14)):
        places = np.zeros(len(curve))
        places[beats[(wide == kind) & (beats < length)]] = 1
        curve += signal.fftconvolve(places, np.exp(-((around / width) ** 2)), mode="same")
    time = np.arange(length) / 250
    disturbed = 0.5 * np.sin(2 * np.pi * 0.25 * time) + 0.2 * np.sin(2 * np.pi * 50 * time)
    return (curve[:length] + disturbed + random.normal(0, 0.05, length)).astype(np.float32)


def cleaned_current(current: Any) -> Any:
    band = signal.butter(3, (0.7, 35), "bandpass", fs=250, output="sos")
    without_mains = signal.filtfilt(*signal.iirnotch(50, 30, fs=250), current)
    return signal.sosfiltfilt(band, without_mains).astype(np.float32)


def heart_peaks(curve: Any) -> Any:
    places, _ = signal.find_peaks(curve, height=0.4, distance=120, prominence=0.4)
    return places[(places > 50) & (places < len(curve) - 50)]


def cut_beats(curve: Any, peaks: Any) -> Any:
    return curve[peaks[:, None] + np.arange(-40, 40)]


def usual_beat(curve: Any, peaks: Any) -> Any:
    return np.median(cut_beats(curve, peaks), axis=0)


def odd_beats(curve: Any, peaks: Any, common: Any) -> Any:
    beats = cut_beats(curve, peaks)
    beats = beats - beats.mean(axis=1, keepdims=True)
    common = common - common.mean()
    alike = beats @ common / (np.linalg.norm(beats, axis=1) * np.linalg.norm(common))
    return alike < 0.9


# Hours that the main waves of the tide take.
TIDAL_PERIODS = np.array([12.4206, 12.0, 12.6583, 23.9345, 25.8193])


@eighth
def tidal_constituents(client: Client) -> None:
    """Sea levels by the hour: waves are fitted at each place from sums over the weeks, and what is left is a surge."""
    hours, side = 2688, 64
    time = da.arange(hours, chunks=224)
    place = da.arange(side, chunks=32)
    blocks = da.map_blocks(
        sea_levels, time[:, None, None], place[None, :, None], place[None, None, :], dtype=np.float32
    )
    levels = xarray.DataArray(blocks, dims=("time", "y", "x"), name="level").persist()
    waves = xarray.DataArray(
        time.map_blocks(tidal_waves, dtype=float, new_axis=1, chunks=(time.chunks[0], (11,))), dims=("time", "wave")
    )
    products = xarray.dot(waves, waves.rename(wave="other"), dim="time").chunk(wave=-1, other=-1)
    sums = xarray.dot(waves, levels, dim="time").chunk(wave=-1)
    fitted = xarray.apply_ufunc(
        solved_waves,
        products,
        sums,
        input_core_dims=[["wave", "other"], ["wave"]],
        output_core_dims=[["wave"]],
        dask="parallelized",
        output_dtypes=[float],
    )
    usual = xarray.apply_ufunc(
        levels_expected,
        waves,
        fitted,
        input_core_dims=[["wave"], ["wave"]],
        dask="parallelized",
        output_dtypes=[float],
    )
    left = levels - usual
    main = np.hypot(fitted.isel(wave=1), fitted.isel(wave=6))
    main, surge, spread = dask.compute(main, left.max("time"), left.std("time"))
    assert main.shape == surge.shape == (side, side)
    assert abs(float(main.mean()) - 1.5) < 0.05
    assert abs(float(spread.mean()) - 0.1) < 0.01


def sea_levels(time: Any, y: Any, x: Any) -> Any:
    generator = np.random.default_rng([5, time.flat[0], y.flat[0], x.flat[0]])
    levels = generator.normal(0, 0.1, np.broadcast_shapes(time.shape, y.shape, x.shape)).astype(np.float32)
    for height, period in zip((1.5, 0.6, 0.3, 0.25, 0.2), TIDAL_PERIODS, strict=True):
        phases = (2 * np.pi / period * time + 0.02 * y + 0.03 * x).astype(np.float32)
        levels += height * np.cos(phases)
    return levels


def tidal_waves(time: Any) -> Any:
    phases = 2 * np.pi * time[:, None] / TIDAL_PERIODS
    return np.concatenate([np.ones((len(time), 1)), np.cos(phases), np.sin(phases)], axis=1)


def levels_expected(waves: Any, fitted: Any) -> Any:
    return np.einsum("...w,...w->...", waves, fitted)


def solved_waves(products: Any, sums: Any) -> Any:
    return np.linalg.solve(products, sums[..., None])[..., 0]


@eighth
def planetary_systems(client: Client) -> None:
    """Planets of three stars, parallel in time: a star's task guesses all spans, has each done finely, and corrects."""
    runs = client.map(orbits_corrected, range(3), pure=False)
    for drift, rounds in client.gather(runs):
        assert drift < 1e-4
        assert 1 < rounds < 12


def orbits_corrected(star: int) -> tuple[float, int]:
    spans, length = 20, 0.1
    masses, state = planets_of_star(star)
    energy = orbital_energy(masses, state)
    starts = [state]
    for _ in range(spans):
        starts.append(orbits_advanced(masses, starts[-1], length, 20))
    guesses = starts[1:]
    with worker_client() as client:
        for rounds in range(1, spans + 1):
            # The first spans are exact already: one more in each round.
            done = rounds - 1
            futures = [
                client.submit(orbits_advanced, masses, start, length, 220, pure=False) for start in starts[done:-1]
            ]
            fine = dict(enumerate(client.gather(futures), done))
            change = 0.0
            for span in range(done, spans):
                guess = orbits_advanced(masses, starts[span], length, 20)
                new = fine[span] + guess - guesses[span]
                change = max(change, float(np.abs(new - starts[span + 1]).max()))
                guesses[span], starts[span + 1] = guess, new
            if change < 1e-6:
                break
    return abs(orbital_energy(masses, starts[-1]) / energy - 1), rounds


def planets_of_star(star: int) -> tuple[Any, Any]:
    generator = np.random.default_rng([6, star])
    radii = np.array([0.0, 0.8, 1.3, 2.1, 3.4, 5.6])
    masses = np.array([1.0, *generator.uniform(1e-6, 3e-4, 5)])
    angles = generator.uniform(0, 2 * np.pi, 6)
    speeds = np.concatenate([[0], 2 * np.pi / np.sqrt(radii[1:])])
    tilt = generator.normal(0, 0.02, 6)
    places = np.stack([radii * np.cos(angles), radii * np.sin(angles), radii * tilt], axis=1)
    moves = np.stack([-speeds * np.sin(angles), speeds * np.cos(angles), np.zeros(6)], axis=1)
    return masses, np.stack([places, moves - masses @ moves / masses.sum()])


def gravity_of_all(masses: Any, places: Any) -> Any:
    apart = places[None] - places[:, None]
    squares = (apart**2).sum(2)
    np.fill_diagonal(squares, 1)
    return 4 * np.pi**2 * np.einsum("ijk,ij->ik", apart, masses * squares**-1.5)


def orbits_advanced(masses: Any, state: Any, length: float, steps: int) -> Any:
    places, moves = state.copy()
    step = length / steps
    pull = gravity_of_all(masses, places)
    for _ in range(steps):
        moves += step / 2 * pull
        places += step * moves
        pull = gravity_of_all(masses, places)
        moves += step / 2 * pull
    return np.stack([places, moves])


def orbital_energy(masses: Any, state: Any) -> float:
    places, moves = state
    distances = np.sqrt(((places[None] - places[:, None]) ** 2).sum(2)) + np.diag(np.full(len(masses), np.inf))
    pairs = 4 * np.pi**2 * masses[:, None] * masses / distances
    return float((masses * (moves**2).sum(1)).sum() / 2 - pairs.sum() / 2)


@eighth
def reactor_sensitivity(client: Client) -> None:
    """Sobol indices of a stirred reactor: its equations are solved for each row of settings, some of them stiff."""
    count, batch = 32, 2
    settings = qmc.scale(
        qmc.Sobol(8, rng=np.random.default_rng(7)).random(count), [0.5, 290, 0.3, 0.8] * 2, [2.0, 330, 2.5, 1.3] * 2
    )
    first, second = settings[:, :4], settings[:, 4:]
    mixed = []
    for column in range(4):
        exchanged = first.copy()
        exchanged[:, column] = second[:, column]
        mixed.append(exchanged)
    runs = np.concatenate([first, second, *mixed])
    yields = np.full(len(runs), np.nan)
    starts = {
        client.submit(reactor_yields, runs[start : start + batch], pure=False): start
        for start in range(0, len(runs), batch)
    }
    for future, results in as_completed(starts, with_results=True):
        yields[starts[future] : starts[future] + batch] = results
    of_first, of_second, *of_mixed = yields.reshape(6, count)
    variance = np.concatenate([of_first, of_second]).var()
    total = np.array([((of_first - each) ** 2).mean() / 2 / variance for each in of_mixed])
    assert np.isfinite(yields).all()
    assert (total > 0).all()
    assert total.argmax() == 2


def reactor_yields(settings: Any) -> Any:
    """The mean yield of each row; columns are flow, jacket temperature, cooling and feed."""
    yields = []
    for flow, jacket, cooling, fed in settings:
        times = np.linspace(0, 12, 121)
        course = integrate.solve_ivp(
            reactor_change,
            (0, 12),
            [fed, 350.0],
            "LSODA",
            times,
            args=(flow, jacket, cooling, fed),
            rtol=1e-7,
            atol=1e-9,
        )
        yields.append(flow * (fed - course.y[0, 60:]).mean())
    return np.array(yields)


def reactor_change(_: float, state: Any, flow: float, jacket: float, cooling: float, fed: float) -> Any:
    concentration, temperature = state
    rate = 7.2e10 * np.exp(-8750 / max(temperature, 200.0)) * concentration
    heat = 209 * rate + flow * (350 - temperature) + 2.1 * cooling * (jacket - temperature)
    return [flow * (fed - concentration) - rate, heat]


@eighth
def roof_membrane(client: Client) -> None:
    """A long roof under snow: strips are reduced to their edges, these joined two by two, and then all goes back."""
    count, width, depth = 64, 40, 15
    strips = [membrane_strip(number, width, depth) for number in range(count)]
    reduced = [membrane_reduced(strip, width, depth) for strip in strips]
    levels = []
    edges = [each[0] for each in reduced]
    while len(edges) > 1:
        joined = [membrane_joined(*pair) for pair in zip(edges[::2], edges[1::2], strict=True)]
        levels.append([each[1] for each in joined])
        edges = [each[0] for each in joined]
    bent = [np.zeros(width), np.zeros(width)]  # both ends are fixed
    for back in reversed(levels):
        finer = [bent[0]]
        for number, each in enumerate(back):
            finer += [membrane_middle(each, bent[number], bent[number + 1]), bent[number + 1]]
        bent = finer
    shapes = [membrane_shape(each[1], bent[number], bent[number + 1], width) for number, each in enumerate(reduced)]
    shapes, (_, at_ends), load = dask.compute(shapes, edges[0], [membrane_load(strip) for strip in strips])
    roof = np.concatenate([shape for shape, _ in shapes])
    assert roof.shape == (count * depth, width)
    assert roof.min() >= 0
    assert np.isclose(sum(held for _, held in shapes) + at_ends.sum(), sum(load))


@dask.delayed
def membrane_strip(number: int, width: int, depth: int) -> tuple[Any, Any]:
    """The stiffness of a strip and its load: the last row is the first one of the next strip."""
    generator = np.random.default_rng([8, number])
    points = np.arange((depth + 1) * width).reshape(depth + 1, width)
    across = points[:-1, :-1].ravel(), points[:-1, 1:].ravel()
    along = points[:-1].ravel(), points[1:].ravel()
    begins, ends = (np.concatenate(pair) for pair in zip(across, along, strict=True))
    strengths = generator.uniform(0.5, 1.5, len(begins))
    links = sparse.coo_array((strengths, (begins, ends)), shape=(points.size, points.size))
    links = (links + links.T).toarray()
    stiffness = np.diag(links.sum(0)) - links
    sides = points[:-1, [0, -1]].ravel()
    stiffness[sides, sides] += 1
    load = np.zeros(points.size)
    load[: depth * width] = generator.gamma(2, 0.01, depth * width)
    return stiffness, load


@dask.delayed(nout=2)
def membrane_reduced(strip: tuple[Any, Any], width: int, depth: int) -> tuple[Any, Any]:
    stiffness, load = strip
    inner = slice(width, depth * width)
    edge = np.r_[:width, depth * width : (depth + 1) * width]
    back = np.linalg.solve(stiffness[inner, inner], np.column_stack([stiffness[inner, edge], load[inner]]))
    forward = stiffness[edge, inner]
    return (
        (stiffness[np.ix_(edge, edge)] - forward @ back[:, :-1], load[edge] - forward @ back[:, -1]),
        back,
    )


@dask.delayed(nout=2)
def membrane_joined(upper: tuple[Any, Any], lower: tuple[Any, Any]) -> tuple[Any, Any]:
    width = len(upper[1]) // 2
    stiffness, load = np.zeros((3 * width, 3 * width)), np.zeros(3 * width)
    for start, (part, weight) in ((0, upper), (width, lower)):
        stiffness[start : start + 2 * width, start : start + 2 * width] += part
        load[start : start + 2 * width] += weight
    middle, edge = slice(width, 2 * width), np.r_[:width, 2 * width : 3 * width]
    back = np.linalg.solve(stiffness[middle, middle], np.column_stack([stiffness[middle, edge], load[middle]]))
    forward = stiffness[edge, middle]
    return (
        (stiffness[np.ix_(edge, edge)] - forward @ back[:, :-1], load[edge] - forward @ back[:, -1]),
        back,
    )


@dask.delayed
def membrane_middle(back: Any, above: Any, below: Any) -> Any:
    return back[:, -1] - back[:, :-1] @ np.concatenate([above, below])


@dask.delayed
def membrane_shape(back: Any, above: Any, below: Any, width: int) -> tuple[Any, float]:
    """How far a strip is bent, without its last row, and what its sides bear."""
    inner = back[:, -1] - back[:, :-1] @ np.concatenate([above, below])
    shape = np.concatenate([above, inner]).reshape(-1, width)
    return shape, float(shape[:, [0, -1]].sum())


@dask.delayed
def membrane_load(strip: tuple[Any, Any]) -> float:
    return float(strip[1].sum())


@eighth
def customer_versions(client: Client) -> None:
    """Changes of customers come day by day; each part of the customers keeps what was valid from when until when."""
    days, parts, count = 16, 8, 3000
    versions: list[Any] = [None] * parts
    for day in range(days):
        changes = client.submit(customer_changes, day, count, pure=False)
        for part in range(parts):
            own = client.submit(changes_of_part, changes, part, parts, pure=False)
            versions[part] = client.submit(versions_extended, versions[part], own, pure=False)
    summaries = client.gather(client.map(versions_summary, versions, pure=False))
    total = pd.concat(summaries)
    assert total["versions"].sum() == days * count
    assert total["valid"].sum() == total["customers"].sum()
    assert 0 < total["moved"].mean() < 1


def customer_changes(day: int, count: int) -> Any:
    generator = np.random.default_rng([9, day])
    return pd.DataFrame(
        {
            "customer": (20_000 * generator.beta(1, 2, count)).astype(np.int64),
            "since": pd.Timestamp("2024-03-01") + pd.to_timedelta(day + np.sort(generator.random(count)), "D"),
            "town": generator.integers(300, size=count),
            "tariff": pd.Categorical.from_codes(generator.integers(3, size=count), ["basic", "family", "business"]),
            "limit": generator.integers(1, 50, count) * 100,
        }
    )


def changes_of_part(changes: Any, part: int, parts: int) -> Any:
    hashed = pd.util.hash_array(changes["customer"].to_numpy())
    return changes[hashed % parts == part].reset_index(drop=True)


def versions_extended(versions: tuple[Any, Any] | None, changes: Any) -> tuple[Any, Any]:
    """Versions that are over, and those still valid, by customer."""
    if versions is None:
        over, valid = [], changes[:0]
    else:
        over, valid = [versions[0]], versions[1]
    touched = valid["customer"].isin(changes["customer"])
    rows = pd.concat([valid[touched], changes], ignore_index=True).sort_values(["customer", "since"], kind="stable")
    rows["until"] = rows.groupby("customer")["since"].shift(-1)
    open_rows = rows["until"].isna()
    over.append(rows[~open_rows])
    still = pd.concat([valid[~touched], rows[open_rows].drop(columns="until")], ignore_index=True)
    return pd.concat(over, ignore_index=True), still


def versions_summary(versions: tuple[Any, Any]) -> Any:
    over, valid = versions
    rows = pd.concat([over, valid], ignore_index=True).sort_values(["customer", "since"])
    moved = rows.groupby("customer")["town"].nunique() > 1
    return pd.DataFrame(
        {"versions": [len(rows)], "valid": [len(valid)], "customers": [len(moved)], "moved": [moved.mean()]}
    )


@eighth
def power_dispatch(client: Client) -> None:
    """Linear programs decide which power plants run at each hour; a semaphore holds the four licences of the solver."""
    days, plants = 72, 18
    fleet = client.scatter(power_fleet(plants), broadcast=True)
    licences = Semaphore(max_leases=4, name="solver-licences")
    demands = client.map(power_demand, range(days), pure=False)
    models = client.map(dispatch_model, demands, fleet=fleet, pure=False)
    plans = client.map(dispatch_solved, models, licences=licences, pure=False)
    costs = client.map(dispatch_costs, plans, fleet=fleet, pure=False)
    demands, costs = client.gather([demands, costs])
    table = pd.DataFrame(costs)
    assert np.allclose(table["energy"] + table["lost"], [demand.sum() for demand in demands])
    assert (table["cost"] > 0).all()


def power_fleet(plants: int) -> Any:
    generator = np.random.default_rng(10)
    size = generator.uniform(100, 900, plants)
    return pd.DataFrame(
        {"size": size, "price": generator.uniform(10, 120, plants), "ramp": size * generator.uniform(0.05, 0.4, plants)}
    )


def power_demand(day: int) -> Any:
    """The hourly demand that nine in ten of two hundred weather scenarios stay below."""
    generator = np.random.default_rng([10, day])
    hours = np.arange(24)
    usual = 4500 + 900 * np.sin((hours - 8) / 24 * 2 * np.pi) + 400 * np.sin((hours - 4) / 12 * 2 * np.pi)
    weather = np.cumsum(generator.normal(0, 40, (200, 24 * 60)), axis=1).reshape(200, 24, 60).mean(2)
    return np.quantile(usual * (0.85 if day % 7 > 4 else 1) + weather * 0.1, 0.9, axis=0)


def dispatch_model(demand: Any, fleet: Any) -> dict[str, Any]:
    """Unknown are each plant's power by hour, water pumped up, let down and kept, and demand that is not met."""
    hours, plants = len(demand), len(fleet)
    one, none = sparse.eye_array(hours), sparse.csr_array((hours, hours))
    below = sparse.eye_array(hours, k=-1)
    meets = sparse.hstack([sparse.kron(np.ones((1, plants)), one), -one, 0.8 * one, none, one])
    keeps = sparse.hstack([sparse.csr_array((hours, plants * hours)), -one, one, one - below, none])
    change = sparse.kron(sparse.eye_array(plants), (one - below).tocsr()[1:])
    ramps = sparse.vstack([change, -change])
    ramps = sparse.hstack([ramps, sparse.csr_array((ramps.shape[0], 4 * hours))])
    ramp = np.tile(np.repeat(fleet["ramp"].to_numpy(), hours - 1), 2)
    highest = np.concatenate([np.repeat(fleet["size"].to_numpy(), hours), np.repeat([400.0, 400, 2500, 1e5], hours)])
    cost = np.concatenate([np.repeat(fleet["price"].to_numpy(), hours), np.repeat([1.0, 1, 0, 3000], hours)])
    return {
        "c": cost,
        "A_ub": ramps.tocsr(),
        "b_ub": ramp,
        "A_eq": sparse.vstack([meets, keeps]).tocsr(),
        "b_eq": np.concatenate([demand, np.zeros(hours)]),
        "bounds": np.column_stack([np.zeros(len(highest)), highest]),
    }


def dispatch_solved(model: dict[str, Any], licences: Any) -> Any:
    with licences:
        solution = optimize.linprog(**model, method="highs")
    return solution.x


def dispatch_costs(plan: Any, fleet: Any) -> dict[str, float]:
    powers = plan.reshape(-1, 24)
    made, (pumped, let_down, _, lost) = powers[: len(fleet)], powers[len(fleet) :]
    return {
        "energy": made.sum() - pumped.sum() + 0.8 * let_down.sum(),
        "lost": lost.sum(),
        "cost": float(fleet["price"] @ made.sum(1)),
    }


@eighth
def related_languages(client: Client) -> None:
    """Lists of the same words in many languages: each two of these are compared, and families are found in all."""
    count, families = 45, 5
    lists = db.from_sequence(range(count), npartitions=15).map(words_of_language, families)
    pairs = lists.product(lists).filter(languages_in_order)
    compared = pairs.map(languages_compared).compute()
    apart = np.zeros((count, count))
    for first, second, distance in compared:
        apart[first, second] = distance
    tree = hierarchy.linkage(apart[np.triu_indices(count, 1)], "average")
    found = hierarchy.fcluster(tree, families, "maxclust")
    assert len(compared) == count * (count - 1) // 2
    assert all(len({found[number] for number in range(family, count, families)}) == 1 for family in range(families))


def words_of_language(number: int, families: int) -> tuple[int, list[str]]:
    words = words_changed([""] * 70, random.Random(number % families), 9)
    words = words_changed(words, random.Random(100 + number % (3 * families)), 1)
    return number, words_changed(words, random.Random(1000 + number), 1)


def words_changed(words: list[str], generator: random.Random, changes: int) -> list[str]:
    changed = []
    for old in words:
        word = old
        for _ in range(changes):
            place = generator.randrange(len(word) + 1)
            sound = generator.choice("aeioubdgklmnprst")
            word = word[:place] + sound + word[place + (len(word) > 6) :]
        changed.append(word)
    return changed


def languages_in_order(pair: Any) -> bool:
    return pair[0][0] < pair[1][0]


def languages_compared(pair: Any) -> tuple[int, int, float]:
    (first, words), (second, others) = pair
    distances = [edit_distance(*each) / max(map(len, each)) for each in zip(words, others, strict=True)]
    return first, second, sum(distances) / len(distances)


def edit_distance(word: str, other: str) -> int:
    last = list(range(len(other) + 1))
    for row, sound in enumerate(word, 1):
        here = [row]
        for column, heard in enumerate(other):
            here.append(min(last[column] + (sound != heard), last[column + 1] + 1, here[column] + 1))
        last = here
    return last[-1]


@eighth
def demand_forecasts(client: Client) -> None:
    """Sales of stores are brought together by product for what each store will sell; then orders for each supplier."""
    stores, products, weeks = 24, 96, 104
    sales = dask.dataframe.from_map(store_sales, range(stores), products=products, weeks=weeks)
    goods = pd.DataFrame({"product": np.arange(products, dtype=np.int32)})
    goods["supplier"] = goods["product"] % 17
    by_product = sales[sales["sold"] >= 0].shuffle("product", npartitions=16)
    forecasts = by_product.map_partitions(
        products_forecast, weeks=weeks, meta={"product": np.int32, "store": np.int32, "next": float, "error": float}
    )
    orders = forecasts.merge(goods, on="product")
    totals = orders.groupby(["supplier", "store"])["next"].sum()
    totals, error = dask.compute(totals, forecasts["error"].mean())
    assert len(totals) == 17 * stores
    assert (totals > 0).all()
    assert 0 < error < 6


def store_sales(store: int, products: int, weeks: int) -> Any:
    generator = np.random.default_rng([11, store])
    week = np.arange(weeks)
    level = generator.gamma(4, 5, (products, 1)) * (1 + 0.004 * week)
    season = 1 + 0.4 * np.sin(2 * np.pi * (week + 3 * np.arange(products)[:, None]) / 52)
    sold = generator.poisson(level * season).astype(np.int32)
    sold[generator.random(sold.shape) < 0.01] = -1  # not known
    return pd.DataFrame(
        {
            "product": np.repeat(np.arange(products, dtype=np.int32), weeks),
            "store": np.int32(store),
            "week": np.tile(week.astype(np.int32), products),
            "sold": sold.ravel(),
        }
    )


def products_forecast(sales: Any, weeks: int) -> Any:
    """Each product's sales are smoothed in several ways, and the one is taken that would have been best until now."""
    results = []
    for product, rows in sales.groupby("product"):
        table = rows.pivot(index="store", columns="week", values="sold").reindex(columns=range(weeks))
        known = table.ffill(axis=1).bfill(axis=1)
        values = known.to_numpy(float)
        best = np.full(len(values), np.inf)
        following = np.zeros(len(values))
        for quick in (0.1, 0.3, 0.6):
            for steep in (0.02, 0.2):
                level, trend, missed = values[:, 0], np.zeros(len(values)), np.zeros(len(values))
                for week in range(1, weeks):
                    expected = level + trend
                    difference = values[:, week] - expected
                    missed += np.abs(difference)
                    level = expected + quick * difference
                    trend = trend + quick * steep * difference
                better = missed < best
                best[better], following[better] = missed[better], (level + trend)[better]
        results.append(
            pd.DataFrame(
                {
                    "product": np.int32(product),
                    "store": known.index.to_numpy(np.int32),
                    "next": following.clip(0),
                    "error": best / (weeks - 1),
                }
            )
        )
    if not results:
        return pd.DataFrame({"product": np.int32([]), "store": np.int32([]), "next": [0.0][:0], "error": [0.0][:0]})
    return pd.concat(results, ignore_index=True)


@eighth
def glacier_flow(client: Client) -> None:
    """Pictures of a glacier, some weeks apart: how far has each patch of ice moved from one to the next?"""
    side, width, dates = 768, 256, 4
    row = da.arange(side, chunks=width)[:, None]
    column = da.arange(side, chunks=width)[None]
    pictures = [da.map_blocks(glacier_picture, row, column, date, dtype=np.float32) for date in range(dates)]
    moves = []
    for before, after in pairwise(pictures):
        moved = da.map_overlap(
            patches_moved,
            before,
            after,
            depth=8,
            boundary="nearest",
            trim=False,
            dtype=np.float32,
            new_axis=2,
            chunks=((width // 16,) * (side // width), (width // 16,) * (side // width), (2,)),
        )
        moves.append(moved)
    usual = da.median(da.stack(moves), axis=0)
    spread = da.stack(moves).std(axis=0)
    usual, spread = dask.compute(usual, spread)
    across = np.arange(8, side, 16)
    near = np.abs(usual[..., 0] - ice_speed(across)) < 1
    assert usual.shape == spread.shape == (side // 16, side // 16, 2)
    assert near[2:-2, 2:-2].mean() > 0.9


def ice_speed(column: Any) -> Any:
    return 1 + 4 * np.sin(np.pi * column / 768) ** 2


def glacier_picture(row: Any, column: Any, date: int) -> Any:
    generator = np.random.default_rng(12)
    shape = np.broadcast_shapes(row.shape, column.shape)
    there = (row - ice_speed(column) * date).astype(np.float32)
    across = np.broadcast_to(column, shape).astype(np.float32)
    light = np.zeros(shape, np.float32)
    for _ in range(24):
        down, right = generator.normal(0, 0.35, 2).astype(np.float32)
        light += np.cos(down * there + right * across + np.float32(generator.uniform(0, 6)))
    noise = np.random.default_rng([12, date, row.flat[0], column.flat[0]]).standard_normal(shape, np.float32)
    return light + 0.3 * noise


def patches_moved(before: Any, after: Any) -> Any:
    """Whole points that a patch of 32 by 32 has moved down and to the right, for one of each 16 by 16."""
    one, other = (
        np.lib.stride_tricks.sliding_window_view(picture, (32, 32))[::16, ::16] for picture in (before, after)
    )
    taper = np.hanning(32)[:, None] * np.hanning(32)
    crossed = np.fft.rfft2((other - other.mean((2, 3), keepdims=True)) * taper) * np.conj(
        np.fft.rfft2((one - one.mean((2, 3), keepdims=True)) * taper)
    )
    alike = np.fft.irfft2(crossed, s=(32, 32))
    best = alike.reshape(*alike.shape[:2], -1).argmax(2)
    moved = np.stack(np.unravel_index(best, (32, 32)), axis=2)
    return ((moved + 16) % 32 - 16).astype(np.float32)


@eighth
def electron_pairs(client: Client) -> None:
    """Repulsions of electrons are turned from atoms' orbitals to a molecule's, two axes and then the others."""
    count, filled, auxiliary, width = 64, 16, 192, 8
    factors = da.from_delayed(dask.delayed(repulsion_factors)(count, auxiliary), (auxiliary, count, count), float)
    orbitals, levels = molecular_orbitals(count)
    low, high = orbitals[:, :filled], orbitals[:, filled:]
    parts = factors.rechunk((auxiliary, width, width))
    repulsions = da.tensordot(factors, parts, axes=(0, 0))
    half = da.map_blocks(
        axes_turned, repulsions, low, high, dtype=float, chunks=((filled,), (count - filled,), *repulsions.chunks[2:])
    )
    half = half.rechunk((2, 16, count, count)).transpose(2, 3, 0, 1)
    turned = da.map_blocks(
        axes_turned, half, low, high, dtype=float, chunks=((filled,), (count - filled,), *half.chunks[2:])
    )
    turned = turned.transpose(2, 3, 0, 1).rechunk((2, -1, -1, -1))  # filled, empty, filled, empty
    gaps = da.from_array(levels[:filled], chunks=2)[:, None, None, None] - levels[filled:, None, None]
    gaps = gaps + levels[:filled, None] - levels[filled:]
    energies = (turned * (2 * turned - turned.swapaxes(1, 3)) / gaps).sum(axis=(1, 3)).compute()
    own = np.einsum("pi,Lpq,qa->Lia", low, repulsion_factors(count, auxiliary), high, optimize=True)
    first = own[:, 0].T @ own[:, 0]
    gap = 2 * levels[0] - levels[filled:, None] - levels[filled:]
    assert energies.shape == (filled, filled)
    assert (np.diag(energies) < 0).all()
    assert np.isclose(energies[0, 0], (first**2 / gap).sum())


def repulsion_factors(count: int, auxiliary: int) -> Any:
    factors = np.random.default_rng(13).normal(0, 0.05, (auxiliary, count, count))
    distance = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    return (factors + factors.swapaxes(1, 2)) * np.exp(-distance / 20)


def molecular_orbitals(count: int) -> tuple[Any, Any]:
    core = np.random.default_rng(14).normal(0, 0.1, (count, count)) + np.diag(np.linspace(-3, 3, count))
    levels, orbitals = np.linalg.eigh(core + core.T)
    levels[count // 4 :] += 1
    return orbitals, levels


def axes_turned(repulsions: Any, low: Any, high: Any) -> Any:
    """The first axis becomes that of filled orbitals, and the second one that of the empty ones."""
    return np.einsum("pqrs,pi,qa->iars", repulsions, low, high, optimize=True)


@ninth
def toll_cameras(client: Client) -> None:
    """Cars seen entering and leaving a motorway are joined by ticket, for speeds by section and hour and for fines."""
    days = range(12)
    entries = dask.dataframe.from_map(passages, days, leaving=False)
    exits = dask.dataframe.from_map(passages, days, leaving=True)
    trips = entries.merge(exits, on="ticket")
    trips["section"] = trips["gate_in"] * 20 + trips["gate_out"]
    trips["speed"] = (trips["gate_out"] - trips["gate_in"]).abs() * 15 / (trips["left"] - trips["entered"])
    trips["hour"] = trips["entered"].astype("int64") % 24
    speeds = trips.groupby(["section", "hour"])["speed"].agg(["mean", "std", "count"])
    fined = trips[trips["speed"] > 130].groupby("plate")["speed"].agg(["count", "max"], split_out=3)
    fines = fined[fined["count"] > 1].nlargest(100, "max")
    lost = entries["ticket"].count() - trips["ticket"].count()
    table, worst, missing = dask.compute(speeds, fines, lost)
    assert len(worst) == 100
    assert 0 < missing < 20_000
    assert 80 < np.average(table["mean"], weights=table["count"]) < 120


def passages(day: int, leaving: bool) -> pd.DataFrame:
    rng = np.random.default_rng([90, day])
    count = 18_000
    ticket = rng.permutation(count) + day * count
    plate = rng.zipf(1.4, count) % 20_000
    gate_in = rng.integers(20, size=count)
    gate_out = (gate_in + rng.integers(1, 20, size=count)) % 20
    entered = day * 24 + 24 * rng.beta(3, 2, count)
    if not leaving:
        return pd.DataFrame({"ticket": ticket, "plate": plate, "gate_in": gate_in, "entered": entered})
    left = entered + np.abs(gate_out - gate_in) * 15 / rng.normal(100, 15, count).clip(40)
    frame = pd.DataFrame({"ticket": ticket, "gate_out": gate_out, "left": left})
    return frame[rng.random(count) < 0.95].sort_values("left", ignore_index=True)


@ninth
def hotel_nights(client: Client) -> None:
    """Bookings that were not cancelled become one row a night, which are counted for full houses and their streaks."""
    bookings = dask.dataframe.from_map(booked, range(16))
    cancelled = dask.dataframe.from_map(cancellations, range(4))
    kept = bookings.merge(cancelled, on="booking", how="left")
    kept = kept[kept["refund"].isnull()]
    nights = kept.map_partitions(by_night)
    sold = nights.groupby(["hotel", "night"]).agg({"rooms": "sum", "paid": "sum"}, split_out=4).reset_index()
    houses = pd.DataFrame({"hotel": range(300), "capacity": np.random.default_rng(91).integers(4, 12, 300)})
    full = sold.merge(houses, on="hotel")
    full = full[full["rooms"] >= full["capacity"]].shuffle("hotel")
    streaks = full.map_partitions(longest_streaks, meta={"hotel": "int64", "streak": "int64"})
    income = sold.assign(month=sold["night"] // 30).groupby("month")["paid"].sum()
    streaks, income = dask.compute(streaks, income)
    assert 100 < streaks["hotel"].nunique() == len(streaks) <= 300
    assert streaks["streak"].max() > 5
    assert len(income) == 13
    assert income.min() > 0


def booked(part: int) -> pd.DataFrame:
    rng = np.random.default_rng([91, part])
    count = 8_000
    hotel = (300 * rng.random(count) ** 1.5).astype(np.int64)
    arrival = (180 + 60 * rng.standard_normal(count)).clip(0, 359).astype(np.int64)
    nights = rng.geometric(0.3, count).clip(max=14)
    price = rng.gamma(9, 12, count)
    booking = part * count + np.arange(count)
    return pd.DataFrame({"booking": booking, "hotel": hotel, "arrival": arrival, "nights": nights, "price": price})


def cancellations(part: int) -> pd.DataFrame:
    rng = np.random.default_rng([92, part])
    booking = part * 32_000 + rng.choice(32_000, 5_000, replace=False)
    return pd.DataFrame({"booking": booking, "refund": rng.random(5_000)})


def by_night(frame: pd.DataFrame) -> pd.DataFrame:
    rows = frame.loc[frame.index.repeat(frame["nights"].astype(int))]
    night = rows["arrival"] + rows.groupby("booking").cumcount()
    return pd.DataFrame({"hotel": rows["hotel"], "night": night, "rooms": 1, "paid": rows["price"]})


def longest_streaks(frame: pd.DataFrame) -> pd.DataFrame:
    rows = frame.sort_values(["hotel", "night"])
    breaks = (rows["night"].diff() != 1) | (rows["hotel"].diff() != 0)
    lengths = rows.groupby(["hotel", breaks.cumsum().rename("run")]).size()
    return lengths.groupby("hotel").max().rename("streak").astype("int64").reset_index()


@ninth
def hologram_focus(client: Client) -> None:
    """A hologram is brought into focus at many depths, and each tile finds the depths at which its points are sharp."""
    side, count = 576, 28
    plane = da.from_delayed(dask.delayed(hologram)(side, count), (1, side, side), np.complex64)
    depths = da.arange(count, chunks=1)[:, None, None]
    spectrum = plane.map_blocks(np.fft.fft2, dtype=np.complex64)
    sharp = da.map_blocks(sharpness, depths, spectrum, dtype=np.float32, chunks=((1,) * count, (side,), (side,)))
    tiles = sharp.rechunk((-1, 96, 96))
    depth = tiles.map_blocks(peak, dtype=np.float32, drop_axis=0)
    smooth = depth.map_overlap(ndimage.median_filter, depth=4, size=9, boundary="reflect", dtype=np.float32)
    strength = tiles.max(axis=0)
    counts = da.histogram(smooth, bins=count, range=(0, count), weights=strength)[0]
    heights, counts = dask.compute(smooth, counts)
    assert heights.shape == (side, side)
    assert np.ptp(heights) > count / 2
    assert np.count_nonzero(counts) > 10


def kernel(side: int, depth: float) -> Any:
    squares = np.fft.fftfreq(side) ** 2
    return np.exp(-1j * np.pi * (10 + 4 * depth) * (squares[:, None] + squares)).astype(np.complex64)


def hologram(side: int, count: int) -> Any:
    rng = np.random.default_rng(93)
    field = np.zeros((side, side), np.complex64)
    for depth in range(0, count, 4):
        grains = ndimage.gaussian_filter((rng.random((side, side)) < 0.001).astype(float), 1.5)
        field += np.fft.ifft2(np.fft.fft2(grains) * kernel(side, depth).conj())
    return field[None]


def sharpness(depth: Any, spectrum: Any) -> Any:
    image = np.abs(np.fft.ifft2(spectrum[0] * kernel(spectrum.shape[-1], float(depth.flat[0])))).astype(np.float32)
    mean = ndimage.uniform_filter(image, 15)
    return (ndimage.uniform_filter(image**2, 15) - mean**2)[None]


def peak(stack: Any) -> Any:
    best = stack.argmax(axis=0).clip(1, len(stack) - 2)
    low, here, high = (np.take_along_axis(stack, best[None] + step, axis=0)[0] for step in (-1, 0, 1))
    bend = np.where(low - 2 * here + high < 0, low - 2 * here + high, -1)
    return (best + ((low - high) / (2 * bend)).clip(-1, 1)).astype(np.float32)


@ninth
def forecast_scores(client: Client) -> None:
    """Forecasts of ten days, twenty members each, are scored against what came, by lead, by season and by chance."""
    starts, leads, members, shape = 192, 10, 20, (24, 36)
    grid = {"y": np.linspace(-60, 60, shape[0]), "x": np.arange(shape[1]) * 10.0}
    chunks = (8, leads, members, *shape)
    kind = {"chunks": ((8,), (leads,), *((size,) for size in shape)), "new_axis": 1, "dtype": "f4"}
    noise = da.random.default_rng(94).standard_normal((starts, leads, members, *shape), chunks=chunks, dtype="f4")
    weather = da.random.default_rng(95).standard_normal((starts + leads, *shape), chunks=-1, dtype="f4")
    seen = weather.map_blocks(ndimage.uniform_filter1d, 3, axis=0, dtype="f4")
    parts = [seen[start : start + 8 + leads - 1].map_blocks(followed, leads, **kind) for start in range(0, starts, 8)]
    truth = xarray.DataArray(da.concatenate(parts), dims=("start", "lead", "y", "x"), coords=grid)
    truth = truth.assign_coords(season=("start", np.arange(starts) // 48))
    growth = xarray.DataArray(np.linspace(0.2, 0.9, leads, dtype="f4"), dims="lead")
    spread = xarray.DataArray(noise, dims=("start", "lead", "member", "y", "x"), coords=grid)
    forecast = truth * (1 - growth) + spread * growth
    core = [["member"], []]
    score = xarray.apply_ufunc(crps, forecast, truth, input_core_dims=core, dask="parallelized", output_dtypes=["f4"])
    ranks = (forecast < truth).sum("member")
    weights = np.cos(np.deg2rad(score["y"]))
    by_lead = score.groupby("season").mean().weighted(weights).mean(("y", "x"))
    bias = (forecast.mean("member") - truth).mean("start")
    histogram = da.bincount(ranks.data.ravel(), minlength=members + 1)
    by_lead, bias, histogram = dask.compute(by_lead, bias, histogram)
    assert histogram.sum() == starts * leads * math.prod(shape)
    assert abs(float(bias.mean())) < 0.1
    assert (by_lead.mean("season").diff("lead") > 0).all()


def followed(weather: Any, leads: int) -> Any:
    return np.moveaxis(np.lib.stride_tricks.sliding_window_view(weather, leads, axis=0), -1, 1)


def crps(forecast: Any, truth: Any) -> Any:
    count = forecast.shape[-1]
    ordered = np.sort(forecast, axis=-1)
    error = np.abs(ordered - truth[..., None]).mean(axis=-1)
    weights = (2 * np.arange(count) - count + 1).astype("f4")
    return (error - ordered @ weights / count**2).astype("f4")


@ninth
def connect_four(client: Client) -> None:
    """Random games of Connect Four tell how openings fare, mirrored ones as one, and the best are played on further."""
    games = db.from_sequence(range(20), npartitions=20).map(played, count=600, opening="").flatten()
    openings = games.map(opened).flatten()
    fared = openings.foldby(itemgetter(0), gained, (0, 0), counted_together, (0, 0), split_every=4)
    often = fared.filter(lambda pair: pair[1][1] >= 30)
    lengths = games.map(lambda game: len(game[0])).frequencies()
    best, lengths = dask.compute(often.topk(24, key=lambda pair: (pair[1][0] / pair[1][1], pair[0])), lengths)
    more = db.from_sequence([name for name, _ in best], npartitions=24)
    wins = more.map(lambda name: (name, sum(won > 0 for _, won in played(len(name), 200, name)))).compute()
    assert sum(count for _, count in lengths) == 12_000
    assert len(wins) == 24
    assert sum(count for _, count in wins) > 24 * 100


def played(seed: int, count: int, opening: str) -> list[tuple[str, int]]:
    return [game(np.random.default_rng([96, seed, each]), opening) for each in range(count)]


def game(rng: Any, opening: str) -> tuple[str, int]:
    boards, heights, moves = [0, 0], [7 * column for column in range(7)], ""
    for turn, choice in enumerate(rng.random(42).tolist()):
        free = [column for column in range(7) if heights[column] < 7 * column + 6]
        column = int(opening[turn]) if turn < len(opening) else free[int(choice * len(free))]
        boards[turn % 2] |= 1 << heights[column]
        heights[column] += 1
        moves += str(column)
        for step in (1, 6, 7, 8):
            pairs = boards[turn % 2] & boards[turn % 2] >> step
            if pairs & pairs >> 2 * step:
                return moves, 1 - 2 * (turn % 2)
    return moves, 0


def opened(game: tuple[str, int]) -> list[tuple[str, int]]:
    moves, won = game
    mirrored = moves.translate(str.maketrans("0123456", "6543210"))
    return [(min(moves[:length], mirrored[:length]), won) for length in range(1, 7)]


def gained(total: tuple[int, int], opening: tuple[str, int]) -> tuple[int, int]:
    return total[0] + opening[1], total[1] + 1


def counted_together(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


@ninth
def radio_masts(client: Client) -> None:
    """Hills are sent to all workers, which say what each site for a mast sees; the client picks masts and maps them."""
    side, reach = 480, 200
    rng = np.random.default_rng(97)
    hills = sum(ndimage.gaussian_filter(rng.standard_normal((side, side)), width) * width**2 for width in (5, 20))
    ground = client.scatter(hills.astype(np.float32), broadcast=True)
    sites = rng.integers(20, side - 20, size=(110, 2)).tolist()
    views = client.gather([client.submit(seen_from, ground, site, reach, 480, pure=False) for site in sites])
    covered, chosen = np.zeros((side, side), bool), []
    while len(chosen) < 8:
        gains = [np.count_nonzero(view & ~covered) for view in views]
        chosen.append(int(np.argmax(gains)))
        covered |= views[chosen[-1]]
    level = [client.submit(strength, ground, sites[each], reach, pure=False) for each in chosen]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [client.submit(np.maximum, *pair, pure=False) for pair in pairs]
    signal = level[0].result()
    assert len(set(chosen)) == 8
    assert signal.shape == (side, side)
    assert 0.1 < covered.mean() < 1
    assert np.count_nonzero(signal) > 0.8 * np.count_nonzero(covered)


def seen_from(ground: Any, site: list[int], reach: int, rays: int) -> Any:
    angles = np.linspace(0, 2 * np.pi, rays, endpoint=False)[:, None]
    steps = np.arange(1, reach, dtype=np.float32)
    rows, columns = site[0] + steps * np.sin(angles), site[1] + steps * np.cos(angles)
    inside = (rows >= 0) & (rows < len(ground) - 1) & (columns >= 0) & (columns < len(ground) - 1)
    heights = ndimage.map_coordinates(ground, [rows, columns], order=1, mode="nearest")
    slopes = (heights + 2 - ground[tuple(site)] - 20) / steps
    visible = (slopes >= np.maximum.accumulate(slopes, axis=1) - 1e-6) & inside
    view = np.zeros(ground.shape, bool)
    view[rows[visible].round().astype(int), columns[visible].round().astype(int)] = True
    return view


def strength(ground: Any, site: list[int], reach: int) -> Any:
    view = seen_from(ground, site, reach, 1440)
    rows, columns = np.indices(ground.shape)
    distance = np.hypot(rows - site[0], columns - site[1])
    return (view / (1 + distance) ** 2).astype(np.float32)


@ninth
def delivery_islands(client: Client) -> None:
    """Tours of a parcel van breed on twelve islands; after each round the client lets the better ones send theirs."""
    islands, rounds = 12, 9
    stops = np.random.default_rng(98).random((90, 2))
    far = client.scatter(np.hypot(*(stops[:, None] - stops).transpose(2, 0, 1)), broadcast=True)
    homes = [client.submit(settled, far, island, pure=False) for island in range(islands)]
    history: list[float] = []
    for turn in range(rounds):
        best = client.gather([client.submit(itemgetter(0), home, pure=False) for home in homes])
        order = sorted(range(islands), key=lambda island: best[island])
        history.append(best[order[0]])
        if turn > 4 and history[-1] > 0.999 * history[-4]:
            break
        guests = dict(zip(order[::-1], order[: islands // 2], strict=False))
        homes = [
            client.submit(bred, far, homes[i], homes[guests[i]] if i in guests else None, [turn, i], pure=False)
            for i in range(islands)
        ]
    length, tour = min(client.gather(homes), key=itemgetter(0))[:2]
    assert sorted(tour) == list(range(90))
    assert length <= history[-1] < 0.9 * history[0]


def toured(far: Any, tour: Any) -> float:
    return float(far[tour, np.roll(tour, -1)].sum())


def settled(far: Any, seed: int) -> tuple[float, list[int], int]:
    rng = np.random.default_rng([98, seed])
    here, left = 0, set(range(1, len(far)))
    tour = [here]
    while left:
        near = sorted(left, key=lambda stop: far[here, stop])[:4]
        here = near[int(rng.integers(len(near)))]
        left.remove(here)
        tour.append(here)
    return toured(far, tour), tour, 0


def bred(far: Any, home: tuple[float, list[int], int], guest: Any, seed: list[int]) -> tuple[float, list[int], int]:
    rng = np.random.default_rng([99, *seed])
    length, tour, age = home if guest is None or home[0] < guest[0] else guest
    way, table, count = list(tour), far.tolist(), len(far)
    spots = rng.integers(1, count - 1, size=(28_000, 2)).tolist()
    heat = 0.03 / (1 + seed[0])
    limits = (-heat * np.log(rng.random(len(spots)))).tolist()
    best, best_way = length, list(way)
    for (first, last), limit in zip(spots, limits, strict=True):
        if first > last:
            first, last = last, first
        a, b, c, d = way[first - 1], way[first], way[last], way[last + 1]
        change = table[a][c] + table[b][d] - table[a][b] - table[c][d]
        if change < limit:
            way[first : last + 1] = way[first : last + 1][::-1]
            length += change
            if length < best - 1e-9:
                best, best_way = length, list(way)
    return best, best_way, age + 1


@ninth
def othello_search(client: Client) -> None:
    """A task that seeks a move of Othello has the likeliest searched first, then, knowing its worth, the rest."""
    values = []
    for seed in range(6):
        mine, theirs = 0x0000000810000000, 0x0000001008000000
        rng = np.random.default_rng([100, seed])
        for _ in range(12):
            moves = list(turned(mine, theirs))
            move = moves[int(rng.integers(len(moves)))]
            mine, theirs = turned_stones(mine, theirs, move)
        values.append(client.submit(searched, mine, theirs, 5, -1000, 1000, 2, pure=False))
    found = client.gather(values)
    assert len(found) == 6
    assert all(-1000 < value < 1000 for value in found)


EAST, WEST, ALL = 0xFEFEFEFEFEFEFEFE, 0x7F7F7F7F7F7F7F7F, (1 << 64) - 1
SHIFTS = [(1, EAST), (9, EAST), (8, ALL), (7, WEST), (-1, WEST), (-9, WEST), (-8, ALL), (-7, EAST)]
CORNERS = 0x8100000000000081


def shifted(board: int, by: int, mask: int) -> int:
    return (board << by if by > 0 else board >> -by) & mask & ALL


def turned(mine: int, theirs: int) -> list[int]:
    empty, found = ALL & ~(mine | theirs), 0
    for by, mask in SHIFTS:
        line = shifted(mine, by, mask) & theirs
        while line:
            line = shifted(line, by, mask)
            found |= line & empty
            line &= theirs
    return [1 << place for place in range(64) if found >> place & 1]


def turned_stones(mine: int, theirs: int, move: int) -> tuple[int, int]:
    flips = 0
    for by, mask in SHIFTS:
        line, here = 0, shifted(move, by, mask)
        while here & theirs:
            line |= here
            here = shifted(here, by, mask)
        if here & mine:
            flips |= line
    return theirs & ~flips, mine | move | flips


def worth(mine: int, theirs: int) -> int:
    corners = (mine & CORNERS).bit_count() - (theirs & CORNERS).bit_count()
    return 3 * (len(turned(mine, theirs)) - len(turned(theirs, mine))) + 20 * corners


def searched(mine: int, theirs: int, depth: int, low: int, high: int, split: int) -> int:
    moves = turned(mine, theirs) if depth else []
    if not moves:
        return worth(mine, theirs)
    boards = sorted((turned_stones(mine, theirs, move) for move in moves), key=lambda board: worth(*board))
    if split and len(boards) > 1:
        with worker_client() as client:
            best = -client.submit(searched, *boards[0], depth - 1, -high, -low, split - 1, pure=False).result()
            if best >= high:
                return best
            low = max(low, best)
            rest = [client.submit(searched, *b, depth - 1, -high, -low, split - 1, pure=False) for b in boards[1:]]
            return max(best, *(-value for value in client.gather(rest)))
    best = -10_000
    for board in boards:
        best = max(best, -searched(*board, depth - 1, -high, -max(low, best), split))
        if best >= high:
            break
    return best


@ninth
def digits_of_pi(client: Client) -> None:
    """Digits of pi, by a tree that joins ever longer fractions, and of e, by another, whose top is most of the work."""
    digits = 110_000
    terms = digits // 14 + 2
    pi = tree([dask.delayed(chudnovsky)(*ends) for ends in spans(terms, 48)])
    e = tree([dask.delayed(factorials)(*ends) for ends in spans(28_000, 48)])
    texts = dask.delayed(pi_text)(pi, digits), dask.delayed(e_text)(e, digits)
    counts = [dask.delayed(Counter)(text) for text in texts]
    (first, second), (of_pi, of_e) = dask.compute(texts, counts)
    assert first.startswith("3.14159265358979")
    assert first[763:769] == "999999"
    assert second.startswith("2.718281828459045")
    assert min(of_pi["7"], of_e["7"]) > digits / 10 * 0.95


Fraction = tuple[int, int, int]


def spans(count: int, parts: int) -> list[tuple[int, int]]:
    ends = [count * part // parts for part in range(parts + 1)]
    return list(pairwise(ends))


def tree(level: list[Any]) -> Any:
    while len(level) > 1:
        pairs = [dask.delayed(together)(*pair) for pair in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def together(left: Fraction, right: Fraction) -> Fraction:
    return left[0] * right[0], left[1] * right[1], left[2] * right[1] + left[0] * right[2]


def chudnovsky(start: int, end: int) -> Fraction:
    if end - start > 1:
        middle = (start + end) // 2
        return together(chudnovsky(start, middle), chudnovsky(middle, end))
    k = start
    p = -(6 * k - 5) * (2 * k - 1) * (6 * k - 1) if k else 1
    return p, k**3 * (640320**3 // 24) if k else 1, p * (13591409 + 545140134 * k)


def factorials(start: int, end: int) -> Fraction:
    if end - start > 1:
        middle = (start + end) // 2
        return together(factorials(start, middle), factorials(middle, end))
    return 1, max(start, 1), 1


def pi_text(fraction: Fraction, digits: int) -> str:
    with localcontext() as context:
        context.prec = digits + 20
        return str(Decimal(426880) * Decimal(10005).sqrt() * Decimal(fraction[1]) / Decimal(fraction[2]))[:digits]


def e_text(fraction: Fraction, digits: int) -> str:
    with localcontext() as context:
        context.prec = digits + 20
        return str(Decimal(fraction[2]) / Decimal(fraction[1]))[:digits]


@ninth
def card_fraud(client: Client) -> None:
    """Payments come in batches, a few under way: each shard of the cards learns their habits, and alerts come back."""
    shards, batches, ahead = 5, 44, 4
    habits = [client.submit(dict, pure=False) for _ in range(shards)]
    waiting: deque[Any] = deque()
    alerts: list[tuple[int, float]] = []
    for number in range(batches):
        if len(waiting) == ahead:
            alerts += [alert for found in client.gather(waiting.popleft()) for alert in found]
        parsed = client.submit(parse, payments(number), shards, pure=False)
        new = []
        for shard in range(shards):
            part = client.submit(itemgetter(shard), parsed, pure=False)
            learned = client.submit(learn, habits[shard], part, pure=False)
            habits[shard] = client.submit(itemgetter(0), learned, pure=False)
            new.append(client.submit(itemgetter(1), learned, pure=False))
        waiting.append(new)
    for each in waiting:
        alerts += [alert for found in client.gather(each) for alert in found]
    known = sum(client.gather([client.submit(len, habit, pure=False) for habit in habits]))
    assert 1000 < known <= 3000
    assert 100 < len(alerts) < 20_000


def payments(number: int) -> bytes:
    rng = np.random.default_rng([101, number])
    cards = (3000 * rng.random(2000) ** 2).astype(int).tolist()
    amounts = (np.exp(rng.normal(3, 0.6, 2000)) * np.where(rng.random(2000) < 0.01, 12, 1)).round(2).tolist()
    rows = zip(cards, amounts, rng.integers(400, size=2000).tolist(), strict=True)
    lines = [f'{{"card": {card}, "amount": {amount}, "shop": {shop}}}' for card, amount, shop in rows]
    return zlib.compress("\n".join(lines).encode(), 1)


def parse(batch: bytes, shards: int) -> list[list[tuple[int, float, int]]]:
    parts: list[list[tuple[int, float, int]]] = [[] for _ in range(shards)]
    for line in zlib.decompress(batch).splitlines():
        row = json.loads(line)
        parts[row["card"] % shards].append((row["card"], math.log(row["amount"]), row["shop"]))
    return parts


def learn(habits: dict[int, Any], part: list[Any]) -> tuple[dict[int, Any], list[tuple[int, float]]]:
    habits, alerts = dict(habits), []
    for card, amount, shop in part:
        amounts, shops = habits.get(card, ((), ()))
        if len(amounts) > 4:
            usual = statistics.median(amounts)
            spread = statistics.median([abs(each - usual) for each in amounts])
            if amount - usual > 5 * spread and shop not in shops:
                alerts.append((card, amount))
        habits[card] = (*amounts[-24:], amount), (*shops[-11:], shop)
    return habits, alerts


@tenth
def quantum_circuit(client: Client) -> None:
    """Qubits in sixteen blocks: a gate on a high qubit mixes each block with another, and at last all are measured."""
    high, low, layers = 4, 14, 5
    blocks = [client.submit(qubit_block, index, low, pure=False) for index in range(1 << high)]
    for layer in range(layers):
        for qubit in range(high):
            blocks = [
                client.submit(gated_block, own, blocks[index ^ (1 << qubit)], index >> qubit & 1, [layer, qubit])
                for index, own in enumerate(blocks)
            ]
    weights = np.array(client.gather(client.map(block_probability, blocks)))
    assert abs(weights.sum() - 1) < 0.001
    shots = np.random.default_rng(5).multinomial(5000, weights / weights.sum())
    measured = [client.submit(measured_states, block, i, int(shots[i])) for i, block in enumerate(blocks)]
    assert len(np.unique(np.concatenate(client.gather(measured)))) > 500


def qubit_block(index: int, low: int) -> Any:
    block = np.zeros(1 << low, np.complex64)
    block[0] = index == 0
    return block


def gated_block(own: Any, other: Any, bit: int, seed: list[int]) -> Any:
    random = np.random.default_rng(seed)
    turn = random.uniform(0.5, 1.5)
    block = (np.cos(turn) * own + (1 if bit else -1) * np.sin(turn) * other).astype(np.complex64)
    qubits = len(block).bit_length() - 1
    for _ in range(5):
        for qubit, angle in enumerate(random.uniform(0, np.pi, qubits)):
            pairs = block.reshape(-1, 2, 1 << qubit)
            zero, one = pairs[:, 0].copy(), pairs[:, 1].copy()
            pairs[:, 0] = np.float32(np.cos(angle)) * zero - np.float32(np.sin(angle)) * one
            pairs[:, 1] = np.float32(np.sin(angle)) * zero + np.float32(np.cos(angle)) * one
        for qubit in range(qubits - 1):
            block.reshape(-1, 2, 2, 1 << qubit)[:, 1, 1] *= np.complex64(np.exp(1j * random.uniform(0, np.pi)))
    return block


def block_probability(block: Any) -> float:
    return float((np.abs(block.astype(np.complex128)) ** 2).sum())


def measured_states(block: Any, index: int, shots: int) -> Any:
    chances = np.cumsum(np.abs(block.astype(np.complex128)) ** 2)
    drawn = np.random.default_rng([9, index]).random(shots) * chances[-1]
    return index * len(block) + np.searchsorted(chances, drawn)


@tenth
def quadratic_sieve(client: Client) -> None:
    """A number is factored: ranges are sieved for smooth squares until there are enough, and one task does the rest."""
    number = 1000000000000000003 * 300000000000000011
    base = factor_base(number, 10000)
    [kept] = client.scatter([base], broadcast=True)
    width, side = 1 << 21, 1
    found: list[tuple[int, Any]] = []
    running = as_completed([client.submit(smooth_squares, number, kept, k * width, width) for k in range(-8, 8)])
    next_ranges = (sign * k for k in range(8, 10_000) for sign in (1, -1))
    for done in running:
        found += done.result()
        if len(found) > len(base) + 16:
            break
        side = next(next_ranges)
        start = side * width if side > 0 else (side - 1) * width
        running.add(client.submit(smooth_squares, number, kept, start, width))
    client.cancel([future for future in running.futures if not future.done()])
    factor = client.submit(dependent_factor, number, base, found).result()
    assert number % factor == 0
    assert 1 < factor < number


def factor_base(number: int, below: int) -> list[tuple[int, list[int]]]:
    base = []
    for prime in range(2, below):
        if all(prime % other for other in range(2, math.isqrt(prime) + 1)):
            roots = np.flatnonzero(np.arange(prime) ** 2 % prime == number % prime).tolist()
            if roots:
                base.append((prime, roots))
    return base


def smooth_squares(number: int, base: list[tuple[int, list[int]]], start: int, width: int) -> Any:
    origin = math.isqrt(number) + 1 + start
    logs = np.zeros(width, np.float32)
    for prime, roots in base:
        for root in roots:
            logs[(root - origin) % prime :: prime] += np.float32(math.log(prime))
    sizes = math.log(abs(origin * origin - number) + (width << 1) * math.isqrt(number) // 8)
    relations = []
    for place in np.flatnonzero(logs > sizes - 1.6 * math.log(base[-1][0])).tolist():
        rest = (origin + place) ** 2 - number
        powers = [0] * (len(base) + 1)
        powers[-1] = int(rest < 0)
        rest = abs(rest)
        for which, (prime, _) in enumerate(base):
            while rest % prime == 0:
                rest //= prime
                powers[which] += 1
        if rest == 1:
            relations.append((origin + place, np.array(powers, np.int16)))
    return relations


def dependent_factor(number: int, base: list[tuple[int, list[int]]], relations: list[tuple[int, Any]]) -> int:
    pivots: dict[int, tuple[int, int]] = {}
    for which, (_, powers) in enumerate(relations):
        row, mask = sum(1 << place for place in np.flatnonzero(powers & 1).tolist()), 1 << which
        while row and row.bit_length() in pivots:
            pivot, pivot_mask = pivots[row.bit_length()]
            row, mask = row ^ pivot, mask ^ pivot_mask
        if row:
            pivots[row.bit_length()] = row, mask
            continue
        chosen = [relations[k] for k in range(which + 1) if mask >> k & 1]
        left, right = 1, 1
        for root, _ in chosen:
            left = left * root % number
        for (prime, _), power in zip(base, np.sum([powers for _, powers in chosen], axis=0).tolist(), strict=False):
            right = right * pow(prime, power // 2, number) % number
        factor = math.gcd(left - right, number)
        if 1 < factor < number:
            return factor
    return 1


@tenth
def song_recognition(client: Client) -> None:
    """Songs are known by pairs of peaks in their sound: noisy snippets are looked up in eight shards, which vote."""
    songs, shards, snippets = 22, 8, 24
    sounds = client.map(song_sound, range(songs))
    prints = client.map(sound_fingerprint, sounds)
    index = [client.submit(fingerprint_shard, shard, shards, prints) for shard in range(shards)]
    votes = []
    for snippet in range(snippets):
        heard = client.submit(sound_fingerprint, client.submit(noisy_snippet, sounds[snippet * 7 % songs], snippet))
        votes.append(client.submit(likeliest_song, [client.submit(shard_votes, part, heard) for part in index]))
    named = client.gather(votes)
    right = sum(name == snippet * 7 % songs for snippet, name in enumerate(named))
    assert right > 0.8 * snippets


def song_sound(song: int) -> Any:
    random = np.random.default_rng([31, song])
    rate, beat = 8000, 2000
    time = np.arange(2 * beat) / rate
    sound = np.zeros(beat * 64, np.float32)
    for start in range(0, len(sound) - 2 * beat, beat):
        for pitch in 220 * 2 ** (random.integers(0, 36, 3) / 12):
            tone = sum(np.sin(2 * np.pi * pitch * part * time) / part for part in (1, 2, 3))
            sound[start : start + 2 * beat] += tone * np.exp(-5 * time)
    return sound


def noisy_snippet(sound: Any, snippet: int) -> Any:
    random = np.random.default_rng([32, snippet])
    start = int(random.integers(len(sound) - 40_000))
    return sound[start : start + 40_000] + random.normal(0, 0.4, 40_000).astype(np.float32)


def sound_fingerprint(sound: Any) -> Any:
    _, _, power = signal.spectrogram(sound, nperseg=1024, noverlap=768)
    loud = np.log(power + 1e-9)
    peaks = (ndimage.maximum_filter(loud, (15, 21)) == loud) & (loud > np.percentile(loud, 90))
    times, pitches = np.nonzero(peaks.T)
    pairs = []
    for step in range(1, 9):
        apart = times[step:] - times[:-step]
        near = apart < 128
        hashes = (pitches[:-step] << 17 | pitches[step:] << 7)[near] | apart[near]
        pairs.append(np.stack([hashes, times[:-step][near]]))
    return np.concatenate(pairs, axis=1)


def fingerprint_shard(shard: int, shards: int, prints: list[Any]) -> Any:
    rows = []
    for song, pairs in enumerate(prints):
        mine = pairs[:, pairs[0] % shards == shard]
        rows.append(pd.DataFrame({"hash": mine[0], "at": mine[1], "song": song}))
    return pd.concat(rows, ignore_index=True).sort_values("hash")


def shard_votes(part: pd.DataFrame, heard: Any) -> Any:
    hits = part.merge(pd.DataFrame({"hash": heard[0], "heard": heard[1]}), on="hash")
    return hits.assign(shift=(hits["at"] - hits["heard"]) // 2).groupby(["song", "shift"]).size()


def likeliest_song(votes: list[Any]) -> int:
    total = pd.concat(votes).groupby(level=[0, 1]).sum()
    return int(total.idxmax()[0]) if len(total) else -1


@tenth
def density_layers(client: Client) -> None:
    """An ocean's temperature and salinity, by months and depths, are put on layers of equal density for each season."""
    months, depths, lats, lons = 24, 30, 48, 80
    chunks = ((2,) * 12, (10,) * 3, (lats,), (lons,))
    shape = {"time": months, "depth": depths, "lat": lats, "lon": lons}
    fields = {
        name: (tuple(shape), da.map_blocks(ocean_field, which, chunks=chunks, dtype=np.float32))
        for which, name in enumerate(["temperature", "salinity"])
    }
    dates = pd.date_range("2001-01-01", periods=months, freq="MS")
    ocean = xarray.Dataset(fields, {"time": dates, "depth": np.linspace(5, 3000, depths)})
    density = 28 - 0.15 * ocean.temperature - 0.005 * ocean.temperature**2 + 0.78 * (ocean.salinity - 35)
    layers = np.linspace(23, 27, 12)
    ocean["density"] = density
    columns = ocean.chunk({"depth": -1, "lat": lats // 2})
    layered = xarray.apply_ufunc(
        column_on_layers,
        columns.density,
        columns.temperature,
        kwargs={"layers": layers},
        input_core_dims=[["depth"], ["depth"]],
        output_core_dims=[["layer"]],
        vectorize=True,
        dask="parallelized",
        output_dtypes=[np.float64],
        dask_gufunc_kwargs={"output_sizes": {"layer": len(layers)}},
    )
    seasons = layered.groupby("time.season").mean().mean("lon").compute()
    assert seasons.sizes["season"] == 4
    assert float(seasons.isel(layer=2).mean()) > float(seasons.isel(layer=-2).mean())


def ocean_field(which: int, block_info: Any = None) -> Any:
    where = block_info[None]["array-location"]
    random = np.random.default_rng([which, where[0][0], where[1][0]])
    time, depth, lat, lon = np.meshgrid(*(np.arange(*span) for span in where), indexing="ij", sparse=True)
    warm = 24 * np.exp(-depth / 8) * np.cos((lat - 24) / 20) + 2 * np.sin(time * np.pi / 6) * np.exp(-depth / 3)
    mean = warm + 2 if which == 0 else 35 + 0.01 * depth + 0.2 * np.sin(lon / 9)
    noise = random.normal(0, 0.1, tuple(stop - start for start, stop in where))
    return (mean + ndimage.gaussian_filter(noise, (0, 0, 2, 2))).astype(np.float32)


def column_on_layers(density: Any, values: Any, layers: Any) -> Any:
    order = np.argsort(density)
    return np.interp(layers, density[order], values[order])


@tenth
def walk_counts(client: Client) -> None:
    """Walks in a network are counted by squaring its matrix: Strassen's way, whose tasks submit seven products each."""
    side, squarings = 768, 3
    links = (np.random.default_rng(41).random((side, side)) < 0.02).astype(np.uint16)
    walks = client.scatter(links)
    for _ in range(squarings):
        walks = client.submit(strassen_product, walks, walks, 2, pure=False)
    counts = walks.result()
    start = np.zeros(side, np.int64)
    start[3] = 1
    for _ in range(1 << squarings):
        start = start @ links.astype(np.int64) % 32749
    assert np.array_equal(counts[3], start)


def strassen_product(left: Any, right: Any, levels: int) -> Any:
    if levels == 0:
        return (left.astype(np.int64) @ right.astype(np.int64) % 32749).astype(np.uint16)
    half = len(left) // 2
    a, b, c, d = (left[i : i + half, j : j + half].astype(np.int64) for i in (0, half) for j in (0, half))
    e, f, g, h = (right[i : i + half, j : j + half].astype(np.int64) for i in (0, half) for j in (0, half))
    factors = [(a + d, e + h), (c + d, e), (a, f - h), (d, g - e), (a + b, h), (c - a, e + f), (b - d, g + h)]
    with worker_client() as client:
        products = [
            client.submit(
                strassen_product,
                (one % 32749).astype(np.uint16),
                (other % 32749).astype(np.uint16),
                levels - 1,
                pure=False,
            )
            for one, other in factors
        ]
        p, q, r, s, t, u, v = (each.astype(np.int64) for each in client.gather(products))
    return (np.block([[p + s - t + v, r + t], [q + s, p - q + r + u]]) % 32749).astype(np.uint16)


@tenth
def callable_bonds(client: Client) -> None:
    """Bonds that may be called are priced on trees of rates: a small task for each bond and curve, then the worst."""
    curves = [dask.delayed(rate_curve)(scenario) for scenario in range(24)]
    bonds = [(0.01 + 0.001 * (k % 40), 4 + k % 9, 100 + k % 3) for k in range(36)]
    spreads = [dask.delayed(called_spread)(curves[0], bond) for bond in bonds]
    values = []
    for curve in curves:
        prices = [dask.delayed(called_price)(curve, bond, spread) for bond, spread in zip(bonds, spreads, strict=True)]
        values.append(dask.delayed(sum)(prices))
    now, *others = client.compute(values, sync=True)
    assert abs(now - 98 * len(bonds)) < 1
    assert min(others) < now


def rate_curve(scenario: int) -> Any:
    random = np.random.default_rng([51, scenario])
    known = np.array([0.25, 1, 2, 5, 10, 20])
    rates = 0.02 + 0.003 * np.log1p(known) + 0.004 * random.standard_normal() * (scenario > 0)
    knots = optimize.least_squares(lambda level: np.interp(known, known, level) - rates, np.full(6, 0.03)).x
    return np.interp(np.arange(0, 15, 0.125), known, knots)


def called_price(curve: Any, bond: tuple[float, int, int], spread: float) -> float:
    coupon, years, call = bond
    step = 0.125
    count = int(years / step)
    worth = np.full(count + 1, 100.0)
    for time in range(count - 1, -1, -1):
        rates = curve[time] * np.exp(0.15 * np.sqrt(step) * (2 * np.arange(time + 1) - time)) + spread
        worth = np.exp(-rates * step) * (0.5 * (worth[:-1] + worth[1:]) + 100 * coupon * step)
        if time > 16:
            worth = np.minimum(worth, call)
    return float(worth[0])


def called_spread(curve: Any, bond: tuple[float, int, int]) -> float:
    return float(optimize.brentq(lambda spread: called_price(curve, bond, spread) - 98, -0.2, 0.3, xtol=1e-8))


@tenth
def contact_tracing(client: Client) -> None:
    """Phones seen in the same place at the same hour: a table joined with itself, for the contacts of ill people."""
    days, people = 14, 4000
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        pings = dask.dataframe.from_map(phone_pings, range(days), people=people, meta=phone_pings(0, 10).iloc[:0])
        pings = pings[pings.signal > -105].drop(columns="signal")
        pairs = pings.merge(pings, on=["place", "hour"], suffixes=("", "_other"))
        pairs = pairs[pairs.person != pairs.person_other]
        met = pairs.groupby(["person", "person_other"]).hour.nunique(split_out=4).reset_index().persist()
        reached = pd.DataFrame({"person": np.arange(0, people, 600)})
        sizes = [len(reached)]
        for _ in range(2):
            near = met[met.hour >= 2].merge(reached, on="person").person_other.unique().compute()
            reached = pd.DataFrame({"person": np.union1d(reached.person, near)})
            sizes.append(len(reached))
    assert sizes[0] < sizes[1] < sizes[2]
    assert sizes[2] <= people


def phone_pings(day: int, people: int) -> pd.DataFrame:
    random = np.random.default_rng([61, day])
    person = np.repeat(np.arange(people), 8)
    hour = day * 24 + random.integers(7, 22, len(person))
    home = person // 5 * 7919 % 2000
    place = np.where(random.random(len(person)) < 0.3, home % 150 + 1000, random.integers(0, 1000, len(person)))
    signals = random.normal(-90, 12, len(person))
    seen = pd.DataFrame({"person": person, "hour": hour, "place": place, "signal": signals})
    return seen.drop_duplicates(["person", "hour"])


@tenth
def word_companions(client: Client) -> None:
    """A bag of pages: words that stand near each other more often than by chance, and then where these are found."""
    pages = db.from_sequence(range(192), npartitions=24).map(page_of_words)
    words = pages.flatten().frequencies(split_every=6)
    near = pages.map(near_words).flatten().foldby(lambda pair: pair, pair_tally, 0, int.__add__, 0, split_every=6)
    single, double = dask.compute(words, near)
    often = dict(single)
    total = sum(often.values())
    bonds = {pair: n * math.log(n * total / often[pair[0]] / often[pair[1]] / 4) for pair, n in double if n > 20}
    best = set(sorted(bonds, key=lambda pair: (-bonds[pair], pair))[:40])
    assert sum(first // 2 == second // 2 for first, second in best) > 20
    contexts = pages.map(pair_contexts, best).flatten().repartition(npartitions=8)
    found = contexts.groupby(lambda row: row[0], npartitions=8, shuffle="tasks")
    sheets = found.map(concordance_sheet).compute()
    assert len(sheets) == len(best)


def page_of_words(page: int) -> list[int]:
    random = np.random.default_rng([71, page])
    words = np.minimum(random.zipf(1.3, 800), 5000) % 300
    coupled = np.flatnonzero((random.random(799) < 0.5) & (words[:-1] > 40))
    words[coupled + 1] = words[coupled] ^ 1
    return [int(word) for word in words]


def near_words(words: list[int]) -> list[tuple[int, int]]:
    pairs = []
    for start in range(len(words) - 4):
        window = sorted(set(words[start : start + 4]))
        pairs += [pair for pair in combinations(window, 2) if pair[0] > 20]
    return pairs


def pair_tally(total: int, _: Any) -> int:
    return total + 1


def pair_contexts(words: list[int], best: set[tuple[int, int]]) -> list[tuple[tuple[int, int], list[int]]]:
    rows = []
    for place, pair in enumerate(pairwise(words)):
        ordered = (min(pair), max(pair))
        if ordered in best:
            rows.append((ordered, words[max(0, place - 4) : place + 6]))
    return rows


def concordance_sheet(group: tuple[tuple[int, int], list[Any]]) -> tuple[tuple[int, int], Any]:
    pair, rows = group
    around = Counter(word for _, words in rows for word in words if word not in pair)
    return pair, (len(rows), around.most_common(5))


@tenth
def chip_temperature(client: Client) -> None:
    """The heat in a chip by multigrid: strips are smoothed, made coarse, solved by one task and refined, in rounds."""
    side, strips = 576, 6
    rows = da.arange(side, chunks=side // strips)[:, None] / side
    columns = da.arange(side, chunks=-1)[None, :] / side
    power = (da.exp(-300 * ((rows - 0.3) ** 2 + (columns - 0.6) ** 2)) + (rows > 0.8) * (columns < 0.2)).persist()
    heat = da.zeros_like(power)
    errors = [float(da.linalg.norm(power).compute())]
    while errors[-1] > 0.05 * errors[0] and len(errors) < 4:
        heat = heat_smoothed(heat, power)
        coarse = da.coarsen(np.sum, heat_residual(heat, power), {0: 2, 1: 2})
        change = heat_smoothed(da.zeros_like(coarse), coarse)
        coarsest = da.coarsen(np.sum, heat_residual(change, coarse), {0: 2, 1: 2}).rechunk(-1)
        solved = coarsest.map_blocks(coarse_heat, dtype=float).rechunk((side // 4 // strips, -1))
        change = heat_smoothed(change + solved.map_blocks(np.kron, np.ones((2, 2)), chunks=change.chunks), coarse)
        heat = heat + change.map_blocks(np.kron, np.ones((2, 2)), chunks=heat.chunks)
        heat = heat_smoothed(heat, power).persist()
        errors.append(float(da.linalg.norm(heat_residual(heat, power)).compute()))
    assert errors[-1] < 0.5 * errors[0]
    assert float(heat.max().compute()) > 0


def heat_smoothed(heat: Any, power: Any) -> Any:
    depth = {0: 6, 1: 0}
    return da.map_overlap(smoothed_strip, heat, power, depth=depth, boundary="none", dtype=float, trim=True)


def heat_residual(heat: Any, power: Any) -> Any:
    return power - da.map_overlap(heat_flow, heat, depth={0: 1, 1: 0}, boundary="none", dtype=float)


def heat_flow(heat: Any) -> Any:
    wide = np.pad(heat, 1)
    return 4 * heat - wide[:-2, 1:-1] - wide[2:, 1:-1] - wide[1:-1, :-2] - wide[1:-1, 2:]


def smoothed_strip(heat: Any, power: Any) -> Any:
    for _ in range(6):
        heat = heat + 0.2 * (power - heat_flow(heat))
    return heat


def coarse_heat(power: Any) -> Any:
    heat, step = np.zeros_like(power), power
    rest, size = power, float((power * power).sum())
    for _ in range(200):
        flow = heat_flow(step)
        along = size / max(float((step * flow).sum()), 1e-30)
        heat, rest = heat + along * step, rest - along * flow
        size, before = float((rest * rest).sum()), size
        step = rest + size / max(before, 1e-30) * step
    return heat


@tenth
def relief_tiles(client: Client) -> None:
    """Hills are drawn as a pyramid of tiles with light, shade and heights: each level is made from four tiles below."""
    side = 8
    level = {(x, y): dask.delayed(hill_heights)(x, y) for x in range(side) for y in range(side)}
    pictures = []
    while level:
        pictures += [dask.delayed(shaded_relief)(heights, 50.0 * side) for heights in level.values()]
        side //= 2
        level = {
            (x, y): dask.delayed(coarser_heights)([[level[2 * x + i, 2 * y + j] for j in (0, 1)] for i in (0, 1)])
            for x in range(side)
            for y in range(side)
        }
    tiles = dask.compute(*pictures)
    packed = [zlib.compress(tile.tobytes(), 1) for tile in tiles[-5:]]
    assert len(tiles) == 85
    assert all(tile.shape == (192, 192, 3) for tile in tiles)
    assert min(map(len, packed)) > 1000


def hill_heights(x: int, y: int) -> Any:
    rows, columns = np.mgrid[x * 192 : x * 192 + 192, y * 192 : y * 192 + 192] / 1536
    random = np.random.default_rng(81)
    heights = np.zeros((192, 192))
    for octave in range(1, 8):
        for angle, phase in random.uniform(0, 2 * np.pi, (2, 2)):
            wave = 2**octave * (np.cos(angle) * rows + np.sin(angle) * columns)
            heights += np.abs(np.sin(2 * np.pi * wave + phase)) / 1.7**octave
    return (900 * heights).astype(np.float32)


def coarser_heights(quarters: list[list[Any]]) -> Any:
    whole = ndimage.gaussian_filter(np.block(quarters), 1)
    return whole.reshape(192, 2, 192, 2).mean(axis=(1, 3))


def shaded_relief(heights: Any, scale: float) -> Any:
    down, across = np.gradient(ndimage.gaussian_filter(heights, 0.7) / scale * 20)
    steep, facing = np.arctan(np.hypot(down, across)), np.arctan2(down, across)
    light = sum(np.cos(steep - 0.8) * (1 + np.cos(facing - sun)) / 6 for sun in (0.5, 2.2, 4.0))
    sky = heights - ndimage.uniform_filter(heights, 25)
    tone = np.clip(light + sky / 400, 0, 1)[..., None]
    stops = np.stack([np.interp(heights, [0, 700, 1500, 2600], each) for each in ([60, 150, 170, 250],) * 3], axis=-1)
    lines = (heights // 50 != np.roll(heights, 1, 0) // 50)[..., None]
    return (tone * stops * np.where(lines, 0.6, 1)).astype(np.uint8)


@eleventh
def loan_vintages(client: Client) -> None:
    """Bookings of loans, a file a month, by loan: who falls behind, and how much of each year's loans is lost."""
    months, loans = 24, 2500
    bookings = dask.dataframe.from_map(loan_bookings, range(months), loans=loans)
    by_loan = bookings.shuffle("loan", npartitions=8).persist()
    courses = by_loan.map_partitions(loan_courses, months, meta={"loan": "i8", "arrears": "f8", "lost": "f8"})
    rolls = by_loan.map_partitions(arrears_moves, months, meta={"before": "i8", "after": "i8", "count": "i8"})
    contracts = dask.dataframe.from_map(loan_contracts, range(4), loans=loans)
    vintages = contracts.merge(courses, on="loan").groupby(["year", "grade"])[["amount", "lost"]].sum()
    lost, moves = client.gather(client.compute([vintages, rolls["count"].sum()]))
    shares = lost.groupby(level="grade").sum().eval("lost / amount")
    assert moves == loans * (months - 1)
    assert shares.is_monotonic_increasing


def loan_bookings(month: int, loans: int) -> pd.DataFrame:
    random = np.random.default_rng([111, month])
    kept = random.random(loans) < 0.97 - 0.06 * (np.arange(loans) % 5)
    paid = np.where(kept, 250 + 50 * (random.random(loans) < 0.2), 125 * (random.random(loans) < 0.3))
    days = random.integers(1, 29, loans)
    lines = pd.Series(
        f"2{month // 12:03}-{month % 12 + 1:02}-{day:02};L{loan:07};{amount:.2f} EUR;{zlib.crc32(b'%d' % loan):08x}"
        for loan, (day, amount) in enumerate(zip(days, paid, strict=True))
    )
    fields = lines.sample(frac=1, random_state=month).str.extract(r"^(\d+)-(\d+)-(\d+);L(\d+);([\d.]+) EUR;(\w+)$")
    table = pd.DataFrame({"loan": fields[3].astype("i8"), "paid": fields[4].astype("f8")})
    table["month"] = (fields[0].astype("i8") - 2000) * 12 + fields[1].astype("i8") - 1
    return table.reset_index(drop=True)


def loan_arrears(bookings: pd.DataFrame, months: int) -> pd.DataFrame:
    owed = 250 - bookings.pivot_table(index="loan", columns="month", values="paid", aggfunc="sum", fill_value=0)
    arrears = owed.iloc[:, :1].clip(lower=0)
    for month in range(1, months):
        arrears[month] = (arrears[month - 1] + owed[month]).clip(lower=0)
    return arrears


def loan_courses(bookings: pd.DataFrame, months: int) -> pd.DataFrame:
    arrears = loan_arrears(bookings, months)
    lost = arrears.max(axis=1).where((arrears > 750).sum(axis=1) >= 3, 0)
    return pd.DataFrame({"loan": arrears.index, "arrears": arrears[months - 1], "lost": lost}).reset_index(drop=True)


def arrears_moves(bookings: pd.DataFrame, months: int) -> pd.DataFrame:
    states = np.minimum(np.ceil(loan_arrears(bookings, months).to_numpy() / 250), 4).astype(int)
    pairs = pd.DataFrame({"before": states[:, :-1].ravel(), "after": states[:, 1:].ravel()})
    return pairs.value_counts().reset_index(name="count")


def loan_contracts(part: int, loans: int) -> pd.DataFrame:
    loan = np.arange(part, loans, 4)
    amount = 6000.0 + 100 * (loan % 7)
    return pd.DataFrame({"loan": loan, "year": 2015 + loan // 5 % 6, "grade": loan % 5, "amount": amount})


@eleventh
def mineral_search(client: Client) -> None:
    """Pictures in 48 colours from the air lose their stripes and noise; each place is compared with four minerals."""
    bands, lines, columns = 48, 280, 240
    chunks = ((bands,), (20,) * 14, (columns,))
    seen = da.map_blocks(camera_lines, chunks=chunks, dtype="f4", bands=bands, meta=np.empty((0, 0, 0), "f4"))
    stripes = da.median(seen.rechunk((12, lines, columns)), axis=1).rechunk(-1)
    cube = (seen - stripes[:, None, :]).persist()
    pixels = cube.reshape(bands, lines * columns)
    noise = (cube[:, 1:] - cube[:, :-1]).reshape(bands, -1)
    noisy, spread = da.compute(noise @ noise.T / noise.shape[1] / 2, pixels @ pixels.T / pixels.shape[1])
    white = np.linalg.inv(np.linalg.cholesky(noisy))
    worth, turned = np.linalg.eigh(white @ spread @ white.T)
    kept = turned[:, worth > 1.2].T @ white
    clean = da.tensordot(da.from_array(kept.astype("f4")), cube, axes=(1, 0))
    signs = kept @ np.stack([mineral_spectrum(mineral, bands) for mineral in range(4)], axis=1)
    inverse = np.linalg.inv(kept @ spread @ kept.T)
    weights = (signs.T @ inverse) / np.einsum("bm,bc,cm->m", signs, inverse, signs)[:, None]
    scores = da.tensordot(da.from_array(weights.astype("f4")), clean, axes=(1, 0))
    smooth = scores.map_overlap(mineral_patches, depth={0: 0, 1: 4, 2: 0}, boundary="reflect", dtype="f4")
    found = da.where(smooth.max(axis=0) > 0.3, smooth.argmax(axis=0), -1).compute()
    truth = np.array([[mineral_at(line, column) for column in range(columns)] for line in range(lines)])
    assert (found == truth)[truth >= 0].mean() > 0.8
    assert (found < 0)[truth < 0].mean() > 0.9


def mineral_spectrum(mineral: int, bands: int) -> Any:
    band = np.arange(bands)
    return sum(np.exp(-(((band - centre) / 2.5) ** 2)) for centre in (4 + 5 * mineral, 26 + 6 * mineral))


def mineral_at(line: int, column: int) -> int:
    patch = line // 40 * 6 + column // 40
    return patch % 4 if patch % 5 == 2 and (line % 40 - 20) ** 2 + (column % 40 - 20) ** 2 < 150 else -1


def camera_lines(bands: int, block_info: Any = None) -> Any:
    (_, _), (start, stop), (_, columns) = block_info[None]["array-location"]
    random = np.random.default_rng([112, start])
    gains = np.random.default_rng(113).normal(0, 2, (bands, 1, columns))
    rocks = np.random.default_rng(114).normal(0, 1, (bands, 5))
    shares = ndimage.gaussian_filter(random.normal(0, 9, (5, stop - start, columns)), (0, 3, 5))
    cube = np.tensordot(rocks, shares, axes=1) + gains + random.normal(0, 0.5, (bands, stop - start, columns))
    for row, line in enumerate(range(start, stop)):
        for column in range(columns):
            if (mineral := mineral_at(line, column)) >= 0:
                cube[:, row, column] += mineral_spectrum(mineral, bands)
    return cube.astype("f4")


def mineral_patches(scores: Any) -> Any:
    return np.stack([ndimage.median_filter(score, 7) for score in scores])


@eleventh
def nurse_rosters(client: Client) -> None:
    """Nurses' rosters: a linear program prices the shifts, and for these prices a task seeks each a better roster."""
    nurses, days = 18, 18
    needed = np.tile([4, 4, 2], days)
    columns: list[tuple[int, float, Any]] = []
    prices, wages, bound, cost = np.full(3 * days, 20.0), np.zeros(nurses), -math.inf, math.inf
    asked = list(range(nurses))
    for _ in range(60):
        [sent] = client.scatter([prices], broadcast=True)
        found = client.gather([client.submit(best_roster, nurse, sent, days) for nurse in asked])
        if len(asked) == nurses:
            bound = max(bound, float(prices @ needed + sum(worth for worth, _, _ in found)))
        columns += [(nurse, price, roster) for nurse, (_, price, roster) in zip(asked, found, strict=True)]
        cost, latest, wages = roster_prices(columns, needed, nurses)
        prices = 0.4 * prices + 0.6 * latest
        if cost - bound < 0.02 * cost:
            break
        better = [nurse for nurse, (worth, _, _) in zip(asked, found, strict=True) if wages[nurse] > worth + 1]
        asked = better if len(better) > nurses // 3 else list(range(nurses))
    assert cost - bound < 0.02 * cost
    assert bound <= cost + 1e-6


def best_roster(nurse: int, prices: Any, days: int) -> tuple[float, float, Any]:
    prices = prices.tolist()
    wishes = np.random.default_rng([115, nurse]).uniform(1, 12, (days, 3)).tolist()
    most = 8 + nurse % 5
    ends = {(-1, 0, 0): (0.0, 0.0, ())}
    for day in range(days):
        after: dict[tuple[int, int, int], tuple[float, float, Any]] = {}
        for (last, streak, worked), (worth, price, roster) in ends.items():
            for shift in range(-1, 3):
                state, new = (-1, 0, worked), (worth, price, roster)
                if shift >= 0:
                    wish, at = wishes[day][shift], 3 * day + shift
                    state = (shift, streak + 1, worked + 1)
                    new = (worth + wish - prices[at], price + wish, (*roster, at))
                allowed = shift < 0 or (shift >= last and streak < 5 and worked < most)
                if allowed and (state not in after or new[0] < after[state][0]):
                    after[state] = new
        ends = after
    return min(ends.values())


def roster_prices(columns: list[tuple[int, float, Any]], needed: Any, nurses: int) -> tuple[float, Any, Any]:
    shifts = len(needed)
    covers = np.hstack([np.zeros((shifts, len(columns))), np.eye(shifts)])
    owners = np.zeros((nurses, len(columns) + shifts))
    for place, (nurse, _, roster) in enumerate(columns):
        covers[list(roster), place] = 1
        owners[nurse, place] = 1
    costs = [price for _, price, _ in columns] + [40.0] * shifts
    plan = optimize.linprog(costs, A_ub=-covers, b_ub=-needed, A_eq=owners, b_eq=np.ones(nurses), method="highs")
    return float(plan.fun), -plan.ineqlin.marginals, plan.eqlin.marginals


@eleventh
def film_compression(client: Client) -> None:
    """A film is made small: all scenes share the bits, then frames follow from those before and between frames."""
    scenes, frames = 6, 7
    raws = [[dask.delayed(film_frame)(scene, at) for at in range(frames)] for scene in range(scenes)]
    steps = dask.delayed(scene_steps)([[dask.delayed(frame_busyness)(*two) for two in pairwise(raw)] for raw in raws])
    coded, results = dask.delayed(coded_frame), []
    for scene, raw in enumerate(raws):
        step = steps[scene]
        done = {0: coded(raw[0], [], step)}
        for at in range(2, frames, 2):
            done[at] = coded(raw[at], [done[at - 2]], step)
            done[at - 1] = coded(raw[at - 1], [done[at - 2], done[at]], step)
        results.append(dask.delayed(scene_quality)(list(done.values())))
    sizes, errors = zip(*client.gather(client.compute(results)), strict=True)
    assert sum(sizes) < scenes * frames * 176 * 224 / 5
    assert 10 * math.log10(255**2 / statistics.mean(errors)) > 29


def film_frame(scene: int, at: int) -> Any:
    random = np.random.default_rng([116, scene])
    ground = ndimage.gaussian_filter(random.normal(0, 1, (240, 288)), 2 + scene % 3)
    down, right = random.integers(0, 4, 2) * at
    frame = 128 + 40 / ground.std() * ground[down : down + 176, right : right + 224]
    return np.clip(frame + np.random.default_rng([117, scene, at]).normal(0, 2, frame.shape), 0, 255).astype(np.uint8)


def frame_busyness(before: Any, frame: Any) -> float:
    return float(np.abs(ndimage.gaussian_filter(frame.astype(float) - before, 1.5)).mean())


def scene_steps(busy: list[list[float]]) -> list[float]:
    return [12 * (statistics.mean(scene) / statistics.mean(map(statistics.mean, busy))) ** 0.3 for scene in busy]


def coded_frame(raw: Any, known: list[tuple[Any, int, float]], step: float) -> tuple[Any, int, float]:
    guesses = [np.zeros(raw.shape) for _ in known]
    for guess, (before, _, _) in zip(guesses, known, strict=True):
        best = np.full((11, 14), np.inf)
        for move in np.ndindex(11, 11):
            shifted = np.roll(before, (move[0] - 5, move[1] - 5), (0, 1)).astype(np.int16)
            apart = np.abs(shifted - raw).reshape(11, 16, 14, 16).sum(axis=(1, 3))
            better = (apart < best).repeat(16, 0).repeat(16, 1)
            best, guess[better] = np.minimum(best, apart), shifted[better]
    guess = np.mean(guesses, axis=0) if known else np.full(raw.shape, 128.0)
    cosines = np.cos(np.pi * np.outer(np.arange(8), 2 * np.arange(8) + 1) / 16) / 2
    cosines[0] /= math.sqrt(2)
    kept = np.round(cosines @ (raw - guess).reshape(22, 8, 28, 8).swapaxes(1, 2) @ cosines.T / step).astype(np.int16)
    frame = guess + (cosines.T @ (kept * step) @ cosines).swapaxes(1, 2).reshape(raw.shape)
    size = len(zlib.compress(kept.transpose(2, 3, 0, 1).tobytes(), 9)) + 200 * len(known)
    return np.clip(frame, 0, 255).astype(np.uint8), size, float(((frame - raw) ** 2).mean())


def scene_quality(coded: list[tuple[Any, int, float]]) -> tuple[int, float]:
    return sum(size for _, size, _ in coded), statistics.mean(error for _, _, error in coded)


@eleventh
def galaxy_clusters(client: Client) -> None:
    """Dark matter falls together: what all parts of it weigh is added up in space, and its pull sent to each part."""
    side, count, steps = 48, 8, 5
    parts = client.map(early_matter, range(count), side=side, count=count)
    spreads = []
    for _ in range(steps):
        laid = client.map(matter_density, parts, side=side)
        slabs = [client.submit(sum, [client.submit(itemgetter(k), part) for part in laid]) for k in range(4)]
        waves = client.map(np.fft.rfft2, slabs)
        spreads.append(client.map(np.var, slabs))
        pulls = [client.submit(pull_along, waves, axis) for axis in range(3)]
        parts = [client.submit(moved_matter, part, pulls) for part in parts]
    spreads, speeds = client.gather([spreads, client.map(np.mean, parts, axis=0)])
    assert all(sum(early) < sum(late) for early, late in pairwise(spreads))
    assert np.abs(np.mean(speeds, axis=0)[3:]).max() < 0.01


def early_matter(part: int, side: int, count: int) -> Any:
    planes = np.arange(part * side // count, (part + 1) * side // count)
    places = np.stack(np.meshgrid(planes, np.arange(side), np.arange(side), indexing="ij"), axis=-1).reshape(-1, 3)
    random, shift = np.random.default_rng(118), np.zeros(places.shape)
    for wave, turn in zip(random.integers(-4, 5, (20, 3)), random.random(20), strict=True):
        shift += np.sin(2 * np.pi * (places @ wave / side + turn))[:, None] * wave / (wave @ wave + 1) * 0.3
    return np.hstack([(places + shift) % side, 0.3 * shift]).astype(np.float32)


def matter_corners(part: Any, side: int) -> Iterable[tuple[Any, Any]]:
    low = np.floor(part[:, :3]).astype(np.int64)
    near = part[:, :3] - low
    for corner in np.ndindex(2, 2, 2):
        cells = np.ravel_multi_index(tuple((low + corner).T), (side,) * 3, mode="wrap")
        yield cells, np.prod(np.where(corner, near, 1 - near), axis=1)


def matter_density(part: Any, side: int) -> list[Any]:
    laid = sum(np.bincount(cells, shares, side**3) for cells, shares in matter_corners(part, side))
    return np.split(laid.reshape((side,) * 3).astype(np.float32), 4)


def pull_along(slabs: list[Any], axis: int) -> Any:
    waves = np.fft.fft(np.concatenate(slabs), axis=0)
    turn = 2 * np.pi * np.fft.fftfreq(len(waves))
    turns = np.meshgrid(turn, turn, turn[: waves.shape[2]], indexing="ij")
    square = np.maximum(sum(turn**2 for turn in turns), 1e-9)
    return np.fft.irfftn(1j * np.sin(turns[axis]) * waves / square, (len(waves),) * 3, (0, 1, 2)).astype(np.float32)


def moved_matter(part: Any, pulls: list[Any]) -> Any:
    side, moved = len(pulls[0]), part.copy()
    for cells, shares in matter_corners(part, side):
        for axis, pull in enumerate(pulls):
            moved[:, 3 + axis] += 0.2 * shares * pull.ravel()[cells]
    moved[:, :3] = (moved[:, :3] + moved[:, 3:]) % side
    return moved


@eleventh
def puzzle_pages(client: Client) -> None:
    """Sudokus of three sizes lose as many numbers as they may, and a book takes some that are easy and some hard."""
    puzzles = [client.submit(carved_sudoku, seed, [6, 9, 6, 8][seed % 4]) for seed in range(120)]
    numbers = {client.submit(sudoku_answers, puzzle, 2): number for number, puzzle in enumerate(puzzles)}
    levels: dict[int, list[tuple[int, int]]] = {6: [], 8: [], 9: []}
    for done, (answers, tried) in as_completed(numbers, with_results=True):
        assert len(answers) == 1
        levels[len(answers[0])].append((tried, numbers[done]))
    chosen = [puzzles[number] for level in levels.values() for _, number in sorted(level)[::5]]
    book = client.gather(chosen)
    assert len(book) == 24
    assert all(len(page) // 3 < page.count(0) < len(page) for page in book)


def sudoku_answers(cells: list[int], most: int, seed: int = 0) -> tuple[list[Any], int]:
    size, chance = math.isqrt(len(cells)), random.Random(seed)
    width = {6: 3, 8: 4, 9: 3}[size]
    rows, columns = np.divmod(np.arange(size**2), size)
    boxes = rows // (size // width) * (size // width) + columns // width
    groups = np.stack([rows, size + columns, 2 * size + boxes], axis=1).tolist()
    cells, found, tried = cells.copy(), [], [0]
    left = [(1 << size) - 1] * (3 * size)
    for at, digit in enumerate(cells):
        for group in groups[at]:
            left[group] &= ~(1 << digit >> 1)

    def fill(free: list[int]) -> None:
        if not free:
            found.append(np.array(cells).reshape(size, size))
            return
        fits = [left[row] & left[column] & left[box] for row, column, box in map(groups.__getitem__, free)]
        fewest = min(range(len(free)), key=[bits.bit_count() for bits in fits].__getitem__)
        for digit in chance.sample(range(size), size):
            if fits[fewest] >> digit & 1 and len(found) < most:
                tried[0] += 1
                for again in (True, False):
                    cells[free[fewest]] = digit + 1
                    for group in groups[free[fewest]]:
                        left[group] ^= 1 << digit
                    if again:
                        fill(free[:fewest] + free[fewest + 1 :])

    fill([at for at, digit in enumerate(cells) if not digit])
    return found, tried[0]


def carved_sudoku(seed: int, size: int) -> list[int]:
    cells = sudoku_answers([0] * size**2, 1, seed)[0][0].ravel().tolist()
    for at in random.Random(seed).sample(range(size**2), 36 if size < 8 else 5 * size):
        digit, cells[at] = cells[at], 0
        if len(sudoku_answers(cells, 2)[0]) > 1:
            cells[at] = digit
    return cells
