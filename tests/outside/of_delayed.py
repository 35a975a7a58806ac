"""Workloads written with `dask.delayed`."""

from __future__ import annotations

import random
import time

import dask
from dask import delayed
from declare import case, remedy


@case("results-awaited-in-loop", 8, near="too-few-partitions")
@remedy("collect the calls, compute once", at_once=True)
def compute_in_the_loop(client, items: int = 24, at_once: bool = False):
    """Dask documentation, Best Practices of delayed: https://docs.dask.org/en/stable/delayed-best-practices.html
    (compute on lots of computation at once)."""

    def f(x):
        time.sleep(1)
        return x + 1

    results = [dask.delayed(f)(x) for x in range(items)]
    if at_once:
        dask.compute(*results)
    else:
        for y in results:
            y.compute()


@case("recomputation", 8)
@remedy("one dask.compute for all that share the inputs", at_once=True)
def three_statistics(client, parts: int = 16, at_once: bool = False, persist: bool = False):
    """Does dask recompute already computed tasks?, dask/dask#2614."""

    @delayed
    def load(i):
        time.sleep(1)
        return i

    data = [load(i) for i in range(parts)]
    if persist:
        data = dask.persist(*data)
    statistics = [delayed(function)(data) for function in (sum, max, min)]
    results = dask.compute(*statistics) if at_once else [each.compute() for each in statistics]
    total, largest, smallest = results
    return {"range": largest - smallest, "total": total}


@case("healthy", 8, near="recomputation results-awaited-in-loop")
def three_statistics_persisted(client, parts: int = 32):
    """Persist or caching behavior question, dask/dask#3400."""
    return three_statistics(client, parts, persist=True)


@case("tiny-tasks", 2, "local", threads=2, near="large-graph gil-bound")
@remedy("a hundred cases in each task", batch=100)
def three_times_a_thousand_cases(client, ncases: int = 1000, batch: int = 1):
    """Large time delay/white space between subsequent dask.compute() calls, dask/distributed#7066."""

    def case_runner(cases):
        return [round(case) for case in cases]

    rng = random.Random(12345)
    cases = [rng.random() for _ in range(ncases)]
    batches = [cases[i : i + batch] for i in range(0, ncases, batch)]
    for _ in ("preprocess", "run", "postprocess"):
        batches = dask.compute(*[dask.delayed(case_runner)(cases) for cases in batches])


@case("sequential-graph", 16)
@remedy("add in pairs: a tree instead of a chain", tree=True)
def running_total(client, items: int = 16, tree: bool = False):
    """Parallelize code with dask.delayed, github.com/JDASoftwareGroup/gridka2019-dask-workshop (total = add(total,
    inc(x)) in a loop)."""

    @delayed
    def inc(x):
        time.sleep(1)
        return x + 1

    @delayed
    def add(x, y):
        time.sleep(1)
        return x + y

    if tree:
        level = [inc(x) for x in range(items)]
        while len(level) > 1:
            level = [add(*level[i : i + 2]) for i in range(0, len(level), 2)]
        level[0].compute()
        return
    total = 0
    for x in range(items):
        total = add(total, inc(x))
    total.compute()


@case("healthy", 4, near="sequential-graph")
def eight_increments(client):
    """Parallelize code with dask.delayed, github.com/JDASoftwareGroup/gridka2019-dask-workshop (exercise: how to
    parallelize the following for loop?)."""

    @delayed
    def inc(x):
        time.sleep(1)
        return x + 1

    results = [inc(x) for x in [1, 2, 3, 4, 5, 6, 7, 8]]
    delayed(sum)(results).compute()


@case("uneven-waves", 5, near="sequential-graph straggler", factor=1.2)
@remedy("as many tasks as the threads divide", items=10)
def eight_increments_on_five(client, items: int = 8):
    """Parallelize code with dask.delayed, github.com/JDASoftwareGroup/gridka2019-dask-workshop (why didn't we go
    down to 1 s?, asked of 5 workers)."""

    @delayed
    def inc(x):
        time.sleep(8 / items)
        return x + 1

    delayed(sum)([inc(x) for x in range(items)]).compute()


