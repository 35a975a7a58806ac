"""The section `kubernetes` of Dask's configuration, as sites write it for dask-kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.model.cluster import cluster_spec

SITE = """
kubernetes:
  name: dask-{user}-{uuid}
  namespace: team
  image: registry.example/dask:1
  count: {start: 4}
  env: {STAGE: night, MY_TOKEN: CANARY-51ab77d0}
  idle-timeout: 1200
  resources: {requests: {cpu: 500m, memory: 3Gi}, limits: {cpu: 2, memory: 4G, nvidia.com/gpu: 1}}
  resource-timeout: 300
  worker-command: dask cuda worker
  worker-template: {spec: {containers: []}}
  deploy-mode: remote
"""


def test_the_configuration_of_a_site_gives_the_defaults(site: Callable[[str], Path]) -> None:
    path = site(SITE)
    expected = {
        **{"namespace": "team", "image": "registry.example/dask:1", "environment": ("STAGE=night",)},
        **{"idle_timeout_s": 1200, "cpu": 0.5, "cpu_limit": 2.0, "memory_mb": 3815, "gpus": 1},
    }
    spec = cluster_spec("kubernetes")
    assert {field: getattr(spec, field) for field in expected} == expected
    assert spec.of_site() == dict.fromkeys(expected, str(path))
    left_out = spec.site_config().left_out
    keys = {"name", "count", "resource-timeout", "worker-command", "worker-template", "deploy-mode"}
    assert set(left_out) == {*keys, "env (MY_TOKEN=***)", "resources.requests.memory"}
    assert "CANARY" not in str(left_out)
    assert cluster_spec(spec.to_mapping()) == spec


def test_environment_variables_override_the_site_and_given_values_override_both(
    site: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = site("kubernetes: {env: [{name: A, value: b}, {name: C, valueFrom: {}}], resources: {limits: {memory: 2X}}}")
    monkeypatch.setenv("DASK_KUBERNETES__NAMESPACE", "night")
    spec = cluster_spec({"kind": "kubernetes", "gpus": 0})
    assert spec.of_site() == {"environment": str(path), "namespace": "environment"}
    assert spec.to_mapping()["environment"] == ["A=b"]
    assert set(spec.site_config().left_out) == {"env (C)", "resources.limits.memory"}
    assert cluster_spec({"kind": "kubernetes", "namespace": "mine", "environment": []}).of_site() == {}
    assert KubernetesSpec().namespace == ""
