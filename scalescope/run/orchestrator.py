"""The installed orchestrator, found by the entry point group `scalescope.orchestrators`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from scalescope.errors import UsageError
from scalescope.model.extras import install_command
from scalescope.model.plugins import entry_points
from scalescope.run.syntax import names_block

if TYPE_CHECKING:
    from scalescope.run.progress import Listener

GROUP = "scalescope.orchestrators"


class Orchestrator(Protocol):
    """Runs flows, and keeps saved clusters and stores; raises `InfrastructureError` if its server fails."""

    def is_configured(self) -> bool:
        """Whether the user has set up the orchestrator, so that runs use it. Must be quick and import nothing large."""

    def start(self, *, verbose: bool, says: Callable[[str], None]) -> None:
        """Make the orchestrator ready; without a configured server, start a temporary one."""

    def run(self, flow: str, given: Mapping[str, Any], listener: Listener) -> Any:
        """Run a flow in this process, tell `listener` its progress, and return its result."""

    def saved(self, parameter: str, reference: str) -> Any:
        """The value saved as TYPE/NAME for a parameter of a run."""

    def schedules(self) -> str:
        """Check that schedules start runs; says where they do, or raises `InfrastructureError` if they do not."""


def installed() -> Orchestrator | None:
    try:
        return needed()
    except UsageError:
        return None


@cache
def needed() -> Orchestrator:
    """The installed orchestrator; raises `UsageError` if there is none, or if it lacks a package."""
    for point in entry_points(GROUP):
        found: Orchestrator = point.load()
        return found
    raise UsageError(
        "saved clusters and stores, and runs in Prefect, need Scalescope's Prefect flows",
        cause=f"no entry point of the group {GROUP} is installed",
        next_step=f"install Scalescope again: {install_command('prefect')} --force-reinstall",
    )


def load_saved(given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Parameters with saved values in place of names, and the address of a saved store's raw records (or empty)."""
    loaded = {name: needed().saved(name, value) if names_block(name, value) else value for name, value in given.items()}
    records = ""
    if isinstance(loaded.get("store"), tuple):
        loaded["store"], records = loaded["store"]
    return loaded, records
