"""The manifests that are sent: valid by the operator's schema, and with the expected content."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import pytest
import yaml
from distributed.security import Security
from hypothesis import given, settings
from hypothesis import strategies as st
from support import http_servers

from scalescope import clusters, workloads
from scalescope.clusters.kubernetes import manifests
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.errors import ClusterError, InvalidField
from scalescope.model.cluster import cluster_spec

LABEL, NAMESPACE = "scalescope-0123456789ab", "team"


def strict(schema: Any) -> Any:
    """A schema that refuses unknown fields, as the API server does when it is asked to."""
    if isinstance(schema, dict):
        closed = {name: strict(part) for name, part in schema.items()}
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            closed.setdefault("additionalProperties", False)
        return closed
    return schema


@pytest.fixture(scope="module")
def check() -> Any:
    """Checks a custom resource by the schema of the operator that is installed."""
    jsonschema = pytest.importorskip("jsonschema")
    found = importlib.util.find_spec("dask_kubernetes")
    if found is None or found.origin is None:
        pytest.skip("dask-kubernetes is not installed")
    validators = {}
    for kind in ("DaskCluster", "DaskWorkerGroup"):
        path = Path(found.origin).parent / "operator/deployment/helm/dask-kubernetes-operator/crds"
        definition = yaml.safe_load((path / f"{kind.lower()}.yaml").read_text())
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}
        validators[kind] = jsonschema.Draft202012Validator(strict(schema))
    return lambda made: validators[made["kind"]].validate(made)


specs = st.builds(
    KubernetesSpec,
    cpu=st.floats(0, 64),
    memory_mb=st.integers(0, 10**6),
    gpus=st.integers(1, 8),
    gpu_product=st.sampled_from(["", "NVIDIA-H200"]),
    shm_mb=st.integers(0, 10**5),
    node_selector=st.sampled_from([(), "pool=gpu,zone=", ("a.b/c=d",)]),
    tolerations=st.sampled_from([(), "spot=true:NoSchedule,other", ("a.b/c:NoExecute",)]),
    spread=st.sampled_from(["", "node", "zone"]),
    scheduler_tolerations=st.sampled_from([(), "spot:NoSchedule"]),
    service_account=st.sampled_from(["", "dask"]),
    priority_class=st.sampled_from(["", "high"]),
    pull_secrets=st.sampled_from([(), "one,two"]),
    environment=st.sampled_from([(), "A=b=c\nB="]),
    environment_secrets=st.sampled_from([(), "s3"]),
    groups=st.sampled_from([{}, {"cpu": {"memory_mb": 100}}, {"fifteen-letters": {"gpus": 1, "cuda": True}}]),
    tls=st.booleans(),
)


@settings(max_examples=25, deadline=None)
@given(specs, st.integers(0, 2000), st.integers(1, 64))
def test_manifests_are_valid_by_the_schema_of_the_operator(
    check: Any, spec: KubernetesSpec, number: int, threads: int
) -> None:
    made = manifests.cluster(spec, LABEL, NAMESPACE)
    workers = manifests.workers(spec, LABEL, NAMESPACE, number=number, threads=threads, owner="uid")
    check(made)
    check(workers)
    for group in spec.group_names:
        check(workers := manifests.workers(spec, LABEL, NAMESPACE, number=number, threads=threads, group=group))
    name = workers["metadata"]["name"]
    assert len(f"{name}-worker-{'0' * 10}") <= 63  # the operator makes such names of it
    for pod in (workers["spec"]["worker"]["spec"], made["spec"]["scheduler"]["spec"]):
        for side in pod["containers"][0]["resources"].values():
            assert all(re.fullmatch(r"\d+(m|Mi)?", quantity) for quantity in side.values())


def test_the_schema_of_the_operator_refuses_a_number_and_a_misspelt_field(check: Any) -> None:
    for change in ({"resources": {"limits": {"nvidia.com/gpu": 1}}}, {"imagePulPolicy": "Never"}):
        made = manifests.cluster(KubernetesSpec(), LABEL, NAMESPACE)
        made["spec"]["worker"]["spec"]["containers"][0] |= change
        with pytest.raises(Exception, match=r"is not of type 'string'|was unexpected"):
            check(made)


def test_a_worker_pod_has_the_requested_resources_and_settings() -> None:
    spec = KubernetesSpec(gpus=2, gpu_product="H200", cpu=0.5, memory_mb=100, shm_mb=64, tolerations=("spot=yes",))
    spec = replace(spec, environment=("OMP_NUM_THREADS=4", "A=b=c"))
    pod = manifests.worker_pod(spec, LABEL, NAMESPACE, 4)
    [worker] = pod["containers"]
    assert worker["args"][:3] == ["dask", "worker", "--no-nanny"]
    assert "--nthreads 4 --memory-limit 100MiB" in " ".join(worker["args"])
    assert worker["resources"] == {
        "requests": {"cpu": "500m", "memory": "100Mi", "nvidia.com/gpu": "2"},
        "limits": {"cpu": "4", "memory": "100Mi", "nvidia.com/gpu": "2"},
    }
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "H200"}
    assert pod["tolerations"] == [
        {"key": "spot", "value": "yes", "operator": "Equal"},
        {"key": "nvidia.com/gpu", "effect": "NoSchedule", "operator": "Exists"},
    ]
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}} in pod["volumes"]
    assert {"name": "DASK_SCHEDULER_ADDRESS", "value": f"tls://{LABEL}-scheduler.team.svc:8786"} in worker["env"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert {"name": "A", "value": "b=c"} in worker["env"]
    assert [each["value"] for each in worker["env"] if each["name"] == "OMP_NUM_THREADS"] == ["4"]


def test_worker_pods_of_a_group_differ_only_in_the_settings_of_the_group() -> None:
    groups = {"cpu": {"cpu": 4, "node_selector": []}, "gpu": {"gpus": 1, "cuda": True, "image": "rapids:1"}}
    groups["gpu"] |= {"cuda_options": ["--rmm-pool-size=0.8"]}
    spec = KubernetesSpec(gpus=2, gpu_product="H200", node_selector=("a=b",), memory_mb=100, groups=groups)
    pods = {name: manifests.worker_pod(spec, LABEL, NAMESPACE, 4, name) for name in ("", *spec.group_names)}
    [main], [cpu], [gpu] = (pod["containers"] for pod in pods.values())
    assert "--resources" not in main["args"]
    assert cpu["args"][:3] == ["dask", "worker", "--no-nanny"]
    assert cpu["args"][-2:] == ["--resources", "cpu=4"]
    assert cpu["resources"]["limits"] == {"cpu": "4", "memory": "100Mi"}  # not the main group's GPUs
    assert pods["cpu"].keys().isdisjoint({"nodeSelector", "tolerations"})
    assert gpu["args"][:3] == ["dask", "cuda", "worker"]
    assert gpu["args"][-1] == "--rmm-pool-size=0.8"
    assert gpu["image"] == "rapids:1"
    assert pods["gpu"]["nodeSelector"] == {"a": "b"}
    names = {manifests.group_name(LABEL, 1, name) for name in pods}
    assert names == {f"{LABEL}-1", f"{LABEL}-cpu-1", f"{LABEL}-gpu-1"}


def test_pods_have_the_labels_annotations_volumes_and_limits_of_the_specification() -> None:
    spec = KubernetesSpec(cpu_limit=0.5, volumes=("data:/data:ro", "out:/out"), labels=("team/cost=a", "managed=no"))
    spec = replace(spec, annotations=("note=b=c, d", "karpenter.sh/do-not-disrupt=false"))
    pods = [manifests.worker_pod(spec, LABEL, NAMESPACE, 2), manifests.scheduler_pod(spec, LABEL)]
    for pod in pods:
        assert pod["containers"][0]["resources"]["requests"]["cpu"] == "500m"
        assert pod["containers"][0]["resources"]["limits"]["cpu"] == "500m"
    claims = [
        each["persistentVolumeClaim"]["claimName"] for each in pods[0]["volumes"] if "persistentVolumeClaim" in each
    ]
    mounts = {each["mountPath"]: each["readOnly"] for each in pods[0]["containers"][0]["volumeMounts"][2:]}
    assert (claims, mounts) == (["data", "out"], {"/data": True, "/out": False})
    for made in (
        manifests.cluster(spec, LABEL, NAMESPACE),
        manifests.workers(spec, LABEL, NAMESPACE, number=1, threads=1),
        manifests.trial_pod(spec, pods[0], LABEL),
    ):
        marks = made["metadata"]
        assert marks["labels"] == {"team/cost": "a", "managed": "no", **manifests.labels(LABEL)}
        assert marks["annotations"]["note"] == "b=c, d"
        assert marks["annotations"]["karpenter.sh/do-not-disrupt"] == "false"


def test_the_scheduler_pod_requests_no_gpu_and_no_spot_node() -> None:
    spec = KubernetesSpec(gpus=1, node_selector=("spot=true",), tolerations=("spot",), scheduler_memory_mb=500)
    pod = manifests.scheduler_pod(spec, LABEL)
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "1", "memory": "500Mi"}
    assert pod.keys().isdisjoint({"nodeSelector", "tolerations"})


def test_packages_that_every_pod_installs_give_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for environment, warned in (("A=b", False), ("EXTRA_PIP_PACKAGES=lightgbm", True)):
        with pytest.raises(ClusterError):
            clusters.build(KubernetesSpec(groups={"gpu": {"environment": environment}})).open()
        assert ("every pod installs packages" in caplog.text) is warned


def entries(spec: KubernetesSpec, security: Security | None) -> dict[str, bytes]:
    made = manifests.secret(spec, LABEL, "uid", security)
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid"
    return {name: base64.b64decode(data) for name, data in made["data"].items()}


def test_the_secret_holds_certificates_and_configuration() -> None:
    with dask.config.set({"distributed.scheduler.work-stealing": False, "temporary-directory": "/home/me"}):
        found = entries(KubernetesSpec(), Security.temporary())
    assert b"PRIVATE KEY" in found["key.pem"]
    config = dask.config.deserialize(found["dask.config"].decode())
    assert config["distributed"]["scheduler"]["work-stealing"] is False
    assert config["distributed"]["comm"]["tls"]["worker"]["cert"] == "/etc/scalescope/cert.pem"
    for name in ("scheduler", "worker"):
        assert all(each.startswith("scalescope.") for each in config["distributed"][name]["http"]["routes"])
    assert "temporary-directory" not in config
    assert sum(map(len, found.values())) < 2**20  # more, and Kubernetes refuses it
    assert not {"key.pem", "cert.pem"} & entries(KubernetesSpec(tls=False), None).keys()


def test_pods_import_the_built_in_workloads_from_the_secret(tmp_path: Path) -> None:
    """The image has Dask, but not this package."""
    packed = tmp_path / "scalescope.zip"
    packed.write_bytes(entries(KubernetesSpec(tls=False), None)["scalescope.zip"])
    code = f"""
