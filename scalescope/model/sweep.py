"""A sweep: the points that are measured, how often, and in which order."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from scalescope.errors import InvalidField, UnknownName
from scalescope.model import axis, fault, fields, parameters
from scalescope.model.cluster import KINDS, ClusterSpec, cluster_spec
from scalescope.model.environment import ENVIRONMENT as ENVIRONMENT
from scalescope.model.environment import PRESENT, Environment
from scalescope.model.fields import Scalar
from scalescope.model.mapping import Mapped, differing
from scalescope.model.parameters import Parameter
from scalescope.model.workload import Workload

WORKERS, THREADS, ITEMS, ITEMS_PER_WORKER = "workers", "threads_per_worker", "items", "items_per_worker"
CLUSTER, GROUPS, FAULT = "cluster", "groups", "fault"
# Dask configuration key of simulated clusters: tasks return their results and take no time
ZERO_LENGTH = "scalescope.zero-length-tasks"
OF_GROUP = f"{WORKERS}@"  # prefix of the axis of a worker group
# Most trials of one sweep, so that a typing error does not plan for hours; most threads of a worker
MAX_TRIALS, MAX_THREADS = 100_000, 1024
DEFAULT_CLUSTER = "simulated"


def digest(data: object) -> str:
    """Twelve hexadecimal digits that identify `data` (anything that JSON carries)."""
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Point(Mapped):
    """One combination of axis values."""

    workers: int
    threads_per_worker: int = 1
    params: Mapping[str, Scalar] = field(default_factory=dict)  # every parameter of the workload
    dask_config: Mapping[str, Scalar] = field(default_factory=dict)  # Dask configuration keys to be set
    environment: str = ""  # software to run with, as `Environment.parse` reads it; empty: the present one
    cluster: str = ""  # kind of cluster; empty: that of the sweep
    groups: Mapping[str, int] = field(default_factory=dict)  # workers in each worker group, counted in `workers`
    fault: str = ""  # fault on purpose (`scalescope.model.fault`); empty: none

    @property
    def threads(self) -> int:
        return self.workers * self.threads_per_worker

    @property
    def has_zero_length_tasks(self) -> bool:
        """Whether its tasks take no time: an experiment that measures client and scheduler alone."""
        return bool(self.dask_config.get(ZERO_LENGTH))

    @property
    def items(self) -> int | None:
        value = self.params.get(ITEMS)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def id(self) -> str:
        """Id of the combination: the same in every sweep, whatever name its environment has."""
        data = differing(self)
        data[ENVIRONMENT] = Environment.parse(self.environment).text
        data[GROUPS] = {name: number for name, number in self.groups.items() if number}
        return digest({name: value for name, value in data.items() if value})

    @property
    def values(self) -> dict[str, Scalar]:
        """The values of axes that give this point."""
        own = {name: value for name in OWN_AXES if (value := getattr(self, name))}
        return {
            WORKERS: own.pop(WORKERS),
            THREADS: own.pop(THREADS),
            **{f"{OF_GROUP}{name}": number for name, number in self.groups.items()},
            **self.params,
            **self.dask_config,
            **own,
        }

    def to_mapping(self) -> dict[str, Any]:
        always = {"params": dict(self.params), "dask_config": dict(self.dask_config)}
        return {name: value for name, value in vars(self).items() if value} | always


@dataclass(frozen=True)
class PlannedTrial:
    """One trial in the order of a sweep."""

    index: int  # position in the order, from 0
    point: Point  # the point to run
    repeat: int  # number of the repeat, from 0; a point's warm-ups also count from 0
    warmup: bool = False  # run and recorded, but not a data point

    @property
    def key(self) -> str:
        return f"{self.point.id}-{'w' if self.warmup else 'r'}{self.repeat}"


_COUNTS = {"minimum": 1, "pattern": r"^[1-9][\d.,: ]*$"}
_SINGLE = ["number", "string", "boolean", "null"]
# JSON Schema of a value for each axis
POINT_SCHEMA = {
    "patternProperties": {f"^({WORKERS}|{THREADS})$": {"type": "integer", "minimum": 1}},
    "additionalProperties": {"type": _SINGLE},
}
# JSON Schema of values for each axis
AXES_SCHEMA = {
    "patternProperties": {
        f"^({WORKERS}|{THREADS})$": {
            **_COUNTS,
            "type": ["integer", "string", "array"],
            "items": {**_COUNTS, "type": ["integer", "string"]},
            "minItems": 1,
        }
    },
    "additionalProperties": {"type": [*_SINGLE, "array"], "items": {"type": _SINGLE}, "minItems": 1},
}


@dataclass(frozen=True)
class OwnAxis:
    """An axis that every sweep can have; the field of `Point` of the same name holds its value."""

    reads: Callable[[str, object, ClusterSpec], Any]  # takes (where, value, cluster), returns the field's value
    absent: Scalar  # value if a point does not name the axis
    nothing: str = ""  # text for labels if the field is empty
    means: str = ""  # explanation in the help, without parentheses


def _read_points(where: str, given: object) -> tuple[dict[str, Scalar], ...]:
    if not isinstance(given, list | tuple):
        raise InvalidField(where, given, "a list")
    return tuple(_read_scalars(f"{where}[{i}]", point) for i, point in enumerate(given))


def _read_scalars(where: str, given: object) -> dict[str, Scalar]:
    return {name: fields.scalar(f"{where}.{name}", value) for name, value in fields.mapping(where, given).items()}


def _read_axes(where: str, given: object) -> dict[str, tuple[Scalar, ...]]:
    return {name: axis_values(name, values) for name, values in fields.mapping(where, given).items()}


def _read_environment(where: str, text: object) -> str:
    if not isinstance(text, str):
        raise InvalidField(where, text, "text: requirements such as dask==2024.8.0, or the path of an interpreter")
    if text:
        Environment.parse(text, where)
    return text


def _read_workers(where: str, value: object, cluster: ClusterSpec) -> int:
    return fields.integer(where, value, minimum=1, maximum=cluster.max_workers)


def _read_kind(where: str, value: object, cluster: ClusterSpec) -> str:
    kind = str(value)
    if kind and kind not in KINDS:
        raise InvalidField(where, kind, fields.suggest(kind, KINDS))
    return kind


def _read_fault(where: str, value: object, cluster: ClusterSpec) -> str:
    return "" if fault.parse(where, str(value), cluster.faults, cluster.kind) is None else str(value)


# A new axis is a row here and a field of `Point`
OWN_AXES: Mapping[str, OwnAxis] = {
    WORKERS: OwnAxis(_read_workers, 1),
    THREADS: OwnAxis(lambda where, value, _: fields.integer(where, value, minimum=1, maximum=MAX_THREADS), 1),
    CLUSTER: OwnAxis(_read_kind, "", means="a kind"),
    ENVIRONMENT: OwnAxis(lambda where, value, _: _read_environment(where, value), "", PRESENT),
    FAULT: OwnAxis(
        _read_fault, fault.NONE, fault.NONE, f"what is broken on purpose: {', '.join((fault.NONE, *fault.KINDS))}"
    ),
}
# Labels of axes that a point does not name
NOTHING = {name: own.nothing for name, own in OWN_AXES.items() if own.nothing}
_LISTED = ", ".join(f"{name} ({own.means})" if own.means else name for name, own in OWN_AXES.items())

WorkloadParams = Annotated[
    Mapping[str, Scalar],
    Parameter(
        "Workload parameters that hold for all trials.",
        title="Workload parameters",
        option=("--param", "-p"),
        metavar="NAME=VALUE",
        syntax="values",
        examples=({"seconds": 1},),
        schema={"additionalProperties": {"type": _SINGLE}},
        written=Mapping[str, Any],
        reads=_read_scalars,
    ),
]
Seed = Annotated[
    int, Parameter("Random seed for the order of trials and for the simulated cluster.", minimum=0, maximum=2**32 - 1)
]
TrialTimeout = Annotated[
    float,
    Parameter(
        "Real seconds after which a trial is stopped and counts as invalid.",
        title="Time limit of a trial, s",
        minimum=1,
        maximum=7 * 86400,
        option=("--timeout",),
    ),
]
TRIAL_TIMEOUT_S = 600.0


def _read_cluster(where: str, given: object) -> ClusterSpec:  # no lambda: in an annotation it would not see this module
    return cluster_spec(given)


@dataclass(frozen=True)
class Sweep:
    """Axes and repeats over one workload on one cluster."""

    workload: Annotated[
        str,
        Parameter(
            "What to run: the name of a built-in workload (`scalescope workloads` lists them), "
            "package.module:function, or path.py:function.",
            examples=("futures-map", "/shared/my_job.py:run"),
            names="workload",
            option=("--workload", "-w"),
            metavar="NAME",
            reads=fields.text,
        ),
    ]
    axes: Annotated[
        Mapping[str, tuple[Scalar, ...]],
        Parameter(
            "Values per axis: a list, or a range such as 1..8 or 50..300:50. All combinations are run. Axes are "
            f"{_LISTED}, workers@NAME (how many workers are in a cluster's worker group), items, items_per_worker, any "
            "parameter of the workload, or any Dask configuration key.",
            examples=({"workers": "1..4,8,16", "items": [100, 200]},),
            schema=AXES_SCHEMA,
            option=("--axis", "-a"),
            syntax="axes",
            written=Mapping[str, Any],
            reads=_read_axes,
        ),
    ] = field(default_factory=dict)
    points: Annotated[
        tuple[Mapping[str, Scalar], ...],
        Parameter(
            "More points to run, besides the combinations of the axes: each a mapping of axis names to values.",
            title="Further points",
            syntax="file",
            examples=([{"workers": 32, "items": 1000}],),
            schema={"items": {"type": "object", **POINT_SCHEMA}},
            written=list[Any],
            default=[],
            reads=_read_points,
        ),
    ] = ()
    params: WorkloadParams = field(default_factory=dict)
    cluster: Annotated[
        ClusterSpec,
        Parameter(
            "Where to run it: a kind of cluster, a saved block such as simulated-cluster/prod, or a mapping with kind "
            "and fields.",
            examples=("simulated", {"kind": "local", "memory_limit_mb": 2048}),
            names="cluster",
            option=("--cluster", "-c"),
            metavar="KIND",
            syntax="cluster",
            written=str | Mapping[str, Any],
            default=DEFAULT_CLUSTER,
            reads=_read_cluster,
        ),
    ] = field(default_factory=partial(cluster_spec, DEFAULT_CLUSTER))
    environment: Annotated[
        str,
        Parameter(
            "Software to run it with: requirements such as 'apache-beam==2.50.0 dask[distributed]==2023.9.1', with a "
            "name in front if you like ('2023 = ...'), or the path of a Python interpreter. Empty: the environment "
            "that Scalescope runs in.",
            option=("--environment", "-e"),
            metavar="REQUIREMENTS",
            syntax="environments",
            reads=_read_environment,
        ),
    ] = ""
    repeats: Annotated[int, Parameter("Trials per point.", minimum=1, maximum=1000)] = 1
    warmups: Annotated[
        int,
        Parameter("Warm-up trials per point: run first, and never counted.", title="Warm-ups", minimum=0, maximum=100),
    ] = 0
    seed: Seed = 0
    trial_timeout_s: TrialTimeout = TRIAL_TIMEOUT_S

    @classmethod
    def from_mapping(cls, data: object) -> Sweep:
        """Build a sweep from JSON, YAML, options or a form."""
        given = fields.mapping("sweep", data)
        if not given.get("workload"):
            fields.reject_unknown("", given, [each.name for each in parameters.declared(cls)])
            raise InvalidField(
                "workload", None, "the name of a workload", next_step="`scalescope workloads` lists them"
            )
        return parameters.check(cls, given)

    def to_mapping(self) -> dict[str, Any]:
        lists = {"axes": {name: list(values) for name, values in self.axes.items()}, "points": list(self.points)}
        return {**vars(self), "cluster": self.cluster.to_mapping(), **lists}

    @property
    def id(self) -> str:
        """Identity of the sweep; fields with their default do not count."""
        return digest({**differing(self), "cluster": {"kind": self.cluster.kind, **differing(self.cluster)}})

    def expand(self, workload: Workload) -> tuple[Point, ...]:
        """All points, checked against the workload, each once, in the order of the axes."""
        count = math.prod(map(len, self.axes.values()))
        if count * (self.repeats + self.warmups) > MAX_TRIALS:
            raise InvalidField("axes", f"{count} combinations", f"at most {MAX_TRIALS} trials in one sweep")
        products = itertools.product(*self.axes.values()) if self.axes else ()
        combinations = [("axes", dict(zip(self.axes, values, strict=True))) for values in products]
        combinations += [(f"points[{i}]", dict(point)) for i, point in enumerate(self.points)]
        if not combinations:
            raise InvalidField("axes", dict(self.axes), "at least one axis, such as workers: [1, 2, 4]")
        points = {point.id: point for point in (self._point(where, values, workload) for where, values in combinations)}
        return tuple(points.values())

    def plan(self, workload: Workload) -> tuple[PlannedTrial, ...]:
        """All trials in the order in which they run, warm-ups first.

        Each repeat visits every point once in random order, so that slow drift of the machine favours no point.
        """
        points = self.expand(workload)
        rng = random.Random(self.seed)
        order: list[tuple[Point, int, bool]] = []
        for count, warmup in ((self.warmups, True), (self.repeats, False)):
            for repeat in range(count):
                shuffled = list(points)
                rng.shuffle(shuffled)
                order += [(point, repeat, warmup) for point in shuffled]
        return tuple(PlannedTrial(i, point, repeat, warmup) for i, (point, repeat, warmup) in enumerate(order))

    def cluster_of(self, point: Point) -> ClusterSpec:
        return self.cluster if point.cluster in ("", self.cluster.kind) else cluster_spec(point.cluster)

    def driver_of(self, point: Point) -> tuple[str, str]:
        """Cluster and software of a point: points that have both in common may share a driver."""
        return digest(self.cluster_of(point).to_mapping()), Environment.parse(point.environment).text

    def clusters(self, points: Iterable[Point]) -> tuple[ClusterSpec, ...]:
        return tuple({spec.kind: spec for spec in map(self.cluster_of, points)}.values())

    def point(self, values: Mapping[str, Scalar], workload: Workload) -> Point:
        """A further point of this sweep, from values of axes."""
        return self._point("point", values, workload)

    def _point(self, where: str, values: Mapping[str, Scalar], workload: Workload) -> Point:
        cluster = _read_kind(f"{where}.{CLUSTER}", values.get(CLUSTER, ""), self.cluster)
        spec = self.cluster if cluster in ("", self.cluster.kind) else cluster_spec(cluster)
        params, config, groups = _sorted_values(where, values, workload, spec)
        given = {ENVIRONMENT: self.environment, **values}
        own = {
            name: own_axis.reads(f"{where}.{name}", given.get(name, own_axis.absent), spec)
            for name, own_axis in OWN_AXES.items()
        }
        workers = own[WORKERS]
        spec.check_size(workers, own[THREADS])
        if fields.boolean(f"{where}.{ZERO_LENGTH}", config.get(ZERO_LENGTH, False)) and spec.real_time:
            raise InvalidField(
                f"{where}.{ZERO_LENGTH}", True, f"a simulated cluster: on a {spec.kind} cluster tasks take real time"
            )
        if sum(groups.values()) > workers:
            raise InvalidField(f"{where}.{WORKERS}", workers, f"at least {sum(groups.values())}, the sum of all groups")
        if ITEMS_PER_WORKER in values:
            per_worker, field = values[ITEMS_PER_WORKER], f"{where}.{ITEMS_PER_WORKER}"
            if ITEMS in values or ITEMS in self.params:
                raise InvalidField(field, per_worker, "only one of items and items_per_worker")
            params[ITEMS] = round(fields.number(field, per_worker, minimum=0) * workers)
        of_sweep = where == "axes" and not set(params) - set(self.params)
        return Point(
            params=workload.bind({**self.params, **params}, section="params" if of_sweep else where),
            dask_config=config,
            groups=groups,
            **own,
        )


def _sorted_values(
    where: str, values: Mapping[str, Scalar], workload: Workload, spec: ClusterSpec
) -> tuple[dict[str, Scalar], dict[str, Scalar], dict[str, int]]:
    """Sort the values of a point into workload parameters, Dask configuration and worker groups."""
    params: dict[str, Scalar] = {}
    config: dict[str, Scalar] = {}
    groups: dict[str, int] = {}
    of_workload = {parameter.name for parameter in workload.parameters}
    known = {*OWN_AXES, *of_workload, *(f"{OF_GROUP}{name}" for name in spec.group_names)}
    known |= {ITEMS_PER_WORKER} if ITEMS in of_workload else set()
    for name, value in values.items():
        field = f"{where}.{name}"
        if name == ITEMS_PER_WORKER and name not in known:
            raise InvalidField(field, value, f"an axis of this workload ({workload.name!r} has no parameter 'items')")
        if name.startswith(OF_GROUP) and not spec.group_names:
            raise InvalidField(field, value, f"no worker groups: this {spec.kind} cluster has none")
        if name in (*OWN_AXES, ITEMS_PER_WORKER):
            continue
        if "." in name:
            config[name] = value
        elif name not in known:
            raise UnknownName(field, value, fields.suggest(name, known) + ", or a Dask configuration key (with a dot)")
        elif name.startswith(OF_GROUP):
            groups[name.removeprefix(OF_GROUP)] = fields.integer(field, value, minimum=0)
        else:
            params[name] = value
    return params, config, groups


def axis_values(name: str, given: object) -> tuple[Scalar, ...]:
    """Values of an axis (`axis.values`). The text of an environment is one value. A repeated value is refused."""
    where = f"axes.{name}"
    if not given and isinstance(given, list | tuple):
        raise InvalidField(where, given, "at least one value")
    checked = (given,) if name == ENVIRONMENT and isinstance(given, str) else tuple(axis.values(where, given))
    seen: set[tuple[type, Scalar]] = set()
    for value in checked:
        if (type(value), value) in seen:
            raise InvalidField(where, list(checked), f"each value once; {value!r} is there twice")
        seen.add((type(value), value))
    return checked
