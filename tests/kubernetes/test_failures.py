"""Every way in which a cluster fails on a real Kubernetes: the category of the error, and how soon it comes.

Rows run side by side, each in a namespace of its own; those of a group share a cluster or a node. `-k gpu` and
`-k "quota or policy"` choose rows. With

    SCALESCOPE_KUBERNETES_FAILURES=docs/kubernetes-failures.md pytest tests/kubernetes/test_failures.py

all rows run, and that page is written. Otherwise rows that are detected like others do not run.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
import yaml
from support.failures import Table
from support.kubernetes import Kubernetes, until
from support.kubernetes_failures import GROUPS, ROWS, FailureRow, FailureSite

from scalescope import leases
from scalescope.clusters.kubernetes.manifests import INSTANCE
from scalescope.errors import ClusterError, ScalescopeError
from scalescope.model.sweep import Point
from scalescope.workloads import load

VARIABLE = "SCALESCOPE_KUBERNETES_FAILURES"
pytestmark = pytest.mark.timeout(1800)
LIMIT_S = 10.0  # seconds from when Kubernetes can know of the failure until the error
PATIENCE_S = 90.0
LANES = 1 if VARIABLE in os.environ else 5  # rows that run in parallel; with fewer rows their seconds are more accurate
CHOSEN = {name: row for name, row in ROWS.items() if VARIABLE in os.environ or not row.seldom}


@dataclass
class Seen:
    """The outcome of a row."""

    error: BaseException | str
    seconds: float
    category: str = ""


def _opening(site: FailureSite, row: FailureRow) -> Seen:
    row.prepare(site)
    cluster, began = site.build(**row.spec), time.monotonic()
    try:
        cluster.open()
    except ClusterError as error:
        return Seen(error, time.monotonic() - began, error.category)
    finally:
        cluster.close()
        row.restore(site)
    raise AssertionError("the cluster opened")


def _scaling(site: FailureSite, row: FailureRow) -> Seen:
    cluster = site.cluster
    assert cluster is not None
    row.prepare(site)
    began = time.monotonic()
    try:
        cluster.scale(row.workers, 1)
    except ClusterError as error:
        return Seen(error, time.monotonic() - began, error.category)
    finally:
        cluster.report = lambda words: None
        row.restore(site)
    raise AssertionError("all workers came")


def _trial(site: FailureSite, row: FailureRow) -> Seen:
    cluster = site.cluster
    assert cluster is not None
    row.prepare(site)
    cluster.scale(1, 1)
    point = Point(workers=1, threads_per_worker=1, params={}, dask_config={})
    with cluster.client() as client, cluster.running(load("futures-map"), point):
        waited_for = client.submit(row.task, pure=False)
        began = time.monotonic()
        try:
            if row.act:
                row.act(site)
            with suppress(CancelledError):
                waited_for.result(timeout=PATIENCE_S)
            seconds = time.monotonic() - began
        finally:
            row.restore(site)
    return Seen(cluster.losses(), seconds, cluster.facts().get("lost", ""))


def _with_a_cluster(site: FailureSite, rows: tuple[FailureRow, ...]) -> Iterator[tuple[str, Seen]]:
    """Run rows on one cluster, one after the other."""
    site.cluster = cluster = site.build()
    spec = cluster.spec
    cluster.open()
    try:
        for row in rows:
            cluster.spec = replace(spec, **row.spec)
            yield row.done, _seen(_scaling if row.workers else _trial, site, row)
    finally:
        cluster.close()


def _seen(way: Callable[[FailureSite, FailureRow], Seen], site: FailureSite, row: FailureRow) -> Seen:
    try:
        return way(site, row)
    except Exception as error:  # noqa: BLE001 - the test of the row raises it
        return Seen(error, 0.0)


def _kubeconfig(kubernetes: Kubernetes, path: Path, token: str, silent: int) -> None:
    """The administrator's, and contexts that differ from it in the user or the server."""
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    [cluster], [context] = config["clusters"], config["contexts"]
    for name, server in (("closed", "https://127.0.0.1:1"), ("silent", f"https://127.0.0.1:{silent}")):
        config["clusters"].append({"name": name, "cluster": {"server": server}})
        config["contexts"].append({"name": name, "context": {**context["context"], "cluster": name}})
    for name, known in (("expired", "expired"), ("nobody", token)):
        config["users"].append({"name": name, "user": {"token": known}})
        config["contexts"].append({"name": name, "context": {"cluster": cluster["name"], "user": name}})
    path.write_text(yaml.safe_dump(config))


