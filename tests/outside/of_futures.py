"""Workloads written with `client.submit` and `client.map`."""

from __future__ import annotations

import operator
import random
import time
from contextlib import nullcontext
from itertools import islice

import numpy as np
from declare import case, mends, remedy
from distributed import as_completed, get_client, rejoin, secede, worker_client


@case("results-awaited-in-loop", 4, "light")
@remedy("submit all, gather once", at_once=True)
def submit_and_wait(client, times: int = 12, at_once: bool = False):
    """Unable to run worker_client in a loop (cl.submit(f).result()), dask/distributed#2022."""

    def test_func(i):
        time.sleep(0.5)
        return i

    futures = (client.submit(test_func, i, pure=False) for i in range(times))
    for future in list(futures) if at_once else futures:
        future.result()


@case("healthy", 20, near="results-awaited-in-loop slow-submission few-tasks-in-flight")
def adaptive_search(client, initial: int = 20, fits: int = 200):
    """Adaptive hyper-parameter optimization, dask/dask-ml#161."""
    rng = random.Random(1)

    def fit_and_score(params):
        time.sleep(10 + params)
        return params

    seq = as_completed([client.submit(fit_and_score, rng.random()) for _ in range(initial)], with_results=True)
    done = initial
    for _, result in seq:
        if done < fits:
            done += 1
            seq.add(client.submit(fit_and_score, (result + rng.random()) / 2))


@case("few-tasks-in-flight", 20, near="slow-submission too-few-partitions results-awaited-in-loop")
@remedy("as many guesses in flight as there are threads", initial=20)
def adaptive_search_too_narrow(client, initial: int = 5, fits: int = 100):
    """Adaptive hyper-parameter optimization (a fixed number of initial guesses on a larger cluster),
    dask/dask-ml#161."""
    adaptive_search(client, initial, fits)


@case("few-tasks-in-flight", 24, near="slow-submission too-few-partitions")
@remedy("twice as many as there are threads", max_submitted=48)
def limited_submission(client, max_submitted: int = 8, tiles: int = 144):
    """limit number of currently submitted tasks to dask executor (max_submitted_tasks, on a larger cluster),
    mapchete/mapchete#373."""

    def process(tile):
        time.sleep(0.5 + (tile * 37 % 10) / 10)
        return tile

    rest = iter(range(tiles))
    seq = as_completed([client.submit(process, tile, pure=False) for tile in islice(rest, max_submitted)])
    for future in seq:
        future.result()
        for tile in islice(rest, 1):
            seq.add(client.submit(process, tile, pure=False))


@case("healthy", 8, near="results-awaited-in-loop too-few-partitions")
def gradient_descent(client, blocks: int = 8, iterations: int = 10):
    """Parameter server with dask-glm, gist.github.com/mrocklin/a92785743744b5c698984e16b7065037."""

    def pointwise_gradient(beta, block):
        time.sleep(8.0 / blocks)
        return block

    beta = 0.0
    for _ in range(iterations):
        gradients = client.map(pointwise_gradient, [beta] * blocks, range(blocks), pure=False)
        beta -= sum(client.gather(gradients))


@case("too-few-partitions", 32, near="results-awaited-in-loop narrow-stage")
@remedy("as many chunks as threads", blocks=32)
def gradient_descent_of_8_chunks(client, blocks: int = 8, iterations: int = 10):
    """Parameter server with dask-glm, gist.github.com/mrocklin/a92785743744b5c698984e16b7065037 (X split into 8
    chunks, on a larger cluster)."""
    gradient_descent(client, blocks, iterations)


