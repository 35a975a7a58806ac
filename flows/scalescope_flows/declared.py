"""Prefect flows whose parameters, with the form in Prefect's UI, are those that the library declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, ParamSpec, TypeVar, Union, cast

from prefect import Flow
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.utilities.callables import parameter_schema
from pydantic import Field

from scalescope import workloads
from scalescope.model.cluster import kinds
from scalescope.model.parameters import Declared, declared
from scalescope_flows import server

P = ParamSpec("P")
R = TypeVar("R")

CHOICES: Mapping[str, Callable[[], Iterable[str]]] = {
    "workload": lambda: [workload.name for workload in workloads.builtin()],
    "cluster": kinds,
}
"""Values that a form offers for parameters, by name; others can be typed all the same."""


class LocalFlow(Flow[P, R]):
    """A flow that brings its own Prefect server where none is configured."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it, as `Flow` does."""
        server.ready()
        # The thread that tells a server that lives no longer than we do that we live costs a second per flow.
        updates = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None} if server.is_used() else {}
        with temporary_settings(updates):
            return super().__call__(*args, **kwargs)

    def with_options(self, *args: Any, **kwargs: Any) -> LocalFlow[P, R]:
        """A copy with other options, as `Flow` makes it."""
        changed = super().with_options(*args, **kwargs)
        changed.__class__ = type(self)
        return cast("LocalFlow[P, R]", changed)


def declared_flow(
    *kinds: type, name: str, flow_run_name: Callable[[Mapping[str, Any]], str]
) -> Callable[[Callable[[dict[str, Any]], R]], LocalFlow[..., R]]:
    """Make a flow of a function of its parameters, which are those that classes of declared parameters have.

    The library checks the values, and not Prefect, whose lenience would take `true` for one worker.

    Args:
        kinds: Classes of declared parameters.
        name: Of the flow.
        flow_run_name: Names a run, from its parameters.
    """
    found = [each for kind in kinds for each in declared(kind)]
    plain = inspect.Signature([_parameter(each, each.default) for each in found])

    def decorate(function: Callable[[dict[str, Any]], R]) -> LocalFlow[..., R]:
        def run(*args: Any, **kwargs: Any) -> R:
            bound = plain.bind(*args, **kwargs)
            return function(dict(bound.arguments))

        run.__name__ = run.__qualname__ = function.__name__
        run.__module__, run.__doc__ = function.__module__, function.__doc__
        run.__signature__ = plain  # type: ignore[attr-defined]
        flow: LocalFlow[..., R] = LocalFlow(
            fn=run,
            name=name,
            flow_run_name=lambda: flow_run_name(_parameters()),
            validate_parameters=False,
            persist_result=False,
        )
        # The form: what `prefect deploy` makes it of is the signature of the flow, not that of its function.
        flow.__signature__ = inspect.Signature([_parameter(each, _form(each), choices=True) for each in found])  # type: ignore[attr-defined]
        flow.parameters = parameter_schema(flow)
        return flow

    return decorate


def _parameters() -> Mapping[str, Any]:
    from prefect import runtime

    given: Mapping[str, Any] = runtime.flow_run.parameters
    return given


def _parameter(each: Declared, default: Any, *, choices: bool = False) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    known = CHOICES[each.name]() if choices and each.name in CHOICES else ()
    annotation = Union[Literal[tuple(known)], each.type] if known else each.type  # noqa: UP007 (made as it runs)
    return inspect.Parameter(each.name, kind, default=_empty(each, default), annotation=annotation)


def _empty(each: Declared, default: Any) -> Any:
    return inspect.Parameter.empty if each.required and default is None else default


def _form(each: Declared) -> Any:
    """The default with title, help, bounds and examples, as JSON Schema has them."""
    bounds = {"minimum": each.about.minimum, "maximum": each.about.maximum}
    extra: dict[str, Any] = {
        "title": each.title,
        **{name: bound for name, bound in bounds.items() if bound is not None},
    }
    if each.about.examples:
        extra["examples"] = list(each.about.examples)
    default = ... if each.required else each.default
    return Field(default=default, description=each.about.help, json_schema_extra=extra)
