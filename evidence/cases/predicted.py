"""Workloads whose sizes that were not run are predicted: they compute, serialise and send, and none sleeps.

Each takes 5 to 60 seconds on one machine of a tenth of a core. Each set was written, by another one, after what the
sets before had taught was built in, and without knowing how predictions are made.
"""

from __future__ import annotations

import json
import math
import random
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


@predicted("twelfth", "transfer-bound")
def shared_model(client: Client, rows: int = 64) -> None:
    """A model of 12 MB lies on one machine, and every part is scored by it."""
    model = client.scatter(numbers(0, 1_500_000).reshape(1500, 1000), hash=False)
    scores = client.gather(client.map(scored, range(rows), model=model, pure=False))
    assert len(set(scores)) == rows


def scored(part: int, model: Any) -> float:
    return float(np.tanh(numbers(part, 100_000).reshape(100, 1000) @ model.T).mean())


@predicted("twelfth", "client-waits")
def film_frames(client: Client, rows: int = 36) -> None:
    """Frames of 4 MB are drawn, and all of them come to the client."""
    frames = client.gather(client.map(drawn, range(rows), pure=False))
    assert sum(frame.nbytes for frame in frames) == 4_000_000 * rows


def drawn(frame: int) -> Any:
    return ndimage.gaussian_filter(numbers(frame, 1_000_000).reshape(1000, 1000), 2).astype(np.float32)


