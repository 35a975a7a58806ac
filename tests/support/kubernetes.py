"""A real Kubernetes for the whole session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from scalescope import leases
from support.groups import until_the_last
from support.waiting import wait_for

INFRA = Path(__file__).parents[2] / "infra/kubernetes"
ROLES = str(INFRA / "team/roles.yaml")
CONTEXT = "SCALESCOPE_KUBERNETES_CONTEXT"  # of a cluster that is there: kind, k3d, GKE
ENVIRON = dict(os.environ)  # with the user's KUBECONFIG, which tests do not see
SMALL = {"cpu": 0.05, "memory_mb": 400, "scheduler_cpu": 0.05, "scheduler_memory_mb": 400}  # of a cluster
IMAGE = "SCALESCOPE_KUBERNETES_IMAGE"  # the image of infra/kubernetes/Dockerfile on it


@dataclass(frozen=True)
class Kubernetes:
    """A cluster with the operator of dask-kubernetes."""

    kubeconfig: Path  # of an administrator
    image: str  # Scalescope's
    program: str  # kubectl
    mini: Any = None  # the cluster of infra/kubernetes/mini.py, if it is that

    @property
    def environment(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.kubeconfig)}

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        command = [self.program, f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)
        assert not (check and done.returncode), f"{' '.join(command)}: {done.stderr}"
        return done.stdout if check else done.stdout + done.stderr

    def apply(self, *objects: dict[str, Any], namespace: str) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin=json.dumps(items))

    def get(self, *what: str, namespace: str = "default") -> dict[str, Any]:
        return dict(json.loads(self.kubectl("get", *what, f"--namespace={namespace}", "--output=json")))


def until(found: Callable[[], Any], seconds: float = 60.0) -> Any:
    return wait_for(found, "", seconds, look_s=0.3)  # kubectl takes a tenth of a second of CPU


def with_token(kubernetes: Kubernetes, token: str, folder: Path) -> str:
    """A kubeconfig that differs from the administrator's in this."""
    config = yaml.safe_load(Path(kubernetes.environment["KUBECONFIG"]).read_text())
    config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.fixture(scope="session")
def mini_kubernetes() -> ModuleType:
    """The module infra/kubernetes/mini.py; infra/ is no package, for what lies there is to be started by hand."""
    sys.path.insert(0, str(INFRA))
    try:
        import mini
    finally:
        sys.path.remove(str(INFRA))
    return mini  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def kubernetes(
    request: pytest.FixtureRequest, mini_kubernetes: ModuleType, missing: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kubernetes]:
    """The cluster that SCALESCOPE_KUBERNETES_CONTEXT names, or a small one of this session, or else a skip."""
    if context := os.environ.get(CONTEXT):
        view = ["kubectl", "config", "view", "--minify", "--flatten", f"--context={context}"]
        kubeconfig = tmp_path_factory.mktemp("kubernetes") / "kubeconfig"
        kubeconfig.write_text(subprocess.run(view, env=ENVIRON, check=True, capture_output=True, text=True).stdout)
        yield Kubernetes(kubeconfig, os.environ.get(IMAGE, mini_kubernetes.MiniKubernetes.image), "kubectl")
        return
    if reason := mini_kubernetes.unmet():
        missing("kubernetes", f"no Kubernetes on this machine: {reason}; or name one by its context in {CONTEXT}")
    with until_the_last(request) as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kubernetes-"))
        cluster = stack.enter_context(mini_kubernetes.MiniKubernetes(folder))
        yield Kubernetes(cluster.kubeconfig, cluster.image, str(cluster.programs / "kubectl"), cluster)


@pytest.fixture(scope="session")
def collected(kubernetes: Kubernetes) -> None:
    """Kubernetes begins to collect what custom resources own up to half a minute after their definition."""
    containers = [{"name": "none", "image": kubernetes.image}]
    spec = {"cluster": "none", "worker": {"replicas": 0, "spec": {"containers": containers}}}
    kind = {"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskWorkerGroup"}

    def done() -> bool:
        name = f"collected-{uuid.uuid4().hex[:8]}"
        kubernetes.apply({**kind, "metadata": {"name": name}, "spec": spec}, namespace="default")
        owner = {**kind, "name": name, "uid": kubernetes.get("daskworkergroup", name)["metadata"]["uid"]}
        owned = {"name": name, "ownerReferences": [owner]}
        kubernetes.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": owned}, namespace="default")
        kubernetes.kubectl("delete", "daskworkergroup", name)
        time.sleep(1.0)
        return name not in kubernetes.kubectl("get", "configmaps", "--output=name")

    until(done)


@pytest.fixture
def in_kubernetes(kubernetes: Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process finds this Kubernetes, and has leases of its own."""
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "leases"))
    for name, value in kubernetes.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def namespace(kubernetes: Kubernetes, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test, which is deleted after it without waiting."""
    name = f"test-{abs(hash((request.node.nodeid, time.time_ns()))) % 10**8}"
    kubernetes.kubectl("create", "namespace", name)
    until(lambda: "default" in kubernetes.kubectl("get", "serviceaccounts", f"--namespace={name}", "--output=name"))
    yield name
    kubernetes.kubectl("delete", "namespace", name, "--wait=false")
