"""The code of a sized cluster, with both groups of workers, on a real Kubernetes of two nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.studies.sizing import as_code
from scalescope.studies.sizing.choice import Configuration, SecondGroup

SHOWN = """
import json, pathlib
client.wait_for_workers(2, timeout=300)
told = client.scheduler_info(n_workers=-1)["workers"].values()
shown = sorted([each["nthreads"], each["memory_limit"] // 2**20, each["resources"]] for each in told)
pathlib.Path("told.json").write_text(json.dumps(shown))  # the cluster draws on standard output
client.close()
cluster.close()
"""


@pytest.mark.thorough
@pytest.mark.usefixtures("in_kubernetes", "collected")
def test_the_code_generated_for_a_kubernetes_cluster_runs_unchanged(
    kubernetes: Any, namespace: str, tmp_path: Path
) -> None:
    spec = KubernetesSpec(image=kubernetes.image, namespace=namespace, cpu=0.05)
    chosen, group = Configuration(1, 1, 400, 10.0, 9.0, 11.0, 0.1), SecondGroup("merge", 1, 1, 500, 400)
    (tmp_path / "sized.py").write_text(as_code._kubernetes(chosen, group, spec) + SHOWN)
    patient = {"DASK_KUBERNETES__RESOURCE_TIMEOUT": "300"}  # the operator is slow on a busy host
    command, environ = [sys.executable, "sized.py"], {**os.environ, **kubernetes.environment, **patient}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ, timeout=500)
    assert not done.returncode, done.stderr
    assert json.loads((tmp_path / "told.json").read_text()) == [[1, 400, {}], [1, 500, {as_code.RESOURCE: 1}]]
