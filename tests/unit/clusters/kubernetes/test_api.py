"""An API server that does not answer for a while, and the checks before a cluster is made."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from scalescope.clusters.kubernetes import cluster
from scalescope.clusters.kubernetes.api import Api
from scalescope.clusters.kubernetes.preflight import check, may_pass
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.errors import ClusterError, RequestRefused
from scalescope.model.trial import SILENT

QUOTA = 'pods "p" is forbidden: exceeded quota: few, requested: {}, used: {}, limited: {}'


class Server(ThreadingHTTPServer):
    """Answers as an API server does: with status 503 before `until`; a POST creates a resource once."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.until, self.made, self.replicas, self.objection = 0.0, False, 1, ""
        self.refusing = 403  # the status of an objection


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        resources = [{"name": name} for name in ("daskclusters", "daskworkergroups")]
        operator = {"metadata": {"namespace": "o", "name": "operator"}, "spec": {"replicas": self.server.replicas}}
        items = [operator] if self.path.startswith("/apis/apps/v1/deployments") else []
        self._answer(200, {"gitVersion": "v1.34.4", "items": items, "resources": resources, "metadata": {"uid": "u"}})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if "selfsubjectaccessreviews" in self.path:
            self._answer(201, {"status": {"allowed": True}})
        elif "dryRun" in self.path:
            self._answer(self.server.refusing if self.server.objection else 201, {"message": self.server.objection})
        else:
            made, self.server.made = self.server.made, True
            self._answer(409 if made else 201, {"metadata": {"uid": "u"}})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        status = status if time.monotonic() > self.server.until else 503
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"message": "away", "kind": "Status", **body}).encode())

    def log_message(self, format: str, *given: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        user = {"name": "u", "user": {"token": "t"}}
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster]}
        (tmp_path / "config").write_text(yaml.safe_dump({**config, "contexts": [context], "users": [user]}))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield server
        server.shutdown()


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    with Api(namespace="team") as api:
        yield api


def test_an_api_server_that_does_not_answer_is_waited_for_and_then_reported(api: Api, server: Server) -> None:
    api.silent_s, began = 0.0, time.monotonic()
    assert api.pods("p") == []
    assert api.silent_s <= time.monotonic() - began
    server.until = time.monotonic() + 0.5
    assert api.pods("p") == []
    assert api.silent_s >= 0.5
    server.until, api.patience_s = time.monotonic() + 30, 0.5
    with pytest.raises(RequestRefused) as caught:
        api.pods("p")
    assert (caught.value.category, caught.value.ends_run) == ("no-answer", True)


def test_an_api_server_that_answered_an_earlier_cluster_is_waited_for(api: Api, server: Server) -> None:
    server.until = time.monotonic() + 1.5
    with pytest.raises(RequestRefused):
        Api(namespace="team")
    Api(namespace="team", answered=api._answered).close()


def test_an_outage_of_the_api_server_is_reported_and_a_lasting_one_ends_the_run(
    api: Api, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = cluster.KubernetesCluster(KubernetesSpec())
    opened._api = api
    monkeypatch.setattr(cluster, "LEAST_SILENT_S", 60)  # a busy host stands still for a second, too
    assert opened.outage() == ""
    assert SILENT not in opened._facts
    monkeypatch.setattr(cluster, "LEAST_SILENT_S", 0.3)
    server.until = time.monotonic() + 0.5
    assert opened.outage() != ""
    assert SILENT in opened._facts  # so the trial is repeated
    server.until, api.patience_s = time.monotonic() + 30, 0.5
    with pytest.raises(RequestRefused) as caught:
        opened.outage()
    assert caught.value.ends_run


def test_a_resource_that_an_earlier_attempt_has_created_is_reused(api: Api) -> None:
    manifest = {"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskCluster", "metadata": {"name": "mine"}}
    assert [api.create(manifest)["metadata"]["uid"] for _ in range(2)] == ["u", "u"]


def test_a_healthy_namespace_passes_the_checks_before_a_cluster_is_made(api: Api) -> None:
    check(api, KubernetesSpec(tls=False), "scalescope-1")


@pytest.mark.parametrize(
    ("replicas", "objection", "category"),
    [
        (0, "", "operator-silent"),
        (2, "", "two-operators"),
        (1, "maximum cpu usage per Container is 500m, but limit is 1", "limit-range"),
        (1, "admission webhook denied the request: no label cost-centre", "policy"),
        (1, QUOTA.format("pods=1", "pods=0", "pods=0"), "quota"),
    ],
)
def test_a_lasting_obstacle_in_the_namespace_ends_the_run(
    api: Api, server: Server, replicas: int, objection: str, category: str
) -> None:
    server.replicas, server.objection = replicas, objection
    with pytest.raises(ClusterError) as caught:
        check(api, KubernetesSpec(), "scalescope-1")
    assert (caught.value.category, caught.value.ends_run) == (category, True)
    assert "namespace team" in caught.value.where


def test_a_used_up_quota_counts_as_passing_and_a_quota_smaller_than_a_pod_as_lasting() -> None:
    assert may_pass(QUOTA.format("pods=1", "pods=3", "pods=3"))
    assert may_pass(QUOTA.format("limits.cpu=500m,memory=1Gi", "limits.cpu=1,memory=0", "limits.cpu=1,memory=2Gi"))
    assert not may_pass(QUOTA.format("limits.cpu=500m,memory=3Gi", "limits.cpu=1,memory=0", "limits.cpu=1,memory=2Gi"))
    assert not may_pass("maximum memory usage per Container is 1Gi")


def test_a_webhook_that_does_not_answer_is_not_taken_for_a_silent_api_server(api: Api, server: Server) -> None:
    server.refusing, server.objection = (
        500,
        (
            'Internal error occurred: failed calling webhook "w": failed to call webhook: Post '
            '"https://h:9443/?timeout=10s": '
            "dial tcp 10.0.0.1:9443: connect: connection refused"
        ),
    )
    began = time.monotonic()
    with pytest.raises(ClusterError) as caught:
        check(api, KubernetesSpec(), "scalescope-1")
    assert caught.value.category == "webhook-silent"
    assert server.objection in caught.value.cause
    assert not caught.value.ends_run  # it may come back
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    "program",
    ["#!/bin/sh\necho 'session expired: run corp-login' >&2\nexit 1\n", "#!/bin/sh\necho '{\"status\": {}}'\n"],
)
def test_a_program_that_gives_no_credentials_is_reported_at_once(server: Server, tmp_path: Path, program: str) -> None:
    Api(namespace="team", answered=(answered := set())).close()
    login = tmp_path / "login"
    login.write_text(program)
    login.chmod(0o755)
    config = yaml.safe_load((tmp_path / "config").read_text())
    asked = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(login), "interactiveMode": "Never"}
    config["users"][0]["user"] = {"exec": asked}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    began = time.monotonic()
    with pytest.raises(RequestRefused) as caught:
        Api(namespace="team", answered=answered)
    assert (caught.value.category, caught.value.ends_run) == ("credentials", True)
    assert "corp-login" in caught.value.cause or str(login) in caught.value.cause
    assert time.monotonic() - began < 30