@pytest.fixture(scope="module")
def new_site(
    kubernetes: Kubernetes, collected: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], FailureSite]]:
    serial, numbers, names = time.time_ns() % 10**8, count(), list[str]()

    def new_site() -> FailureSite:
        names.append(name := f"fails-{serial}-{next(numbers)}")
        kubernetes.kubectl("create", "namespace", name)
        until(lambda: "default" in kubernetes.kubectl("get", "serviceaccounts", f"--namespace={name}", "-o", "name"))
        return FailureSite(kubernetes, name)

    nobody = new_site()
    token = nobody.kubectl("create", "token", "default").strip()
    folder = tmp_path_factory.mktemp("kubernetes")
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as silent:
        _kubeconfig(kubernetes, folder / "kubeconfig", token, silent.getsockname()[1])
        patch.setenv("KUBECONFIG", str(folder / "kubeconfig"))
        patch.setenv(leases.VARIABLE, str(folder / "leases"))
        yield new_site
    kubernetes.kubectl("delete", "namespace", "--wait=false", "--ignore-not-found", *names)


def _busy() -> float:
    """Factor by which this machine may be slower because of other tests."""
    return 3.0 + os.getloadavg()[0] / (os.cpu_count() or 1)


def _anonymous(text: str) -> str:
    """Replace names of one run, and cut the first lines of logs."""
    text = re.sub(r"scalescope-[0-9a-f]{12}", "scalescope-0123456789ab", text)
    text = re.sub(r"fails-\d+-\d+", "team", text)
    text = re.sub(r"\b10\.\d+\.(\d+\.\d+)\b", r"10.0.\1", text)
    text = re.sub(r"(?:    \| .*\n)+((?:    \| .*\n){4})", r"    | ...\n\1", text)
    text = re.sub(r"(-worker-)[0-9a-f]{10}", r"\g<1>0123456789", text)
    return re.sub(r"-[0-9a-f]{8,10}-[0-9a-z]{5}\b", "-0123456789-abcde", text)


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    table = Table(
        "<!-- written by tests/kubernetes/test_failures.py -->", "of these, Kubernetes' own or configured", _anonymous
    )
    yield table
    if (path := os.environ.get(VARIABLE)) and len(table.rows) > len(ROWS):
        table.write(Path(path))


@pytest.fixture(scope="module")
def seen(
    request: pytest.FixtureRequest, kubernetes: Kubernetes, new_site: Callable[[], FailureSite], table: Table
) -> dict[str, Seen]:
    """The outcomes of the chosen rows, run side by side."""
    mine = [item for item in request.session.items if item.path == request.path]
    chosen = {name for name in CHOSEN if any(f"[{name}]" in item.name for item in mine)}
    rows = {group: tuple(ROWS[name] for name in ROWS if name in chosen and name.startswith(group)) for group in GROUPS}
    if kubernetes.mini is None:
        rows["gpu"] = ()
    alone, last = rows.pop("opening"), rows.pop("operator")
    groups = [group for group in (rows["gpu"], rows["trial"], rows["workers"]) if group]
    with ThreadPoolExecutor(len(GROUPS)) as pool:
        shared = [pool.submit(lambda group: dict(_with_a_cluster(new_site(), group)), group) for group in groups]
    with ThreadPoolExecutor(LANES) as pool:
        opened = pool.map(lambda row: _seen(_opening, new_site(), row), alone)
    found = {row.done: told for row, told in zip(alone, opened, strict=True)}
    for future in shared:
        found |= future.result()
    for row in last:
        found |= (
            dict(_with_a_cluster(new_site(), (row,))) if row.workers else {row.done: _seen(_opening, new_site(), row)}
        )
    for row in ROWS.values():
        if told := found.get(row.done):
            table.add(row.done, told.error, told.seconds, row.own_s or None, told.category)
    return found


