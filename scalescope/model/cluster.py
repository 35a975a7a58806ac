"""Where a workload runs: what the specifications of all clusters share, and the registry of their kinds.

Each kind is a folder of `scalescope.clusters` whose module `spec` names its specifications in `SPECS`. They are found
by listing the folders, so that nothing else holds a list of kinds, and a driver in another environment finds them too.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Any, ClassVar

from scalescope.errors import InvalidField, UsageError
from scalescope.model import fields
from scalescope.model.parameters import Declared, Parameter, check_fields, declared

CLUSTERS = "scalescope.clusters"
"""Package whose folders are kinds of clusters."""

OPEN_LIMIT_S = 120.0
"""Seconds in which a scheduler on this machine has started, however busy that is."""

_ADAPTIVE = frozenset({"adapt", "adaptive", "minimum", "maximum", "minimum_jobs", "maximum_jobs"})
"""What Dask's adaptive scaling is asked for with."""


@dataclass(frozen=True)
class Text(Parameter):
    """A parameter that is text of a certain form, or several such texts.

    Attributes:
        accepts: Whether a text that is not empty is allowed, such as the `fullmatch` of a compiled pattern.
        allowed: The form in words that follow "expected".
        separator: What separates several texts that are given as one.
    """

    accepts: Callable[[str], object] = bool
    allowed: str = "text"
    separator: str = "\n"


START_TIMEOUT = Parameter("Seconds within which all workers must have arrived.", minimum=1)
MEMORY_LIMIT = Parameter("Limit per worker in MiB; 0 means none.", title="Memory limit per worker, MiB", minimum=0)
WORD = partial(Text, accepts=re.compile(r"[^\s'\"`;|&<>]+").fullmatch, allowed="text without blanks and quotes")
"""A text that goes over a command line, such as a path or a name."""


@dataclass(frozen=True)
class ClusterSpec:
    """Base of all specifications: a frozen dataclass whose fields are declared parameters.

    Attributes:
        kind: Its name, in sweeps and on the command line.
        title: Its name in forms, and of its Prefect block.
        example: Fields of an example, in docs.
        extra: Extra of this package that installs what it needs; empty where nothing is.
        packages: Modules that it needs besides distributed.
        max_workers: Most workers that a point may ask for.
        real_time: Whether trials take real time; else the clock is virtual.
        here: Whether all workers are on this machine, so that they cost nothing but time.
        proven: Whether it was ever run on a real system; one that was not has no block.
        hold_s: Most seconds for which workers that have come wait for others.
    """

    kind: ClassVar[str] = ""
    title: ClassVar[str] = ""
    example: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    extra: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()
    max_workers: ClassVar[int] = 100_000
    real_time: ClassVar[bool] = True
    here: ClassVar[bool] = False
    proven: ClassVar[bool] = True
    hold_s: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        for each in declared(type(self)):
            if isinstance(each.about, Text):
                object.__setattr__(self, each.name, _texts(each, each.about, getattr(self, each.name)))
        check_fields(self, "cluster")

    @classmethod
    def summary(cls) -> str:
        """What it is, in one line."""
        return (cls.__doc__ or "").strip().splitlines()[0]

    @property
    def arrival_limit_s(self) -> float | None:
        """Seconds after which the cluster itself gives up waiting for workers; None where it has no such limit."""
        limit: float | None = getattr(self, "start_timeout_s", None)
        return limit

    @property
    def faults(self) -> tuple[str, ...]:
        """Kinds of `scalescope.model.fault` that can be had on it."""
        return ()

    @property
    def node_labels(self) -> Mapping[str, str]:
        """Labels of the nodes that workers ask for."""
        return {}

    def cores_per_worker(self, threads: int) -> float:
        """Cores that are reserved for a worker of so many threads."""
        return threads

    def held_worker_s(self, workers: int) -> float:
        """Most seconds of workers that come before the last, added up, for which they wait for it."""
        return (workers - 1) * self.hold_s

    def priced_as(self) -> tuple[str, ...]:
        """Names under which a price table may have it; the dearest counts."""
        return (self.kind,)

    @property
    def open_limit_s(self) -> float:
        """Seconds that opening may take, before any point asks for workers."""
        return max(OPEN_LIMIT_S, getattr(self, "start_timeout_s", 0.0))

    @property
    def needs(self) -> tuple[str, ...]:
        """Those of `packages` that it needs with these fields."""
        return self.packages

    def require(self) -> None:
        """Refuse a cluster whose packages this interpreter lacks, before anything is started.

        Raises:
            UsageError: One is not installed.
        """
        missing = [name for name in self.needs if importlib.util.find_spec(name) is None]
        if missing:
            raise UsageError(
                f"a {self.kind} cluster needs {' and '.join(missing).replace('_', '-')}",
                where=sys.executable,
                cause="not installed in this environment",
                next_step=f'pip install "scalescope[{self.extra}]"',
            )

    @property
    def group_names(self) -> tuple[str, ...]:
        """Worker groups of which a point can have some of its workers, besides the main one, which has no name."""
        return ()

    def check_size(self, workers: int, threads_per_worker: int) -> None:
        """Refuse a point that this cluster can never have.

        Raises:
            InvalidField: It cannot.
        """

    def check_room(self, sizes: Iterable[tuple[int, int]], says: Callable[[str], object]) -> None:
        """Refuse what the system has no room for, even when nobody else is there, as far as it can be asked.

        Args:
            sizes: Workers and threads of each, of all points.
            says: Told what is waited for.

        Raises:
            ClusterError: It has none for one of them, and for how many it has; or it cannot be asked.
        """

    def to_mapping(self) -> dict[str, Any]:
        """As JSON carries it: `kind` and the fields."""
        given = asdict(self).items()
        return {"kind": self.kind} | {name: list(value) if isinstance(value, tuple) else value for name, value in given}


