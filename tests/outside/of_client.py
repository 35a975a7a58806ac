"""Workloads in which the client itself works, or all data goes through it."""

from __future__ import annotations

import time

import dask
import numpy as np
from dask import delayed
from declare import case, mends, remedy


@case("client-busy", 8, near="healthy")
def open_many_files(client, files: int = 40):
    """use dask to open datasets in parallel (open_mfdataset), pydata/xarray#1981."""

    def load(dataset):
        time.sleep(1)
        return dataset

    datasets = []
    for path in range(files):
        time.sleep(0.3)  # open_dataset(path)
        datasets.append(path)
    dask.compute([delayed(load)(dataset) for dataset in datasets])


@mends(open_many_files, "open_mfdataset(parallel=True)")
def open_many_files_in_parallel(client, files: int = 40):
    def open_dataset(path):
        time.sleep(0.3)
        return path

    def load(dataset):
        time.sleep(1)
        return dataset

    datasets = dask.compute([delayed(open_dataset)(path) for path in range(files)])[0]
    dask.compute([delayed(load)(dataset) for dataset in datasets])


@case("client-busy", 16, "virtual", near="healthy slow-submission late-workers")
@remedy("build the job list within the tasks", metadata=0.0)
def build_the_job_list(client, metadata: float = 2.5, images: int = 64):
    """UserWarning: Sending large graph (building the job list took 35 s), danforthcenter/plantcv#1773."""

    def process(image):
        time.sleep(0.5)
        return image

    time.sleep(metadata)
    jobs = list(range(images))
    client.gather(client.map(process, jobs, pure=False))


@case("client-busy", 12, near="results-awaited-in-loop slow-submission sequential-graph")
def month_after_month(client, months: int = 6, days: int = 12):
    """slow performance with open_mfdataset (a month after another), pydata/xarray#1385."""

    def read(day):
        time.sleep(2)
        return day

    def transform(parts):  # to a DataFrame, on the client
        time.sleep(3)
        return sum(parts)

    for _ in range(months):
        transform(client.gather(client.map(read, range(days), pure=False)))


@mends(month_after_month, "transform in tasks")
def month_after_month_in_tasks(client, months: int = 6, days: int = 12):
    def read(day):
        time.sleep(2)
        return day

    def transform(parts):
        time.sleep(3)
        return sum(parts)

    client.gather(
        [client.submit(transform, client.map(read, range(days), pure=False), pure=False) for _ in range(months)]
    )


@case("client-busy", 4, "virtual", near="results-awaited-in-loop sequential-graph")
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
def compress_at_the_end(client, slices: int = 40):
    """running out of memory when gathering results (then compress and write), dask/dask#1412."""

    def foo(i):
        time.sleep(1)
        return i

    results = client.gather(client.map(foo, range(slices), pure=False))
    for _ in results:
        time.sleep(0.2)  # compress and write


@mends(compress_at_the_end, "compress in the tasks")
def compress_in_tasks(client, slices: int = 40):
    def foo(i):
        time.sleep(1)
        time.sleep(0.2)
        return i

    client.gather(client.map(foo, range(slices), pure=False))


@case("client-waits", 2, "local", near="healthy transfer-bound")
def shapes_of_gathered_arrays(client, arrays: int = 16, side: int = 2_000):
    """Dask documentation, Efficiency (leave data on the cluster):
    https://distributed.dask.org/en/stable/efficiency.html."""

    def random(i):
        return np.ones((side, side)) * i

    futures = client.map(random, range(arrays), pure=False)
    return {"columns": sum(x.shape[1] for x in client.gather(futures))}


@mends(shapes_of_gathered_arrays, "ask for the shape where the array is")
def shapes_of_arrays(client, arrays: int = 16, side: int = 2_000):
    def random(i):
        return np.ones((side, side)) * i

    futures = client.map(random, range(arrays), pure=False)
    return {"columns": sum(client.gather(client.map(lambda x: x.shape[1], futures, pure=False)))}


