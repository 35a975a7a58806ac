"""Reads the parameters of a workload from the signature of its function; they are declared nowhere else."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from scalescope.errors import InvalidField
from scalescope.model.parameters import Parameter
from scalescope.model.workload import Workload, WorkloadParameter

_KINDS = ("int", "float", "str", "bool")
_PLAIN = (int, float, str, bool, list, dict)  # annotations of a first parameter that is not the client


def workload(name: str, *, version: int = 1, **facts: Any) -> Callable[[Callable[..., Any]], Workload]:
    """Decorator that makes a built-in workload of a function; the docstring's first line is the summary.

    Raise `version` whenever results are no longer comparable with older ones. `facts` are fields of `Workload`.
    """

    def made(function: Callable[..., Any]) -> Workload:
        summary = (function.__doc__ or "").strip().partition("\n")[0]
        return Workload(name, version, summary, function, parameters=parameters(name, function), **facts)

    return made


def parameters(
    reference: str, function: Callable[..., Any], helps: Mapping[str, str] | None = None
) -> tuple[WorkloadParameter, ...]:
    """All parameters of a function except the client.

    Type, default and choices come from the signature; help and bounds from an annotation such as
    `Annotated[int, Parameter("Items.", minimum=1)]`, or help from `helps`. `reference`: the workload's name in errors.
    """
    names = {**vars(typing), **vars(sys.modules.get(getattr(function, "__module__", ""), typing))}
    return tuple(
        _parameter(each, _hint(each.annotation, names), (helps or {}).get(each.name, ""))
        for each in _given_by_name(reference, function)
    )


def _given_by_name(reference: str, function: Callable[..., Any]) -> list[inspect.Parameter]:

    def bad(allowed: str, next_step: str = "") -> InvalidField:
        return InvalidField("workload", reference, allowed, next_step=next_step)

    try:
        signature = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise bad(f"a function with a signature that Python can read: {error}") from error
    client, rest = (signature[0], signature[1:]) if signature else (None, [])
    if client is None or client.kind not in (client.POSITIONAL_ONLY, client.POSITIONAL_OR_KEYWORD):
        raise bad("a function whose first argument is the client, as in `def run(client, *, items=100)`")
    if client.default is not client.empty:
        raise bad(f"a function whose first argument is the client; {client.name!r} has a default")
    if client.annotation in _PLAIN or client.annotation in [plain.__name__ for plain in _PLAIN]:
        raise bad(f"a function whose first argument is the client; the first is called {client.name!r}")
    for each in rest:
        if each.kind is each.VAR_KEYWORD:
            raise bad(
                f"a function that names all its parameters; `**{each.name}` hides their names",
                next_step=f"replace `**{each.name}` by the parameters themselves, with defaults",
            )
        if each.kind is each.POSITIONAL_ONLY:
            raise bad(f"a function whose parameters can be given by name; {each.name!r} is positional only")
    return [each for each in rest if each.kind is not each.VAR_POSITIONAL and _can_be_given(each)]


def _can_be_given(parameter: inspect.Parameter) -> bool:
    """Whether the parameter can be set: JSON must be able to hold its default. Others always keep their defaults."""
    return parameter.default is parameter.empty or isinstance(parameter.default, bool | int | float | str | None)


def _hint(annotation: Any, names: Mapping[str, Any]) -> Any:
    """The annotation as an object; `Any` if it has names that are imported only under `TYPE_CHECKING`."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, dict(names))  # noqa: S307  # text of a module that has just been imported
    except Exception:  # noqa: BLE001  # whatever the error is, the type is unknown
        return Any


def _parameter(parameter: inspect.Parameter, hint: Any, help_: str) -> WorkloadParameter:
    about = Parameter(help_)
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        about = next((note for note in notes if isinstance(note, Parameter)), about)
    required = parameter.default is parameter.empty
    default = None if required else parameter.default
    kind, choices, optional = _kind(hint, default)
    described = WorkloadParameter(
        parameter.name,
        default,
        about.help or help_,
        kind,
        about.minimum,
        about.maximum,
        choices,
        optional=optional or (default is None and not required),
        required=required,
    )
    return described if required else replace(described, default=described.check(default, section="workload"))


def _kind(hint: Any, default: object) -> tuple[str, tuple[Any, ...], bool]:
    """Kind of value, choices, and whether None is allowed; derived from the default if there is no type."""
    if hint is inspect.Parameter.empty:
        name = type(default).__name__
        return (name if name in _KINDS else "any"), (), default is None
    options = list(get_args(hint)) if get_origin(hint) in (Union, UnionType) else [hint]
    optional = NoneType in options
    choices = tuple(value for each in options if get_origin(each) is Literal for value in get_args(each))
    names = {getattr(each, "__name__", "") for each in options if each is not NoneType and get_origin(each) is None}
    others = [each for each in options if get_origin(each) not in (None, Literal)]
    if choices and not names and not others:
        return ("str" if all(isinstance(value, str) for value in choices) else "any"), choices, optional
    if choices and names == {"int"} and not others:
        return "int", choices, optional
    if names == {"int", "float"}:
        names = {"float"}
    kind = names.pop() if len(names) == 1 and not choices and not others else "any"
    return (kind if kind in _KINDS else "any"), (), optional
