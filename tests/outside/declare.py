"""Declares what is known of a workload that somebody else wrote: its source, what is wrong with it, what mends it.

The functions are loaded from their file, as a user's are; nothing of this module reaches a task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

HEALTHY = "healthy"
FOLDER = Path(__file__).parent

SIDE = "a side input that everything waits for"
WORDS = (SIDE,)  # true causes for which the catalogue has no code

Function = Callable[..., Any]


@dataclass(frozen=True)
class Outside:
    """A workload whose cause is known from its source. What `matrix` needs of a case is here by the same names."""

    name: str  # of the group and of the function
    function: str  # as written
    source: str  # title and address, or repository and number of the thread
    labels: tuple[str, ...]  # codes of the catalogue, or words where it has none; each of them would be right
    workers: tuple[int, ...]  # of each point
    threads: int  # of each worker
    cluster: Mapping[str, Any]  # specification
    params: Mapping[str, Any] = field(default_factory=dict)  # of the workload, and keys of Dask's configuration
    lever: str = ""  # what mends it, in words
    mending: Mapping[str, Any] = field(default_factory=dict)  # fields of the point that mend it
    mended_by: str = ""  # the function with the remedy applied, if it takes another one
    factor: float = 1.4  # how much faster it is mended, at least; below 1: at most
    near: tuple[str, ...] = ()  # codes that it resembles, wrongly
    timeout_s: float = 60.0  # real seconds until a trial is stopped

    config: Mapping[str, Any] = field(default_factory=dict)  # in `params` here
    quiet_loss = "judged by its remedy instead"

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
        return self.cluster["kind"] != "simulated"

    def sweep(self) -> dict[str, Any]:
        """As a user would write it."""
        points = [{"workers": workers, "threads_per_worker": self.threads, **self.params} for workers in self.workers]
        return {
            "workload": self.function,
            "cluster": dict(self.cluster),
            "points": points,
            "trial_timeout_s": self.timeout_s,
        }

    def mended(self) -> Outside:
        """The same work with the remedy applied, at the last size."""
        fields = dict(self.mending)
        return replace(
            self,
            function=self.mended_by or self.function,
            workers=(fields.pop("workers", self.workers[-1]),),
            threads=fields.pop("threads", self.threads),
            cluster=fields.pop("cluster", self.cluster),
            params={**({} if self.mended_by else self.params), **fields},
        )


_CASES: dict[tuple[str, str], Outside] = {}


def case(
    label: str | tuple[str, ...],
    workers: int | tuple[int, ...],
    cluster: str | Mapping[str, Any] = "simulated",
    *,
    threads: int = 1,
    near: str = "",
    factor: float = 1.4,
    timeout_s: float = 60.0,
    **params: Any,
) -> Callable[[Function], Function]:
    """Declare the function below, whose docstring names its source; `near` has codes with spaces between them."""

    def declared(function: Function) -> Function:
        file = Path(function.__code__.co_filename)
        kind = {"kind": cluster} if isinstance(cluster, str) else cluster
        lever, mending = getattr(function, "remedy", ("", {}))
        _modelled(function, kind)
        _CASES[file.name, function.__name__] = Outside(
            name=f"{file.stem.removeprefix('of_')}/{function.__name__}",
            function=f"{file}:{function.__name__}",
            source=" ".join((function.__doc__ or "").split()).removesuffix("."),
            labels=(label,) if isinstance(label, str) else label,
            workers=(workers,) if isinstance(workers, int) else workers,
            threads=threads,
            cluster=kind,
            params=params,
            lever=lever,
            mending=mending,
            factor=factor,
            near=tuple(near.split()),
            timeout_s=timeout_s,
        )
        return function

    return declared


def remedy(lever: str, **fields: Any) -> Callable[[Function], Function]:
    """Say what mends the workload below: words, and the fields of the point that do it."""

    def declared(function: Function) -> Function:
        function.remedy = lever, fields  # type: ignore[attr-defined]
        return function

    return declared


def mends(written: Function, lever: str, **fields: Any) -> Callable[[Function], Function]:
    """Declare the function below to be the workload `written` with its remedy applied."""

    def declared(function: Function) -> Function:
        file = Path(function.__code__.co_filename)
        known = _CASES[file.name, written.__name__]
        _modelled(function, known.cluster)
        mended_by = f"{file}:{function.__name__}"
        _CASES[file.name, written.__name__] = replace(known, lever=lever, mended_by=mended_by, mending=fields)
        return function

    return declared


@dataclass(frozen=True)
class Script:
    """A function that makes its own cluster, as a script does; `tests/benchmarks/scripts.py` runs it."""

    name: str  # of the group and of the function
    file: Path
    source: str  # title and address, or repository and number of the thread
    labels: tuple[str, ...]  # codes of the catalogue; each of them would be right
    near: tuple[str, ...] = ()  # codes that it resembles, wrongly
    without_server: bool = False  # whether no Prefect server is configured
    lever: str = ""  # what mends it, in words
    mended_by: str = ""  # the function with the remedy applied
    factor: float = 1.4  # how much faster it is mended, at least; 0: what it left undone is done

    @property
    def expect(self) -> str:
        """The first label."""
        return self.labels[0]

    @property
    def function(self) -> str:
        return self.name.partition("/")[2]

    def mended(self) -> Script:
        return replace(self, name=f"{self.name.partition('/')[0]}/{self.mended_by}", without_server=False)


_SCRIPTS: dict[tuple[str, str], Script] = {}


def script(
    label: str | tuple[str, ...], *, near: str = "", without_server: bool = False
) -> Callable[[Function], Function]:
    """Declare the function below, whose docstring names its source, to be a script; `near` as for `case`."""

    def declared(function: Function) -> Function:
        file = _file(function)
        _SCRIPTS[file.name, function.__name__] = Script(
            name=f"{file.stem.removeprefix('of_')}/{function.__name__}",
            file=file,
            source=" ".join((function.__doc__ or "").split()).removesuffix("."),
            labels=(label,) if isinstance(label, str) else label,
            near=tuple(near.split()),
            without_server=without_server,
        )
        return function

    return declared


def mends_script(written: Function, lever: str, factor: float = 1.4) -> Callable[[Function], Function]:
    """Declare the function below to be the script `written` with its remedy applied."""

    def declared(function: Function) -> Function:
        known = _SCRIPTS[place := (_file(function).name, written.__name__)]
        _SCRIPTS[place] = replace(known, lever=lever, mended_by=function.__name__, factor=factor)
        return function

    return declared


def _file(function: Function) -> Path:
    return Path(getattr(function, "fn", function).__code__.co_filename)  # a flow has its function as `fn`


def _modelled(function: Function, cluster: Mapping[str, Any]) -> None:
    function.modelled = cluster["kind"] != "local"  # type: ignore[attr-defined]


def all_cases() -> tuple[Outside, ...]:
    """Every case, in the order of the files and of their functions."""
    _import_all()
    return tuple(_CASES.values())


def all_scripts() -> tuple[Script, ...]:
    _import_all()
    return tuple(_SCRIPTS.values())


def _import_all() -> None:
    for path in sorted(FOLDER.glob("of_*.py")):
        import_module(path.stem)