@pytest.mark.parametrize("name", CHOSEN)
def test_each_failure_has_its_category_place_and_next_step_in_time(seen: dict[str, Seen], name: str) -> None:
    row = ROWS[name]
    if row.done not in seen:
        pytest.skip("only a node of infra/kubernetes/mini.py can be taken away")
    found = seen[row.done]
    if not isinstance(found.error, str | ScalescopeError):
        raise found.error
    assert found.category == row.category, found.error
    for part in ("where: ", "next: "):
        assert part in str(found.error)
    assert found.seconds < _busy() * LIMIT_S + row.own_s


def test_no_object_of_a_failed_cluster_is_left(seen: dict[str, Seen], kubernetes: Kubernetes) -> None:
    kinds = "daskclusters,daskworkergroups,deployments,services,pods,secrets"
    ours = ("get", kinds, "-A", "-l", INSTANCE, "-o", "jsonpath={.items[*].metadata.namespace}")
    until(lambda: "fails-" not in kubernetes.kubectl(*ours))
    assert leases.read_all() == ([], [])


# ------------------------------------------------------------------ what is no row


@pytest.mark.thorough
def test_a_cluster_under_restricted_pod_security_waits_for_a_late_node(
    new_site: Callable[[], FailureSite], kubernetes: Kubernetes
) -> None:
    """Our pods keep the standard; no node fits until one gets the label, as with autoscaling."""
    site, said = new_site(), list[str]()
    kubernetes.kubectl("label", "namespace", site.namespace, "pod-security.kubernetes.io/enforce=restricted")
    cluster = site.build(node_selector=("test/pool=late",), autoscale_timeout_s=120.0)

    def label(words: str) -> None:
        said.append(words)
        if "Unschedulable" in words:
            kubernetes.kubectl("label", "nodes", "cpu", "test/pool=late", "--overwrite")

    try:
        cluster.open()
        cluster.report = label
        cluster.scale(1, 1)
    finally:
        kubernetes.kubectl("label", "nodes", "cpu", "test/pool-")
        cluster.close()
    assert any("120 s (cluster.autoscale_timeout_s)" in words for words in said)


@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"it takes 20 s; {VARIABLE} names a file to write")
def test_an_absent_uninstalled_or_doubled_operator_has_its_own_category(
    new_site: Callable[[], FailureSite], kubernetes: Kubernetes, table: Table
) -> None:
    site, crds = new_site(), "daskclusters daskworkergroups daskjobs daskautoscalers"

    def serve(served: bool) -> None:
        patch = json.dumps([{"op": "replace", "path": "/spec/versions/0/served", "value": served}])
        names = [f"{each}.kubernetes.dask.org" for each in crds.split()]
        kubernetes.kubectl("patch", "crds", *names, "--type=json", "-p", patch)

    def scale(number: int) -> None:
        operator = ("-n", "dask-operator", "deployment", "--all")
        kubernetes.kubectl("scale", *operator, f"--replicas={number}")
        kubernetes.kubectl("rollout", "status", *operator[:3], "--timeout=60s")

    scale(0)
    try:
        away = _seen(_opening, site, FailureRow("operator is away", "operator-silent"))
        serve(False)
        until(lambda: "kubernetes.dask.org/v1" not in kubernetes.kubectl("api-versions").split())
        none = _seen(_opening, site, FailureRow("operator was never installed", "no-operator"))
    finally:
        serve(True)
        scale(2)
    try:
        two = _seen(_opening, site, FailureRow("operator has two pods", "two-operators"))
    finally:
        scale(1)
    table.add("operator is away", away.error, away.seconds)
    table.add("operator was never installed", none.error, none.seconds)
    table.add("operator has two pods", two.error, two.seconds)
    assert (away.category, none.category, two.category) == ("operator-silent", "no-operator", "two-operators")
    assert "0 of 0 pods" in str(away.error)
    assert away.seconds < _busy() * LIMIT_S
    assert max(none.seconds, two.seconds) < _busy() * LIMIT_S
