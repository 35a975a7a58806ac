"""Tables to which installed packages add rows by entry points (docs/plugins.md)."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from scalescope.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class NoRow(UsageError, KeyError):
    """Neither Scalescope nor an installed package has a row of this name."""


@cache
def _installed() -> Any:  # another class in Python 3.11 than in later versions
    """All entry points, searched once: a search takes about 20 ms, and 70 ms with its import."""
    from importlib.metadata import entry_points

    return entry_points()


def entry_points(group: str) -> EntryPoints:
    found: EntryPoints = _installed().select(group=group)
    return found


class Table(Mapping[str, T], Generic[T]):
    """Rows by name: our own, then those that other packages add. Packages are searched only if our rows do not suffice.

    Iterating leaves out a row of a package that cannot be used, with a warning. Looking such a row up raises
    `UsageError` of category `broken-plugin`.
    """

    def __init__(
        self,
        group: str,  # the entry points' group
        own: Mapping[str, str | T],  # our rows, or their locations as `package.module:name`
        read: Callable[[str, str, object], T],  # takes (name, reference, object), returns a row or raises any error
    ) -> None:
        self.group, self.own = group, dict(own)
        self._read = read
        self._rows: dict[str, T | UsageError] = {}  # loaded rows of packages, or their errors

    def __getitem__(self, name: str) -> T:
        if (found := self.own.get(name)) is not None:
            row: T = pkgutil.resolve_name(found) if isinstance(found, str) else found
            return row
        if name not in self._added:
            raise NoRow(
                f"{name} is not installed",
                where=f"what Scalescope has built in, and entry points of the group {self.group}",
                next_step="install the package that adds it, or choose another one",
            )
        added = self._plugin(name)
        if isinstance(added, UsageError):
            raise added
        return added

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self._added

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        for name, _, error in self.plugins():
            if error is None:
                yield name
            else:
                _logger.warning("%s", error.line)

    def __len__(self) -> int:
        return len(self.own) + sum(error is None for *_, error in self.plugins())

    def plugins(self) -> Iterator[tuple[str, str, UsageError | None]]:
        """Name and package of each row that a package adds, and the error if it cannot be used."""
        for name, (point, *_) in self._added.items():
            row = self._plugin(name)
            yield name, package(point), row if isinstance(row, UsageError) else None

    @cached_property
    def _added(self) -> dict[str, list[EntryPoint]]:
        added: dict[str, list[EntryPoint]] = {}
        for point in entry_points(self.group):
            added.setdefault(point.name, []).append(point)
        return added

    def _plugin(self, name: str) -> T | UsageError:
        if name not in self._rows:
            self._rows[name] = self._load(name)
        return self._rows[name]

    def _load(self, name: str) -> T | UsageError:
        point, *others = self._added[name]
        if name in self.own or others:
            owner = "Scalescope itself" if name in self.own else package(others[0])
            return self._unusable(point, f"{owner} already has an entry of this name")
        try:
            return self._read(name, point.value, point.load())
        except Exception as error:  # noqa: BLE001 - the code of others can raise anything
            return self._unusable(point, f"{type(error).__name__}: {error}")

    def _unusable(self, point: EntryPoint, cause: str) -> UsageError:
        return UsageError(
            f"{point.name} of the package {package(point)} cannot be used",
            where=f"entry point {point.name} = {point.value}, group {self.group}",
            cause=cause,
            next_step=f"fix or update {package(point)}, or remove it: pip uninstall {package(point)}",
            category="broken-plugin",
        )


def package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value.partition(".")[0]
