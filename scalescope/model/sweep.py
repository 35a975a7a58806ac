"""A sweep: which points of which axes are measured, how often, and in which order."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from scalescope.errors import InvalidField, UnknownName
from scalescope.model import axis, fault, fields, parameters
from scalescope.model.cluster import ClusterSpec, cluster_spec, kinds
from scalescope.model.environment import Environment
from scalescope.model.fields import Scalar
from scalescope.model.mapping import from_mapping
from scalescope.model.parameters import Parameter
from scalescope.model.workload import Workload

WORKERS, THREADS, ITEMS, ITEMS_PER_WORKER = "workers", "threads_per_worker", "items", "items_per_worker"
CLUSTER, ENVIRONMENT, GROUPS, FAULT = "cluster", "environment", "groups", "fault"
ZERO_LENGTH = "scalescope.zero-length-tasks"
"""Dask configuration key of simulated clusters: tasks give their results and take no time."""
OF_GROUP = f"{WORKERS}@"
"""In front of the name of a worker group: an axis."""
MAX_TRIALS = 100_000
DEFAULT_CLUSTER = "simulated"


def digest(data: object) -> str:
    """Twelve hexadecimal digits that stand for `data` (anything JSON can carry)."""
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Point:
    """One combination of axis values.

    Attributes:
        workers: Workers that the cluster must have.
        threads_per_worker: Threads of each.
        params: Every parameter of the workload, bound.
        dask_config: Dask configuration keys that differ from the defaults.
        environment: Software to run with, as `Environment.parse` reads it; empty, like `present`, is the present one.
        cluster: Kind of cluster; empty is the sweep's.
        groups: How many of the workers are in which of the cluster's further worker groups.
        fault: What is broken on purpose (`scalescope.model.fault`); empty is nothing.
    """

    workers: int
    threads_per_worker: int = 1
    params: Mapping[str, Scalar] = field(default_factory=dict)
    dask_config: Mapping[str, Scalar] = field(default_factory=dict)
    environment: str = ""
    cluster: str = ""
    groups: Mapping[str, int] = field(default_factory=dict)
    fault: str = ""

    @property
    def threads(self) -> int:
        """P: threads of the whole cluster."""
        return self.workers * self.threads_per_worker

    @property
    def has_zero_length_tasks(self) -> bool:
        """Whether its tasks take no time: an experiment, whose time is that of client and scheduler."""
        return bool(self.dask_config.get(ZERO_LENGTH))

    @property
    def items(self) -> int | None:
        """The workload's `items`, where it has that parameter."""
        value = self.params.get(ITEMS)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def id(self) -> str:
        """Stable identity: the same combination has the same id in every sweep, however its environment is called."""
        data = self.to_mapping()
        if self.environment:
            data[ENVIRONMENT] = Environment.parse(self.environment).text
        if groups := data.pop(GROUPS, {}):  # none of a group is the same as not to name it
            data |= {f"{OF_GROUP}{name}": number for name, number in groups.items() if number}
        return digest({name: value for name, value in data.items() if value or name != ENVIRONMENT})

    @property
    def values(self) -> dict[str, Scalar]:
        """The values of axes that give this point."""
        place = {CLUSTER: self.cluster, ENVIRONMENT: self.environment, FAULT: self.fault}
        return {
            WORKERS: self.workers,
            THREADS: self.threads_per_worker,
            **{f"{OF_GROUP}{name}": number for name, number in self.groups.items()},
            **self.params,
            **self.dask_config,
            **{name: value for name, value in place.items() if value},
        }

    def to_mapping(self) -> dict[str, Any]:
        """As JSON carries it."""
        place = {
            CLUSTER: self.cluster,
            ENVIRONMENT: self.environment,
            GROUPS: dict(self.groups),
            FAULT: self.fault,
        }
        return {
            "workers": self.workers,
            "threads_per_worker": self.threads_per_worker,
            "params": dict(self.params),
            "dask_config": dict(self.dask_config),
            **{name: value for name, value in place.items() if value},
        }

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Point:
        """The inverse of `to_mapping`."""
        return from_mapping(cls, data)


@dataclass(frozen=True)
class PlannedTrial:
    """A place in the order of a sweep.

    Attributes:
        index: Position in the whole order, from 0.
        point: What to run.
        repeat: From 0; warm-ups of a point count from 0 too.
        warmup: Run and recorded, never a data point.
    """

    index: int
    point: Point
    repeat: int
    warmup: bool = False

    @property
    def key(self) -> str:
        """Identity within the sweep."""
        return f"{self.point.id}-{'w' if self.warmup else 'r'}{self.repeat}"


