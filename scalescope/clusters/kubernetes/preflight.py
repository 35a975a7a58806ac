"""Checks before anything is created: the operator, the user's rights, and whether Kubernetes accepts the pods."""

from __future__ import annotations

import re

from scalescope.clusters.kubernetes import manifests
from scalescope.clusters.kubernetes.api import Api
from scalescope.clusters.kubernetes.failures import WEBHOOK_SILENT, refusal
from scalescope.clusters.kubernetes.pod_problems import PodProblem, explain
from scalescope.clusters.kubernetes.pod_watch import described, is_switched_off
from scalescope.clusters.kubernetes.quantity import amount
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.errors import ClusterError

ALLOWED = (  # what the user must be allowed to do
    *((verb, "kubernetes.dask.org", "daskclusters") for verb in ("get", "create", "patch", "delete")),
    *((verb, "kubernetes.dask.org", "daskworkergroups") for verb in ("list", "create", "patch", "delete")),
    ("create", "", "secrets"),
    ("list", "", "pods"),
    ("get", "", "pods/log"),
    ("list", "apps", "deployments"),
)
# Additional rights, needed to reach the scheduler from outside Kubernetes.
FROM_OUTSIDE = (("get", "", "pods"), ("get", "", "pods/portforward"), ("create", "", "pods/portforward"))

# Kubernetes's message; `asked` and `limit` look like `cpu=1,memory=2Gi`
_QUOTA = re.compile(r"exceeded quota: .*?, requested: (?P<asked>\S+), used: \S+, limited: (?P<limit>\S+)")


def check(api: Api, spec: KubernetesSpec, label: str) -> None:
    """Raise `ClusterError` if a cluster with this label cannot be made; `ends_run` is set if waiting cannot help."""
    where = f"namespace {api.namespace} at {api.server}"
    if not api.has_operator_resources():
        raise refusal("the Dask operator is not installed", where, "NoOperator")
    needed = ALLOWED if api.is_inside else (*ALLOWED, *FROM_OUTSIDE)
    if refusals := [f"{verb} {what}" for verb, group, what in needed if not api.may(verb, group, what)]:
        raise refusal(f"you may not {', '.join(refusals)}", where, "HTTP 403", status=403)
    operators = api.operators()
    if is_switched_off(operators):
        raise refusal("the Dask operator is switched off", where, "OperatorSilent", detail=described(operators))
    if len(operators) == 1 and operators[0]["spec"]["replicas"] > 1:
        raise refusal("the Dask operator has several pods", where, "TwoOperators", detail=described(operators))
    if api.may("create", "", "pods"):
        _try(api, spec, label, where)


def _try(api: Api, spec: KubernetesSpec, label: str, where: str) -> None:
    """Dry run: let Kubernetes check all pods against its limits, policies and webhooks."""
    tried = {"scheduler": manifests.scheduler_pod(spec, label)}
    for group in ("", *spec.group_names):
        name = f"{group}-worker" if group else "worker"
        tried[name] = manifests.worker_pod(spec, label, api.namespace, 1, group)
    for name, pod in tried.items():
        said = api.objection(manifests.trial_pod(spec, pod, label))
        if said and not may_pass(said):
            problem = PodProblem("FailedCreate", said, f"{label}-{name}")
            told = explain(problem)
            error = ClusterError(
                f"Kubernetes would refuse the pod of the {name.replace('-', ' ')}",
                where=f"{where}; nothing was made",
                cause=f"{told.cause}. Kubernetes says {said}",
                next_step=told.next_step,
                category=told.category,
            )
            error.ends_run = told.category != WEBHOOK_SILENT
            raise error


def may_pass(said: str) -> bool:
    """Whether a refused pod may be accepted later: a quota is used up, but large enough for this pod."""
    found = _QUOTA.search(said)
    if found is None:
        return "exceeded quota" in said
    asked, limits = (dict(each.split("=", 1) for each in found[name].split(",")) for name in ("asked", "limit"))
    return all(amount(asked[name]) <= amount(limit) for name, limit in limits.items() if name in asked)
