"""Fits costs to a recorded trial: the bandwidth of links, and a worker's seconds per task and per byte.

The simulated cluster charges these costs at sizes that were not run. A cost that a trial cannot tell is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

import numpy as np

from scalescope.analysis.attempts import Attempts, Bools, Floats
from scalescope.analysis.events import Tables, fine_seconds
from scalescope.analysis.graph_from_records import gathered, waiting
from scalescope.analysis.ledger import integral
from scalescope.analysis.packing import fetches
from scalescope.analysis.replay import overhead
from scalescope.analysis.scattered import Scattered, scattered_data
from scalescope.model.records import STATUS_FINISHED

LARGE_BYTES = 500_000  # fewest bytes of one transfer, or of all data of the client, to derive a bandwidth from
LEAST_BYTES, LEAST_MOVED_S = 4_000_000, 0.05  # fewest bytes and seconds of all transfers to derive a bandwidth from
SHARE_OF_LINKS = 0.2  # least share of a transfer, or of a wait for results, that is charged to links
MUCH_FASTER = 10.0  # largest bandwidth of the client, as a multiple of that of all workers together
LEAST_TRANSFERS = 4  # fewest transfers to derive the latency from
# Quantiles that stand for undisturbed transfers: of rates, weighted by bytes; of latencies
UNSHARED, UNDISTURBED = 0.8, 0.25
SAME_RATE = 0.1  # relative error of a rate up to which a pair of bandwidths explains it
TRIED = 40  # number of worker bandwidths that are tried; of client bandwidths, twice as many
CPU_STEPS = ("serialize", "deserialize", "compress", "decompress")
GROWN = 0.1  # smallest relative growth of durations over the measured sizes that is fitted
SAME_FIT = 0.02  # relative errors below this count as 0, so that the first curve is taken


@dataclass(frozen=True)
class Fetched:
    """Results that the client fetched from all workers at once, after all tasks had ended."""

    nbytes: float
    seconds: float
    workers: int

    @property
    def rate(self) -> float:
        return self.nbytes / self.seconds


@dataclass(frozen=True)
class ResultLinks:
    """Pairs of bandwidths that explain how long the client took to fetch results."""

    nbytes: float
    worker: Floats  # bytes a second of each worker's link, by pair; the best pair comes first
    client: Floats  # bytes a second of the links of scheduler and client, by pair

    @classmethod
    def of_sizes(cls, found: Sequence[Fetched], bandwidth: float | None) -> ResultLinks:
        """The pairs that explain the rates at all sizes; a single size does not tell whose link was the limit.

        `bandwidth`: bytes a second of a worker's link, if known from transfers between workers.
        """
        largest = max(found, key=lambda each: each.workers)
        least = max(each.rate / each.workers for each in found)
        slowest, fastest = min(each.rate for each in found), max(each.rate for each in found)
        own = np.geomspace(least, 2 * fastest, TRIED) if bandwidth is None else np.array([max(bandwidth, least)])
        top = MUCH_FASTER * largest.workers * (least if bandwidth is None else own[0])
        worker, client = (each.ravel() for each in np.meshgrid(own, np.geomspace(slowest, top, 2 * TRIED)))
        off = np.array([np.log(each.rate * _seconds_per_byte(each.workers, worker, client)) for each in found])
        error = np.sqrt(np.mean(off**2, axis=0))
        order = np.argsort(error)
        order = order[error[order] <= max(SAME_RATE, 2 * float(error.min()))]
        # Prefer pairs in which the client's link alone explains every rate, as `_client_bandwidth` assumes.
        alike = np.abs(off).max(axis=0)[order] <= SAME_RATE
        order = order[np.argsort(np.where(alike, -worker[order], 0.0), kind="stable")]
        return cls(largest.nbytes, worker[order], client[order])

    def seconds(self, workers: int) -> tuple[float, float, float]:
        """Seconds to fetch the results from this many workers: least, by the best pair, and most."""
        found = self.nbytes * _seconds_per_byte(workers, self.worker, self.client)
        return float(found.min()), float(found[0]), float(found.max())


def _seconds_per_byte(workers: int, worker: Floats, client: Floats) -> Floats:
    found: Floats = 1 / np.minimum(client, workers * worker) + 1 / client
    return found


@dataclass(frozen=True)
class FittedCosts:
    """Costs of one cluster, in seconds and bytes."""

    bandwidth: float | None = None  # bytes a second of a worker's link, each way
    latency_s: float | None = None  # seconds of a transfer that do not depend on its bytes
    cpu_s_per_byte: float | None = None  # seconds per byte for packing on one side, or unpacking on the other
    worker_s: float | None = None  # seconds for which a task occupies its thread in addition to its duration
    client_bandwidth: float | None = None  # bytes a second of the links of scheduler and client, each way
    fetched: Fetched | None = None  # results fetched by the client; None if they are too few to derive a bandwidth
    results: ResultLinks | None = None  # links that explain `fetched` at all sizes

    @property
    def message_s(self) -> float | None:
        """Seconds that a transfer costs the event loop of each of the two workers: half of the latency.

        At most `worker_s`, since a longer latency must come from bytes; `worker_s` if nothing moved between workers.
        """
        half_s = None if self.latency_s is None else self.latency_s / 2
        return min((each for each in (half_s, self.worker_s) if each is not None), default=None)

    @classmethod
    def of_sizes(cls, costs: Sequence[FittedCosts]) -> FittedCosts:
        """Combine the costs of several sizes; for transfers, take the fastest, since disturbances only slow them."""
        bandwidth = max((each.bandwidth for each in costs if each.bandwidth is not None), default=None)
        client = max((each.client_bandwidth for each in costs if each.client_bandwidth is not None), default=None)
        fetched = [each.fetched for each in costs if each.fetched is not None]
        results = ResultLinks.of_sizes(fetched, bandwidth) if fetched else None
        if results is not None and len(fetched) > 1:
            client = float(results.client[0])
            bandwidth = bandwidth or float(results.worker[0])
        return cls(
            bandwidth,
            min((each.latency_s for each in costs if each.latency_s is not None), default=None),
            min((each.cpu_s_per_byte for each in costs if each.cpu_s_per_byte is not None), default=None),
            median_low(known) if (known := [each.worker_s for each in costs if each.worker_s is not None]) else None,
            client,
            results=results,
        )


def fitted_costs(tables: Tables, attempts: Attempts, packing: float | None = None) -> FittedCosts:
    """Fit one trial. `packing`: seconds per byte to pack or unpack, if known; None: from distributed's metrics."""
    data = scattered_data(tables)
    moved, seconds, sources = _moved(tables, data)
    large = moved >= LARGE_BYTES
    cpu_s = sum(
        step_s
        for context, _, activity, step_s in fine_seconds(tables)
        if context in ("gather-dep", "get-data") and activity in CPU_STEPS
    )
    enough = float(moved[large].sum()) >= LEAST_BYTES and float(seconds[large].sum()) >= LEAST_MOVED_S
    last = _last(tables)
    fetched = float(np.asarray(tables["tasks"]["nbytes"], np.float64)[last].sum()) if gathered(tables) else 0.0
    packed = 2 * float(moved.sum()) + fetched  # bytes packed or unpacked by workers
    cpu_s_per_byte = cpu_s / max(packed, LEAST_BYTES) if packing is None else packing
    on_links_s = np.maximum(seconds - 2 * cpu_s_per_byte * moved, SHARE_OF_LINKS * seconds)
    bandwidth = _quantile((moved / on_links_s)[large], moved[large], UNSHARED) if enough else None
    alone = attempts.transfer == 0  # attempts that did not wait for a transfer
    told = np.ones(len(moved), bool) if bandwidth else ~large
    by_size = moved * ((1 / bandwidth if bandwidth else 0.0) + 2 * cpu_s_per_byte)
    besides_s = (np.maximum(seconds - by_size, 0.0) / sources)[told]
    results = _fetched(tables, attempts, cpu_s_per_byte)
    return FittedCosts(
        bandwidth=bandwidth,
        fetched=results if _tells(results.nbytes, results.seconds) else None,
        client_bandwidth=_client_bandwidth(tables, attempts, data, bandwidth or math.inf, results),
        latency_s=float(np.quantile(besides_s, UNDISTURBED)) if len(besides_s) >= LEAST_TRANSFERS else None,
        # A cost of 0 is kept only with a bandwidth, which then includes the time of packing.
        cpu_s_per_byte=cpu_s_per_byte if packed >= 2 * LEAST_BYTES and (cpu_s_per_byte > 0 or bandwidth) else None,
        worker_s=overhead(attempts, alone if (alone & attempts.useful).any() else slice(None)),
    )


