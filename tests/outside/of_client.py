"""Workloads in which the client itself works, or all data goes through it."""

from __future__ import annotations

import time

import dask
import numpy as np
from dask import delayed
from declare import case, mends, remedy


@case("client-busy", 8, near="healthy")
@remedy("open_mfdataset(parallel=True)", parallel=True)
def open_many_files(client, files: int = 40, parallel: bool = False):
    """use dask to open datasets in parallel (open_mfdataset), pydata/xarray#1981."""

    def open_dataset(path):
        time.sleep(0.3)
        return path

    def load(dataset):
        time.sleep(1)
        return dataset

    if parallel:
        datasets = dask.compute([delayed(open_dataset)(path) for path in range(files)])[0]
    else:
        datasets = [open_dataset(path) for path in range(files)]
    dask.compute([delayed(load)(dataset) for dataset in datasets])


@case("client-busy", 16, "light", near="healthy slow-submission late-workers")
@remedy("build the job list within the tasks", metadata=0.0)
def build_the_job_list(client, metadata: float = 2.5, images: int = 64):
    """UserWarning: Sending large graph (building the job list took 35 s), danforthcenter/plantcv#1773."""

    def process(image):
        time.sleep(0.5)

    time.sleep(metadata)
    jobs = list(range(images))
    client.gather(client.map(process, jobs, pure=False))


@case("client-busy", 12, near="results-awaited-in-loop slow-submission sequential-graph")
@remedy("transform in tasks", in_tasks=True)
def month_after_month(client, months: int = 6, days: int = 12, in_tasks: bool = False):
    """slow performance with open_mfdataset (a month after another), pydata/xarray#1385."""

    def read(day):
        time.sleep(2)
        return day

    def transform(parts):  # to a DataFrame, on the client
        time.sleep(3)
        return sum(parts)

    means = []
    for _ in range(months):
        parts = client.map(read, range(days), pure=False)
        if in_tasks:
            means.append(client.submit(transform, parts, pure=False))
        else:
            transform(client.gather(parts))
    client.gather(means)


@case("client-busy", 4, "light", near="results-awaited-in-loop sequential-graph")
@remedy("test for convergence less often", test_every=6)
def lsqr(client, iterations: int = 6, test_every: int = 1):
    """Implement sparse lsqr (gaps at the start of every iteration), dask/dask#5955."""

    def matvec(block, i):
        time.sleep(0.5)
        return block

    for i in range(iterations):
        client.gather(client.map(matvec, range(4), [i] * 4, pure=False))
        if (i + 1) % test_every == 0:
            time.sleep(0.5)  # norms, prints, plots


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


@case("client-busy", 10, near="healthy")
@remedy("compress in the tasks", in_tasks=True)
def compress_at_the_end(client, slices: int = 40, in_tasks: bool = False):
    """running out of memory when gathering results (then compress and write), dask/dask#1412."""

    def foo(i):
        time.sleep(1.2 if in_tasks else 1)
        return i

    results = client.gather(client.map(foo, range(slices), pure=False))
    for _ in () if in_tasks else results:
        time.sleep(0.2)  # compress and write


@case("client-waits", 2, "local", near="healthy transfer-bound")
@remedy("ask for the shape where the array is", gathered=False)
def shapes_of_gathered_arrays(client, arrays: int = 16, side: int = 2_000, gathered: bool = True):
    """Dask documentation, Efficiency (leave data on the cluster):
    https://distributed.dask.org/en/stable/efficiency.html."""

    def random(i):
        return np.ones((side, side)) * i

    futures = client.map(random, range(arrays), pure=False)
    if gathered:
        return {"columns": sum(x.shape[1] for x in client.gather(futures))}
    return {"columns": sum(client.gather(client.map(lambda x: x.shape[1], futures, pure=False)))}


@case("client-waits", 2, "local", near="healthy transfer-bound sequential-graph")
@remedy("reduce before it is computed", reduced=True)
def whole_array_at_once(client, side: int = 9_000, reduced: bool = False):
    """Streaming results to Client as they become available (a large array is computed as one),
    dask/distributed#4754."""
    import dask.array as da

    array = da.ones((side, side), chunks=(500, side))
    return {"value": float(array.mean().compute() if reduced else array.compute()[0, 0])}


@case("healthy", 8, near="client-busy results-awaited-in-loop")
def gather_then_submit(client, elements: int = 160):
    """Gather the data locally, then submit for every element:
    https://distributed.dask.org/en/stable/task-launch.html."""

    def download_and_convert_to_list(uri):
        time.sleep(1)
        return list(range(elements))

    def process_element(i):
        time.sleep(1)
        return i

    data = client.submit(download_and_convert_to_list, "uri").result()
    client.submit(sum, client.map(process_element, data)).result()


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


