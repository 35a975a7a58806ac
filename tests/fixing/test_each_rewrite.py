"""Each rewrite patches a real script, whose results stay the same in less time.

A script runs twice: it is recorded, patched, and recorded again. Where the patched one was slower, the host may have
been busy: the least seconds of three pairs count. `fix` itself runs pairs until the times are sure, which `test_fix.py`
does.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import scalescope
from scalescope.fixing import running
from scalescope.fixing.comparison import differences
from scalescope.fixing.proof import Proof
from scalescope.remedies import REWRITES, rewrites
from scalescope.remedies.source import Values

START = """
import time
import dask
import numpy as np
from dask.distributed import Client, LocalCluster, as_completed, wait

def score(part):
    time.sleep(0.2)
    return part * 2

"""
# What follows `---` stands in a block with a client of this cluster
CLIENT = """
if __name__ == "__main__":
    with Client(n_workers=1, threads_per_worker=8, processes=False, dashboard_address=None) as client:
"""
SCRIPTS = {
    "awaited_in_loop": """
        ---
        print(sum(client.submit(score, part).result() for part in range(8)))
    """,
    "awaited_coroutines": """
        import asyncio

        async def main():
            options = {"processes": False, "dashboard_address": None, "asynchronous": True}
            cluster = LocalCluster(n_workers=1, threads_per_worker=8, **options)
            async with cluster, Client(cluster, asynchronous=True) as client:
                async def one(part):
                    return await client.submit(score, part)

                print(sum([await one(part) for part in range(8)]))

        if __name__ == "__main__":
            asyncio.run(main())
    """,
    "plain_function": """
        async def scored(part):
            return score(part)

        ---
        print(sum(client.gather(client.map(scored, range(10)))))
    """,
    "parallel_open": """
        import xarray as xr

        def shifted(data):
            time.sleep(0.8)
            return data + 1

        ---
        for day in range(8):
            xr.Dataset({"v": (("t", "x"), np.ones((1, 4)) * day)}, {"t": [day]}).to_netcdf(f"{day}.nc", engine="scipy")
        files = [f"{day}.nc" for day in range(8)]
        data = xr.open_mfdataset(files, engine="scipy", combine="by_coords", preprocess=shifted)
        print(float(data.v.sum()))
    """,
    "batches": """
        ---
        parts, total = list(range(16)), 0
        for i in range(0, len(parts), 2):
            total += sum(client.gather(client.map(score, parts[i : i + 2])))
        print(total)
    """,
    "batches:longer": """
        def several(batch):
            return [part * 2 for part in batch]

        ---
        parts = list(range(5000))
        futures = [client.submit(several, parts[i : i + 2]) for i in range(0, len(parts), 2)]
        print(sum(sum(each) for each in client.gather(futures)))
    """,
    "window": """
        from itertools import islice

        ---
        rest, total = iter(range(10)), 0
        seq = as_completed([client.submit(score, part) for part in islice(rest, 1)])
        for future in seq:
            total += future.result()
            for part in islice(rest, 1):
                seq.add(client.submit(score, part))
        print(total)
    """,
    "window:first_completed": """
        def uneven(part):
            time.sleep(0.4 if part % 5 == 0 else 0.05)
            return part

        ---
        running, total = set(), 0
        for part in range(40):
            if len(running) >= 8:
                done, running = wait(running)
                total += sum(each.result() for each in done)
            running.add(client.submit(uneven, part))
        print(total + sum(client.gather(list(running))))
    """,
    "persist": """
        import dask.bag as db

        ---
        bag = db.from_sequence(range(32), npartitions=8).map(score)
        print(bag.sum().compute())
        print(bag.max().compute())
        print(bag.min().compute())
    """,
    "persist_where_made": """
        import dask.array as da

        def block(block_id=None):
            time.sleep(0.2)
            return np.full((10, 10), sum(block_id))

        ---
        x = da.map_blocks(block, chunks=((10,) * 16, (10,)), dtype=int, meta=np.empty((0, 0), int))
        print(int(x.sum()))
        print(float(x.max()))
        print(float(x.min()))
    """,
    "pure_calls": """
        ---
        print(sum(dask.compute(*[dask.delayed(score)(part % 4) for part in range(64)])))
    """,
    "left_out:pre_dispatch": """
        import joblib

        ---
        with joblib.parallel_config(backend="dask"):
            print(sum(joblib.Parallel(n_jobs=-1, pre_dispatch=1)(joblib.delayed(score)(part) for part in range(8))))
    """,
    "left_out:scheduler": """
        ---
        print(sum(dask.compute(*[dask.delayed(score)(part) for part in range(24)], scheduler="sync")))
    """,
    "left_out:backend": """
        import joblib

        ---
        with joblib.parallel_config(backend="dask"):
            calls = [joblib.delayed(score)(part) for part in range(40)]
            print(sum(joblib.Parallel(n_jobs=2, backend="threading")(calls)))
    """,
    "on_the_cluster": """
        import joblib

        ---
        print(sum(joblib.Parallel(n_jobs=-1)(joblib.delayed(score)(part) for part in range(24))))
    """,
    "left_out:wait": """
        def slow(part):
            time.sleep(2.5 if part == 0 else 0.1)
            return part

        ---
        first = client.map(slow, range(64))
        wait(first)
        print(sum(client.gather([client.submit(score, each) for each in first])))
    """,
    "left_out:restart": """
        if __name__ == "__main__":
            with Client(n_workers=1, threads_per_worker=8, dashboard_address=None) as client:
                for round in range(2):
                    print(sum(client.gather(client.map(score, range(8)))))
                    client.restart()
    """,
    "left_out:workers": """
        if __name__ == "__main__":
            with LocalCluster(n_workers=4, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
                with Client(cluster) as client:
                    first, *others = client.scheduler_info()["workers"]
                    print(sum(client.gather(client.map(score, range(8), workers=[first]))))
    """,
    "passed_on": """
        def grow(n):
            time.sleep(0.05)
            return np.ones(n)

        def total(data):
            time.sleep(0.05)
            return float(data[0].sum())

        ---
        for size in range(12):
            data = client.gather(client.map(grow, [2_000_000 + size]))
            print(client.submit(total, data).result())
    """,
    "scatter": """
        def look_up(part, table):
            time.sleep(0.05)
            return table[part]

        ---
        table = {i: str(i) for i in range(240_000)}
        print(len(client.gather([client.submit(look_up, part, table, pure=False) for part in range(24)])))
    """,
    "scatter:before_the_loop": """
        def look_up(part, table):
            return table[part]

        ---
        table = np.arange(10_000_000)
        total = 0
        for part in range(25):
            data = client.scatter(table, broadcast=True)
            total += client.submit(look_up, part, data).result()
        print(total)
    """,
    "delayed_once": """
        @dask.delayed
        def look_up(part, table):
            return table[part]

        ---
        table = {i: str(i) for i in range(100_000)}
        calls = []
        for part in range(12):
            calls.append(look_up(part, table))
        print(len(dask.compute(*calls)))
    """,
    "unhashed": """
        ---
        [data] = client.scatter([{str(i): [i] for i in range(300_000)}])
        print(client.submit(len, data).result())
    """,
    "computed_late": """
        import dask.dataframe as dd
        import pandas as pd

        def read(part):
            return pd.DataFrame({"key": np.zeros(2_000_000, int), "v": float(part)})

        ---
        frame = dd.from_map(read, range(8))
        print(frame.compute().groupby("key").v.mean().to_dict())
    """,
    "meta_given": """
        import dask.dataframe as dd
        import pandas as pd

        def clean(frame):
            time.sleep(0.3)
            return frame

        ---
        frame = dd.from_pandas(pd.DataFrame({"a": range(40)}), npartitions=4)
        for _ in range(3):
            frame = frame.map_partitions(clean)
        print(frame.a.sum().compute())
    """,
    "lazy_call": """
        ---
        print(sum(dask.compute(*[dask.delayed(score(part)) for part in range(12)])))
    """,
    "workers_awaited": """
        if __name__ == "__main__":
            cluster = LocalCluster(n_workers=0, threads_per_worker=4, processes=False, dashboard_address=None)
            client = Client(cluster)
            cluster.scale(2)
            time.sleep(2)
            print(sum(client.gather(client.map(score, range(8)))))
            client.close()
            cluster.close()
    """,
    "worker_client": """
        from dask.distributed import get_client

        def several(begin):
            client = get_client()
            return sum(client.gather(client.map(score, range(begin, begin + 4))))

        ---
        print(sum(client.gather(client.map(several, range(0, 24, 4)))))
    """,
    "partitions:smaller": """
        import dask.bag as db

        ---
        print(db.from_sequence(range(8), npartitions=1).map(score).sum().compute())
    """,
    "partitions:larger": """
        import dask.bag as db

        ---
        print(db.from_sequence(range(1500), npartitions=1500).map(abs).sum().compute())
    """,
    "combined_in_pairs": """
        from functools import reduce

        @dask.delayed
        def add(a, b):
            time.sleep(0.15)
            return a + b

        ---
        print(reduce(add, [dask.delayed(score)(part) for part in range(16)]).compute())
    """,
    "longest_first": """
        def tenths(number):
            time.sleep(number / 10)
            return number

        ---
        numbers = sorted([1] * 40 + [14])
        print(sum(client.gather(client.map(tenths, numbers, pure=False))))
    """,
    "item_lists": """
        ---
        print(sum(client.gather([client.submit(abs, part) for part in range(2500)])))
    """,
    "adapt_minimum": """
        if __name__ == "__main__":
            with LocalCluster(n_workers=0, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
                cluster.adapt(minimum=1, maximum=4)
                with Client(cluster) as client:
                    print(sum(client.gather(client.map(score, range(24)))))
    """,
    "cluster_threads": """
        if __name__ == "__main__":
            with Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as client:
                print(sum(client.gather(client.map(score, range(40)))))
    """,
    "unlocked_store": """
        import dask.array as da

        class Read:
            shape, dtype, ndim, size = (16, 4), np.dtype(float), 2, 4

            def __getitem__(self, index):
                return self

            def __array__(self, dtype=None, copy=None):
                time.sleep(0.1)
                return np.ones((1, 4))

        ---
        target = np.zeros((16, 4))
        da.from_array(Read(), chunks=(1, 4), asarray=False, name="read").store(target, lock=True)
        print(target.sum())
    """,
    "cluster_before_loop": """
        if __name__ == "__main__":
            for round in range(3):
                with Client(n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
                    print(sum(client.gather(client.map(score, range(2)))))
    """,
    "cluster_before_loop:kept": """
        def start():
            return Client(n_workers=1, threads_per_worker=2, dashboard_address=None)

        if __name__ == "__main__":
            for round in range(3):
                client = start()
                print(sum(client.gather(client.map(score, range(2)))))
    """,
    "cached_load": """
        import json

        def table():
            with open("in.json") as file:
                time.sleep(0.2)  # a slow disk
                return json.load(file)

        def look_up(part):
            time.sleep(0.02)
            return table()[part % 7]

        ---
        print(sum(client.gather(client.map(look_up, range(48)))))
    """,
}


def test_each_rewrite_has_a_script_that_tests_it() -> None:
    assert set(SCRIPTS) == {name for code in REWRITES for name, _ in rewrites(code)}


def seconds(recording: running._Recording, other: running._Recording) -> float:
    """Seconds of the recorded clusters, or of the whole script where the other recording has more or fewer clusters."""
    if len(recording.accounts) != len(other.accounts):
        return recording.outcome.seconds
    return sum(trial.metrics.elapsed_s or 0.0 for trial, _ in recording.accounts if trial.metrics)


def script(text: str) -> str:
    above, _, body = textwrap.dedent(text).partition("---\n")
    return START + above + (CLIENT + textwrap.indent(body, " " * 8) if body else "")


@pytest.mark.parametrize("rewrite", SCRIPTS)
def test_a_rewrite_keeps_the_results_and_saves_time(
    rewrite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings: list[running._Recording] = []
    again: list[Callable[[], running._Recording]] = []
    allowed: list[Values] = []
    record = running._Fixing._record

    def recorded(fixing: running._Fixing) -> running._Recording:
        version = fixing.current

        def repeated() -> running._Recording:
            fixing.current = version
            return record(fixing)

        again.append(repeated)
        recordings.append(record(fixing))
        return recordings[-1]

    def proven(*given: object, values: Values, **options: object) -> Proof:
        allowed.append(values)
        return Proof(proven=True, reason="")

    monkeypatch.setattr(running._Fixing, "_record", recorded)
    monkeypatch.setattr(running, "prove", proven)
    monkeypatch.setattr(running, "MOST", 1)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("in.json").write_text("[1, 2, 3, 4, 5, 6, 7]")
    Path("job.py").write_text(script(SCRIPTS[rewrite]))
    found = scalescope.fix("job.py")
    assert [each.rewrite for each in found.proven] == [rewrite], str(found)
    original, patched = recordings
    different, _ = differences([original.outcome], patched.outcome, *allowed)
    assert not different
    before, after = seconds(original, patched), seconds(patched, original)
    for _ in range(2):
        if after < before:
            break
        original, patched = (each() for each in again)
        before, after = min(before, seconds(original, patched)), min(after, seconds(patched, original))
    assert after < before