@case("client-waits", 2, "local", near="healthy transfer-bound sequential-graph")
def whole_array_at_once(client, side: int = 5_000):
    """Streaming results to Client as they become available (a large array is computed as one),
    dask/distributed#4754."""
    import dask.array as da

    return {"corner": float(da.ones((side, side), chunks=(500, side)).compute()[0, 0])}


@mends(whole_array_at_once, "reduce before it is computed")
def sum_of_the_array(client, side: int = 5_000):
    import dask.array as da

    return {"mean": float(da.ones((side, side), chunks=(500, side)).mean().compute())}


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


# ------------------------------------------------------------------ sending


@case("slow-submission", 16, near="results-awaited-in-loop client-busy")
def load_and_submit(client, files: int = 48):
    """Dask Futures (load on the client, submit each): https://docs.dask.org/en/stable/futures.html."""

    def process(data):
        time.sleep(3)
        return data

    futures = []
    for filename in range(files):
        time.sleep(0.5)  # data = load(filename)
        futures.append(client.submit(process, filename))
    client.gather(futures)


@mends(load_and_submit, "submit the loading, too")
def submit_load(client, files: int = 48):
    def load(filename):
        time.sleep(0.5)
        return filename

    def process(data):
        time.sleep(3)
        return data

    client.gather([client.submit(process, client.submit(load, filename)) for filename in range(files)])


@case("slow-submission", 12, "virtual", near="results-awaited-in-loop tiny-tasks")
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
        return i

    client.gather([client.submit(func, i) for i in range(tasks)])


@case(("large-graph", "serialisation-bound"), 2, "local", near="slow-submission client-waits")
def arrays_in_the_graph(client, mebibytes: int = 12, parts: int = 16):
    """Consider scattering data ahead of time (arrays in the graph), dask/dask#11562."""
    expression = [np.random.default_rng(i).random(mebibytes * 2**17) for i in range(parts)]

    def infer(block):
        time.sleep(0.05)
        return float(block[0])

    dask.compute([delayed(infer)(block) for block in expression])


@mends(arrays_in_the_graph, "load in the tasks")
def arrays_in_the_tasks(client, mebibytes: int = 12, parts: int = 16):
    def infer(i):
        block = np.random.default_rng(i).random(mebibytes * 2**17)
        time.sleep(0.05)
        return float(block[0])

    dask.compute([delayed(infer)(i) for i in range(parts)])


@case(("large-graph", "serialisation-bound"), 2, "local", threads=2, near="slow-submission")
def the_same_payload_in_each(client, mebibytes: int = 12, tasks: int = 40):
    """abTEM's dask graphs embed large payloads literally instead of scattering them, abTEM/abTEM#444."""
    potential = np.random.default_rng(0).random(mebibytes * 2**17)

    def multislice(potential, i):
        time.sleep(0.05)
        return float(potential[i])

    client.gather([client.submit(multislice, potential + i, i, pure=False) for i in range(tasks)])


@mends(the_same_payload_in_each, "scatter it once")
def payload_scattered(client, mebibytes: int = 12, tasks: int = 40):
    potential = client.scatter(np.random.default_rng(0).random(mebibytes * 2**17), broadcast=True)

    def multislice(potential, i):
        time.sleep(0.05)
        return float(potential[i] + i)

    client.gather([client.submit(multislice, potential, i, pure=False) for i in range(tasks)])


@case(("serialisation-bound", "large-graph"), 2, "local", near="slow-submission tiny-tasks")
def data_with_every_call(client, calls: int = 16):
    """More Dask: Pre-Scattering Data: https://ericmjl.github.io/blog/2018/10/26/more-dask-pre-scattering-data/."""
    data = {f"key {i}": [i, str(i), {"value": i}] for i in range(50_000)}

    def func(data, i):
        time.sleep(0.05)
        return len(data) + i

    client.gather([client.submit(func, data, i, pure=False) for i in range(calls)])


@mends(data_with_every_call, "client.scatter([data], broadcast=True)")
def data_scattered(client, calls: int = 16):
    # In a list: of a dict by itself, each of the 50,000 values becomes a future.
    [data] = client.scatter([{f"key {i}": [i, str(i), {"value": i}] for i in range(50_000)}], broadcast=True)

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
