"""Scripts as people write them, run unchanged: the first finding is their known cause."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

CLI = "from scalescope.cli.main import main; main()"
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(120)]

SPIN = """
            from dask.distributed import Client
            def spin(n):
                x = 0
                for i in range(12_000_000): x += i * n
                return x
            if __name__ == "__main__":
                with Client(n_workers=1, threads_per_worker=4, dashboard_address=None) as client:
                    print(sum(client.gather(client.map(spin, range(12)))) > 0)
        """
# By name: the accepted codes of the first finding, and the script
SCRIPTS = {
    "computes_in_a_loop": (
        "recomputation",
        """
            import os, tempfile
            import pandas as pd, numpy as np
            import dask.dataframe as dd
            from dask.distributed import Client
            if __name__ == "__main__":
                folder = tempfile.mkdtemp()
                for i in range(8):
                    frame = pd.DataFrame({"k": np.arange(150_000) % 50, "x": np.random.rand(150_000)})
                    frame.to_csv(f"{folder}/{i}.csv", index=False)
                with Client(n_workers=4, threads_per_worker=1, dashboard_address=None):
                    frame = dd.read_csv(f"{folder}/*.csv")
                    for low in range(6):
                        print(len(frame[frame.x > low / 10].groupby("k").x.mean().compute()))
        """,
    ),
    "results_in_a_loop": (
        "results-awaited-in-loop",
        """
            import time
            from dask.distributed import Client
            def score(n):
                time.sleep(0.3); return n
            if __name__ == "__main__":
                with Client(n_workers=4, threads_per_worker=1, dashboard_address=None) as client:
                    print(sum(client.submit(score, n).result() for n in range(16)))
        """,
    ),
    "chunks_of_one_step": (
        "tiny-tasks",
        """
            import dask.array as da
            from dask.distributed import Client
            if __name__ == "__main__":
                with Client(n_workers=2, threads_per_worker=1, dashboard_address=None):
                    x = da.random.random((120, 100, 200), chunks=(1, 100, 200))
                    print(float((x - x.mean(axis=0)).std().compute()) > 0)
        """,
    ),
    "straggler": (
        "straggler",
        """
            import time, dask
            from dask.distributed import Client
            @dask.delayed
            def load(n):
                time.sleep(6 if n == 7 else 0.5); return n
            if __name__ == "__main__":
                with Client(n_workers=4, threads_per_worker=1, dashboard_address=None):
                    print(sum(dask.compute(*[load(n) for n in range(16)])))
        """,
    ),
    "large_chunks": (
        "too-few-partitions",
        """
            import dask.array as da, numpy as np, time
            from dask.distributed import Client
            def slow(block):
                time.sleep(3); return block
            if __name__ == "__main__":
                with Client(n_workers=4, threads_per_worker=1, dashboard_address=None):
                    x = da.ones((2000, 1000), chunks=(1000, 1000))
                    print(x.map_blocks(slow, meta=np.ones((0, 0))).sum().compute())
        """,
    ),
    "one_partition": (
        "too-few-partitions",
        """
            import tempfile, time
            import pandas as pd, dask.dataframe as dd
            from dask.distributed import Client
            def slow(part):
                time.sleep(3); return part
            if __name__ == "__main__":
                path = tempfile.mktemp(suffix=".csv")
                pd.DataFrame({"k": range(200_000)}).to_csv(path, index=False)
                with Client(n_workers=4, threads_per_worker=1, dashboard_address=None):
                    print(dd.read_csv(path, blocksize=None).map_partitions(slow, meta={"k": int}).k.sum().compute())
        """,
    ),
    "gathers_arrays": (
        "client-waits",
        """
            import numpy as np
            from dask.distributed import Client
            def make(n):
                return np.random.rand(3_200_000)
            if __name__ == "__main__":
                with Client(n_workers=4, threads_per_worker=1, dashboard_address=None) as client:
                    futures = client.map(make, range(16))
                    print(sum(f.result().mean() for f in futures))
        """,
    ),
    "tiny_tasks": (
        "tiny-tasks",
        """
            import dask
            from dask.distributed import Client
            @dask.delayed
            def inc(n):
                return n + 1
            @dask.delayed
            def total(ns):
                return sum(ns)
            if __name__ == "__main__":
                with Client(n_workers=4, threads_per_worker=1, dashboard_address=None):
                    print(total([inc(n) for n in range(8000)]).compute())
        """,
    ),
    "threads_of_one_process": ("gil-bound", SPIN),
    "threads_of_this_process": ("gil-bound", SPIN.replace("Client(", "Client(processes=False, ", 1)),
    "out_of_memory": (
        "worker-killing-task",
        """
            import numpy as np
            from dask.distributed import Client
            def big(n):
                return float(np.ones(90_000_000).sum() + n)
            if __name__ == "__main__":
                with Client(n_workers=2, threads_per_worker=1, memory_limit="400MB", dashboard_address=None) as client:
                    print(client.gather(client.map(big, range(4))))
        """,
    ),
    "raises": (
        "failed-trials",
        """
            import time
            from dask.distributed import Client
            def parse(row):
                time.sleep(0.3)
                return float(row["price"])
            if __name__ == "__main__":
                with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
                    rows = [{"price": str(n)} for n in range(10)] + [{"price": "n/a"}]
                    print(client.gather(client.map(parse, rows)))
        """,
    ),
    "held_lock": (
        "waiting-tasks",
        """
            from dask.distributed import Client, Lock
            def work(n):
                with Lock("db"):
                    return n
            if __name__ == "__main__":
                with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
                    Lock("db").acquire()
                    print(client.gather(client.map(work, range(2))))
        """,
    ),
    "awaits_in_tasks": (
        "nested-client",
        """
            from dask.distributed import Client, get_client
            def child(n):
                return n
            def parent(n):
                client = Client(get_client().scheduler.address, set_as_default=False)
                return client.submit(child, n, pure=False).result()
            if __name__ == "__main__":
                with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
                    print(client.gather(client.map(parent, range(4))))
        """,
    ),
    "large_argument": (
        "large-graph serialisation-bound",
        """
            import numpy as np, pandas as pd
            from dask.distributed import Client
            def use(frame, n):
                return len(frame) + n
            if __name__ == "__main__":
                frame = pd.DataFrame({"a": np.random.rand(4_000_000)})
                with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
                    print(sum(client.gather([client.submit(use, frame, n) for n in range(40)])))
        """,
    ),
    "cluster_for_each_file": (
        "cluster-in-each-round",
        """
            from dask.distributed import Client
            def rows(n):
                with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
                    return sum(client.gather(client.map(abs, range(n))))
            if __name__ == "__main__":
                print([rows(n) for n in (10, 20, 30)])
        """,
    ),
    "cluster_for_each_file_left_open": (
        "cluster-in-each-round",
        """
            from dask.distributed import Client
            def rows(n):
                client = Client(n_workers=1, threads_per_worker=1, dashboard_address=None)
                return sum(client.gather(client.map(abs, range(n))))
            if __name__ == "__main__":
                print([rows(n) for n in (10, 20, 30)])
        """,
    ),
    "scheduler_of_dask": (
        "local-scheduler",
        """
            import time
            import dask.bag as db
            from dask.distributed import Client
            def wait(n):
                time.sleep(0.2)
                return n
            if __name__ == "__main__":
                with Client(n_workers=2, threads_per_worker=1, dashboard_address=None):
                    print(db.from_sequence(range(12)).map(wait).sum().compute(scheduler="threads"))
        """,
    ),
    "columns_by_computing": (
        "meta-computed",
        """
            import time
            import dask, dask.dataframe as dd, pandas as pd
            from dask.distributed import Client
            @dask.delayed
            def load(n):
                time.sleep(1)
                return pd.DataFrame({"n": range(n)})
            if __name__ == "__main__":
                with Client(n_workers=2, threads_per_worker=2, dashboard_address=None):
                    print(dd.from_delayed([load(n) for n in range(1, 5)]).n.sum().compute())
        """,
    ),
    "row_by_row": (
        "task-overhead",
        """
            import numpy as np, pandas as pd
            import dask.dataframe as dd
            from dask.distributed import Client
            def price(row):
                return row["a"] * 2 if row["a"] > 0.5 else row["a"]
            if __name__ == "__main__":
                with Client(n_workers=2, threads_per_worker=1, dashboard_address=None):
                    frame = dd.from_pandas(pd.DataFrame({"a": np.random.rand(600_000)}), npartitions=6)
                    print(frame.apply(price, axis=1, meta=("p", float)).sum().compute())
        """,
    ),
}
HANGING = {"held_lock", "awaits_in_tasks"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_verdict_on_a_script_names_its_known_cause(name: str, tmp_path: Path) -> None:
    code, text = SCRIPTS[name]
    (tmp_path / "theirs.py").write_text(textwrap.dedent(text))
    command = [sys.executable, "-c", CLI, "run", "--json", "--no-save", "theirs.py"]
    environ = {**os.environ, "COLUMNS": "200"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=environ, text=True, **pipes) as process:
        if name in HANGING:
            assert process.stderr is not None
            assert any("NOTHING MOVES" in line for line in process.stderr)
            assert any("theirs.py:" in line for line in process.stderr)  # named although sent by value
            process.send_signal(signal.SIGINT)
        shown, said = process.communicate()
    first = {cluster["verdict"]["findings"][0]["code"] for cluster in json.loads(shown)["clusters"]}
    right = {*code.split()}
    if code == "gil-bound":  # without an idle core, threads waiting for the lock look like threads waiting for a core
        right.add("host-overloaded")
    assert first & right, said