@predicted("twelfth", "skewed-tasks")
def ridge_folds(client: Client, rows: int = 12_000) -> None:
    """A model is ridge_error to six folds by eight penalties; a small one takes more steps."""
    folds = client.map(fold, range(6), rows=rows, pure=False)
    fits = [client.submit(ridge_error, each, 15 * 2**i // 2, pure=False) for each in folds for i in range(8)]
    errors = np.reshape(client.gather(fits), (6, 8))
    assert np.all(errors[:, -1] < errors[:, 0])


def fold(number: int, rows: int) -> Any:
    return numbers(number, 20 * rows).reshape(rows, 20)


def ridge_error(data: Any, steps: int) -> float:
    weights, known = np.zeros(20), np.arange(20.0)
    for _ in range(steps):
        weights -= 0.02 / len(data) * (data.T @ (data @ (weights - known)))
    return float(np.abs(weights - known).max())


@predicted("twelfth", "tiny-tasks")
def drum_skin(client: Client, rows: int = 900) -> None:
    """A skin swings: each step of a tile needs the edges of its neighbours."""
    now = da.from_array(np.outer(np.hanning(rows), np.hanning(900)), chunks=(300, 300))
    before = now
    for _ in range(6):
        before, now = now, da.map_overlap(swung, now, before, depth=1, boundary=0, dtype=float)
    assert 0.3 < client.compute(now.max()).result() < 1


def swung(now: Any, before: Any) -> Any:
    return 2 * now - before + 0.2 * ndimage.laplace(now)


@predicted("twelfth", "sequential-graph")
def merged_runs(client: Client, rows: int = 120_000) -> None:
    """Sorted runs are merged in pairs until one is left."""
    runs = client.map(sorted_run, range(32), rows=rows, pure=False)
    while len(runs) > 1:
        runs = [client.submit(merged, *pair, pure=False) for pair in zip(runs[::2], runs[1::2], strict=True)]
    assert client.submit(len, runs[0], pure=False).result() == 32 * rows


def sorted_run(number: int, rows: int) -> Any:
    return np.sort(numbers(number, 3 * rows))[:rows]


def merged(left: Any, right: Any) -> Any:
    return np.sort(np.concatenate([left, right]), kind="stable")


@predicted("twelfth", "results-awaited-in-loop")
def halved_field(client: Client, rows: int = 40_000) -> None:
    """27 settings are trained a little; the better third of each round is trained three times as long."""
    left, steps = list(range(27)), 6
    while len(left) > 1:
        losses = client.gather([client.submit(trained, rows, each, steps, pure=False) for each in left])
        left = [each for _, each in sorted(zip(losses, left, strict=True))[: len(left) // 3]]
        steps *= 3
    assert left


def trained(rows: int, setting: int, steps: int) -> float:
    data, weights = numbers(1, 30 * rows).reshape(rows, 30), np.zeros(30)
    for _ in range(steps):
        error = np.tanh(data @ weights) - np.sign(data[:, 0])
        weights -= (setting + 1) / (30 * rows) * (data.T @ error)
    return float(np.abs(error).mean())


@predicted("twelfth", "skewed-tasks")
def tall_covariance(client: Client, rows: int = 600_000) -> None:
    """The covariance of a tall table by blocks of rows, and of what is left when the largest part is taken out."""
    table = da.random.default_rng(0).normal(size=(rows, 60), chunks=(20_000, 60))
    table = table.persist()
    first = np.linalg.eigh((table.T @ table).compute() / rows)[1][:, -1]
    rest = table - da.dot(table, first)[:, None] * first
    assert abs(float((rest.T @ rest).compute().trace() / rows) - 59) < 2


@predicted("twelfth", "tiny-tasks")
def warm_months(client: Client, rows: int = 360) -> None:
    """Days of a climate: the mean of each month, and how far the days are from it."""
    days = da.random.default_rng(1).normal(size=(rows, 90, 120), chunks=(30, 90, 120))
    air = xarray.DataArray(days, dims=("day", "y", "x"), coords={"month": ("day", np.arange(rows) // 30 % 12)})
    months = air.groupby("month").mean()
    far = (air.groupby("month") - months).std("day")
    assert abs(float(far.mean().compute()) - 1) < 0.1


@predicted("twelfth", "client-waits")
def word_lengths(client: Client, rows: int = 120_000) -> None:
    """How often words of a made-up language occur, by parts of its texts."""
    texts = db.from_sequence(range(24), npartitions=24).map(text, rows=rows // 24)
    counts = dict(texts.flatten().map(str.title).frequencies(split_every=6).compute())
    assert sum(counts.values()) == rows // 24 * 24


def text(number: int, rows: int) -> list[str]:
    rng = random.Random(number)
    return ["".join(rng.choices("aeioubdkmnst", k=rng.randint(2, 4))) for _ in range(rows)]


@predicted("twelfth", "tiny-tasks")
def nearest_centres(client: Client, rows: int = 32_000) -> None:
    """Points are drawn to the nearest of 24 centres, which move in rounds."""
    parts = client.map(points, range(20), rows=rows, pure=False)
    centres = numbers(99, 24 * 6).reshape(24, 6)
    for _ in range(7):
        sums = client.map(nearest, parts, centres=centres, pure=False)
        total = client.submit(np.sum, sums, axis=0, pure=False).result()
        centres = total[:, 1:] / np.maximum(total[:, :1], 1)
    assert np.isfinite(centres).all()


def points(part: int, rows: int) -> Any:
    return numbers(part, 6 * rows).reshape(rows, 6)


def nearest(part: Any, centres: Any) -> Any:
    own = np.argmin((centres**2).sum(axis=1) - 2 * part @ centres.T, axis=1)
    ones = np.column_stack([np.ones(len(part)), part])
    return np.stack([np.bincount(own, column, minlength=24) for column in ones.T], axis=1)


@predicted("twelfth", "few-tasks-in-flight")
def stitched_strips(client: Client, rows: int = 48) -> None:
    """Strips of a panorama are drawn, cleaned and matched with both neighbours."""
    strips = client.map(cleaned, client.map(strip, range(rows), pure=False), pure=False)
    shifts = [client.submit(shift, *pair, pure=False) for pair in pairwise(strips)]
    after = [
        client.submit(joined, *pair, each, pure=False) for pair, each in zip(pairwise(strips), shifts, strict=True)
    ]
    assert all(mean < 1 for mean in client.gather(after))


def strip(number: int) -> Any:
    return numbers(number, 400_000).reshape(1000, 400).astype(np.float32)


def cleaned(picture: Any) -> Any:
    return ndimage.uniform_filter(picture, 5)


def shift(left: Any, right: Any) -> int:
    return int(np.argmax(np.abs(np.fft.ifft(np.fft.fft(left.sum(axis=1)) * np.conj(np.fft.fft(right.sum(axis=1)))))))


def joined(left: Any, right: Any, by: int) -> float:
    return float(np.abs(ndimage.median_filter(left[::4] + np.roll(right, by, axis=0)[::4], 3)).mean())


@predicted("twelfth", "narrow-stage")
def late_parcels(client: Client, rows: int = 16_000) -> None:
    """Parcels and their scans, each in parts, are joined, and the late ones counted by depot."""
    parcels = dask.dataframe.from_map(parcels_in, range(12), rows=rows)
    scans = dask.dataframe.from_map(scans_in, range(16), rows=rows)
    late = parcels.merge(scans, on="parcel", shuffle_method="p2p").query("hour > promised")
    assert 40 < len(late.groupby("depot")["hour"].agg(["count", "mean"]).compute()) <= 50


def parcels_in(part: int, rows: int) -> Any:
    rng = np.random.default_rng(part)
    return pd.DataFrame({"parcel": np.arange(part, 12 * rows, 12), "promised": rng.integers(24, 96, rows)})


def scans_in(part: int, rows: int) -> Any:
    rng, count = np.random.default_rng([part, 2]), 2 * rows
    columns = {"parcel": rng.integers(12 * rows, size=count), "depot": rng.integers(50, size=count)}
    return pd.DataFrame({**columns, "hour": rng.gamma(6, 8, count)})
