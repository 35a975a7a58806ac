"""infra/kubernetes/mini.py starts a real Kubernetes and leaves nothing of it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.kubernetes import INFRA, Kubernetes, until

import scalescope

GPU = "nvidia.com/gpu"
TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}


@pytest.fixture
def mini(kubernetes: Kubernetes) -> Any:
    """The session's cluster; the test is skipped if mini.py did not start it."""
    if kubernetes.mini is None:
        pytest.skip("the cluster is not one of infra/kubernetes/mini.py")
    return kubernetes.mini


# Retries: kube-proxy of a node that has just started learns of the service seconds later.
FETCH = """
import time, urllib.request
for _ in range(40):
    try:
        print(urllib.request.urlopen("http://{}", timeout=20).status)
        break
    except OSError:
        time.sleep(0.5)
"""


def pod(name: str, image: str, *command: str, gpu: bool = False, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": image, "args": list(command)}
    if gpu:
        container["resources"] = {"limits": {GPU: "1"}}
        spec |= {"tolerations": [TOLERATION]}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def succeed(kubernetes: Kubernetes, namespace: str, *pods: dict[str, Any]) -> list[str]:
    """Run pods in parallel until they end; returns the output of each."""
    kubernetes.apply(*pods, namespace=namespace)
    names = [each["metadata"]["name"] for each in pods]

    def ended() -> bool:
        phases = [kubernetes.get("pod", name, namespace=namespace)["status"]["phase"] for name in names]
        return {"Succeeded", "Failed"}.issuperset(phases)

    until(ended)
    written = [kubernetes.kubectl("logs", name, f"--namespace={namespace}") for name in names]
    for name, text in zip(names, written, strict=True):
        assert kubernetes.get("pod", name, namespace=namespace)["status"]["phase"] == "Succeeded", text
    return written


# ------------------------------------------------------------------ what it is


def test_both_nodes_are_ready_and_one_has_gpus(mini: Any, kubernetes: Kubernetes) -> None:
    nodes = {each["metadata"]["name"]: each for each in kubernetes.get("nodes")["items"]}
    assert set(nodes) == {"cpu", "gpu"}
    for node in nodes.values():
        assert {"type": "Ready", "status": "True"}.items() <= node["status"]["conditions"][-1].items()
    assert nodes["gpu"]["status"]["allocatable"][GPU] == "4"
    assert nodes["gpu"]["metadata"]["labels"][f"{GPU}.product"] == "NVIDIA-H200"
    assert {"key": GPU, "value": "present", "effect": "NoSchedule"} in nodes["gpu"]["spec"]["taints"]
    assert GPU not in nodes["cpu"]["status"]["allocatable"]


@pytest.mark.thorough
def test_a_pod_runs_on_each_node_as_an_ordinary_user(mini: Any, kubernetes: Kubernetes, namespace: str) -> None:
    command = ["sh", "-ec", "id -u; python -c 'import distributed, prefect, scalescope'; scalescope --version"]
    pods = [pod(name, kubernetes.image, *command, gpu=name == "gpu") for name in ("cpu", "gpu")]
    for written in succeed(kubernetes, namespace, *pods):
        assert written == f"1000\n{scalescope.__version__}\n"
    assert [kubernetes.get("pod", n, namespace=namespace)["spec"]["nodeName"] for n in ("cpu", "gpu")] == ["cpu", "gpu"]


@pytest.mark.thorough
def test_a_service_is_reached_by_name_from_both_nodes_and_by_address_from_here(
    mini: Any, kubernetes: Kubernetes, namespace: str
) -> None:
    port = 8765
    ports = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": port}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": ports}
    web = pod("web", kubernetes.image, "python", "-m", "http.server", str(port), gpu=True)
    kubernetes.apply(web, service, namespace=namespace)
    kubernetes.kubectl("wait", "--for=condition=Ready", f"--namespace={namespace}", "--timeout=60s", "pod/web")
    command = ["python", "-c", FETCH.format("web")]
    pods = [pod(name, kubernetes.image, *command, gpu=name == "gpu") for name in ("cpu", "gpu")]
    assert succeed(kubernetes, namespace, *pods) == ["200\n", "200\n"]
    address = kubernetes.get("service", "web", namespace=namespace)["spec"]["clusterIP"]
    done = subprocess.run([sys.executable, "-c", FETCH.format(address)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "200\n", done.stderr


@pytest.mark.thorough
def test_a_lost_node_is_noticed_and_comes_back_with_its_gpus(mini: Any, kubernetes: Kubernetes, namespace: str) -> None:
    kubernetes.apply(pod("victim", kubernetes.image, "sleep", "600", gpu=True), namespace=namespace)
    wait = ("wait", "--timeout=60s")
    kubernetes.kubectl(*wait, "--for=condition=Ready", f"--namespace={namespace}", "pod/victim")
    mini.stop_node("gpu")
    kubernetes.kubectl(*wait, "--for=condition=Ready=Unknown", "node/gpu")
    assert kubernetes.get("pod", "victim", namespace=namespace)["status"]["phase"] == "Running"  # its node is lost
    kubernetes.kubectl(*wait, "--for=delete", f"--namespace={namespace}", "pod/victim")
    mini.start_node("gpu")
    assert succeed(kubernetes, namespace, pod("next", kubernetes.image, "echo", "back", gpu=True)) == ["back\n"]


# ------------------------------------------------------------------ what stays


def left_of(folder: Path, network: int) -> dict[str, set[str]]:
    interfaces = {each.name for each in Path("/sys/class/net").iterdir()}
    rules, routes = (
        subprocess.run(command, check=True, capture_output=True, text=True, env={"PATH": "/usr/sbin:/sbin:/usr/bin"})
        for command in (["iptables-save"], ["ip", "route"])
    )
    processes = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command, cgroups = (entry / "cmdline").read_text(), (entry / "cgroup").read_text()
        except OSError:  # gone
            continue
        if str(folder) in command or f"/kube{network}/" in cgroups:
            processes.add(command.replace("\0", " "))
    return {
        "interfaces": {name for name in interfaces if name == f"kube{network}" or not name.startswith("kube")},
        "routes": {line for line in routes.stdout.splitlines() if f"10.{network}." in line},
        "rules": {line for line in rules.stdout.splitlines() if line.startswith("-")},
        "mounts": {line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line},
        "namespaces": set(os.listdir("/run/netns")) if Path("/run/netns").exists() else set(),
        "cgroups": {str(path) for path in Path("/sys/fs/cgroup").glob(f"**/kube{network}")},
        "forwards": {Path("/proc/sys/net/ipv4/ip_forward").read_text()},
        "processes": processes,
        "data": {path.name for path in folder.iterdir()} - {"keeper", "kubeconfig", "log"}
        if folder.exists()
        else set(),
    }


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["down", "SIGKILL"])
def test_no_process_or_network_of_the_small_kubernetes_is_left(
    end: str, mini_kubernetes: ModuleType, missing: Any, tmp_path: Path
) -> None:
    if reason := mini_kubernetes.unmet():
        missing("kubernetes", f"no Kubernetes on this machine: {reason}")
    folder, network = tmp_path / "cluster", random.randrange(120, 200)
    before = left_of(folder, network)
    program, where = [sys.executable, str(INFRA / "mini.py")], f"--folder={folder}"
    owner = subprocess.Popen(
        [*program, "up", "--bare", where, f"--network={network}"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == f"export KUBECONFIG={folder}/kubeconfig\n"
        kubectl = str(mini_kubernetes.programs() / "kubectl")
        cluster = Kubernetes(folder / "kubeconfig", mini_kubernetes.MiniKubernetes.image, kubectl)
        until(lambda: "default" in cluster.kubectl("get", "serviceaccounts", "--output=name"))
        cluster.apply(pod("sleeper", cluster.image, "sleep", "600"), namespace="default")
        cluster.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod/sleeper")
        assert (
            "sleeper" in subprocess.run([*program, "status", where], capture_output=True, text=True, timeout=60).stdout
        )
        alive = left_of(folder, network)
        assert all(alive[each] > before[each] for each in ("interfaces", "routes", "cgroups", "processes", "data"))
        if end == "down":
            subprocess.run([*program, "down", where], check=True, timeout=60)
            assert owner.wait(timeout=10) == 0
    finally:
        owner.kill()
        owner.wait()
    until(lambda: mini_kubernetes.keeper_of(folder) is None)
    assert left_of(folder, network) == before
    status = subprocess.run([*program, "status", where], capture_output=True, text=True, timeout=60)
    assert (status.returncode, status.stderr) == (1, f"no cluster is running in {folder}\n")


# ------------------------------------------------------------------ what it says


def test_a_missing_program_is_named_with_the_package_to_install(
    mini_kubernetes: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mini_kubernetes.os, "geteuid", lambda: 0)
    monkeypatch.setitem(mini_kubernetes.NEEDED, "no-such-program", "no-such-package")
    assert mini_kubernetes.unmet().endswith("no-such-package)")
    assert "apt-get install" in mini_kubernetes.unmet()
    monkeypatch.setattr(mini_kubernetes.os, "geteuid", lambda: 1000)
    assert "sudo" in mini_kubernetes.unmet()


def test_a_missing_folder_of_programs_is_named(
    mini_kubernetes: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable, says in (("SCALESCOPE_KUBERNETES", "no file"), ("KUBEBUILDER_ASSETS", "kubelet")):
        monkeypatch.delenv("SCALESCOPE_KUBERNETES", raising=False)
        monkeypatch.setenv(variable, str(tmp_path / "nothing"))
        with pytest.raises(mini_kubernetes.MiniClusterError, match=says):
            mini_kubernetes.programs()
    monkeypatch.delenv("KUBEBUILDER_ASSETS")
    with pytest.raises(mini_kubernetes.MiniClusterError, match="SCALESCOPE_KUBERNETES"):
        mini_kubernetes.programs()
