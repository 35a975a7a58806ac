"""Clusters on which a workload runs: the base of all specifications, and the table of their kinds."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from scalescope.errors import InvalidField, UsageError
from scalescope.model import fields
from scalescope.model.extras import install_command
from scalescope.model.mapping import differing
from scalescope.model.parameters import Declared, Parameter, check_fields, declared
from scalescope.model.plugins import Table
from scalescope.model.site_config import SiteConfig


def _kind(name: str, reference: str, found: object) -> type[ClusterSpec]:
    if isinstance(found, type) and issubclass(found, ClusterSpec) and found.kind == name:
        return found
    raise TypeError(f"expected a subclass of ClusterSpec whose `kind` is {name}")


# Specifications by kind of cluster, in the order of display: kinds on this machine first, the cheapest of them first
_OWN = {
    "simulated": "scalescope.clusters.simulated.spec:SimulatedSpec",
    "light": "scalescope.clusters.light.spec:LightSpec",
    "local": "scalescope.clusters.local.spec:LocalSpec",
    "custom": "scalescope.clusters.custom.spec:CustomSpec",
    "gateway": "scalescope.clusters.gateway.spec:GatewaySpec",
    "kubernetes": "scalescope.clusters.kubernetes.spec:KubernetesSpec",
    "scheduler": "scalescope.clusters.scheduler.spec:SchedulerSpec",
    "sge": "scalescope.clusters.jobqueue.systems:SgeSpec",
    "slurm": "scalescope.clusters.jobqueue.slurm_spec:SlurmSpec",
    "ssh": "scalescope.clusters.ssh.spec:SshSpec",
    "htcondor": "scalescope.clusters.jobqueue.systems:HtcondorSpec",
    "lsf": "scalescope.clusters.jobqueue.systems:LsfSpec",
    "moab": "scalescope.clusters.jobqueue.systems:MoabSpec",
    "oar": "scalescope.clusters.jobqueue.systems:OarSpec",
    "pbs": "scalescope.clusters.jobqueue.systems:PbsSpec",
}
KINDS: Table[type[ClusterSpec]] = Table("scalescope.clusters", _OWN, _kind)

OPEN_LIMIT_S = 120.0  # seconds within which a scheduler on this machine starts, even if the machine is busy
# Options that ask for Dask's adaptive scaling
_ADAPTIVE = frozenset({"adapt", "adaptive", "minimum", "maximum", "minimum_jobs", "maximum_jobs"})


@dataclass(frozen=True)
class Text(Parameter):
    """A parameter that is text of a certain form, or several such texts."""

    accepts: Callable[[str], object] = bool  # called with each text, but not if the only one is empty; true: allowed
    allowed: str = "text"  # allowed form, in words that follow "expected"
    separator: str = "\n"  # separator of several texts that are given as one


START_TIMEOUT = Parameter("Seconds within which all workers must have arrived.", minimum=1)
MEMORY_LIMIT_MB = "memory_limit_mb"  # field of some kinds of clusters
MEMORY_LIMIT = Parameter("Limit per worker in MiB; 0 means no limit.", title="Memory limit per worker, MiB", minimum=0)
# A text that becomes part of a command line, such as a path or a name
WORD = partial(
    Text, accepts=re.compile(r"[^\s'\"`;|&<>]+").fullmatch, allowed="text without spaces, quotes and ; | & < > `"
)
CUDA_OPTIONS = Text(
    "Options of `dask cuda worker`, such as --rmm-pool-size=0.8, --device-memory-limit=0.7 or --enable-cudf-spill.",
    title="Options of dask-cuda",
    accepts=re.compile(r"--[a-z][a-z-]*(=[\w.:,/+-]+)?").fullmatch,
    allowed="--NAME or --NAME=VALUE",
)


@dataclass(frozen=True)
class ClusterSpec:
    """Base of all specifications: a frozen dataclass whose fields are declared parameters."""

    kind: ClassVar[str] = ""  # name of the kind, in sweeps and on the command line
    title: ClassVar[str] = ""  # name in forms, and of the Prefect block
    implementation: ClassVar[str] = ""  # class of the cluster (`scalescope.clusters.base.Cluster`), as module:name
    reaper: ClassVar[str] = ""  # remover of leases (`scalescope.clusters.reaping.Reaper`); empty: the kind writes none
    reaper_of_others: ClassVar[str] = ""  # a `ReaperOfOthers`, if resources that other hosts left can be found
    example: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # fields of an example, in docs
    extra: ClassVar[str] = ""  # extra of Scalescope that installs `packages`; may be empty
    packages: ClassVar[tuple[str, ...]] = ()  # modules that the kind needs besides distributed
    max_workers: ClassVar[int] = 100_000  # most workers that a point may ask for
    real_time: ClassVar[bool] = True  # True if trials take real time; else the clock is virtual
    here: ClassVar[bool] = False  # True if all workers are on this machine, so that they cost nothing but time
    # True if workers share processes, so that measurements say nothing about tasks that compute
    shares_processes: ClassVar[bool] = False
    proven: ClassVar[bool] = True  # True if it was ever run on a real system; else it has no Prefect block
    hold_s: ClassVar[float] = 0.0  # most seconds that workers which arrived early wait for the others

    def __post_init__(self) -> None:
        for each in declared(type(self)):
            if isinstance(each.about, Text):
                object.__setattr__(self, each.name, _texts(each, each.about, getattr(self, each.name)))
        check_fields(self, "cluster")

    @classmethod
    def summary(cls) -> str:
        return (cls.__doc__ or "").strip().splitlines()[0]

    @classmethod
    def site_config(cls) -> SiteConfig:
        """Defaults of the fields on this machine."""
        return SiteConfig()

    @property
    def written(self) -> dict[str, Any]:
        """The specification, without fields that have their default."""
        return {"kind": self.kind, **differing(self)}

    @property
    def words(self) -> list[str]:
        """Options of a command that choose this cluster; fields that no option can give are left out."""
        plain = [(name, value) for name, value in differing(self).items() if isinstance(value, str | int | float)]
        return ["-c", self.kind, *(word for name, value in plain for word in ("--cluster-option", f"{name}={value}"))]

    def of_site(self) -> dict[str, str]:
        """By name of each field that has this machine's default: the file that sets the default, or `environment`."""
        site = self.site_config()
        return {name: site.origins[name] for name, value in site.values.items() if getattr(self, name) == value}

    def notes(self, threads_per_worker: int) -> list[str]:
        """Sentences that name fields which contradict each other."""
        return []

    @property
    def arrival_limit_s(self) -> float | None:
        """Seconds after which the cluster itself stops waiting for workers; None: never."""
        limit: float | None = getattr(self, "start_timeout_s", None)
        return limit

    @property
    def faults(self) -> tuple[str, ...]:
        """Kinds of faults (`scalescope.model.fault`) that can be caused on this cluster."""
        return ()

    @property
    def node_labels(self) -> Mapping[str, str]:
        return {}

    def cores_per_worker(self, threads: int) -> float:
        """Cores that are reserved for one worker."""
        return threads

    def held_worker_s(self, workers: int) -> float:
        """Upper bound of the worker-seconds that early workers spend waiting for the last one."""
        return (workers - 1) * self.hold_s

    def priced_as(self) -> tuple[str, ...]:
        """Names under which a price table may list this cluster; the highest price counts."""
        return (self.kind,)

    @property
    def open_limit_s(self) -> float:
        """Seconds that opening may take, before a point asks for workers."""
        return max(OPEN_LIMIT_S, getattr(self, "start_timeout_s", 0.0))

    @property
    def needs(self) -> tuple[str, ...]:
        """The `packages` needed with these fields."""
        return self.packages

    def require(self) -> None:
        """Refuse a cluster whose packages this interpreter lacks."""
        missing = [name for name in self.needs if importlib.util.find_spec(name) is None]
        if missing:
            raise UsageError(
                f"a {self.kind} cluster needs {' and '.join(missing).replace('_', '-')}",
                where=sys.executable,
                cause="not installed in this environment",
                next_step=install_command(self.extra),
            )

    @property
    def group_names(self) -> tuple[str, ...]:
        """Worker groups besides the main one, which has no name."""
        return ()

    def check_size(self, workers: int, threads_per_worker: int) -> None:
        """Raise `InvalidField` for a point that this cluster can never have."""

    def check_room(self, sizes: Iterable[tuple[int, int]], says: Callable[[str], object]) -> None:
        """Raise `ClusterError` if even the empty system is too small for one of `sizes` (workers, threads per worker).

        `says` is called with a text if the check has to wait.
        """

    def to_mapping(self) -> dict[str, Any]:
        given = asdict(self).items()
        return {"kind": self.kind} | {name: list(value) if isinstance(value, tuple) else value for name, value in given}