def _client_bandwidth(
    tables: Tables, attempts: Attempts, data: Scattered, bandwidth: float, results: Fetched
) -> float | None:
    """The client's bandwidth, from scattered data or from results that the client fetched after all tasks had ended.

    Such data pass the links of scheduler and client one after the other, and the links of all workers in parallel.
    """
    client = tables.get("client", {})
    scattering = [str(what).endswith(".scatter") for what in client.get("what", ())]
    sent = [(float(sum(data.nbytes)), float(np.asarray(client.get("seconds", ()), np.float64)[scattering].sum()))]
    if max(data.workers, default=0) > 1 or not all(data.first):  # also copied between workers, or older than the trial
        sent = []
    sent.append((results.nbytes, results.seconds))
    workers = bandwidth * len(attempts.addresses)
    return max((_of_both(*each, workers) for each in sent if _tells(*each)), default=None)


def _tells(nbytes: float, seconds: float) -> bool:
    return nbytes >= LARGE_BYTES and seconds >= LEAST_MOVED_S


def _fetched(tables: Tables, attempts: Attempts, cpu_s_per_byte: float) -> Fetched:
    """Results that the client fetched after all tasks had ended, and the seconds it waited, less those of packing."""
    if (waited_s := waiting(tables)) is None:
        return Fetched(0.0, 0.0, len(attempts.addresses))
    tasks, graphs = tables["tasks"], tables.get("graphs", {})
    done, known = (np.asarray(tasks[name], np.float64) for name in ("done", "runnable"))
    order, last = np.argsort(done), _last(tables)
    by_client = [not task for task in graphs.get("task", ())] or slice(None)
    sent = np.sort(np.asarray(graphs.get("time", ()), np.float64)[by_client])[1:]
    times = np.append(sent, attempts.epoch + attempts.end)
    ended = np.searchsorted(done[order], times, side="right")
    all_ended = np.searchsorted(np.sort(known), times, side="left") <= ended
    times, ended = times[all_ended], ended[all_ended]

    def since_before(of_tasks: Floats) -> Floats:
        return np.diff(integral(of_tasks[order])[ended], prepend=0.0)

    fetched = since_before(np.where(last, np.asarray(tasks["nbytes"], np.float64), 0.0))
    results = since_before(last.astype(np.float64))
    nbytes, seconds = 0.0, 0.0
    for i in np.flatnonzero(fetched >= LARGE_BYTES).tolist():
        workers = min(len(attempts.addresses), float(results[i]))
        packed_s = float(fetched[i]) * cpu_s_per_byte / workers
        whole_s = waited_s(float(times[i])) - waited_s(float(done[order[ended[i] - 1]]))
        nbytes, seconds = nbytes + float(fetched[i]), seconds + max(whole_s - packed_s, SHARE_OF_LINKS * whole_s)
    return Fetched(nbytes, seconds, len(attempts.addresses))


