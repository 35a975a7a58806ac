"""Makes Prefect flows, with forms for their parameters, from the parameters that the library declares."""

from __future__ import annotations

import functools
import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from queue import Empty
from typing import Annotated, Any, ParamSpec, TypeVar, cast

import httpx
from prefect import Flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.events.worker import EventsWorker
from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import Completed, Failed
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.hydration import hydrate
from pydantic import Field, WithJsonSchema

from scalescope import workloads
from scalescope.diagnosis import causes
from scalescope.errors import InfrastructureError, InvalidField, ScalescopeError
from scalescope.model.cluster import cluster_spec, kinds
from scalescope.model.parameters import Declared, declared, with_signature
from scalescope.run.functions import named
from scalescope.run.runner import Result
from scalescope.studies import symptom
from scalescope_flows import log, server
from scalescope_flows.runner import is_away, shown

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Result)


@dataclass(frozen=True)
class Choices:
    """Choices that a form offers for a parameter, such as names of workloads; other text can also be typed."""

    title: str  # title of the offered choices
    typed: str  # title of the field for other text
    values: Callable[[], Iterable[str]]


def _needs_nothing(kind: str) -> bool:
    try:
        cluster_spec(kind)
    except InvalidField:
        return False
    return True


# Choices for parameters, by their `Parameter.names`
CHOICES: Mapping[str, Choices] = {
    "workload": Choices(
        "Built-in", "Path, module or name", lambda: [workload.name for workload in workloads.builtin()]
    ),
    "cluster": Choices("Kind", "Saved block or kind", lambda: filter(_needs_nothing, kinds())),
    "metric": Choices("Number", "Term or number", lambda: symptom.NAMES),
    "finding": Choices("Finding", "Code", causes.by_code),
}

# Names that Prefect gives to runs: `misty-lemur` by its server, `iota425-kesprytt` and `Tasty-Ajiaco` by its two UIs
GENERATED = re.compile(
    "[a-z]+-[a-z]+|(alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|omicron|pi|rho|sigma|tau"
    "|upsilon|phi|chi|psi|omega)[0-9]*-[a-z-]+|(Awesome|Rustic|Small|Gorgeous|Fantastic|Sleek|Intelligent|Unbranded|Refined|Licensed|Generic"
    "|Practical|Ergonomic|Handcrafted|Tasty|Handmade|Incredible)-.{1,6}"
)

UNTOUCHED = {"__prefect_kind": "json"}  # stored by a dialog of Prefect's UI for an object that was not edited

logger = logging.getLogger(__name__)

# Results that flows of this process have returned; they are used if the server goes away before the flow ends
returned: ContextVar[list[Any]] = ContextVar("scalescope_returned", default=[])  # noqa: B039 (nobody reads the default)


def _keep(result: Any) -> None:
    returned.get().append(result)  # not in `run` below, which is sent to Dask workers with its globals


class LocalFlow(Flow[P, R]):
    """A flow that starts a Prefect server if none is configured, and reports our errors in one line."""

    def __init__(self, fn: Callable[P, R], **options: Any) -> None:
        @functools.wraps(fn)
        def run(*args: P.args, **kwargs: P.kwargs) -> R | State[R]:
            log.shorten()
            result: R | State[R]
            try:
                result = fn(*args, **kwargs)
            except ScalescopeError as error:
                get_run_logger().error("%s", error.line)
                get_run_logger().debug("Where it was raised", exc_info=True)
                result = Failed(message=error.line, data=error)
            _keep(result)
            return result

        super().__init__(fn=cast("Callable[P, R]", run), **options)  # a state from `run` is the run's final state

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the flow; the workload can also be given as a function object."""
        kwargs = named(kwargs)
        server.ready()
        # With a temporary server, switch off the flow's heartbeats, which cost a second per flow.
        updates = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None} if server.is_used() else {}
        token = returned.set([])
        try:
            with temporary_settings(updates):
                return super().__call__(*args, **kwargs)
        except (httpx.HTTPError, RuntimeError) as error:
            # If the client could not ask for the server's version, `__cause__` has the reason.
            if not is_away(error) and not is_away(error.__cause__):
                raise
            if not returned.get():
                raise InfrastructureError(
                    "the Prefect server does not answer",
                    where=str(PREFECT_API_URL.value()),
                    cause=str(error),
                    next_step="check that the server and its database run, and start the same command again",
                ) from error
            logger.warning("The Prefect server does not know how the run ended (%s); the results are kept", error)
            _drop_events()
            state: State[Any] = returned.get()[0]
            return state if kwargs.get("return_state") else state.result()
        finally:
            returned.reset(token)

    def with_options(self, *args: Any, **kwargs: Any) -> LocalFlow[P, R]:
        changed = super().with_options(*args, **kwargs)
        changed.__class__ = type(self)
        return cast("LocalFlow[P, R]", changed)


class CountedFlow(LocalFlow[P, R]):
    """A flow that shows a progress bar if it is called on a terminal or in a notebook."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with shown():
            return super().__call__(*args, **kwargs)