import sys
sys.path.insert(0, {str(packed)!r})
import scalescope.workloads as workloads
print(workloads.__file__, *(each.name for each in workloads.builtin()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env={}, check=False
    )
    assert done.stderr == ""
    place, *names = done.stdout.split()
    assert place.startswith(str(packed))
    assert names == [workload.name for workload in workloads.builtin()]


HTTP = """
import asyncio, json, os, sys, urllib.error, urllib.request
sys.path.insert(0, sys.argv[1])
import dask, distributed
dask.config.update(dask.config.config, json.loads(sys.argv[2]))

def ask(server, path, token="", data=None):
    request = urllib.request.Request(f"http://127.0.0.1:{server.http_server.port}{path}", data)
    request.add_header("Authorization", f"Bearer {token}")
    try:
        return urllib.request.urlopen(request, timeout=10).read().decode()
    except urllib.error.HTTPError as error:
        return str(error.code)

async def main():
    options = {"processes": False, "dashboard_address": "127.0.0.1:0", "protocol": "tcp", "asynchronous": True}
    options["scheduler_kwargs"] = {"dashboard": False}
    async with distributed.LocalCluster(n_workers=2, **options) as cluster:
        scheduler, worker = cluster.scheduler, cluster.workers[0]
        found = {}
        for name, server in (("scheduler", scheduler), ("worker", worker)):
            for path in sys.argv[3].split(","):
                found[f"{name}{path}"] = await asyncio.to_thread(ask, server, path)
            found[f"{name}, token"] = await asyncio.to_thread(ask, server, "/metrics", "t0ken")
        retire = "/api/v1/retire_workers", "", b'{"n": 1}'
        found["stranger retires"] = await asyncio.to_thread(ask, scheduler, *retire)
        scheduler.workers_to_close = lambda n: [worker.address]
        found["operator retires"] = await asyncio.to_thread(ask, scheduler, *retire)
        print(json.dumps(found))

asyncio.run(main())
"""


def test_pods_answer_nothing_over_http_without_the_secret(tmp_path: Path) -> None:
    found = entries(KubernetesSpec(tls=False), None)
    packed = tmp_path / "scalescope.zip"
    packed.write_bytes(found["scalescope.zip"])
    config = json.dumps(dask.config.deserialize(found["dask.config"].decode()))
    command = [sys.executable, "-c", HTTP, str(packed), config, ",".join(http_servers.PATHS)]
    environ = {**os.environ, "SCALESCOPE_METRICS_TOKEN": "t0ken"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ, check=True, timeout=60)
    answers = json.loads(done.stdout)
    assert "dask_scheduler_workers" in answers.pop("scheduler, token")
    assert "dask_worker_threads" in answers.pop("worker, token")
    assert json.loads(answers.pop("stranger retires")) == {}
    assert [each["name"] for each in json.loads(answers.pop("operator retires")).values()] == ["0"]
    assert answers.pop("scheduler/health") == "ok"
    assert json.loads(answers.pop("scheduler/api/v1/check_idle")).keys() == {"idle_since"}
    assert set(answers.values()) == {"401", "404"}


def test_the_manifest_shown_as_text_contains_no_secret() -> None:
    built = clusters.build(KubernetesSpec(groups='{"gpu": {"gpus": 1}}'))  # type: ignore[arg-type]  # as on the command line
    built.groups = {"gpu": 1}
    shown = built.submission(3, 2)
    cluster, workers, gpu = yaml.safe_load_all(shown)
    assert [each["spec"]["worker"]["replicas"] for each in (workers, gpu)] == [2, 1]
    assert cluster["metadata"]["name"] == workers["spec"]["cluster"] == "scalescope-LABEL"
    assert "PRIVATE" not in shown


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("gpu_product", "H200", "cluster.gpus: expected at least 1"),
        ("node_selector", "pool gpu", "cluster.node_selector: expected KEY=VALUE"),
        ("tolerations", "spot:Sometimes", "cluster.tolerations: expected KEY"),
        ("environment", "AWS_SECRET_KEY=abc", "no value that looks like a secret.*SECRET_KEY=\\*{3}'$"),
        ("pull_secrets", "hunter2!", r"cluster.pull_secrets.*got \*{3}$"),
        ("volumes", "data:data", "cluster.volumes: expected CLAIM:/PATH"),
        ("namespace", "Team", "cluster.namespace: expected at most 253 lower case"),
        ("idle_timeout_s", 0, "cluster.idle_timeout_s: expected a whole number, at least 60"),
        ("spread", "rack", "cluster.spread"),
        ("cuda", True, "cluster.gpus: expected 1 together with cluster.cuda"),
        ("cuda_options", ["--rmm-pool-size=1"], "cluster.cuda: expected true together with cluster.cuda_options"),
        ("cuda_options", ["; rm"], "cluster.cuda_options.*: expected --NAME"),
        ("groups", {"GPU": {}}, "cluster.groups.GPU: expected a name"),
        ("groups", {"a": {"gpu": 1}}, "cluster.groups.a.gpu: unknown name; .*did you mean 'gpus'"),
        ("groups", {"a": {"gpus": -1}}, "cluster.groups.a.gpus: expected a whole number"),
        ("groups", {"a": {"idle_timeout_s": 90}}, "cluster.groups.a.idle_timeout_s: unknown name"),
        ("groups", "[1]", "cluster.groups: expected a mapping"),
    ],
)
def test_an_invalid_kubernetes_specification_is_refused_with_its_field(field: str, value: Any, says: str) -> None:
    with pytest.raises(InvalidField, match=says):
        cluster_spec({"kind": "kubernetes", field: value})
