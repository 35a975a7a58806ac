"""Workloads whose sizes that were not run are predicted: they compute, serialise and send, and none sleeps.

Each takes 5 to 60 seconds on one machine of a tenth of a core. Each set was written, by another one, after what the
sets before had taught was built in, and without knowing how predictions are made.
"""

from __future__ import annotations

import random
from itertools import pairwise
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
from distributed import as_completed
from scipy import ndimage, optimize

if TYPE_CHECKING:
    from distributed import Client


def numbers(seed: int, count: int) -> Any:
    return np.random.default_rng(seed).standard_normal(count)


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
