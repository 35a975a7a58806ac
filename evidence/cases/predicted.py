"""Workloads whose sizes that were not run are predicted: they compute, serialise and send, and none sleeps.

Each takes 5 to 60 seconds on one machine of a tenth of a core. Each set was written, by another one, after what the
sets before had taught was built in, and without knowing how predictions are made.
"""

from __future__ import annotations

import json
import math
import random
import zlib
from collections import Counter
from decimal import Decimal, localcontext
from itertools import combinations, pairwise
from operator import itemgetter
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
from declare import predicted
from distributed import Queue, Semaphore, as_completed, worker_client
from scipy import ndimage, optimize, signal, sparse

if TYPE_CHECKING:
    from distributed import Client


def numbers(seed: int, count: int) -> Any:
    return np.random.default_rng(seed).standard_normal(count)


@predicted("first", "sequential-graph")
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


@predicted("first", "data-locality")
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


@predicted("first", "client-waits")
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


@predicted("second", "few-tasks-in-flight")
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


@predicted("second", "sequential-graph")
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


@predicted("second", ("nested-client", "transfer-bound"))
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


def band(curves: list[Any]) -> Any:
    return np.percentile(curves, [5, 95], axis=0)


@predicted("second", "skewed-tasks")
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


@predicted("third", "slow-submission")
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


@predicted("third", "client-waits")
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


def weather(day: int) -> Any:
    """Waves that move on by eight places each day."""
    places = np.arange(120) / 120 * 2 * np.pi
    return np.sin(3 * (places - 8 * day / 120 * 2 * np.pi)) * np.cos(2 * places)[:, None]


@predicted("third", "healthy")
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


@predicted("fourth", "client-waits")
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


@predicted("fourth", "skewed-tasks")
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


@predicted("fourth", "too-few-partitions")
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


@predicted("fifth", "waiting-tasks")
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


@predicted("fifth", "results-awaited-in-loop")
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


@predicted("fifth", "tiny-tasks")
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


@predicted("sixth", "transfer-bound")
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


@predicted("seventh", ("narrow-stage", "transfer-bound"))
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


def often(tie: Any) -> bool:
    return bool(tie[1] >= 3)


@predicted("eighth", "waiting-tasks")
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


@predicted("ninth", "sequential-graph")
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


def worth(mine: int, theirs: int) -> int:
    corners = (mine & CORNERS).bit_count() - (theirs & CORNERS).bit_count()
    return 3 * (len(turned(mine, theirs)) - len(turned(theirs, mine))) + 20 * corners


@predicted("ninth", "narrow-stage")
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


@predicted("tenth", "client-waits")
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


@predicted("eleventh", "narrow-stage")
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


@predicted("eleventh", "narrow-stage")
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
