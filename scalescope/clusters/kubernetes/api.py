"""Requests to the API server of a Kubernetes cluster, one at a time, through kr8s.

kr8s finds the server and the credentials: `$KUBECONFIG`, the user's kubeconfig, or the account of the pod.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import anyio
import httpx
import kr8s
from anyio.from_thread import start_blocking_portal

from scalescope.clusters.control_plane import ControlPlane
from scalescope.clusters.kubernetes.failures import CREDENTIALS, OPERATOR_LABEL, WEBHOOK_SILENT, refusal
from scalescope.clusters.kubernetes.manifests import GROUP, INSTANCE, MANAGED_BY, OURS
from scalescope.clusters.kubernetes.port_forward import forwarded
from scalescope.errors import ClusterError, RequestRefused

REQUEST_TIMEOUT_S = 10.0  # seconds for one request
SILENCE_S = 120.0  # seconds for which a server that has answered before may be silent, as during an update

FORBIDDEN, NOT_FOUND, CONFLICT, SERVER_ERRORS = 403, 404, 409, 500
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_MERGE = {"content-type": "application/merge-patch+json"}
_METADATA_ONLY = {"accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}  # omits secrets' data
_CLUSTER = "dask.org/cluster-name"  # operator's label; in a user's copy of our cluster, it has the copy's name
_CLEARED_AWAY = (
    "unable to retrieve container logs",
    "failed to try resolving symlinks",
)  # first words of answers about a log that is gone with its container
_APPS = "apps/v1"
_STRICT = {"fieldValidation": "Strict"}
_PARTS = ((GROUP, "daskworkergroups"), (_APPS, "deployments"), ("v1", "pods"), ("v1", "services"), ("v1", "secrets"))

T = TypeVar("T")
Raw = dict[str, Any]  # a Kubernetes object, as JSON from its API


class Api(ControlPlane):
    """One namespace of one Kubernetes cluster. Its requests may come from any thread, and raise `ClusterError`.

    `context` defaults to the kubeconfig's current context, `namespace` to the context's namespace.

    Args:
        answered: Servers that have answered before; only these are waited for when silent. This server is added.
    """

    def __init__(
        self, context: str = "", namespace: str = "", *, kubeconfig: str = "", answered: set[object] | None = None
    ) -> None:
        super().__init__()
        self._open = ExitStack()
        self._portal = self._open.enter_context(start_blocking_portal())
        self._known = (context, kubeconfig or os.environ.get("KUBECONFIG", ""))
        self._answered = set() if answered is None else answered
        self.patience_s = SILENCE_S  # seconds to wait for a silent server that has answered before
        self.server, self.namespace = context or "the current context", namespace
        self._server_time = (0.0, 0.0)  # the server's clock, and our monotonic clock at that time

        async def connect() -> Any:
            options = {"context": context or None, "namespace": namespace or None, "kubeconfig": kubeconfig or None}
            with anyio.move_on_after(REQUEST_TIMEOUT_S):  # kr8s 0.20 would try forever
                return await kr8s.asyncio.api(**options)
            raise TimeoutError(f"no answer within {REQUEST_TIMEOUT_S:g} s")

        try:
            self._api = self._patiently(connect, "connect")
        except BaseException:
            self.close()
            raise
        self.server, self.namespace = str(self._api.auth.server), str(self._api.namespace)
        if self.namespace == "default" and not namespace and self.is_inside and _POD_NAMESPACE.exists():
            self.namespace = _POD_NAMESPACE.read_text().strip()  # kr8s 0.20 ignores this file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.patience_s = 0.0  # ends the waits of other threads' requests
        self._open.close()

    @property
    def is_inside(self) -> bool:
        """Whether this process is in a pod of this cluster, and can reach pods by their addresses."""
        return os.environ.get("KUBERNETES_SERVICE_HOST", "?") == urlsplit(self.server).hostname

    def now(self) -> float:
        """Seconds since the epoch by the server's clock."""
        said, at = self._server_time
        return said + time.monotonic() - at

    # ---------------------------------------------------------------- reading

    def pods(self, label: str) -> list[Raw]:
        return self._list("v1", "pods", labelSelector=_of_cluster(label))

    def deployments(self, label: str) -> list[Raw]:
        """The Deployments of a cluster: one for each worker, and one for the scheduler."""
        return self._list(_APPS, "deployments", labelSelector=_of_cluster(label))

    def events(self, label: str) -> list[Raw]:
        """Events of the objects of a cluster, whose names begin with its label; the oldest first."""
        found = [each for each in self._list("v1", "events") if each["involvedObject"]["name"].startswith(label)]
        return sorted(found, key=event_time)

    def events_of(self, pod: str) -> list[Raw]:
        """Events of one pod; the oldest first."""
        return sorted(self._list("v1", "events", fieldSelector=f"involvedObject.name={pod}"), key=event_time)

    def node(self, name: str) -> Raw:
        """A node; empty if it is gone."""
        return self._found("v1", f"nodes/{name}", namespaced=False) or {}

    def nodes(self) -> list[Raw]:
        return list(self._ask("GET", "v1", "nodes", namespaced=False)["items"])

    def log(self, pod: str, lines: int, *, previous: bool = False, timestamps: bool = False) -> str:
        """The end of the log of a pod, or of its `previous` container; empty if there is none."""
        options = {"previous": previous, "timestamps": timestamps}
        params = {"tailLines": str(lines), **{name: "true" for name, given in options.items() if given}}
        try:
            found = str(self._ask("GET", "v1", f"pods/{pod}/log", params, text=True)).strip()
        except RequestRefused:
            return ""
        return "" if found.startswith(_CLEARED_AWAY) else found

    def cluster(self, label: str) -> Raw | None:
        return self._found(GROUP, f"daskclusters/{label}")

    def groups(self, label: str) -> list[Raw]:
        found = self._list(GROUP, "daskworkergroups", labelSelector=f"{INSTANCE}={label}")
        return [each for each in found if each["spec"]["cluster"] == label]

    def clusters(self) -> list[Raw]:
        return self._list(GROUP, "daskclusters", labelSelector=f"{MANAGED_BY}={OURS}")

    def parts(self, label: str = "") -> list[tuple[str, str, Raw]]:
        """Version, plural and metadata of all objects of our clusters (or of one) that this user may list."""
        selector = {"labelSelector": f"{MANAGED_BY}={OURS}" + (f",{INSTANCE}={label}" if label else "")}
        parts = []
        for version, what in _PARTS:
            if self.may("list", version.rpartition("/")[0], what):
                found = self._ask("GET", version, what, selector, headers=_METADATA_ONLY)["items"]
                parts += [(version, what, each["metadata"]) for each in found or ()]  # `items` is null if there is none
        return [part for part in parts if _belongs_to_its_cluster(part[2]["labels"])]

    def operators(self) -> list[Raw]:
        """The Deployments of the operator in any namespace; none if this user may not list them."""
        try:
            selector = {"labelSelector": OPERATOR_LABEL}
            return list(self._ask("GET", _APPS, "deployments", selector, namespaced=False)["items"])
        except RequestRefused as error:
            if error.status != FORBIDDEN:
                raise
            return []

    def has_operator_resources(self) -> bool:
        known = self._found(GROUP, "", namespaced=False) or {"resources": []}
        return {"daskclusters", "daskworkergroups"} <= {each["name"] for each in known["resources"]}

    def may(self, verb: str, group: str, resource: str) -> bool:
        """Whether this user may apply the verb in this namespace; `resource` is, for example, `pods` or `pods/log`."""
        name, _, part = resource.partition("/")
        asked = {"namespace": self.namespace, "verb": verb, "group": group, "resource": name, "subresource": part}
        version = "authorization.k8s.io/v1"
        review = {"apiVersion": version, "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
        found = self._ask("POST", version, "selfsubjectaccessreviews", body=review, namespaced=False)
        return bool(found["status"]["allowed"])

    def objection(self, pod: Raw) -> str:
        """Why the server would refuse a pod, in its words; empty if it would not, or if a dry run cannot tell."""
        try:
            self._ask("POST", "v1", "pods", {**_STRICT, "dryRun": "All"}, body=pod)
        except RequestRefused as error:
            if error.status not in (400, 403, 422) and error.category != WEBHOOK_SILENT:
                raise
            said = error.what.partition(": ")[2]
            return "" if re.search("does not support dry run|is being terminated", said) else said
        return ""

    # ---------------------------------------------------------------- changes

    def create(self, manifest: Raw) -> Raw:
        """Create a custom resource or a secret; the server refuses unknown fields."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        try:
            return dict(self._ask("POST", manifest["apiVersion"], f"{kind.lower()}s", _STRICT, body=manifest))
        except RequestRefused as error:
            if error.status != CONFLICT:
                raise
        return self.cluster(name) or manifest  # an earlier try made it, and its answer was lost: the name is ours

    def annotate(self, label: str, annotations: Mapping[str, str]) -> None:
        self._patch(f"daskclusters/{label}", {"metadata": {"annotations": dict(annotations)}})

    def resize(self, group: str, number: int) -> None:
        self._patch(f"daskworkergroups/{group}", {"spec": {"worker": {"replicas": number}}})

    def delete_workers(self, group: str) -> None:
        self.delete(GROUP, f"daskworkergroups/{group}")

    def delete_cluster(self, label: str, version: str = "") -> None:
        """Delete a cluster with all its parts; error 409 if its resource version is not `version`."""
        body = {"preconditions": {"resourceVersion": version}} if version else None
        self.delete(GROUP, f"daskclusters/{label}", body)

    def delete(self, version: str, url: str, body: Raw | None = None) -> None:
        with _may_be_gone():
            self._ask("DELETE", version, url, body=body)

    def drop_finalizers(self, label: str) -> None:
        """Remove the finalizers of a deleted cluster, so that it goes away without the operator."""
        with _may_be_gone():
            self._patch(f"daskclusters/{label}", {"metadata": {"finalizers": None}})

    def forward(self, pod: str, port: int) -> int:
        """Forward a port of this machine to a port of a pod until `close`; returns this machine's port."""
        forward = forwarded(self._api, self.namespace, pod, port, SILENCE_S)
        return self._open.enter_context(self._portal.wrap_async_context_manager(forward))

    # ---------------------------------------------------------------- requests

    def _found(self, version: str, url: str, *, namespaced: bool = True) -> Raw | None:
        with _may_be_gone():
            return dict(self._ask("GET", version, url, namespaced=namespaced))
        return None

    def _list(self, version: str, what: str, **params: str) -> list[Raw]:
        return list(self._ask("GET", version, what, params)["items"])

    def _patch(self, url: str, body: Raw) -> None:
        self._ask("PATCH", GROUP, url, body=body, headers=_MERGE)

    def _ask(
        self,
        method: str,
        version: str,
        url: str,
        params: Mapping[str, str] | None = None,
        *,
        body: Raw | None = None,
        headers: Mapping[str, str] | None = None,
        namespaced: bool = True,
        text: bool = False,
    ) -> Any:
        async def ask() -> Any:
            async with self._api.call_api(
                method,
                version=version,
                namespace=self.namespace if namespaced else None,
                url=url,
                params=params,
                headers=headers,
                timeout=REQUEST_TIMEOUT_S,
                **({} if body is None else {"json": body}),
            ) as response:
                self._server_time = (parsedate_to_datetime(response.headers["date"]).timestamp(), time.monotonic())
                return response.text if text else response.json()

        what = f"{method} {url}"
        return self._call(ask, what) if text else self._patiently(ask, what)  # logs depend on a node: no retry

    def _patiently(self, function: Callable[[], Awaitable[T]], what: str) -> T:
        """Call `function`; if the server has answered before, repeat this while it is silent or too busy."""
        known = self._known in self._answered

        def is_silent(error: ClusterError) -> bool:
            is_answer = isinstance(error, RequestRefused) and 0 < error.status < SERVER_ERRORS
            return not is_answer and error.category not in (WEBHOOK_SILENT, CREDENTIALS)

        try:
            answer = self._wait(
                lambda: self._call(function, what), is_silent, lambda: self.patience_s if known else 0.0
            )
        except RequestRefused as error:
            if not is_silent(error):
                self._answered.add(self._known)
            elif known:
                what = f"Kubernetes did not answer for {time.monotonic() - self._silent_since:.0f} s"
                raise refusal(what, error.where, "Silent", detail=error.cause or error.what) from error
            raise
        self._answered.add(self._known)
        return answer

    def _call(self, function: Callable[[], Awaitable[T]], what: str) -> T:
        where = f"{what} at {self.server}" + (f", namespace {self.namespace}" if self.namespace else "")
        try:
            return self._portal.call(function)
        except kr8s.ServerError as error:
            status = error.response.status_code if error.response is not None else 0
            said = " ".join((_message(error.response) or str(error)).split())
            title = f"Kubernetes refused a request: {said or f'status {status}'}"
            raise refusal(title, where, f"HTTP {status}", said, status=status) from error
        except (kr8s.APITimeoutError, httpx.HTTPError, OSError, ValueError, KeyError, RuntimeError) as error:
            detail = " ".join(f"{type(error).__name__}: {error}".removesuffix(": ").split())
            raise refusal("a request to Kubernetes failed", where, "Unreachable", detail, detail=detail) from error


def _message(response: httpx.Response | None) -> str:
    """What the server says in an answer of status 500 or more, of which kr8s 0.20 keeps only the status."""
    try:
        found = response.json() if response is not None else {}
    except (ValueError, httpx.HTTPError):
        return ""
    return str(found.get("message", "")) if isinstance(found, dict) else ""


@contextmanager
def _may_be_gone() -> Iterator[None]:
    try:
        yield
    except RequestRefused as error:
        if error.status != NOT_FOUND:
            raise


def _of_cluster(label: str) -> str:
    return f"{INSTANCE}={label},{_CLUSTER}={label}"


def _belongs_to_its_cluster(labels: Mapping[str, str]) -> bool:
    return labels.get(_CLUSTER, labels.get(INSTANCE)) == labels.get(INSTANCE)


def event_time(event: Raw) -> str:
    """The last time of an event, as in RFC 3339."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])