@cache
def kinds() -> Mapping[str, type[ClusterSpec]]:
    """All kinds of clusters: those on this machine first, the one that can have the most workers before the others."""
    package = importlib.import_module(CLUSTERS)
    folders = [f"{CLUSTERS}.{each.name}.spec" for each in pkgutil.iter_modules(package.__path__) if each.ispkg]
    modules = [importlib.import_module(name) for name in folders if importlib.util.find_spec(name)]
    specs: list[type[ClusterSpec]] = [spec for module in modules for spec in module.SPECS]
    specs.sort(key=lambda spec: (not spec.here, -spec.max_workers if spec.here else 0, not spec.proven, spec.kind))
    return MappingProxyType({spec.kind: spec for spec in specs})


def cluster_spec(data: object) -> ClusterSpec:
    """Build a specification from a kind (`"virtual"`) or a mapping with `kind` and fields.

    Raises:
        InvalidField: The kind or a field is unknown, or a value is not allowed.
    """
    if isinstance(data, ClusterSpec):
        return data
    given = {"kind": data} if isinstance(data, str) else fields.mapping("cluster", data)
    kind = given.pop("kind", None)
    if not isinstance(kind, str) or kind not in kinds():
        raise InvalidField("cluster.kind", kind, fields.suggest(str(kind or ""), kinds()))
    spec = kinds()[kind]
    known = {each.name: each for each in declared(spec)}
    for name in given:
        if name in _ADAPTIVE and name not in known:
            raise InvalidField(
                f"cluster.{name}",
                given[name],
                "no adaptive scaling: a point has exactly the workers that it says, for that is what is measured; and "
                "with several workers per job, adaptive scaling ends jobs whose workers hold results",
                next_step="give the sizes to measure as the axis `workers`",
            )
    fields.reject_unknown("cluster", given, known)
    missing = {name: None for name, each in known.items() if each.required and name not in given}
    return spec(**given, **missing)


def json_mapping(where: str, value: object) -> dict[str, Any]:
    """A mapping, given as one or as its JSON.

    Raises:
        InvalidField: It is none, or JSON cannot carry it.
    """
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
        return dict(json.loads(json.dumps(fields.mapping(where, parsed), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise InvalidField(where, value, f"a mapping that JSON can carry ({error})") from error


def _texts(declaration: Declared, about: Text, value: object) -> object:
    """The value of a text field, or of one that holds several texts, in the type of that field.

    Raises:
        InvalidField: A text is not of the form that is declared; or there is none, and one is required.
    """
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
