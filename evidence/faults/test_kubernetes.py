"""Two sweeps at the same time in one namespace of a real Kubernetes; a part of one dies by SIGKILL.

One `scalescope reap` removes everything of the sweep that was hit, and touches nothing else in the namespace. Finished
trials are kept, and the same command completes the sweep.

    SCALESCOPE_FAULT_ROUNDS=20 python -m evidence faults kubernetes -s

shows 20 of them. The seed is printed; SCALESCOPE_FAULT_SEED repeats one.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import faults
from support.kubernetes import SMALL, Kubernetes, until

from evidence.faults.hits import note
from scalescope import leases
from scalescope.clusters import reaping
from scalescope.errors import UsageError
from scalescope.model.trial import Trial, TrialState
from scalescope.store.schema import RunState
from scalescope.store.store import Store, SweepRun

ROUNDS = int(os.environ.get("SCALESCOPE_FAULT_ROUNDS", "1"))
SEED = int(os.environ.get("SCALESCOPE_FAULT_SEED", time.time_ns() % 10**6))
pytestmark = [pytest.mark.timeout(1800), pytest.mark.usefixtures("in_kubernetes")]
PATIENCE_S = 400.0
TRIALS, TRIAL_S, OPENING_S = 3, 1.0, 10.0

FLOW = """
import json, signal, sys
from scalescope.run.runner import Runner
from scalescope.run.sweep import run_sweep

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background commands ignore it
run_sweep(json.loads(sys.argv[1]), Runner(lambda news: print(news.text, flush=True)))
"""
OURS = "app.kubernetes.io/managed-by=scalescope"
PARTS = "daskclusters,daskworkergroups,deployments,services,pods,secrets"
WORKLOAD = """
import os, time

def hold(client, *, items: int = 2, seconds: float = 1.0, gate: str = ""):
    while gate and not os.path.exists(gate):
        time.sleep(0.05)
    client.gather(client.map(time.sleep, [seconds] * items, pure=False))
"""


class Site:
    """A sweep with its own store and logs, in a shared namespace and with a shared ledger."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        folder: Path,
        name: str,
        namespace: str,
        seconds: Sequence[float] = (0.8, 1.0, 1.2),  # of the trials, one for each
        gpus: int = 1,
        gated: int = -1,  # the trial that waits for the file `gate`
    ) -> None:
        self.kubernetes, self.name, self.namespace = kubernetes, name, namespace
        suffixes = (".db", ".log", ".gate", ".py")
        self.store, self.log, self.gate, workload = (folder / f"{name}{suffix}" for suffix in suffixes)
        workload.write_text(WORKLOAD)
        small = {**SMALL, "start_timeout_s": 90, "queue_timeout_s": 60, "gpus": gpus}
        cluster = {"kind": "kubernetes", "image": kubernetes.image, "namespace": namespace, **small}
        gates = [str(self.gate) if number == gated else "" for number in range(len(seconds))]
        points = [{"workers": 2, "seconds": each, "gate": gate} for each, gate in zip(seconds, gates, strict=True)]
        self.sweep = {"workload": f"{workload}:hold", "points": points, "cluster": cluster, "store": str(self.store)}
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            command = [sys.executable, "-c", FLOW, json.dumps(self.sweep)]
            return subprocess.Popen(command, stdout=log, stderr=log)

    def again(self) -> int:
        self.process = self.start()
        return self.process.wait(PATIENCE_S)

    def run(self) -> SweepRun:
        with Store.open(str(self.store)) as store:
            return store.run("latest")

    def trials(self) -> tuple[Trial, ...]:
        try:
            return self.run().trials if self.store.exists() else ()
        except UsageError:
            return ()

    def driver(self) -> psutil.Process | None:
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it has just ended
                if "scalescope.driver" in " ".join(child.cmdline()):
                    return child
        return None

    def label(self) -> str:
        """The owner that its cluster names; empty if there is none."""
        if (driver := self.driver()) is None:
            return ""
        found = self.kubernetes.get("daskclusters", f"--selector={OURS}", namespace=self.namespace)["items"]
        owners = {each["metadata"]["annotations"]["scalescope/owner"]: each["metadata"]["name"] for each in found}
        return next((name for owner, name in owners.items() if f"process {driver.pid} on" in owner), "")


# ------------------------------------------------------------------ faults


def kill_flow(site: Site) -> None:
    site.process.send_signal(signal.SIGKILL)