@case("healthy", 1, threads=6, near="slow-submission results-awaited-in-loop few-tasks-in-flight")
def files_and_their_items(client, files: int = 60):
    """Handle Evolving Workflows: https://examples.dask.org/applications/evolving-workflows.html (1: as_completed)."""

    def parse_file(fn):
        rng = random.Random(fn)
        time.sleep(rng.random())
        return [rng.random() for _ in range(rng.randint(1, 10))]

    def process_item(x):
        time.sleep(random.Random(x).random() / 4)
        return x + 1

    lists = client.map(parse_file, range(files), pure=False)
    lengths = client.map(len, lists)
    mapping = dict(zip(lengths, lists, strict=True))
    futures = []
    for future in as_completed(lengths):
        data = mapping[future]
        for i in range(future.result()):
            new = client.submit(operator.getitem, data, i, priority=1)
            futures.append(client.submit(process_item, new, priority=1))
    client.gather(futures)


@case("healthy", 1, threads=6, near="nested-client slow-submission")
def files_that_submit_their_items(client, files: int = 60):
    """Handle Evolving Workflows: https://examples.dask.org/applications/evolving-workflows.html (3: submit tasks
    from tasks)."""

    def process_item(x):
        time.sleep(random.Random(x).random() / 4)
        return x + 1

    def f(fn):
        rng = random.Random(fn)
        time.sleep(rng.random())
        found = [rng.random() for _ in range(rng.randint(1, 10))]
        client = get_client()
        futures = client.map(process_item, found, priority=10)
        secede()
        results = client.gather(futures)
        rejoin()
        return results

    client.gather(client.map(f, range(files), pure=False))


@case(("nested-client", "invalid-trials"), 2, threads=2, timeout_s=15.0)
@remedy("with worker_client()", secede=True)
def fibonacci_without_secede(client, n: int = 6, secede: bool = False):
    """Dask documentation, Launch Tasks from Tasks: https://distributed.dask.org/en/stable/task-launch.html
    (get_client, without secede)."""

    def fib(n):
        time.sleep(0.1)
        if n < 2:
            return n
        with worker_client() if secede else nullcontext(get_client()) as client:
            a = client.submit(fib, n - 1)
            b = client.submit(fib, n - 2)
            a, b = client.gather([a, b])
        return a + b

    client.submit(fib, n).result()


@case("nested-client", 8, near="straggler too-few-partitions")
@remedy("secede before waiting", secede=True)
def steps_that_gather_their_data(client, steps: int = 6, files: int = 8, secede: bool = False):
    """Dask easy Deadlock with gather and compute (a step task gathers its data tasks), dask/distributed#7047."""

    def data(step, i):
        time.sleep(1)
        return i

    def step(number):
        with worker_client() if secede else nullcontext(get_client()) as client:
            return sum(client.gather(client.map(data, [number] * files, range(files), pure=False)))

    client.gather(client.map(step, range(steps), pure=False))


@case("healthy", 4, near="nested-client")
def jobs_that_secede(client, jobs: int = 20):
    """Workers idle even though there's queued work (tasks that submit a job, secede and wait),
    dask/distributed#4501."""

    def long_running_job(seconds, i):
        time.sleep(seconds)

    def root_job(i):
        client = get_client()
        future = client.submit(long_running_job, 5, i, pure=False)
        secede()
        future.result()
        rejoin()

    client.gather([client.submit(root_job, i, pure=False) for i in range(jobs)])


@case("tiny-tasks", 12)
@remedy("batches of a hundred numbers", batch=100)
def squares_one_by_one(client, n: int = 6_000, batch: int = 1):
    """Computation not distributed (map over a million scattered numbers), dask/distributed#2316."""

    def square(xs):
        time.sleep(1e-4 * len(xs))
        return [x**2 for x in xs]

    def total(results):
        return sum(map(sum, results))

    a = client.map(square, [list(range(i, i + batch)) for i in range(0, n, batch)])
    client.submit(total, a).result()


@case("healthy", 12, near="tiny-tasks slow-submission")
def chunks_of_a_sequence(client, seq: int = 600_000):
    """Dask documentation, Efficiency: https://distributed.dask.org/en/stable/efficiency.html (use larger tasks: the
    same in chunks)."""

    def f_many(chunk):
        time.sleep(1e-5 * len(chunk))
        return len(chunk)

    client.gather(client.map(f_many, [range(i, i + 2_500) for i in range(0, seq, 2_500)]))


