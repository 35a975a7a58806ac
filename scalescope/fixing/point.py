"""Runs a workload once, on workers of this machine, as a script of its user would: `python -m ... WORKLOAD VALUES`.

What it returns is printed, so that two runs can be compared.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import dask
from distributed import Client, LocalCluster

from scalescope import workloads
from scalescope.driver.attempt import kept_result
from scalescope.model.sweep import Sweep


def main(arguments: Sequence[str]) -> None:
    reference, values = arguments
    sweep = Sweep.from_mapping({"workload": reference, "points": [json.loads(values)]})
    workload = workloads.load(reference)
    (point,) = sweep.expand(workload)
    with (
        dask.config.set(dict(point.dask_config)),
        LocalCluster(
            n_workers=point.workers, threads_per_worker=point.threads_per_worker, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        print(json.dumps(kept_result(workload.run(client, **point.params)), sort_keys=True))


if __name__ == "__main__":
    main(sys.argv[1:])