def kill_driver(site: Site) -> None:
    until(site.driver).send_signal(signal.SIGKILL)


def kill_pod(component: str) -> Callable[[Site], None]:
    def kill(site: Site) -> None:
        label = until(site.label)
        selector = f"--selector=app.kubernetes.io/instance={label},dask.org/component={component}"

        def killed() -> bool:
            pods = site.kubernetes.get("pods", selector, namespace=site.namespace)["items"]
            names = [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]
            if names:
                force_delete(site.kubernetes, names[0], site.namespace)
            return bool(names) or site.process.poll() is not None

        until(killed)

    return kill


def kill_operator(site: Site) -> None:
    [pod] = site.kubernetes.get("pods", namespace="dask-operator")["items"]
    force_delete(site.kubernetes, pod["metadata"]["name"], "dask-operator")


def kill_node(name: str) -> Callable[[Site], None]:
    def kill(site: Site) -> None:
        site.kubernetes.mini.stop_node(name)
        ready = "{.status.conditions[?(@.type=='Ready')].status}"
        until(lambda: site.kubernetes.kubectl("get", "node", name, f"--output=jsonpath={ready}") != "True")
        site.kubernetes.mini.start_node(name)

    return kill


def force_delete(kubernetes: Kubernetes, pod: str, namespace: str) -> None:
    kubernetes.kubectl("delete", "pod", pod, f"--namespace={namespace}", "--grace-period=0", "--force")


@dataclass(frozen=True)
class Fault:
    """Something that dies."""

    act: Callable[[Site], None]
    alone: bool = True  # whether it concerns one sweep
    mini: bool = False  # whether it needs `infra/kubernetes/mini.py`


FAULTS = {
    "flow": Fault(kill_flow),
    "worker's pod": Fault(kill_pod("worker")),
    "driver": Fault(kill_driver),
    "node of the workers": Fault(kill_node("gpu"), alone=False, mini=True),
    "scheduler's pod": Fault(kill_pod("scheduler")),
    "operator": Fault(kill_operator, alone=False),
    "node of the schedulers": Fault(kill_node("cpu"), alone=False, mini=True),
}


# ------------------------------------------------------------------ rounds


@dataclass
class Seen:
    """The outcome of a round."""

    fault: str
    saved: int
    after_s: float
    hit: Site
    other: Site
    statuses: dict[str, list[int]] = field(default_factory=lambda: {"hit": [], "other": []})
    fates: list[str] = field(default_factory=list)
    kept: list[tuple[str, Any]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        trials = {site.name: [each.state.value for each in site.trials()] for site in (self.hit, self.other)}
        when = f"{self.saved} saved, {self.after_s:.1f} s later"
        cells = [self.fault, when, self.statuses, self.fates, f"{len(self.kept)} kept", trials]
        cells += [f"left: {self.left or 'nothing'}", f"{self.seconds:.0f} s"]
        return " | ".join(map(str, cells))


def strangers(kubernetes: Kubernetes, namespace: str) -> list[str]:
    """Objects of others there, with UIDs."""
    kinds = "daskclusters,daskworkergroups,deployments,services,configmaps"
    found = kubernetes.get(kinds, f"--selector={OURS.replace('=', '!=')}", namespace=namespace)["items"]
    return sorted(f"{each['kind']} {each['metadata']['name']} {each['metadata']['uid']}" for each in found)


@pytest.fixture(scope="module")
def shared(kubernetes: Kubernetes) -> Iterator[str]:
    """A namespace in which others have something: a DaskCluster named as ours are, with pods, and more."""
    namespace = f"faults-{time.time_ns() % 10**8}"
    kubernetes.kubectl("create", "namespace", namespace)
    container = {"name": "main", "image": kubernetes.image, "args": ["sleep", "infinity"]}
    pod = {"containers": [container], "terminationGracePeriodSeconds": 0}
    port = {"name": "http-dashboard", "port": 8787}
    service = {"type": "ClusterIP", "selector": {"dask.org/component": "scheduler"}, "ports": [port]}
    spec = {"worker": {"replicas": 1, "spec": pod}, "scheduler": {"spec": pod, "service": service}}
    group = {"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskCluster"}
    alike = [{**group, "metadata": {"name": name}, "spec": spec} for name in (leases.new_label(), "scalescope-0")]
    matching = {"app": "sleeper"}
    template = {"metadata": {"labels": matching}, "spec": pod}
    deployment = {"selector": {"matchLabels": matching}, "template": template}
    kubernetes.apply(
        *alike,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "notes"}, "data": {"a": "b"}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "sleeper"}, "spec": deployment},
        namespace=namespace,
    )
    until(lambda: len(kubernetes.get("deployments", namespace=namespace)["items"]) == 5)
    yield namespace
    kubernetes.kubectl("delete", "namespace", namespace, "--wait=false")