@case("healthy", 7, near="fewer-items-than-workers uneven-waves late-workers")
def seven_batches(client, items: int = 7, seconds: float = 10.0):
    """Assign tasks to idle workers rather than queuing them (7 batches), dask/distributed#7384."""

    def batch(i):
        time.sleep(seconds)

    client.gather([client.submit(batch, i) for i in range(items)])


@case("fewer-items-than-workers", 28, near="too-few-partitions")
@remedy("split the payload into as many batches as there are workers", items=28, seconds=2.5)
def seven_batches_on_28(client, items: int = 7, seconds: float = 10.0):
    """Assign tasks to idle workers rather than queuing them (7 batches, more workers), dask/distributed#7384."""
    seven_batches(client, items=items, seconds=seconds)


@case(("fewer-items-than-workers", "skewed-tasks"), 40, "light", near="too-few-partitions straggler")
@remedy("split each set of arguments", items=40, seconds=0.125)
def ten_sets_of_arguments(client, items: int = 10, seconds: float = 0.5):
    """Parallelizing with Dask & Dask Distributed (10 sets of arguments),
    gist.github.com/masdeseiscaracteres/80d302e7ce44ab06c0d9f4d783fc0ac3."""

    def foo(n):
        time.sleep(n * seconds)

    client.gather([client.submit(foo, 5 + i % 10, pure=False) for i in range(items)])


@case("uneven-waves", 3, near="straggler skewed-tasks too-few-partitions", factor=1.2)
@remedy("as many batches as the workers divide", items=9, seconds=70 / 9)
def seven_batches_on_3(client, items: int = 7, seconds: float = 10.0):
    """Assign tasks to idle workers rather than queuing them (three at work, then the next three),
    dask/distributed#7384."""
    seven_batches(client, items=items, seconds=seconds)


@case("healthy", 78, threads=2, near="uneven-waves tiny-tasks data-locality")
def many_identical_operations(client, partitions: int = 1_560):
    """Why uneven task allocation on many identical operations?, dask/dask#5158."""

    def read_parquet(i):
        time.sleep(4)
        return i

    client.gather(client.map(len, [[f] for f in client.map(read_parquet, range(partitions))]))


@case("worker-restriction", 4, "light", near="data-locality straggler")
@remedy("no workers=", anywhere=True)
def only_one_gets_jobs(client, jobs: int = 12, anywhere: bool = False):
    """Client submit with workers (only a-0 is getting jobs), dask/distributed#8862."""
    first = sorted(client.scheduler_info(n_workers=-1)["workers"])[:1]

    def run_me(i):
        time.sleep(0.5)
        return i

    futures = [client.submit(run_me, i, workers=None if anywhere else first, pure=False) for i in range(jobs)]
    for f in futures:
        f.result()


@case("worker-restriction", 8, near="data-locality sequential-graph")
@remedy("a file for each chunk, written where it was computed", everywhere=True)
def one_writer(client, chunks: int = 64, everywhere: bool = False):
    """Consolidating all tasks that write to a file on a single worker, dask/distributed#2163."""
    writer = None if everywhere else [min(client.scheduler_info(n_workers=-1)["workers"])]

    def compute(i):
        time.sleep(1)
        return i

    def write(chunk):
        time.sleep(0.5)

    futures = [client.submit(write, client.submit(compute, i), workers=writer) for i in range(chunks)]
    client.gather(futures)


@case("healthy", 6, near="worker-restriction")
def a_worker_for_each(client, tasks: int = 36):
    """restrict task to specific workers, dask/distributed#6491."""
    addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])

    def func(i):
        time.sleep(2)

    client.gather([client.submit(func, i, workers=[addresses[i % len(addresses)]]) for i in range(tasks)])