def _drop_events() -> None:
    """Drop events that were not sent: when the process ends, it would try to send each for a minute."""
    events = EventsWorker.instance()._queue
    with suppress(Empty):
        while True:
            events.get_nowait()
            events.task_done()


def declared_flow(
    *kinds: type, name: str, flow_run_name: Callable[[Mapping[str, Any]], str]
) -> Callable[[Callable[[dict[str, Any]], S]], CountedFlow[..., S]]:
    """Make a flow whose parameters are those declared by `kinds`; its final state has the outcome in one line.

    The library checks the values, because Prefect would accept `true` as one worker. `flow_run_name`: makes the name of
    a run from its parameters, unless the user has named the run.
    """
    found = [each for kind in kinds for each in declared(kind)]
    arguments = [_parameter(each, each.default) for each in found]
    plain = inspect.Signature(arguments)

    def decorate(function: Callable[[dict[str, Any]], S]) -> CountedFlow[..., S]:
        def run(*args: Any, **kwargs: Any) -> State[S]:
            given = dict(plain.bind(*args, **kwargs).arguments)
            _reject_untouched(given)
            result = function(hydrate(given))  # schedules made in the new UI wrap values
            name, line = result.outcome
            get_run_logger().log(logging.WARNING if name else logging.INFO, "%s", f"{name}. {line}" if name else line)
            return Completed(name=name or None, message=line, data=result)

        run.__name__ = run.__qualname__ = function.__name__
        run.__module__, run.__doc__ = function.__module__, function.__doc__
        with_signature(run, arguments)
        flow: CountedFlow[..., S] = CountedFlow(
            fn=cast("Callable[..., S]", run),
            name=name,
            flow_run_name=lambda: _run_name(flow_run_name),
            validate_parameters=False,
            persist_result=False,
        )
        # `prefect deploy` makes the form from the signature of the flow, not of its function.
        with_signature(flow, [_parameter(each, _form(each), _type(each)) for each in found])
        flow.parameters = parameter_schema(flow)
        return flow

    return decorate


def _run_name(make: Callable[[Mapping[str, Any]], str]) -> str:
    from prefect import runtime

    present: str = runtime.flow_run.name or ""
    return present if present and not GENERATED.fullmatch(present) else make(hydrate(runtime.flow_run.parameters))


def _reject_untouched(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if value == UNTOUCHED:
            raise InvalidField(
                name,
                value,
                "a value; the dialog of the schedule stored an empty one, because the field was not edited",
                next_step=f"edit the schedule and type a value for {name} or leave this parameter out, or use "
                "`prefect deployment schedule create`",
            )


def _parameter(each: Declared, default: Any, annotation: Any = None) -> inspect.Parameter:
    kind, missing = inspect.Parameter.POSITIONAL_OR_KEYWORD, each.required and default is None
    default = inspect.Parameter.empty if missing else default
    return inspect.Parameter(each.name, kind, default=default, annotation=annotation or each.type)


def _form(each: Declared) -> Any:
    default = ... if each.required else each.default
    return Field(default=default, description=each.explained, json_schema_extra={"title": each.title, **each.schema})


def _type(each: Declared) -> Any:
    """The type for the form; with choices, a union of the choices, text, and perhaps an object, each with a title."""
    choices = CHOICES.get(each.about.names)
    if choices is None:
        return each.type
    # At every key, the old UI switches to the union's first member of type string: give the choices no type.
    members = [{"title": choices.title, "enum": list(choices.values())}, {"title": choices.typed, "type": "string"}]
    if each.types != (str,):
        # In a union, the new UI shows an object without properties only if it has `allOf`.
        members.append({"title": "Kind with fields", "type": "object", "allOf": [{"required": ["kind"]}]})
    return Annotated[each.type, WithJsonSchema({"anyOf": members})]