@dataclass(frozen=True)
class HereSpec(ClusterSpec):
    """Base of specifications whose workers are processes of this machine, in real time."""

    here: ClassVar[bool] = True

    start_timeout_s: Annotated[float, START_TIMEOUT] = field(default=120.0, kw_only=True)


def kinds() -> Mapping[str, type[ClusterSpec]]:
    """All specifications by kind; imports them."""
    return dict(KINDS.items())


def cluster_spec(data: object) -> ClusterSpec:
    """Read a kind (`"light"`) or a mapping with `kind` and fields; the rest get this machine's defaults, if any."""
    if isinstance(data, ClusterSpec):
        return data
    given = {"kind": data} if isinstance(data, str) else fields.mapping("cluster", data)
    kind = given.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidField("cluster.kind", kind, fields.suggest(str(kind or ""), KINDS))
    spec = KINDS[kind]
    known = {each.name: each for each in declared(spec)}
    for name in given:
        if name in _ADAPTIVE and name not in known:
            raise InvalidField(
                f"cluster.{name}",
                given[name],
                "no adaptive scaling: a trial is measured on exactly the workers of its point",
                next_step="give the sizes to measure as the axis `workers`",
            )
    fields.reject_unknown("cluster", given, known)
    missing = [name for name in known if name not in given]
    site = spec.site_config() if missing else SiteConfig()
    given |= {name: site.values.get(name) for name in missing if known[name].required or name in site.values}
    try:
        return spec(**given)
    except InvalidField as error:
        name = error.field.removeprefix("cluster.")
        if name not in missing or name not in site.values:
            raise
        step = f"this value comes from {site.origins[name]}; give {error.field} yourself"
        raise InvalidField(error.field, error.value, error.allowed, next_step=step) from error


def json_mapping(where: str, value: object) -> dict[str, Any]:
    """Read a mapping, or the JSON text of one."""
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
        return dict(json.loads(json.dumps(fields.mapping(where, parsed), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise InvalidField(where, value, f"a mapping with values that JSON can hold ({error})") from error


def _texts(declaration: Declared, about: Text, value: object) -> object:
    field = f"cluster.{declaration.name}"
    if not value and declaration.required:
        raise InvalidField(field, value, about.allowed)
    if isinstance(value, int) and not isinstance(value, bool):  # an account can be called 4711
        value = str(value)
    several = tuple in declaration.types
    if several and isinstance(value, str):
        value = tuple(value.split(about.separator)) if value else ()
    elif several and not isinstance(value, list | tuple):
        raise InvalidField(field, value, "a list")
    for text in value if isinstance(value, list | tuple) else (value,):
        if not isinstance(text, str) or ((text or several) and not about.accepts(text)):
            raise InvalidField(field, text, about.allowed)
    return tuple(value) if isinstance(value, list) else value
