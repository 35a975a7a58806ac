"""The one form of a case: a program that somebody else wrote, its label, its remedy and its source.

A program is a function of a client, which a sweep runs on the cluster that the case names, or a script: a function
that makes its own cluster. Both are loaded from their file, as a user's are; nothing of this module reaches a task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

HEALTHY = "healthy"
FOLDER = Path(__file__).parent
PREDICTED = "predicted"

SIDE = "a side input that everything waits for"
WORDS = (SIDE,)  # true causes for which the catalogue has no code

Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A program whose cause is known. `tests/causes/matrix.py` reads a case of its own by the same names."""

    name: str  # GROUP/FUNCTION
    file: Path  # file of the program
    source: str  # title and address, or repository and number of the thread
    labels: tuple[str, ...]  # codes of the catalogue, or words where it has none; each of them would be right
    near: tuple[str, ...] = ()  # codes that it resembles, wrongly
    lever: str = ""  # the remedy, in words
    mended_by: str = ""  # the function with the remedy applied, if it takes another one
    factor: float = 1.4  # least speed-up when mended, or the most if below 1; 0: a script that ends valid
    # For functions of a client
    cluster: Mapping[str, Any] = field(default_factory=dict)  # specification of the cluster; empty for a script
    workers: tuple[int, ...] = ()  # workers of each point
    threads: int = 1  # threads of each worker
    params: Mapping[str, Any] = field(default_factory=dict)  # parameters of the workload, and keys of Dask's settings
    mending: Mapping[str, Any] = field(default_factory=dict)  # fields of the point that mend it
    timeout_s: float = 60.0  # real seconds until a trial is stopped
    without_server: bool = False  # True for a script that runs without a Prefect server

    config: Mapping[str, Any] = field(default_factory=dict)  # always empty: `params` has Dask's settings
    quiet_loss = "judged by its remedy instead"

    @property
    def group(self) -> str:
        return self.name.partition("/")[0]

    @property
    def title(self) -> str:
        """The name of the function."""
        return self.name.partition("/")[2]

    @property
    def function(self) -> str:
        """The workload as a user writes it."""
        return f"{self.file}:{self.title}"

    @property
    def expect(self) -> str:
        """The first label."""
        return self.labels[0]

    @property
    def also(self) -> tuple[str, ...]:
        """The other labels."""
        return self.labels[1:]

    @property
    def real(self) -> bool:
        """Whether it runs in real time."""
        return self.cluster.get("kind") != "simulated"

    def sweep(self) -> dict[str, Any]:
        """The sweep that runs it, as a user would write it."""
        points = [{"workers": workers, "threads_per_worker": self.threads, **self.params} for workers in self.workers]
        return {
            "workload": self.function,
            "cluster": dict(self.cluster),
            "points": points,
            "trial_timeout_s": self.timeout_s,
        }

    def mended(self) -> Case:
        """The same work with the remedy applied, at the last size."""
        fields = dict(self.mending)
        return replace(
            self,
            name=f"{self.group}/{self.mended_by or self.title}",
            workers=(fields.pop("workers", self.workers[-1]),) if self.workers else (),
            threads=fields.pop("threads", self.threads),
            cluster=fields.pop("cluster", self.cluster),
            params={**({} if self.mended_by else self.params), **fields},
            without_server=False,
        )


_CASES: dict[tuple[Path, str], Case] = {}


def case(
    label: str | tuple[str, ...],
    workers: int | tuple[int, ...],
    cluster: str | Mapping[str, Any] = "simulated",
    *,
    threads: int = 1,
    factor: float = 1.4,
    timeout_s: float = 60.0,
    near: str = "",
    **params: Any,
) -> Callable[[Function], Function]:
    """Declare the function of a client below, whose docstring names its source; spaces separate the codes of `near`."""
    sizes = (workers,) if isinstance(workers, int) else workers
    kind = {"kind": cluster} if isinstance(cluster, str) else cluster
    given = {"threads": threads, "factor": factor, "timeout_s": timeout_s}
    return _declared(label, near, cluster=kind, workers=sizes, params=params, **given)


def script(label: str | tuple[str, ...], *, near: str = "", without_server: bool = False) -> Callable[..., Function]:
    """Declare the function below to be a script; the rest as for `case`."""
    return _declared(label, near, without_server=without_server)


def predicted(of: str, label: str | tuple[str, ...]) -> Callable[[Function], Function]:
    """Declare the function of a client below, of a set written blind; the label was measured on 16 small machines."""
    cluster = {"kind": "custom", "cluster_class": "infra.machines.mini:Machines"}

    def declared(function: Function) -> Function:
        _declared(label, "", cluster=cluster, workers=(1, 2, 4, 8, 16), timeout_s=300.0)(function)
        place = _place(function)
        _CASES[place] = replace(_CASES[place], name=f"{PREDICTED}/{function.__name__}", source=f"the {of} set")
        return function

    return declared


def remedy(lever: str, **fields: Any) -> Callable[[Function], Function]:
    """Say what mends the function below: words, and the fields of the point that do it."""

    def declared(function: Function) -> Function:
        function.remedy = {"lever": lever, "mending": fields}  # type: ignore[attr-defined]
        return function

    return declared


def mends(
    written: Function, lever: str, *, factor: float | None = None, **fields: Any
) -> Callable[[Function], Function]:
    """Declare the function below to be the program `written` with its remedy applied; `factor` replaces that of it."""

    def declared(function: Function) -> Function:
        known = _CASES[_place(written)]
        wanted = known.factor if factor is None else factor
        found = replace(known, lever=lever, mended_by=_place(function)[1], mending=fields, factor=wanted)
        _CASES[_place(written)] = found
        _tell_clock(function, known.cluster)
        return function

    return declared


def _declared(label: str | tuple[str, ...], near: str, **fields: Any) -> Callable[[Function], Function]:
    def declared(function: Function) -> Function:
        file, name = place = _place(function)
        _CASES[place] = Case(
            name=f"{file.stem.removeprefix('of_')}/{name}",
            file=file,
            source=" ".join((function.__doc__ or "").split()).removesuffix("."),
            labels=(label,) if isinstance(label, str) else label,
            near=tuple(near.split()),
            **fields,
            **getattr(function, "remedy", {}),
        )
        _tell_clock(function, fields.get("cluster", {}))
        return function

    return declared


def _place(function: Function) -> tuple[Path, str]:
    plain = getattr(function, "fn", function)  # a flow has its function as `fn`
    return Path(plain.__code__.co_filename), plain.__name__


def _tell_clock(function: Function, cluster: Mapping[str, Any]) -> None:
    if cluster.get("kind") in ("simulated", "light"):
        function.modelled = True  # type: ignore[attr-defined]


def all_cases() -> tuple[Case, ...]:
    """Every case, in the order of the files and of their functions."""
    for path in (*sorted(FOLDER.glob("of_*.py")), FOLDER / f"{PREDICTED}.py"):
        import_module(path.stem)
    return tuple(_CASES.values())


def functions() -> tuple[Case, ...]:
    """The cases that are functions of a client, and whose cause is to be named."""
    return tuple(each for each in all_cases() if each.cluster and each.group != PREDICTED)


def scripts() -> tuple[Case, ...]:
    return tuple(each for each in all_cases() if not each.cluster)


def predictions() -> tuple[Case, ...]:
    return tuple(each for each in all_cases() if each.group == PREDICTED)