@case("data-locality", 8, near="worker-restriction sequential-graph")
def all_use_one_large_input(client, tasks: int = 16):
    """@delayed and intake.to_dask don't seem to work together (all new tasks on worker #0), dask/distributed#5756."""

    def open_catalog():
        return np.empty(250_000_000)  # 2 GB, of which nothing is touched

    def get_data(catalog, date):
        time.sleep(0.5)
        return date

    catalog = client.submit(open_catalog, key="catalog")
    client.gather([client.submit(get_data, catalog, date) for date in range(tasks)])


@mends(all_use_one_large_input, "every task opens what it needs")
def each_opens_its_own(client, tasks: int = 16):
    def get_data(date):
        np.empty(250_000_000)
        time.sleep(0.5)
        return date

    client.gather([client.submit(get_data, date) for date in range(tasks)])


@case("data-locality", 16, near="too-few-partitions worker-restriction")
@remedy("as many parts as there are workers", parts=16)
def cuts_of_six_parts(client, parts: int = 6, cuts: int = 96):
    """Many Tasks assigned to one worker (here: to those that hold six large parts), dask/distributed#3126."""

    def load(i):
        time.sleep(6 / parts)
        return np.empty(2_400_000_000 // parts)

    def process(part, i):
        time.sleep(1)
        return i

    loaded = client.map(load, range(parts), pure=False)
    client.gather([client.submit(process, loaded[i % parts], i, pure=False) for i in range(cuts)])


@case("healthy", 25, near="data-locality late-workers tiny-tasks")
def a_thousand_partitions(client, partitions: int = 1_000):
    """Task stealing regression (a bag of a thousand partitions), dask/distributed#5564."""
    import dask.bag as db

    def slow_function(value):
        time.sleep(30)
        return value

    bag = db.from_sequence(np.random.rand(partitions, 1), npartitions=partitions)
    bag.map(slow_function).compute()


@case("slow-worker", 10, near="straggler skewed-tasks")
@remedy("do without the slow machine", spare_slowest=True)
def one_busy_machine(client, trees: int = 6, spare_slowest: bool = False):
    """Distributed on shared clusters or non-homogenous machines, dmlc/xgboost#3104."""
    machines = sorted(client.scheduler_info(n_workers=-1)["workers"])

    def histogram(tree, part):
        from distributed import get_worker

        time.sleep(6 if get_worker().address == machines[0] else 1)
        return part

    used = machines[1:] if spare_slowest else machines
    for tree in range(trees):
        client.gather(
            [client.submit(histogram, tree, i, workers=[used[i % len(used)]], pure=False) for i in range(len(machines))]
        )


@case(("slow-worker", "straggler"), 8, "light", near="skewed-tasks uneven-waves")
@remedy("do without the slow machine", avoid=True)
def fits_on_a_slow_machine(client, fits: int = 21, avoid: bool = False):
    """Distributed on shared clusters or non-homogenous machines (independent fits), dmlc/xgboost#3104."""
    machines = sorted(client.scheduler_info(n_workers=-1)["workers"])

    def fit(i):
        from distributed import get_worker

        time.sleep(2.0 if get_worker().address == machines[0] else 0.5)
        return i

    client.gather(client.map(fit, range(fits), workers=machines[1:] if avoid else None, pure=False))


@case("straggler", 20, near="slow-worker skewed-tasks")
@remedy("a timeout within the task, and another attempt", gives_up=True)
def the_last_ones_hang(client, tasks: int = 400, gives_up: bool = False):
    """Task timeouts and retries (the last of many thousands hang), dask/distributed#391."""

    def fetch(i):
        time.sleep((2 if gives_up else 30) if i in (tasks - 7, tasks - 40) else 1)
        if gives_up and i in (tasks - 7, tasks - 40):
            time.sleep(1)  # the second attempt
        return i

    client.gather(client.map(fetch, range(tasks)))
