"""The specification of a cluster on Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.cluster import CUDA_OPTIONS, WORD, ClusterSpec, Text, json_mapping
from scalescope.model.parameters import Parameter
from scalescope.model.site_config import SiteConfig
from scalescope.redaction import NAMES

_SUBDOMAIN = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_WORD = r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?"
_KEY = rf"({_SUBDOMAIN}/)?{_WORD}"
_NAME = partial(
    Text, accepts=re.compile(_SUBDOMAIN).fullmatch, allowed="at most 253 lower case letters, digits, . and -"
)
_LABELS = partial(Text, accepts=re.compile(rf"{_KEY}=({_WORD})?").fullmatch, allowed="KEY=VALUE", separator=",")
TOLERATION = re.compile(rf"(?P<key>{_KEY})(=(?P<value>{_WORD}))?(:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute))?")
_TOLERATIONS = partial(
    Text, accepts=TOLERATION.fullmatch, allowed="KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT", separator=","
)
VOLUME = re.compile(rf"(?P<claim>{_SUBDOMAIN}):(?P<path>/[^\s:,]*)(?P<only>:ro)?")
_GROUP = re.compile(r"[a-z]([a-z0-9-]{0,13}[a-z0-9])?")
_OWN = (  # fields that may differ in a further worker group
    "image",
    "cpu",
    "cpu_limit",
    "memory_mb",
    "gpus",
    "gpu_product",
    "cuda",
    "cuda_options",
    "shm_mb",
    "node_selector",
    "tolerations",
    "spread",
    "priority_class",
    "environment",
    "environment_secrets",
    "volumes",
)


def _is_setting(text: str) -> bool:
    name, equals, _ = text.partition("=")
    return bool(equals) and re.fullmatch(r"[A-Za-z_]\w*", name) is not None and not NAMES.search(name)


@dataclass(frozen=True)
class KubernetesSpec(ClusterSpec):
    """Workers in pods of Kubernetes, through the Dask operator; `scalescope job-script` shows the manifest."""

    kind: ClassVar[str] = "kubernetes"
    title: ClassVar[str] = "Kubernetes Cluster"
    implementation: ClassVar[str] = "scalescope.clusters.kubernetes.cluster:KubernetesCluster"
    reaper: ClassVar[str] = "scalescope.clusters.kubernetes.reaper:reap"
    reaper_of_others: ClassVar[str] = "scalescope.clusters.kubernetes.reaper:reap_others"
    example: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"namespace": "team", "gpus": 1, "gpu_product": "NVIDIA-H200", "memory_mb": 65536}
    )
    extra: ClassVar[str] = "kubernetes"
    packages: ClassVar[tuple[str, ...]] = ("kr8s", "cryptography")
    max_workers: ClassVar[int] = 2_000

    image: Annotated[
        str, WORD("Image of all pods, with the driver's versions of Python and Dask. If empty, Dask's own image.")
    ] = ""
    namespace: Annotated[str, _NAME("Where the pods run. If empty, the namespace of the context.")] = ""
    context: Annotated[str, WORD("Context of the kubeconfig. If empty, the current one, or the pod's account.")] = ""
    cpu: Annotated[
        float,
        Parameter(
            "CPUs that a worker requests; 0: one for each thread. Its limit is at least one for each thread.",
            title="CPUs per worker",
            minimum=0,
        ),
    ] = 0.0
    cpu_limit: Annotated[
        float,
        Parameter(
            "Most CPUs that a pod requests or may use; 0: the other fields alone decide.",
            title="CPUs per pod, at most",
            minimum=0,
        ),
    ] = 0.0
    memory_mb: Annotated[
        int,
        Parameter(
            "Memory of a worker in MiB, as request and limit; 0: neither.", title="Memory per worker, MiB", minimum=0
        ),
    ] = 2048
    gpus: Annotated[int, Parameter("NVIDIA GPUs of a worker.", title="GPUs per worker", minimum=0, maximum=64)] = 0
    gpu_product: Annotated[
        str,
        Text(
            "Model of the GPUs: the value of the nodes' label nvidia.com/gpu.product.",
            title="GPU product",
            accepts=re.compile(_WORD).fullmatch,
            allowed="the value of a label",
        ),
    ] = ""
    cuda: Annotated[
        bool,
        Parameter(
            "Start workers as `dask cuda worker`, each with one GPU; the image must have dask-cuda.",
            title="Workers of dask-cuda",
        ),
    ] = False
    cuda_options: Annotated[tuple[str, ...], CUDA_OPTIONS] = ()
    shm_mb: Annotated[
        int,
        Parameter(
            "Size of a worker's /dev/shm in MiB; 0: the runtime's default, usually 64.",
            title="Shared memory per worker, MiB",
            minimum=0,
        ),
    ] = 0
    node_selector: Annotated[
        tuple[str, ...],
        _LABELS("Labels of the nodes for workers, as KEY=VALUE, such as a cloud's label of spot nodes."),
    ] = ()
    tolerations: Annotated[
        tuple[str, ...],
        _TOLERATIONS(
            "Taints that workers tolerate, as KEY=VALUE:EFFECT; workers with GPUs also tolerate nvidia.com/gpu."
        ),
    ] = ()
    spread: Annotated[
        Literal["", "node", "zone"],
        Parameter("Spread workers evenly over nodes or zones. If empty, Kubernetes decides."),
    ] = ""
    scheduler_cpu: Annotated[float, Parameter("CPUs of the scheduler.", title="CPUs of the scheduler", minimum=0)] = 1.0
    scheduler_memory_mb: Annotated[
        int, Parameter("Memory of the scheduler in MiB.", title="Memory of the scheduler, MiB", minimum=64)
    ] = 2048
    scheduler_node_selector: Annotated[
        tuple[str, ...],
        _LABELS(
            "Labels of the nodes for the scheduler, as KEY=VALUE. The scheduler needs neither GPUs nor spot nodes."
        ),
    ] = ()
    scheduler_tolerations: Annotated[tuple[str, ...], _TOLERATIONS("Taints that the scheduler tolerates.")] = ()
    priority_class: Annotated[str, _NAME("Priority class of all pods.")] = ""
    service_account: Annotated[str, _NAME("Service account of all pods. If empty, pods get no token.")] = ""
    pull_secrets: Annotated[
        tuple[str, ...], _NAME("Secrets that hold the credentials of the registry.", separator=",")
    ] = ()
    environment: Annotated[
        tuple[str, ...],
        Text(
            "Variables of all pods, as NAME=VALUE. With EXTRA_PIP_PACKAGES, Dask's images install packages whenever a "
            "pod starts: only for trying something out.",
            accepts=_is_setting,
            allowed="NAME=VALUE; no value that looks like a secret: use cluster.environment_secrets for those",
        ),
    ] = ()
    environment_secrets: Annotated[
        tuple[str, ...], _NAME("Secrets whose entries become variables of all pods.", separator=",")
    ] = ()
    volumes: Annotated[
        tuple[str, ...],
        Text(
            "Persistent volume claims that workers mount, as CLAIM:/PATH or CLAIM:/PATH:ro.",
            accepts=VOLUME.fullmatch,
            allowed="CLAIM:/PATH or CLAIM:/PATH:ro",
            separator=",",
        ),
    ] = ()
    labels: Annotated[
        tuple[str, ...], _LABELS("Labels of all pods, as KEY=VALUE, such as a cost centre that a policy asks for.")
    ] = ()
    annotations: Annotated[
        tuple[str, ...],
        Text(
            "Annotations of all pods, as KEY=VALUE.", accepts=re.compile(rf"{_KEY}=.*").fullmatch, allowed="KEY=VALUE"
        ),
    ] = ()
    groups: Annotated[
        Mapping[str, Any],
        Parameter(
            "Further worker groups by name, each a mapping (or JSON) of the fields above that differ for its workers. "
            "They do not inherit the GPUs of the main group. The axis workers@NAME sets how many of a point's workers "
            "are in a group.",
            title="Further worker groups",
            examples=({"gpu": {"gpus": 1, "gpu_product": "NVIDIA-H200"}},),
        ),
    ] = field(default_factory=dict)
    tls: Annotated[
        bool,
        Parameter(
            "Encrypt all connections between Dask's processes, with certificates; not needed in a service mesh.",
            title="TLS",
        ),
    ] = True
    idle_timeout_s: Annotated[
        int, Parameter("Seconds after which the operator removes a cluster that does nothing.", minimum=60)
    ] = 900
    queue_timeout_s: Annotated[
        float, Parameter("Seconds that pods may wait for room on nodes that are busy.", minimum=1)
    ] = 600.0
    autoscale_timeout_s: Annotated[
        float,
        Parameter(
            "Seconds that pods may wait for nodes that autoscaling adds; 0: a pod that no node can hold is an error.",
            minimum=0,
        ),
    ] = 0.0
    start_timeout_s: Annotated[
        float,
        Parameter("Seconds within which pods that have a node must pull the image and register.", minimum=1),
    ] = 180.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", json_mapping("cluster.groups", self.groups))
        super().__post_init__()
        if self.gpu_product and not self.gpus:
            raise InvalidField(
                "cluster.gpus", 0, f"at least 1 together with cluster.gpu_product = {self.gpu_product!r}"
            )
        if self.cuda and self.gpus != 1:
            raise InvalidField("cluster.gpus", self.gpus, "1 together with cluster.cuda, which starts a worker per GPU")
        if self.cuda_options and not self.cuda:
            raise InvalidField("cluster.cuda", False, "true together with cluster.cuda_options")
        for name, own in self.groups.items():
            where = f"cluster.groups.{name}"
            if not _GROUP.fullmatch(name):
                raise InvalidField(where, own, "a name in lower case letters, digits and -, at most 15 characters")
            fields.reject_unknown(where, fields.mapping(where, own), _OWN)
            try:
                self.group(name)
            except InvalidField as error:
                allowed = error.allowed.replace("cluster.", f"{where}.")
                raise InvalidField(error.field.replace("cluster", where, 1), error.value, allowed) from error

    @classmethod
    def site_config(cls) -> SiteConfig:
        from scalescope.clusters.kubernetes import site_config

        return site_config.read(cls)

    @property
    def group_names(self) -> tuple[str, ...]:
        return tuple(self.groups)

    def group(self, name: str) -> KubernetesSpec:
        """The specification of the workers of a group; the main group has no name."""
        if not name:
            return self
        without: dict[str, Any] = {"groups": {}, "gpus": 0, "gpu_product": "", "cuda": False, "cuda_options": ()}
        return replace(self, **{**without, **self.groups[name]})

    @property
    def needs(self) -> tuple[str, ...]:
        return self.packages if self.tls else self.packages[:1]

    @property
    def node_labels(self) -> Mapping[str, str]:
        return dict(label.split("=", 1) for label in self.node_selector if "=" in label)

    @property
    def arrival_limit_s(self) -> float:
        return self.queue_timeout_s + self.autoscale_timeout_s + self.start_timeout_s

    @property
    def open_limit_s(self) -> float:
        return self.arrival_limit_s
