"""The Terraform of infra/gke and the options on its page fit each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from scalescope.analysis.cost import Prices
from scalescope.clusters.kubernetes import manifests
from scalescope.model.cluster import cluster_spec

FOLDER = Path(__file__).parents[2] / "infra/gke"
PRICES, *OPTIONS = (
    yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
)
MAIN = (FOLDER / "main.tf").read_text()
VARIABLES = dict(
    re.findall(r'variable "(\w+)" \{.*?default\s+= "?([^"\n]*)', (FOLDER / "variables.tf").read_text(), re.DOTALL)
)
GPU_TAINT = {("nvidia.com/gpu", "present")}  # GKE's own


def pool(name: str) -> str:
    return MAIN.partition(f'"google_container_node_pool" "{name}"')[2].partition("\nresource ")[0]


@pytest.mark.parametrize(
    ("options", "name", "machine"), [(OPTIONS[0], "gpu_spot", "gpu"), (OPTIONS[1], "cpu_spot", "cpu_spot")]
)
def test_worker_pods_fit_the_taints_and_labels_of_their_node_pool(
    options: dict[str, object], name: str, machine: str
) -> None:
    spec = cluster_spec(options)
    pod = manifests.worker_pod(spec, "label", "namespace", 1)  # type: ignore[arg-type]
    body = pool(name)
    taints = set(re.findall(r'taint \{\s+key\s+= "(\S+)"\s+value\s+= "(\S+)"', body))
    assert taints
    assert re.search(r"^ *spot += true$", body, re.MULTILINE)
    tolerated = {(each["key"], each.get("value", "present")) for each in pod["tolerations"]}
    assert taints | (GPU_TAINT if "guest_accelerator" in body else set()) == tolerated
    selector = dict(pod["nodeSelector"])
    assert selector.pop("cloud.google.com/gke-spot") == "true"
    assert selector.pop("node.kubernetes.io/instance-type") == VARIABLES[f"{machine}_machine_type"]
    assert selector == ({"cloud.google.com/gke-accelerator": VARIABLES["gpu_type"]} if spec.gpus else {})  # type: ignore[attr-defined]


def test_scheduler_pods_run_on_the_on_demand_node_pool() -> None:
    body = pool("cpu")
    assert not re.search(r"^ *(spot|taint)\b", body, re.MULTILINE)
    for options in OPTIONS:
        pod = manifests.scheduler_pod(cluster_spec(options), "label")  # type: ignore[arg-type]
        assert pod["nodeSelector"] == {"cloud.google.com/gke-nodepool": re.findall(r'name\s+= "(\S+)"', body)[0]}


def test_each_machine_type_of_the_terraform_has_a_price() -> None:
    prices = Prices.from_mapping(PRICES)
    machines = {value for name, value in VARIABLES.items() if name.endswith("machine_type")}
    assert machines == prices.node_hour.keys()
    assert [prices.of(cluster_spec(options)) for options in OPTIONS] == [0.35, 0.12]