def ours(kubernetes: Kubernetes, namespace: str, but: str = "") -> list[str]:
    """Our objects there, except those of one cluster."""

    def found() -> list[str]:
        selector = f"--selector={OURS}" + (f",app.kubernetes.io/instance!={but}" if but else "")
        return kubernetes.kubectl("get", PARTS, selector, f"--namespace={namespace}", "--output=name").split()

    deadline = time.monotonic() + 10  # within which Kubernetes collects secrets and services
    while (left := found()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return left


def endure(seen: Seen, kubernetes: Kubernetes, namespace: str) -> None:
    hit, other, fault = seen.hit, seen.other, FAULTS[seen.fault]
    until(lambda: hit.label() or hit.process.poll() is not None, PATIENCE_S)
    until(lambda: len(hit.trials()) >= seen.saved or hit.process.poll() is not None, PATIENCE_S)
    time.sleep(seen.after_s)
    assert hit.process.poll() is None, hit.log.read_text()
    fault.act(hit)
    seen.kept = [(each.key, each.started_at) for each in hit.trials() if each.state is TrialState.VALID]
    seen.statuses["hit"].append(hit.process.wait(PATIENCE_S))
    seen.fates += [each.fate.value for each in reaping.reap()]
    if fault.alone:
        seen.left += ours(kubernetes, namespace, but=other.label())
    seen.statuses["other"].append(other.process.wait(PATIENCE_S))
    if not fault.alone:
        seen.fates += [each.fate.value for each in reaping.reap()]
    seen.left += ours(kubernetes, namespace)
    for site in (hit, other):
        while site.run().state is not RunState.COMPLETE and len(seen.statuses[site.name]) < 3:
            seen.statuses[site.name].append(site.again())
    seen.left += ours(kubernetes, namespace)


@pytest.fixture(scope="module")
def plan(kubernetes: Kubernetes) -> list[tuple[str, int, float]]:
    """Faults, each with the number of trials saved before it and the seconds after that; each comes once before any
    comes again."""
    dice = random.Random(SEED)
    possible = [name for name, fault in FAULTS.items() if kubernetes.mini is not None or not fault.mini]
    names = [name for _ in range(ROUNDS) for name in dice.sample(possible, len(possible))]
    moments = ((0, OPENING_S), (1, TRIAL_S), (2, TRIAL_S))
    chosen = [dice.choice(moments) for _ in range(ROUNDS)]
    return [(name, saved, dice.uniform(0, most_s)) for name, (saved, most_s) in zip(names, chosen, strict=False)]


def test_a_sweep_that_is_stopped_while_its_cluster_opens_leaves_nothing(
    shared: str, kubernetes: Kubernetes, tmp_path: Path
) -> None:
    before = strangers(kubernetes, shared)
    site = Site(kubernetes, tmp_path, "stopped", shared)
    try:
        until(lambda: site.label() or site.process.poll() is not None, PATIENCE_S)
        site.process.send_signal(signal.SIGINT)
        assert site.process.wait(30) == -signal.SIGINT, site.log.read_text()
    finally:
        site.process.kill()
        site.process.wait()
    # An operator that is slow makes the cluster's own, empty worker group when the cluster is gone already. Kubernetes
    # collects the rest in its own time.
    until(lambda: {each.partition(".")[0] for each in ours(kubernetes, shared)} <= {"daskworkergroup"})
    reaping.reap()
    assert ours(kubernetes, shared) == []
    assert strangers(kubernetes, shared) == before


AWAY_S = (5, 60, 300)  # for which the API server stands still
SILENT = "Kubernetes did not answer for"  # after it, nodes seem lost for a while: here they lose their pods after 10 s


@pytest.mark.parametrize("seconds", AWAY_S)
def test_an_api_server_that_stands_still(seconds: int, shared: str, kubernetes: Kubernetes, tmp_path: Path) -> None:
    """Four sweeps, each at another stage: its cluster opens, it is in a trial, between two, and about to end."""
    if kubernetes.mini is None:
        pytest.skip("only the API server of infra/kubernetes/mini.py can be stopped")
    nsenter = psutil.Process(kubernetes.mini._pids["control-kube-apiserver"])  # it stops with its child
    [server] = nsenter.children()
    sites: dict[str, Site] = {}

    def start(stage: str, reached: Callable[[Site], object], *seconds: float, gated: int = -1) -> None:
        sites[stage] = site = Site(kubernetes, tmp_path, stage, shared, seconds, gpus=0, gated=gated)
        until(lambda: reached(site) or site.process.poll() is not None, PATIENCE_S)
        assert site.process.poll() is None, site.log.read_text()

    try:
        start("measuring", lambda site: site.log.read_text().count(":hold with") == 1, 8.0, 0.2, gated=0)
        start("scaling", lambda site: site.log.read_text().count(":hold with") == 1, 0.1, 0.2, gated=0)
        start("teardown", lambda site: site.log.read_text().count(":hold with") == 2, 0.1, 0.2, gated=1)
        start("provisioning", Site.label, 0.1, 0.2)
        for site in sites.values():
            site.gate.touch()
        until(lambda: sites["scaling"].trials() and len(sites["teardown"].trials()) == 2)
        server.suspend()
        time.sleep(seconds)
        for process in (server, nsenter):
            process.resume()
        ended = {stage: (site.process.wait(PATIENCE_S), site.trials()) for stage, site in sites.items()}
    finally:
        for process in (server, nsenter):
            process.resume()
        for site in sites.values():
            site.process.kill()
            site.process.wait()
    fates = [each.fate.value for each in reaping.reap()]
    left = tuple(ours(kubernetes, shared))
    for stage, (status, before) in ended.items():
        site = sites[stage]
        log = site.log.read_text()
        said = re.findall(r"^scalescope\.errors\.\w+: (.*)", log, re.M)
        print(f"\n{seconds} s, {stage}: status {status}, {said[-1:]}, {fates}, {[*map(faults.became, before)]}")
        if again := site.run().state is not RunState.COMPLETE:
            assert site.again() == 0, site.log.read_text()
        kept = {each.key: each.started_at for each in site.run().trials}
        seen = faults.Seen(
            ended="status 3" if status else "status 0",  # as of the command
            error=re.sub(r"\d+ s", "N s", said[-1]) if status else "",
            trials=tuple(map(faults.became, before)),
            left=0,
            leaks=left,
            lost=sum(kept.get(each.key) != each.started_at for each in before),
            finished=site.run().state is RunState.COMPLETE and len(kept) == 2,
            again=again,
        )
        note(f"stands still for {seconds} s", "API server (Kubernetes)", stage, seen)
        assert SILENT in seen.error or not status, log
        reasons = [each.reason for each in before if each.state is not TrialState.VALID]
        assert all(re.search(f"^{SILENT}|NodeLost|TaintManager", each) for each in reasons), reasons
    assert "failed" not in fates


@pytest.mark.parametrize("number", range(ROUNDS))
def test_nothing_is_left_and_nobody_else_is_touched(
    number: int, plan: Any, shared: str, kubernetes: Kubernetes, tmp_path: Path
) -> None:
    began = time.monotonic()
    before = strangers(kubernetes, shared)
    hit, other = (Site(kubernetes, tmp_path, name, shared) for name in ("hit", "other"))
    seen = Seen(*plan[number], hit, other)
    try:
        endure(seen, kubernetes, shared)
    finally:
        for site in (hit, other):
            site.process.kill()
            site.process.wait()
        seen.seconds = time.monotonic() - began
        print(f"\n{number} of seed {SEED}: {seen}", flush=True)
    log = f"seed {SEED}: {seen}\n{hit.log.read_text()}"
    assert seen.left == [], log
    assert "failed" not in seen.fates, log
    assert strangers(kubernetes, shared) == before
    trials = {(each.key, each.started_at): each for each in hit.run().trials}
    assert all(trials[each].state is TrialState.VALID for each in seen.kept), log
    for site in (hit, other):
        run = site.run()
        assert run.state is RunState.COMPLETE, log
        assert len(run.trials) == TRIALS
        assert all(each.reason for each in run.trials if each.state is not TrialState.VALID), log
    if FAULTS[seen.fault].alone:
        states = [each.state for each in other.run().trials]
        assert (seen.statuses["other"], states) == ([0], [TrialState.VALID] * TRIALS), other.log.read_text()
        assert len([each for each in trials.values() if each.state is TrialState.INVALID]) <= 1, log