@case("healthy", 8, near="sequential-graph skewed-tasks")
def increments_and_tree(client, items: int = 256):
    """Custom Workloads with Dask Delayed (tree reduction): https://examples.dask.org/delayed.html."""

    def pause(*key):
        time.sleep(random.Random(repr(key)).random())

    @delayed
    def inc(x):
        pause("inc", x)
        return x + 1

    @delayed
    def dec(x):
        pause("dec", x)
        return x - 1

    @delayed
    def add(x, y):
        pause("add", x, y)
        return x + y

    zs = [add(inc(i), dec(i)) for i in range(items)]
    while len(zs) > 1:
        zs = [add(zs[i], zs[i + 1]) for i in range(0, len(zs), 2)]
    client.compute(zs[0]).result()


@case("healthy", 250, near="data-locality worker-restriction")
def transmission(client, energies: int = 250):
    """very inefficient use of dask-workers, dask/dask-drmaa#18."""

    def make_2d_scatter(i):
        time.sleep(0.1)
        return i

    def transmit(syst, j):
        time.sleep(10)
        return j

    r = []
    for i in range(5):
        syst = delayed(make_2d_scatter)(i)
        for j in range(energies):
            r.append(delayed(transmit)(syst, j))
    client.gather(client.compute(r))


@case("healthy", 4, "light", near="data-locality")
def one_root(client, results: int = 40):
    """Root-ish tasks all schedule onto one worker, dask/distributed#6573 (tasks of 0.5 s; mended in Dask since)."""
    root = dask.delayed(lambda n: "x" * n)(2**20, dask_key_name="root")

    def use(root, i):
        time.sleep(0.5)

    dask.compute([dask.delayed(use)(root, i) for i in range(results)])


@case("straggler", 300, near="uneven-waves")
@remedy("the long one first", long_first=True)
def eight_thousand_series(client, series: int = 1190, long_first: bool = False):
    """Dask really slow towards the end of the job, dask/distributed#2835."""

    def run_prophet(i):
        time.sleep(40.0 if i == series - 1 else 10.0)
        return i

    x = [delayed(run_prophet)(i) for i in range(series)]
    first = [client.compute(x.pop(), priority=10)] if long_first else []
    client.gather([*first, *client.compute(x, retries=10)])


@case(("skewed-tasks", "straggler"), 6, near="data-locality")
@remedy("read large tables in parts", split=6)
def tables_of_a_database(client, split: int = 1):
    """Very uneven load distribution, dask/dask#6884."""

    def task(table_name, rows):
        time.sleep(rows * 1e-6)
        return True

    def runall(**tasks):
        return len(tasks)

    tables = {f"table_{i}": 300_000 * 2**i for i in range(6)}
    tables["table_3_again"] = 2_400_000
    tasks = {
        f"{name}_{part}": dask.delayed(task)(name, rows / split)
        for name, rows in tables.items()
        for part in range(split)
    }
    dask.delayed(runall)(**tasks).compute()


@case(("healthy", "skewed-tasks"), 2, near="data-locality uneven-waves")
def odd_ones_are_long(client):
    """Dask worker tasks allocation, dask/dask#6956."""

    def uneven_task(num):
        if num % 2 != 0:
            time.sleep(num)

    client.gather([client.submit(uneven_task, i, priority=1) for i in range(10)])


@case("healthy", 2, near="skewed-tasks data-locality")
def four_long_four_short(client):
    """Work stealing is not happening, dask/dask-drmaa#51."""

    def execute(sleep_time):
        time.sleep(sleep_time)
        return sleep_time

    times = [60, 60, 60, 60, 1, 1, 1, 1]
    dask.compute(*[dask.delayed(execute)(sleep_time) for sleep_time in times])


@case("healthy", 8, near="nested-client")
def compute_inside_delayed(client, outer: int = 16):
    """Breaking of concurrency when calling dask.delayed inside a delayed function (the rewritten form),
    dask/dask#10733."""

    def add(x, y):
        time.sleep(2)
        return x + y

    @dask.delayed
    def do_math(x, y):
        results = []
        for i in range(4):
            results.append(dask.delayed(add)(x, y + i))
        return dask.compute(results)

    dask.compute([do_math(10 * i, 2) for i in range(outer)])


@case("healthy", 1, threads=4, near="skewed-tasks gil-bound")
def costly_simulations(client, parameters: int = 500):
    """Embarrassingly parallel Workloads: https://examples.dask.org/embarrassingly-parallel.html."""

    def costly_simulation(list_param):
        time.sleep(random.Random(repr(list_param)).random())
        return sum(list_param)

    rng = random.Random(0)
    lazy_results = []
    for _ in range(parameters):
        lazy_results.append(dask.delayed(costly_simulation)([rng.random() for _ in range(4)]))
    dask.compute(*lazy_results)
