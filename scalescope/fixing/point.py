"""Runs a workload once, as its user's script would: `python -m ... WORKLOAD VALUES [CLUSTER STORE]`.

It runs on a `LocalCluster`, or as a trial of a sweep on CLUSTER, which is then saved in STORE. The return value of the
workload is printed, so that two runs can be compared.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import dask
from distributed import Client, LocalCluster

from scalescope import workloads
from scalescope.driver.attempt import kept_result
from scalescope.model.sweep import Sweep


def main(arguments: Sequence[str]) -> None:
    reference, values, *cluster = arguments
    point = json.loads(values)
    returned = _swept(reference, point, *cluster) if cluster else _returned(reference, point)
    print(json.dumps(returned, sort_keys=True))


def _returned(reference: str, values: dict[str, Any]) -> Any:
    workload = workloads.load(reference)
    (point,) = Sweep.from_mapping({"workload": reference, "points": [values]}).expand(workload)
    with (
        dask.config.set(dict(point.dask_config)),
        LocalCluster(
            n_workers=point.workers, threads_per_worker=point.threads_per_worker, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        return kept_result(workload.run(client, **point.params))


def _swept(reference: str, values: dict[str, Any], cluster: str, store: str) -> Any:
    from scalescope.fixing.outcome import MAIN
    from scalescope.run.request import check
    from scalescope.run.runner import Runner
    from scalescope.run.sweep import carry_out

    os.environ.pop(MAIN, None)  # unset, so that the driver, whose client gets the values, sets it
    request = check({"workload": reference, "points": [values], "cluster": json.loads(cluster), "store": store})
    with request.open_store() as kept:
        (trial,) = carry_out(request, kept, Runner()).run.trials
    if not trial.counts:
        sys.exit(trial.reason)
    return trial.facts.get("result")


if __name__ == "__main__":
    main(sys.argv[1:])
