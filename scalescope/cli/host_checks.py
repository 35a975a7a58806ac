"""The checks of `scalescope doctor`."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from scalescope import workloads
from scalescope.diagnosis.causes import CAUSES
from scalescope.driver.process import Driver
from scalescope.environments.extra_requirements import package_name
from scalescope.errors import ClusterError, ScalescopeError
from scalescope.model.cluster import KINDS, cluster_spec, kinds
from scalescope.model.emulation_limit import EmulationLimit
from scalescope.model.extras import install_command
from scalescope.model.sweep import PlannedTrial, Point
from scalescope.model.trial import TrialState
from scalescope.model.workload import module_of
from scalescope.run import orchestrator_load
from scalescope.run.orchestrator import needed
from scalescope.slurm import commands as slurm_commands
from scalescope.slurm import jobs as slurm_jobs
from scalescope.studies import STUDIES


@dataclass(frozen=True)
class Check:
    """One check and its result."""

    name: str  # package or ability
    purpose: str  # features that need it
    works: bool
    found: str  # version or measurement; for a failed check, the fault and the remedy
    essential: bool = False  # True if nothing works without it

    @property
    def mark(self) -> str:
        return "ok" if self.works else "BROKEN" if self.essential else "-"


@dataclass(frozen=True)
class Package:
    """A distribution and the module that shows whether it works."""

    name: str
    purpose: str
    extra: str = ""
    needed_by: str = ""

    @property
    def module(self) -> str:
        return self.needed_by or module_of(self.name)


ESSENTIAL = (
    Package("distributed", "all clusters"),
    Package("sqlalchemy", "keeping results", needed_by="scalescope.store.store"),
    Package("pyarrow", "keeping raw records", needed_by="pyarrow.parquet"),
)
# optional packages that belong to no workload and no cluster
OTHERS = (
    Package("prefect", "runs as Prefect flows", "prefect"),
    Package("uv", "building environments", "environments"),
    Package("psycopg", "stores in PostgreSQL", "postgresql"),
)


def optional() -> list[Package]:
    return [*_of_workloads(), *_of_clusters(), *OTHERS]


def _of_workloads() -> Iterator[Package]:
    own = metadata.requires("scalescope") or []
    with_us = {"dask", *(package_name(requirement) for requirement in own if "extra ==" not in requirement)}
    known = workloads.builtin()
    needed = [(name, each.extra, each.name) for each in known for name in each.packages if name not in with_us]
    yield from _used_by("workloads", sorted(needed, key=lambda row: row[:2]))
    used = [(each.name, each.extra, f"{one.name} {each.purpose}") for one in known for each in one.uses]
    yield from _used_by("workloads", used)


def _of_clusters() -> Iterator[Package]:
    specs = [spec for spec in kinds().values() if spec.extra]
    rows = [(name.replace("_", "-"), spec.extra, spec.kind) for spec in specs for name in spec.packages]
    yield from _used_by("clusters", rows)


def _used_by(what: str, rows: Iterable[tuple[str, str, str]]) -> Iterator[Package]:
    """Packages and who uses them, from rows of package, extra and user."""
    users: dict[tuple[str, str], list[str]] = {}
    for name, extra, user in rows:
        users.setdefault((name, extra), []).append(user)
    for (name, extra), names in users.items():
        yield Package(name, f"{what}: {', '.join(names)}", extra)


def all_checks() -> list[Check]:
    """Run all checks, in about ten seconds."""
    usable = len(orchestrator_load.cores())
    cores = f"{usable} usable of {os.cpu_count()}" if usable else f"{os.cpu_count()}; processes cannot be pinned here"
    return [
        Check("python", "everything", True, f"{sys.version.split()[0]} at {sys.executable}", essential=True),
        *(_attempt(package.name, package.purpose, partial(_import, package), essential=True) for package in ESSENTIAL),
        *(_installed(package) for package in optional()),
        *_plugins(),
        _attempt("store", "keeping results", _store, essential=True),
        _attempt("Prefect's scheduler", "schedules of deployments", lambda: needed().schedules(), essential=False),
        _attempt("Slurm", "clusters: slurm", _slurm, essential=False),
        Check("cores", "clusters in real time, parallel clusters", True, cores),
        _attempt("simulated cluster", "sweeps in virtual time", partial(_cluster, "simulated"), essential=True),
        _attempt("light cluster", "many workers in real time", _emulation, essential=False),
        _attempt("local cluster", "worker processes on this machine", partial(_cluster, "local"), essential=False),
    ]


def _plugins() -> Iterator[Check]:
    for table in (KINDS, CAUSES, workloads.BUILTIN, STUDIES):
        for name, package, error in table.plugins():
            purpose = f"{table.group.rpartition('.')[2]}: {name}"
            yield Check(package, purpose, error is None, str(error or metadata.version(package)))


def _import(package: Package) -> str:
    importlib.import_module(package.module)
    return metadata.version(package.name)


def _installed(package: Package) -> Check:
    """Check a package without importing it, because some take seconds and print."""
    if find_spec(package.module) is not None:
        builds = metadata.packages_distributions().get(package.module, [package.name])  # XGBoost has two distributions
        return Check(package.name, package.purpose, True, metadata.version(builds[0]))
    return Check(package.name, package.purpose, False, f"not installed: {install_command(package.extra)}")


def _attempt(name: str, purpose: str, look: Callable[[], str], *, essential: bool) -> Check:
    try:
        return Check(name, purpose, True, look(), essential)
    except ScalescopeError as error:
        return Check(name, purpose, False, str(error), essential)
    except Exception as error:  # noqa: BLE001 - a package that breaks on import can raise anything
        return Check(name, purpose, False, f"{type(error).__name__}: {error}", essential)


def _store() -> str:
    from scalescope.store.store import Store  # imported here, because this import is what the check tests

    with Store.open() as store:
        return store.where


def _slurm() -> str:
    run = slurm_commands.commands()
    name, default = slurm_jobs.cluster_name(run=run), slurm_jobs.default_partition(run=run)
    return f"cluster {name}; default partition {default or 'none: set cluster.partition'}"


def _cluster(kind: str) -> str:
    with _driver(kind) as driver:
        return f"shows {driver.facts['shows']}"


def _emulation() -> str:
    """Measure how long tasks must be for this host to emulate many workers."""
    point = Point(workers=100, params={"items": 100, "seconds": 0.1, "stages": 1})
    with _driver("light") as driver:
        outcome = driver.run(PlannedTrial(0, point, 0), "futures-map", timeout_s=60)
    if outcome.state is not TrialState.VALID:
        raise ClusterError(f"a trial on the cluster ended as {outcome.state.value}: {outcome.reason}")
    limit = EmulationLimit.from_mapping(outcome.facts["cluster"]["limit"])
    return "; ".join(limit.sentence(workers) for workers in (100, 300, 1000))


@contextmanager
def _driver(kind: str) -> Iterator[Driver]:
    with tempfile.TemporaryDirectory() as folder, Driver.start(cluster_spec(kind), folder=Path(folder)) as driver:
        yield driver