def _last(tables: Tables) -> Bools:
    """True for each task that no other task needs. A client that fetches results is assumed to fetch these."""
    found = np.ones(len(tables["tasks"]["key"]), bool)
    found[np.asarray(tables.get("dependencies", {}).get("needs", ()), np.int64)] = False
    return found


def _of_both(nbytes: float, seconds: float, workers: float) -> float:
    # seconds = nbytes / min(rate, workers) + nbytes / rate
    slower = 2 * nbytes / seconds
    if slower <= workers:
        return slower
    left_s = seconds - nbytes / workers
    return min(nbytes / left_s, MUCH_FASTER * workers) if left_s > 0 else MUCH_FASTER * workers


def _moved(tables: Tables, data: Scattered) -> tuple[Floats, Floats, Floats]:
    """For each task that fetched inputs from other workers: bytes, seconds, and number of these workers."""
    tasks = tables["tasks"]
    workers = np.unique(np.asarray(tasks["worker"], dtype=object).astype(str), return_inverse=True)[1]
    nbytes, seconds = np.asarray(tasks["nbytes"], np.float64), np.asarray(tasks["transfer"], np.float64)
    finished = np.asarray(tasks["status"]) == STATUS_FINISHED
    node, need = fetches(tables)
    moved = np.bincount(node, nbytes[need], minlength=len(seconds))
    pairs = np.unique(np.column_stack([node, workers[need]]), axis=0)
    sources = np.bincount(pairs[:, 0], minlength=len(seconds)).astype(np.float64)
    fetched, sizes = data.moved(tables)
    moved = moved + np.bincount(fetched, sizes, minlength=len(seconds))
    sources = sources + np.bincount(fetched, minlength=len(seconds))
    told = (moved > 0) & (seconds > 0) & finished
    return moved[told], seconds[told], sources[told]