@case("slow-submission", 12, "light", near="results-awaited-in-loop tiny-tasks")
@remedy("prepare in the tasks", prepare=0.0)
def submit_in_a_for_loop(client, prepare: float = 0.12, tasks: int = 36):
    """Tune update_state (Executor.submit within for loops; arguments are prepared there), dask/distributed#6."""

    def func(i):
        time.sleep(0.5)
        return i

    futures = []
    for i in range(tasks):
        time.sleep(prepare)
        futures.append(client.submit(func, i, pure=False))
    client.gather(futures)


@case("healthy", 8, near="slow-submission tiny-tasks")
def submit_without_preparing(client, tasks: int = 160):
    """Tune update_state (Executor.submit within for loops), dask/distributed#6."""

    def func(i):
        time.sleep(1)

    client.gather([client.submit(func, i) for i in range(tasks)])


@case(("large-graph", "serialisation-bound"), 2, "local", near="slow-submission client-waits")
@remedy("load in the tasks", in_tasks=True)
def arrays_in_the_graph(client, mebibytes: int = 12, parts: int = 16, in_tasks: bool = False):
    """Consider scattering data ahead of time (arrays in the graph), dask/dask#11562."""

    def load(i):
        return np.random.default_rng(i).random(mebibytes * 2**17)

    def infer(block):
        block = load(block) if in_tasks else block
        time.sleep(0.05)
        return float(block[0])

    expression = range(parts) if in_tasks else [load(i) for i in range(parts)]
    dask.compute([delayed(infer)(block) for block in expression])


@case(("large-graph", "serialisation-bound"), 2, "local", threads=2, near="slow-submission")
@remedy("scatter it once", scattered=True)
def the_same_payload_in_each(client, mebibytes: int = 12, tasks: int = 40, scattered: bool = False):
    """abTEM's dask graphs embed large payloads literally instead of scattering them, abTEM/abTEM#444."""
    potential = np.random.default_rng(0).random(mebibytes * 2**17)
    if scattered:
        potential = client.scatter(potential, broadcast=True)

    def multislice(potential, i):
        time.sleep(0.05)
        return float(potential[i])

    payloads = [potential if scattered else potential + i for i in range(tasks)]
    client.gather([client.submit(multislice, payload, i, pure=False) for i, payload in enumerate(payloads)])


@case(("serialisation-bound", "large-graph"), 2, "local", near="slow-submission tiny-tasks")
@remedy("client.scatter([data], broadcast=True)", scattered=True)
def data_with_every_call(client, calls: int = 16, scattered: bool = False):
    """More Dask: Pre-Scattering Data: https://ericmjl.github.io/blog/2018/10/26/more-dask-pre-scattering-data/."""
    data = {f"key {i}": [i, str(i), {"value": i}] for i in range(50_000)}
    if scattered:  # in a list: of a dict by itself, each of the 50,000 values becomes a future
        [data] = client.scatter([data], broadcast=True)

    def func(data, i):
        time.sleep(0.05)
        return len(data) + i

    client.gather([client.submit(func, data, i, pure=False) for i in range(calls)])


@case(("serialisation-bound", "large-graph"), 2, "local", near="slow-submission tiny-tasks")
def closure_over_a_table(client, calls: int = 12):
    """Large object warning (a MagicFunction with what the outer scope holds), eriknw/afar#11."""
    table = [(i, str(i)) for i in range(150_000)]

    def remotely(i):
        time.sleep(0.05)
        return table[i][0]

    client.gather([client.submit(lambda i=i: remotely(i), pure=False) for i in range(calls)])


@mends(closure_over_a_table, "pass each call the row that it needs")
def rows_as_arguments(client, calls: int = 12):
    table = [(i, str(i)) for i in range(150_000)]

    def remotely(row):
        time.sleep(0.05)
        return row[0]

    client.gather([client.submit(remotely, table[i], pure=False) for i in range(calls)])


@case("healthy", 2, "local", near="serialisation-bound large-graph transfer-bound client-waits")
def data_scattered_and_much_work(client, calls: int = 24):
    """More Dask: Pre-Scattering Data (as it recommends):
    https://ericmjl.github.io/blog/2018/10/26/more-dask-pre-scattering-data/."""
    data = client.scatter(np.ones(1_000_000), broadcast=True)

    def func(data, i):
        time.sleep(0.4)
        return float(data[i])

    client.gather([client.submit(func, data, i, pure=False) for i in range(calls)])
