"""Settings, packages and hosts that differ between two trials, those first that best explain the difference in time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scalescope.analysis.difference import DifferencePart, PartKind
from scalescope.model.environment import normalise
from scalescope.model.sweep import ENVIRONMENT
from scalescope.model.trial import RAN, Trial
from scalescope.model.words import cut

MOST = 10  # most culprits that are reported
UNLIKELY = 0.02  # factor on a fact's weight for kinds of parts that `_EXPLAINS` does not list for the fact
NEUTRAL = (
    "address",
    "made_at",
    "blocked_outside_clock",
    "shows",
    "validated",
)  # facts of a cluster that do not affect times
CORES = 0.25  # smallest difference in the cores used by other processes that is reported
OF_DASK = ("dask", "distributed", "dask-expr")
# Packages to sort next to a package of another name: `distributed` pins one release of `dask`.
_FAMILY = {"distributed": "dask"}

_TASKS = (PartKind.GRAPH, PartKind.GRAPH_SIZE, PartKind.CHUNKS, PartKind.SLOWER)
_DELAYS = (PartKind.PLACEMENT, PartKind.SCHEDULER, PartKind.WAITING)
# Kind of fact, pattern of its name, weight, and kinds of parts that it can explain. The first matching row counts.
_EXPLAINS: tuple[tuple[str, str, float, tuple[PartKind, ...]], ...] = (
    ("point", r"workers|threads_per_worker|workers@.*", 1.0, (PartKind.THREADS, PartKind.START_UP, PartKind.WAITING)),
    ("point", r"fault", 1.0, (PartKind.LOST, PartKind.PAUSED, PartKind.SLOWER, PartKind.WAITING)),
    ("point", r".*", 1.0, (*_TASKS, PartKind.CLIENT, PartKind.IMPORTS, PartKind.WAITING)),
    ("setting", r"(array|dataframe|optimization|tokenize)\..*", 1.0, (*_TASKS, PartKind.CLIENT)),
    ("setting", r".*(comm|bandwidth|compression|connect|p2p).*", 1.0, (PartKind.TRANSFER, PartKind.SERIALISATION)),
    ("setting", r".*memory.*", 1.0, (PartKind.SPILL, PartKind.PAUSED, PartKind.LOST)),
    ("setting", r".*(scheduler|steal|saturation|retire).*", 1.0, _DELAYS),
    ("setting", r".*", 0.3, (*_TASKS, *_DELAYS, PartKind.TRANSFER)),
    ("variable", r".*THREADS|OMP_.*|KMP_.*|CUDA_.*", 0.9, (PartKind.SLOWER, PartKind.MACHINE, PartKind.WAITING)),
    ("variable", r"MALLOC_.*|TMPDIR", 0.9, (PartKind.SPILL, PartKind.PAUSED, PartKind.LOST, PartKind.SLOWER)),
    ("variable", r".*", 0.5, (PartKind.SLOWER, PartKind.CLIENT, PartKind.IMPORTS, *_DELAYS)),
    ("cluster", r".*(bandwidth|latency|packet|interface|protocol).*", 1.0, (PartKind.TRANSFER, PartKind.CLIENT)),
    ("cluster", r".*memory.*", 1.0, (PartKind.SPILL, PartKind.PAUSED, PartKind.LOST)),
    ("cluster", r".*(scheduler|worker_us|message).*", 1.0, _DELAYS),
    ("cluster", r".*", 0.3, (PartKind.START_UP, PartKind.MACHINE, PartKind.SLOWER, PartKind.TRANSFER)),
    ("host", r"cores used.*", 1.0, (PartKind.MACHINE,)),
    ("host", r"memory.*", 0.5, (PartKind.SPILL, PartKind.PAUSED, PartKind.LOST)),
    ("host", r".*", 1.0, (PartKind.MACHINE, PartKind.START_UP, PartKind.IMPORTS)),
    (
        "package",
        rf"({'|'.join(OF_DASK)})",
        0.5,
        (*_TASKS, *_DELAYS, PartKind.CLIENT, PartKind.SERIALISATION, PartKind.SPILL),
    ),
    ("package", r".*", 0.2, (*_TASKS, PartKind.CLIENT, PartKind.IMPORTS)),
    ("code", r".*", 0.4, (*_TASKS, PartKind.CLIENT)),
)
# Columns of load on a host, by the name of the fact
_LOAD = {"cores used by other processes": "others", "cores used by other virtual machines": "stolen"}
_HOST = ("hostname", "cpu_model", "usable_cpus", "memory_bytes", "cgroup_cpus", "cgroup_memory_bytes")


@dataclass(frozen=True)
class DifferingFact:
    """Something that is not the same in A and B."""

    kind: str  # `point` (an axis), `setting` (of Dask), `variable`, `package`, `cluster`, `host` or `code`
    name: str
    a: str  # value in A; empty if A lacks it
    b: str
    explains_s: float = 0.0  # seconds of the named parts, weighted by how likely this fact explains each

    def __str__(self) -> str:
        """`dask 2024.10.0 → 2024.11.0`."""
        if self.kind == "code":
            return self.name
        name = self.name if self.kind in ("point", "package", "setting", "variable") else f"{self.kind} {self.name}"
        a, b = (each or "absent" for each in (self.a, self.b))
        return f"{name} {a} → {b}" if self.kind == "package" else f"{name} {cut(a)} → {cut(b)}"


def changed_packages(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[DifferingFact, ...]:
    """Packages whose versions differ, by normalised names (PEP 503).

    Sorted so that packages whose names begin alike (`dask`, `dask-expr`; also `distributed`) are neighbours.
    """
    left, right = ({normalise(str(name)): str(version) for name, version in side.items()} for side in (a, b))
    names = sorted(left.keys() | right.keys(), key=lambda name: (_FAMILY.get(name, name.partition("-")[0]), name))
    facts = (DifferingFact("package", name, left.get(name, ""), right.get(name, "")) for name in names)
    return tuple(each for each in facts if each.a != each.b)


def differing(a: Trial, b: Trial) -> tuple[DifferingFact, ...]:
    """All that differs between the facts of two trials."""
    left, right = dict(_facts(a)), dict(_facts(b))
    found = [*changed_packages(_packages(a), _packages(b))]
    if found:  # the packages tell how the environments differ
        left.pop(("point", ENVIRONMENT), None)
        right.pop(("point", ENVIRONMENT), None)
    for key in dict.fromkeys([*left, *right]):
        one, other = left.get(key), right.get(key)
        if one != other and not (key[1] in _LOAD and abs((one or 0.0) - (other or 0.0)) < CORES):
            found.append(DifferingFact(*key, "" if one is None else str(one), "" if other is None else str(other)))
    return tuple(found)


def other_host(facts: Sequence[DifferingFact]) -> bool:
    """Whether A and B ran on different machines; a different load on the same machine does not count."""
    return any(each.kind == "host" and each.name not in _LOAD for each in facts)


def culprits(facts: Sequence[DifferingFact], parts: Sequence[DifferencePart]) -> tuple[DifferingFact, ...]:
    """The differing facts that can explain named parts, the likeliest first."""
    named = [part for part in parts if part.named]
    found = [replace(each, explains_s=sum(_weight(each, part) * abs(part.seconds) for part in named)) for each in facts]
    return tuple(sorted((each for each in found if each.explains_s > 0), key=lambda each: -each.explains_s)[:MOST])


def _weight(fact: DifferingFact, part: DifferencePart) -> float:
    text = f"{part.where} {part.name}"
    module = fact.name.replace("-", "_")
    if fact.kind == "package" and re.search(rf"(?<![\w]){re.escape(module)}\.", text):
        return 1.0
    if fact.kind == "code" and part.kind in (PartKind.SLOWER, PartKind.CLIENT) and ".py:" in text:
        return 1.0
    weight, kinds = next(
        (weight, kinds)
        for kind, pattern, weight, kinds in _EXPLAINS
        if kind == fact.kind and re.fullmatch(pattern, fact.name)
    )
    return weight if part.kind in kinds else UNLIKELY * weight


def _packages(trial: Trial) -> dict[str, Any]:
    known, python = trial.facts.get("packages"), trial.facts.get("python")
    return {**(known if isinstance(known, Mapping) else {}), **({"python": python} if python else {})}


def _facts(trial: Trial) -> Iterator[tuple[tuple[str, str], Any]]:
    facts = trial.facts
    for name, value in trial.point.values.items():
        yield ("setting" if "." in name else "point", name), value
    for name, value in (facts.get("dask_config") or {}).items():
        yield ("setting", str(name)), value
    for name, value in (facts.get("variables") or {}).items():
        yield ("variable", str(name)), value
    for name, value in (facts.get("cluster") or {}).items():
        if isinstance(value, str | int | float) and name not in NEUTRAL:
            yield ("cluster", str(name)), value if not isinstance(value, float) else f"{value:g}"
    if not trial.virtual:
        host: Mapping[str, Any] = facts.get("host") or {}
        for name in _HOST:
            yield ("host", name), host.get(name)
        load: Mapping[str, Any] = host.get("load") or {}
        for name, share in _LOAD.items():
            yield ("host", name), round(load.get(share, 0.0) * load.get("cpus", 0), 1)
    if code := facts.get("code"):
        yield ("code", "the script or its arguments" if RAN in facts else "the user's code"), code