def _quantile(values: Floats, weights: Floats, share: float) -> float:
    order = np.argsort(values)
    until = np.cumsum(weights[order])
    return float(values[order][int(np.searchsorted(until, share * until[-1]))])


@dataclass(frozen=True)
class GrowthOfDurations:
    """Mean duration of tasks as a function of the number n of workers.

    It is a + b (1 - 1/n), like the share of data on other workers, or a + b log n, like communication in a tree
    (Ernest: Venkataraman et al., NSDI 2016), whichever fits the measurements better; no factor is below 0.
    """

    constant: float
    remote: float = 0.0
    logarithm: float = 0.0

    @classmethod
    def fit(cls, seconds: Mapping[int, float], spread: float = 0.0) -> GrowthOfDurations:
        """Fit mean durations, in seconds by the number of workers; `spread` is their relative error."""
        sizes = np.array(sorted(seconds), np.float64)
        durations = np.array([seconds[int(size)] for size in sizes])
        constant = cls(float(durations[-1]))
        if durations[-1] < (1 + max(GROWN, 2 * spread)) * durations[0]:
            return constant
        fits = [
            (0.0 if error < SAME_FIT else error, place, factors)
            for place, column in enumerate((1 - 1 / sizes, np.log(sizes)))
            if (found := straight_line(column, durations)) is not None
            for error, factors in [found]
        ]
        if not fits:
            return constant
        _, place, (first, slope) = min(fits)
        return cls(first, slope if place == 0 else 0.0, slope if place == 1 else 0.0)

    def at(self, workers: float) -> float:
        return self.constant + self.remote * (1 - 1 / workers) + self.logarithm * math.log(workers)


def straight_line(column: Floats, durations: Floats) -> tuple[float, tuple[float, float]] | None:
    """Fit a + b `column` by least squares of relative errors: the error, and (a, b); None if b is below 0."""
    weighted = np.column_stack([np.ones_like(column), column]) / durations[:, None]
    first, slope = np.linalg.lstsq(weighted, np.ones(len(durations)), rcond=None)[0].tolist()
    if first < 0:  # a negative intercept: fit through the origin
        slope = float(np.linalg.lstsq(weighted[:, 1:], np.ones(len(durations)), rcond=None)[0][0])
        first = 0.0
    if slope < 0:
        return None
    return float(np.sqrt(np.mean((weighted @ np.array([first, slope]) - 1) ** 2))), (first, slope)
