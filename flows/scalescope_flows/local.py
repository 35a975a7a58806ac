"""Flows that need no Prefect server to be configured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from prefect import Flow
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from scalescope_flows import temporary

P = ParamSpec("P")
R = TypeVar("R")


class LocalFlow(Flow[P, R]):
    """A flow that brings its own Prefect server where none is configured."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it, as `Flow` does."""
        temporary.ready()
        # The thread that tells a server that lives no longer than we do that we live costs a second per flow.
        updates = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None} if temporary.is_used() else {}
        with temporary_settings(updates):
            return super().__call__(*args, **kwargs)

    def with_options(self, *args: Any, **kwargs: Any) -> LocalFlow[P, R]:
        """A copy with other options, as `Flow` makes it."""
        changed = super().with_options(*args, **kwargs)
        changed.__class__ = type(self)
        return cast("LocalFlow[P, R]", changed)


def local_flow(**options: Any) -> Callable[[Callable[P, R]], LocalFlow[P, R]]:
    """Decorate a function, as `prefect.flow` does with the same options."""
    return lambda function: LocalFlow(fn=function, **options)
