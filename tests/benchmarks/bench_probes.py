"""What it costs the driver to be watched: `python tests/benchmarks/bench_probes.py [--rounds 800]`.

One process does the same work again and again, that of a client: it builds bags and computes in plain Python, some
frames deep. Each round does it with nothing, twice; while its stack is sampled (`ClientWatch`); and while calls that
decide partitions are noted (`noted`), in an order drawn anew. Ratios are to nothing in the same round. The stack is
sampled more often in its first 50 ms than later: its ratio is an upper bound.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from statistics import median

import dask.bag
from bench_recorder import SAME, interval
from clusters import table

from scalescope.capture.client_thread import ClientWatch
from scalescope.capture.partition_calls import noted

DEPTH, NUMBERS, BAGS = 30, 500_000, 10


def work(depth: int = DEPTH) -> int:
    if depth:
        return work(depth - 1)
    bags = [dask.bag.from_sequence(range(100), npartitions=10) for _ in range(BAGS)]
    return sum(number * number for number in range(NUMBERS)) + len(bags)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=800)
    rounds = parser.parse_args().rounds
    modes: dict[str, object] = {
        "nothing": nullcontext,
        "nothing again": nullcontext,
        "stack of the client": lambda: ClientWatch(work),
        "calls that decide partitions": lambda: noted(("dask.bag",)),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in modes}
    order = random.Random(0)
    work()
    for _ in range(rounds):
        for name in order.sample(list(modes), len(modes)):
            probe: AbstractContextManager[object] = modes[name]()  # type: ignore[operator]
            with probe:
                cpu, wall = time.process_time(), time.perf_counter()
                work()
                taken[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    rows = []
    for name, figures in taken.items():
        cells = []
        for what in (0, 1):
            ratios = [one[what] / plain[what] for one, plain in zip(figures, taken["nothing"], strict=True)]
            low, high = interval(ratios)
            cells.append(f"{median(ratios):.3f} ({low:.3f} to {high:.3f})")
        rows.append([name, *cells])
    print(table(["mode", "CPU ratio", "wall ratio"], rows))
    same = median(one[0] / plain[0] for one, plain in zip(taken["nothing again"], taken["nothing"], strict=True))
    if abs(same - 1) > SAME:
        sys.exit(f"no figure to rely on: nothing beside nothing is {same:.3f}")


if __name__ == "__main__":
    main()
