"""Workloads in which the client itself works, or all data goes through it."""

from __future__ import annotations

import time

import dask
import numpy as np
from dask import delayed
from declare import case, remedy


@case("client-busy", 8, near="healthy results-awaited-in-loop", factor=1.15)
@remedy("nothing between the computations", between=0.0)
def a_little_between(client, between: float = 1.0):
    """Large time delay/white space between subsequent dask.compute() calls (a little of it), dask/distributed#7066."""

    def case_runner(case):
        time.sleep(4)
        return case

    for _ in ("preprocess", "run", "postprocess"):
        dask.compute(*[delayed(case_runner, pure=False)(case) for case in range(8)])
        time.sleep(between)


@case("slow-submission", 16, near="results-awaited-in-loop client-busy")
@remedy("submit the loading, too", in_tasks=True)
def load_and_submit(client, files: int = 48, in_tasks: bool = False):
    """Dask Futures (load on the client, submit each): https://docs.dask.org/en/stable/futures.html."""

    def load(filename):
        time.sleep(0.5)
        return filename

    def process(data):
        time.sleep(3)
        return data

    futures = []
    for filename in range(files):
        data = client.submit(load, filename) if in_tasks else load(filename)
        futures.append(client.submit(process, data))
    client.gather(futures)


@case(("large-graph", "serialisation-bound"), 2, "local", threads=2, near="slow-submission")
@remedy("scatter it once", scattered=True)
def the_same_payload_in_each(client, mebibytes: int = 12, tasks: int = 40, scattered: bool = False):
    """AbTEM's dask graphs embed large payloads literally instead of scattering them, abTEM/abTEM#444."""
    potential = np.random.default_rng(0).random(mebibytes * 2**17)
    if scattered:
        potential = client.scatter(potential, broadcast=True)

    def multislice(potential, i):
        time.sleep(0.05)
        return float(potential[i])

    payloads = [potential if scattered else potential + i for i in range(tasks)]
    client.gather([client.submit(multislice, payload, i, pure=False) for i, payload in enumerate(payloads)])