_COUNTS = {"minimum": 1, "pattern": r"^[1-9][\d.,: ]*$"}
_SINGLE = ["number", "string", "boolean", "null"]
POINT_SCHEMA = {
    "patternProperties": {f"^({WORKERS}|{THREADS})$": {"type": "integer", "minimum": 1}},
    "additionalProperties": {"type": _SINGLE},
}
"""JSON Schema of a value for each axis."""
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
"""JSON Schema of values for each axis."""

WorkloadParams = Annotated[
    Mapping[str, Any],
    Parameter(
        "Workload parameters that hold for all trials.",
        title="Workload parameters",
        option=("--param", "-p"),
        metavar="NAME=VALUE",
        syntax="values",
        examples=({"seconds": 1},),
        schema={"additionalProperties": {"type": _SINGLE}},
    ),
]
Seed = Annotated[
    int,
    Parameter("Random seed for the order of trials, and of the simulated cluster.", minimum=0, maximum=2**32 - 1),
]
TrialTimeout = Annotated[
    float,
    Parameter(
        "Real seconds after which a trial is stopped and invalid.",
        title="Time limit of a trial, s",
        minimum=1,
        maximum=7 * 86400,
        option=("--timeout",),
    ),
]
TRIAL_TIMEOUT_S = 600.0


@dataclass(frozen=True, kw_only=True)
class SweepParameters:
    """A sweep as people write it, in YAML, Python, a form or options; nothing but types and bounds is checked yet."""

    workload: Annotated[
        str,
        Parameter(
            "What to run: the name of a built-in workload (`scalescope workloads` lists them), "
            "package.module:function, or path.py:function.",
            examples=("futures-map", "my_job.py:run"),
            names="workload",
            option=("--workload", "-w"),
            metavar="NAME",
        ),
    ]
    axes: Annotated[
        Mapping[str, Any],
        Parameter(
            "Values per axis: a list, or a range such as 1..8 or 50..300:50. All combinations are run. Axes are "
            "workers, workers@NAME (how many of them are in a cluster's worker group), threads_per_worker, items, "
            "items_per_worker, environment, cluster (a kind), fault (what is broken on purpose: none, kill-worker, "
            "pause-worker, steal-cpu), any parameter of the workload, or any Dask configuration key.",
            examples=({"workers": "1..4,8,16", "items": [100, 200]},),
            schema=AXES_SCHEMA,
            option=("--axis", "-a"),
            syntax="axes",
        ),
    ] = field(default_factory=dict)
    points: Annotated[
        list[Any],
        Parameter(
            "Further combinations, each a mapping of axis names to values, run as they are.",
            title="Further points",
            syntax="file",
            examples=([{"workers": 32, "items": 1000}],),
            schema={"items": {"type": "object", **POINT_SCHEMA}},
        ),
    ] = field(default_factory=list)
    params: WorkloadParams = field(default_factory=dict)
    cluster: Annotated[
        str | Mapping[str, Any],
        Parameter(
            "Where to run it: a kind of cluster, a saved block such as simulated-cluster/prod, or a mapping with kind "
            "and fields.",
            examples=("simulated", {"kind": "local", "memory_limit_mb": 2048}),
            names="cluster",
            option=("--cluster", "-c"),
            metavar="KIND",
            syntax="cluster",
        ),
    ] = DEFAULT_CLUSTER
    environment: Annotated[
        str,
        Parameter(
            "Software to run it with: requirements such as 'apache-beam==2.50.0 dask[distributed]==2023.9.1', with a "
            "name in front if you like ('2023 = ...'), or the path of a Python interpreter. Empty: the present one.",
            option=("--environment", "-e"),
            metavar="REQUIREMENTS",
            syntax="environments",
        ),
    ] = ""
    repeats: Annotated[int, Parameter("Trials per point.", minimum=1, maximum=1000)] = 1
    warmups: Annotated[
        int,
        Parameter("Trials per point that are run first and never counted.", title="Warm-ups", minimum=0, maximum=100),
    ] = 0
    seed: Seed = 0
    trial_timeout_s: TrialTimeout = TRIAL_TIMEOUT_S


