"""How fast clusters come and go on Kubernetes, beside plain `dask_kubernetes.operator.KubeCluster`, in turn.

    python tests/benchmarks/bench_kubernetes.py [--times 20]

Seconds until two workers are usable, and until nothing is left after `close`. It takes the cluster that
SCALESCOPE_KUBERNETES_CONTEXT names, or starts the small one of infra/kubernetes; where neither can be had, it says so.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from clusters import table

sys.path.insert(0, str(Path(__file__).parents[2] / "infra/kubernetes"))
NAMESPACE = f"bench-{os.getpid()}"
WORKERS, PATIENCE_S = 2, 20.0
KINDS = "daskclusters,daskworkergroups,deployments,services,pods,secrets"


@contextlib.contextmanager
def kubernetes() -> Iterator[str]:
    import mini

    if context := os.environ.get("SCALESCOPE_KUBERNETES_CONTEXT"):
        subprocess.run(["kubectl", "config", "use-context", context], check=True, capture_output=True)
        yield os.environ.get("SCALESCOPE_KUBERNETES_IMAGE", mini.MiniKubernetes.image)
        return
    if reason := mini.unmet():
        print(f"Not run: no Kubernetes here, {reason}.")
        sys.exit()
    with tempfile.TemporaryDirectory() as folder, mini.MiniKubernetes(folder) as cluster:
        os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
        os.environ["PATH"] += f":{cluster.programs}"
        yield cluster.image


def kubectl(*arguments: str) -> str:
    command = ["kubectl", f"--namespace={NAMESPACE}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def ours(image: str) -> Callable[[], object]:
    from scalescope.clusters.kubernetes.cluster import KubernetesCluster
    from scalescope.clusters.kubernetes.spec import KubernetesSpec

    small = {"cpu": 0.1, "memory_mb": 500, "scheduler_cpu": 0.1, "scheduler_memory_mb": 500}
    cluster = KubernetesCluster(KubernetesSpec(namespace=NAMESPACE, image=image, **small))
    cluster.open()
    cluster.scale(WORKERS, 1)
    with cluster.client() as client:
        assert client.submit(sum, [1, 2]).result(timeout=PATIENCE_S) == 3
    return cluster.close


def theirs(image: str) -> Callable[[], object]:
    """The same with KubeCluster, from outside of Kubernetes; but its default commands are gone from distributed."""
    from dask_kubernetes.operator import KubeCluster, make_cluster_spec

    small = {"requests": {"cpu": "100m", "memory": "500Mi"}, "limits": {"cpu": "1", "memory": "500Mi"}}
    name = f"plain-{time.time_ns() % 10**8}"
    spec = make_cluster_spec(name, image, WORKERS, small, worker_command=["dask", "worker"])
    scheduler = spec["spec"]["scheduler"]["spec"]["containers"][0]
    scheduler["args"] = ["dask", "scheduler", *scheduler["args"][1:]]
    cluster = KubeCluster(
        namespace=NAMESPACE,
        custom_cluster_spec=spec,
        resource_timeout=int(PATIENCE_S),
        port_forward_cluster_ip=True,
        quiet=True,
    )
    try:
        with cluster.get_client() as client:
            client.wait_for_workers(WORKERS, timeout=PATIENCE_S)
            assert client.submit(sum, [1, 2]).result(timeout=PATIENCE_S) == 3
    except BaseException:
        cluster.close()
        raise
    return cluster.close


def once(start: Callable[[str], Callable[[], object]], image: str) -> tuple[float, float] | str:
    """Seconds until the workers are usable, and until nothing is left; or the first words of the error."""
    began = time.monotonic()
    try:
        close = start(image)
        usable = time.monotonic()
        close()
    except Exception as error:  # noqa: BLE001 - counted and shown
        kubectl("delete", KINDS, "--all", "--wait=false")
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    finally:
        closing = time.monotonic()
        while kubectl("get", KINDS, "--output=name") and time.monotonic() - closing < 2 * PATIENCE_S:
            time.sleep(0.1)
    return usable - began, time.monotonic() - usable


def row(name: str, found: list[tuple[float, float] | str]) -> list[object]:
    good = [each for each in found if not isinstance(each, str)]
    cells = [
        f"{statistics.median(column):.1f} ({min(column):.1f} to {max(column):.1f})"
        for column in zip(*good, strict=True)
    ]
    return [name, f"{len(good)} of {len(found)}", *(cells or ["-", "-"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    times = parser.parse_args().times
    found: dict[str, list[tuple[float, float] | str]] = {"Scalescope": [], "KubeCluster": []}
    with kubernetes() as image:
        kubectl("create", "namespace", NAMESPACE)
        try:
            once(ours, image)  # Kubernetes clears up after kinds that are new to it only half a minute later
            for number in range(times):
                for name, start in (("Scalescope", ours), ("KubeCluster", theirs)):
                    found[name].append(once(start, image))
                    print(number, name, found[name][-1], f"load {os.getloadavg()[0]:.1f}", flush=True)
        finally:
            kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    heads = ["", "worked", f"s until {WORKERS} workers are usable", "s until gone"]
    print(table(heads, [row(*each) for each in found.items()]))


if __name__ == "__main__":
    main()
