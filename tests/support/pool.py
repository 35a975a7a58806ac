"""A team's namespace on a real Kubernetes, as the header of deployments/kubernetes.yaml makes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
import yaml

from support import site
from support.groups import until_the_last
from support.kubernetes import INFRA, SMALL, Kubernetes
from support.postgresql import Server

TEAM = INFRA / "team"
NAMESPACE = yaml.safe_load((TEAM / "kustomization.yaml").read_text())["namespace"]
SECRET = "ann:open-sesame"
DONE_ELSEWHERE = (". .venv", "pip wheel", "docker", "export", "helm", *site.header("local.yaml"))
QUICK = {"seconds": 0.05}


class Pool:
    """The team's namespace, with Prefect's worker in it and its server on this machine."""

    def __init__(self, kubernetes: Kubernetes, made: site.Site, files: Path, results: str) -> None:
        self.kubernetes, self.site, self.files, self.results = kubernetes, made, files, results

    def kubectl(self, *arguments: str) -> str:
        return self.kubernetes.kubectl("--namespace", NAMESPACE, *arguments)

    def left(self) -> str:
        """What there is of clusters."""
        kinds = "daskclusters,daskworkergroups,deployments,services,pods,secrets"
        return self.kubectl("get", kinds, "--selector=app.kubernetes.io/managed-by=scalescope", "--output=name")

    def pods_of(self, run: UUID, phase: str = "") -> list[str]:
        found = ["get", "pods", f"--selector=prefect.io/flow-run-id={run}", "--output=name"]
        return self.kubectl(*found, *([f"--field-selector=status.phase={phase}"] if phase else [])).split()


@pytest.fixture(scope="session")
def pool(
    request: pytest.FixtureRequest, kubernetes: Kubernetes, postgresql: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pool]:
    """All commands of the header, but for those that tests of others give or mini.py has done."""
    if kubernetes.mini is None:
        pytest.skip("pods of another Kubernetes may not reach this machine")
    folder = tmp_path_factory.mktemp("pool")
    results, host = postgresql.create(), kubernetes.mini.host
    made = site.Site(
        folder,
        PATH=os.pathsep.join(map(str, (Path(sys.executable).parent, kubernetes.mini.programs, os.environ["PATH"]))),
        HOME=str(folder),
        KUBECONFIG=str(kubernetes.kubeconfig),
        PREFECT_API_DATABASE_CONNECTION_URL=postgresql.new_database().replace(":", "+asyncpg:", 1),
        PREFECT_SERVER_API_AUTH_STRING=SECRET,
        PREFECT_API_AUTH_STRING=SECRET,
    )
    made.environ["PREFECT_API_URL"] = f"http://{host}:{made.port}/api"
    env = folder / ".config/scalescope/worker.env"
    env.parent.mkdir(parents=True)
    lines = {name: made.environ[name] for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING")}
    lines |= {"SCALESCOPE_STORE": results.replace("127.0.0.1", host), "PREFECT_WORKER_QUERY_SECONDS": "1"}
    env.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    files = folder / "files"
    files.mkdir()
    files.chmod(0o777)
    own = {str(TEAM.relative_to(site.ROOT)): overlay(folder, files, kubernetes.image), "4200": str(made.port)}
    own["deployments/kubernetes.yaml"] = deployments(folder, kubernetes.image)
    with until_the_last(request) as stack:
        remove = ("delete", "--wait=false", "--ignore-not-found", "-k", str(folder / "overlay"))
        stack.callback(kubernetes.kubectl, *remove)
        stack.callback(made.close)
        made.start_server("prefect server start --host 0.0.0.0")
        for command in site.header("kubernetes.yaml"):
            if not command.startswith((*DONE_ELSEWHERE, "prefect deployment run")):
                for text, mine in own.items():
                    command = command if "work_pool.py" in command else command.replace(text, mine)
                made.give(command)
        yield Pool(kubernetes, made, files, results)


def overlay(folder: Path, files: Path, image: str) -> str:
    """The kustomization with this image, and a folder of this machine for what its claim asks for."""
    (folder / "overlay").mkdir()
    metadata = {"name": "here", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "kubernetes.io/no-provisioner"}
    spec = {"storageClassName": "here", "capacity": {"storage": "100Gi"}, "accessModes": ["ReadWriteMany"]}
    volume = {
        "kind": "PersistentVolume",
        "metadata": {"name": "here"},
        "spec": spec | {"hostPath": {"path": str(files)}},
    }
    storage = [{**kind, "metadata": metadata}, {"apiVersion": "v1", **volume}]
    (folder / "overlay/storage.yaml").write_text(yaml.safe_dump_all(storage))
    name, _, tag = image.rpartition(":")
    base = os.path.relpath(TEAM, folder / "overlay")
    images = [{"name": "REGISTRY/scalescope", "newName": name, "newTag": tag}]
    (folder / "overlay/kustomization.yaml").write_text(
        yaml.safe_dump({"resources": [base, "storage.yaml"], "images": images})
    )
    return str(folder / "overlay")


def deployments(folder: Path, image: str) -> str:
    """The file with this image, small pods and a quick night; and it reaps at once."""
    text = (site.ROOT / "deployments/kubernetes.yaml").read_text().replace("REGISTRY/scalescope:TAG", image)
    found = yaml.safe_load(text.replace("schedule_after: 360", "schedule_after: 0"))
    for each in found["deployments"]:
        each["work_pool"]["job_variables"] |= {"cpu_request": "50m", "memory_request": "300Mi"}
        if "cluster" in each.get("parameters", {}):
            each["parameters"]["cluster"] |= SMALL
            each["parameters"]["params"] = QUICK
    night = next(each for each in found["deployments"] if each["name"].startswith("nightly"))
    quick = {name: [value] for name, value in QUICK.items()}
    night["parameters"] |= {
        "workloads": ["futures-map"],
        "clusters": [each | SMALL for each in night["parameters"]["clusters"]],
        "axes": {"workers": [1, 2], "threads_per_worker": [1, 2], "items": [4], **quick},
        "rounds": 1,
    }
    (folder / "kubernetes.yaml").write_text(yaml.safe_dump(found))
    return str(folder / "kubernetes.yaml")