@dataclass(frozen=True)
class Sweep:
    """Axes and repeats over one workload on one cluster: the fields of `SweepParameters`, checked."""

    workload: str
    cluster: ClusterSpec = field(default_factory=lambda: cluster_spec("simulated"))
    axes: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)
    points: tuple[Mapping[str, Scalar], ...] = ()
    params: Mapping[str, Scalar] = field(default_factory=dict)
    repeats: int = parameters.default(SweepParameters, "repeats")
    warmups: int = parameters.default(SweepParameters, "warmups")
    seed: int = parameters.default(SweepParameters, "seed")
    trial_timeout_s: float = parameters.default(SweepParameters, "trial_timeout_s")
    environment: str = ""

    @classmethod
    def from_mapping(cls, data: object) -> Sweep:
        """Build a sweep from what JSON or YAML carries.

        Raises:
            InvalidField: Names the field, its value and what is allowed.
        """
        given = fields.mapping("sweep", data)
        if not given.get("workload"):
            fields.reject_unknown("", given, [each.name for each in parameters.declared(SweepParameters)])
            raise InvalidField(
                "workload", None, "the name of a workload", next_step="`scalescope workloads` lists them"
            )
        cluster = cluster_spec(given.pop("cluster", DEFAULT_CLUSTER))
        asked = parameters.check(SweepParameters, given)
        points = tuple(
            {
                name: fields.scalar(f"points[{i}].{name}", value)
                for name, value in fields.mapping(f"points[{i}]", point).items()
            }
            for i, point in enumerate(asked.points)
        )
        return cls(
            workload=fields.text("workload", asked.workload),
            cluster=cluster,
            axes={name: axis_values(name, values) for name, values in asked.axes.items()},
            points=points,
            params={name: fields.scalar(f"params.{name}", value) for name, value in asked.params.items()},
            repeats=asked.repeats,
            warmups=asked.warmups,
            seed=asked.seed,
            trial_timeout_s=asked.trial_timeout_s,
            environment=_environment(ENVIRONMENT, asked.environment),
        )

    def to_mapping(self) -> dict[str, Any]:
        """As JSON carries it; `from_mapping` reads it back."""
        return {
            "workload": self.workload,
            "cluster": self.cluster.to_mapping(),
            "axes": {name: list(values) for name, values in self.axes.items()},
            "points": [dict(point) for point in self.points],
            "params": dict(self.params),
            "repeats": self.repeats,
            "warmups": self.warmups,
            "seed": self.seed,
            "trial_timeout_s": self.trial_timeout_s,
            **({ENVIRONMENT: self.environment} if self.environment else {}),
        }

    @property
    def id(self) -> str:
        """Stable identity of the question."""
        return digest(self.to_mapping())

    def expand(self, workload: Workload) -> tuple[Point, ...]:
        """All points, checked against the workload, each once, in the order of the axes.

        Raises:
            InvalidField: An axis, a parameter or a value is not allowed, or there is no point at all.
        """
        combinations: list[tuple[str, dict[str, Scalar]]] = []
        if self.axes:
            count = 1
            for values in self.axes.values():
                count *= len(values)
            if count * (self.repeats + self.warmups) > MAX_TRIALS:
                raise InvalidField("axes", f"{count} combinations", f"at most {MAX_TRIALS} trials in one sweep")
            names = list(self.axes)
            combinations = [
                ("axes", dict(zip(names, values, strict=True))) for values in itertools.product(*self.axes.values())
            ]
        combinations += [(f"points[{i}]", dict(point)) for i, point in enumerate(self.points)]
        if not combinations:
            raise InvalidField("axes", dict(self.axes), "at least one axis, such as workers: [1, 2, 4]")
        points = {point.id: point for point in (self._point(where, values, workload) for where, values in combinations)}
        return tuple(points.values())

    def plan(self, workload: Workload) -> tuple[PlannedTrial, ...]:
        """All trials in the order in which they run.

        Warm-ups come first; then each repeat visits every point once, in an order of its own drawn from the seed, so
        that slow drift of the machine does not look like an effect of an axis.
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
        """Where a point runs."""
        return self.cluster if point.cluster in ("", self.cluster.kind) else cluster_spec(point.cluster)

    def clusters(self, points: Iterable[Point]) -> tuple[ClusterSpec, ...]:
        """Where points run, each cluster once."""
        return tuple({spec.kind: spec for spec in map(self.cluster_of, points)}.values())

    def point(self, values: Mapping[str, Scalar], workload: Workload) -> Point:
        """A further point of this sweep.

        Args:
            values: Of its axes, by name.
            workload: What the sweep runs.

        Raises:
            InvalidField: A name or a value is not allowed.
        """
        return self._point("point", values, workload)

    def _point(self, where: str, values: Mapping[str, Scalar], workload: Workload) -> Point:
        params: dict[str, object] = dict(self.params)
        config: dict[str, Scalar] = {}
        groups: dict[str, int] = {}
        cluster = _cluster(f"{where}.{CLUSTER}", values.get(CLUSTER, ""))
        environment = _environment(f"{where}.{ENVIRONMENT}", values.get(ENVIRONMENT, self.environment))
        known = [WORKERS, THREADS, CLUSTER, ENVIRONMENT, FAULT, *(parameter.name for parameter in workload.parameters)]
        if workload.parameter(ITEMS):
            known.append(ITEMS_PER_WORKER)
        spec = self.cluster if cluster in ("", self.cluster.kind) else cluster_spec(cluster)
        known += [f"{OF_GROUP}{name}" for name in spec.group_names]
        for name, value in values.items():
            if name.startswith(OF_GROUP) and not spec.group_names:
                raise InvalidField(f"{where}.{name}", value, f"no worker groups: this {spec.kind} cluster has none")
            if name in (WORKERS, THREADS, CLUSTER, ENVIRONMENT, FAULT, ITEMS_PER_WORKER):
                if name not in known:
                    raise InvalidField(
                        f"{where}.{name}",
                        value,
                        f"an axis of this workload ({workload.name!r} has no parameter 'items')",
                    )
                continue
            if name.startswith(OF_GROUP) and name in known:
                groups[name.removeprefix(OF_GROUP)] = fields.integer(f"{where}.{name}", value, minimum=0)
            elif "." in name:
                config[name] = value
            elif name in known:
                params[name] = value
            else:
                raise UnknownName(
                    f"{where}.{name}", value, fields.suggest(name, known) + ", or a Dask configuration key (with a dot)"
                )
        workers = fields.integer(f"{where}.{WORKERS}", values.get(WORKERS, 1), minimum=1, maximum=spec.max_workers)
        threads = fields.integer(f"{where}.{THREADS}", values.get(THREADS, 1), minimum=1, maximum=1024)
        spec.check_size(workers, threads)
        if fields.boolean(f"{where}.{ZERO_LENGTH}", config.get(ZERO_LENGTH, False)) and spec.real_time:
            raise InvalidField(
                f"{where}.{ZERO_LENGTH}", True, f"a simulated cluster: on a {spec.kind} cluster tasks take real time"
            )
        broken = str(values.get(FAULT, fault.NONE))
        nothing = fault.parse(f"{where}.{FAULT}", broken, spec.faults, spec.kind) is None
        if sum(groups.values()) > workers:
            raise InvalidField(f"{where}.{WORKERS}", workers, f"at least {sum(groups.values())}, those of all groups")
        if ITEMS_PER_WORKER in values:
            if ITEMS in values or ITEMS in self.params:
                raise InvalidField(
                    f"{where}.{ITEMS_PER_WORKER}", values[ITEMS_PER_WORKER], "only one of items and items_per_worker"
                )
            per_worker = fields.number(f"{where}.{ITEMS_PER_WORKER}", values[ITEMS_PER_WORKER], minimum=0)
            params[ITEMS] = round(per_worker * workers)
        section = "params" if where == "axes" else where
        for name in values:
            if name in params and name not in self.params:
                section = where
        return Point(
            workers,
            threads,
            workload.bind(params, section=section),
            config,
            environment,
            cluster,
            groups,
            "" if nothing else broken,
        )


def _cluster(where: str, kind: object) -> str:
    if kind and not (isinstance(kind, str) and kind in kinds()):
        raise InvalidField(where, kind, fields.suggest(str(kind), kinds()))
    return str(kind)


def _environment(where: str, text: object) -> str:
    if not isinstance(text, str):
        raise InvalidField(where, text, "text: requirements such as dask==2024.8.0, or the path of an interpreter")
    if text:
        Environment.parse(text, where)
    return text


def axis_values(name: str, given: object) -> tuple[Scalar, ...]:
    """The values of an axis: a list, one value, or text such as `1..8,16`; the text of an environment is one value.

    Raises:
        InvalidField: There is none, one is not allowed, or one is there twice.
    """
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
