"""What it costs the driver to be watched: `python tests/benchmarks/bench_probes.py [--rounds 800]`.

One process does the same work again and again, that of a client: it builds bags and computes in plain Python, some
frames deep. Each round does it with nothing, twice; while its stack is sampled (`ClientWatch`); and while calls that
decide partitions are noted (`noted`), in an order drawn anew. Ratios of CPU and wall are those to nothing in the same
round; there is no figure to rely on where nothing beside nothing differs by more than one in a hundred. Many rounds of
50 ms say more than a few of 500 ms, which differ by half a percent where nothing does. The stack is sampled more often
in its first 50 ms than later: its ratio is an upper bound.
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

from scalescope.capture.client_thread import ClientWatch
from scalescope.capture.partition_calls import noted

DEPTH, NUMBERS, BAGS = 30, 500_000, 10


def work(depth: int = DEPTH) -> int:
    """Some 50 ms."""
    if depth:
        return work(depth - 1)
    bags = [dask.bag.from_sequence(range(100), npartitions=10) for _ in range(BAGS)]
    return sum(number * number for number in range(NUMBERS)) + len(bags)


def main() -> int:
    """Print a Markdown table."""
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
    print("| mode | CPU ratio | wall ratio |\n| --- | --- | --- |")
    for name, figures in taken.items():
        cells = []
        for what in (0, 1):
            ratios = [one[what] / plain[what] for one, plain in zip(figures, taken["nothing"], strict=True)]
            low, high = interval(ratios)
            cells.append(f"{median(ratios):.3f} ({low:.3f} to {high:.3f})")
        print(f"| {name} | {' | '.join(cells)} |")
    same = median(one[0] / plain[0] for one, plain in zip(taken["nothing again"], taken["nothing"], strict=True))
    if abs(same - 1) > SAME:
        print(f"no figure to rely on: nothing beside nothing is {same:.3f}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
