"""Dashboard and alerts use only metrics that the installed release of Dask exports."""

from __future__ import annotations

import subprocess
import sys

from support import monitoring

EXPORTED = """
import urllib.request, distributed
options = {"processes": False, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "protocol": "tcp"}
with distributed.LocalCluster(n_workers=1, **options) as cluster:
    for server in [cluster.scheduler, *cluster.workers.values()]:
        address = f"http://127.0.0.1:{server.http_server.port}/metrics"
        print(urllib.request.urlopen(address, timeout=20).read().decode())
"""


def test_every_metric_of_the_dashboard_is_exported_by_dask() -> None:
    """Runs in another process, since a process exports the metrics of its first scheduler only."""
    assert len(used := monitoring.used()) > 15
    done = subprocess.run([sys.executable, "-c", EXPORTED], check=True, capture_output=True, text=True, timeout=120)
    assert used - monitoring.exported(done.stdout) == set()


def test_panels_do_not_overlap_and_query_one_cluster() -> None:
    import json

    panels = json.loads((monitoring.FOLDER / "dashboard.json").read_text())["panels"]
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels]
    assert len(set(places)) == len(panels) == len({each["id"] for each in panels})
    for panel in panels:
        for target in panel["targets"]:
            assert "$cluster" in target["expr"], panel["title"]
            assert 'namespace=~"$namespace"' in target["expr"], panel["title"]
