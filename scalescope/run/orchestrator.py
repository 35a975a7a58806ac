"""The orchestrator that is installed beside the library, if any: Prefect, which registers itself by an entry point.

So the library needs none, and knows of none by name: whoever offers flows names an object that does what `Orchestrator`
says in the entry point group `scalescope.orchestrators`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from scalescope.errors import UsageError
from scalescope.run.syntax import names_block, names_store

if TYPE_CHECKING:
    from scalescope.model.cluster import ClusterSpec
    from scalescope.run.progress import Listener

GROUP = "scalescope.orchestrators"


class Orchestrator(Protocol):
    """Runs what the library offers as flows, and keeps saved clusters and stores."""

    def is_configured(self) -> bool:
        """Whether the user has set one up, so that runs belong there. Must be quick, and import nothing large."""

    def start(self, *, verbose: bool, says: Callable[[str], None]) -> None:
        """Make it ready; a temporary one, where none is configured.

        Raises:
            InfrastructureError: It did not start.
        """

    def run(self, flow: str, given: Mapping[str, Any], listener: Listener) -> Any:
        """Run a flow in this process, with its progress told to `listener`; return what it returns."""

    def cluster(self, reference: str) -> ClusterSpec:
        """The specification of a saved cluster, named as TYPE/NAME."""

    def store(self, reference: str) -> tuple[str, str]:
        """Address of a saved store, and of its raw records."""

    def schedules(self) -> str:
        """Whether its schedules fire, in words.

        Raises:
            InfrastructureError: They do not, or it cannot be told.
        """


@cache
def installed() -> Orchestrator | None:
    """The orchestrator that is installed."""
    for point in entry_points(group=GROUP):
        found: Orchestrator = point.load()
        return found
    return None


def needed() -> Orchestrator:
    """The same, where nothing goes without.

    Raises:
        UsageError: None is installed.
    """
    if found := installed():
        return found
    raise UsageError(
        "saved clusters and stores, and runs in Prefect, need Scalescope's Prefect flows",
        cause=f"nothing is registered in the entry point group {GROUP}",
        next_step="install Scalescope again: pip install --force-reinstall scalescope",
    )


def saved_cluster(given: object) -> object:
    """What was given for a cluster; the specification, where that names a saved one.

    Raises:
        InvalidField: Nothing is saved under that name.
        UsageError: No orchestrator is installed.
    """
    return needed().cluster(str(given)) if names_block(given) else given


def saved_store(given: Any) -> tuple[Any, str]:
    """What was given for a store, and the address of its raw records, which is empty where it names no saved one.

    Raises:
        InvalidField: Nothing is saved under that name.
        UsageError: No orchestrator is installed.
    """
    return needed().store(str(given)) if names_store(given) else (given, "")
