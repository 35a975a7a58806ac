"""Dataclasses as mappings that JSON carries, and back: the one place where a value is read by its type."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from scalescope.errors import InvalidField
from scalescope.model.fields import choice

T = TypeVar("T")
EXPECTED = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}


class Mapped:
    """A dataclass that is stored as a mapping of its fields."""

    def to_mapping(self) -> dict[str, Any]:
        return to_mapping(self)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Self:
        return from_mapping(cls, data)


def to_mapping(instance: Any) -> dict[str, Any]:
    """Fields of a dataclass, nested ones included; enumerations stay, since JSON writes a `StrEnum` as text."""
    return asdict(instance)


def from_mapping(cls: type[T], data: object, where: str = "") -> T:
    """Build a dataclass from a mapping; unknown keys are ignored, missing ones take their default.

    Fields may hold dataclasses, enumerations, tuples and mappings of these, and what JSON carries.
    Raises `InvalidField`, with `where` before the names of fields.
    """
    if not isinstance(data, Mapping):
        raise InvalidField(where or cls.__name__, data, "a mapping of names to values")
    found: dict[str, Any] = {}
    kind: Any = cls
    for each, hint in _fields(kind):
        name = f"{where}.{each.name}" if where else each.name
        if each.name in data:
            found[each.name] = read(hint, data[each.name], name)
        elif is_required(each):
            raise InvalidField(name, None, "a value")
    return cls(**found)


def differing(instance: Any) -> dict[str, Any]:
    """Fields that differ from their defaults, by name; only these enter an identity such as a point's id."""
    kind: Any = type(instance)
    defaults = _defaults(kind)
    values = {each.name: getattr(instance, each.name) for each in fields(instance)}
    return {name: value for name, value in values.items() if name not in defaults or value != defaults[name]}


def is_required(each: Field[Any]) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


@cache
def _fields(cls: Any) -> tuple[tuple[Field[Any], Any], ...]:
    hints = get_type_hints(cls)
    return tuple((each, hints[each.name]) for each in fields(cls) if each.init)


@cache
def _defaults(cls: Any) -> dict[str, Any]:
    optional = (each for each in fields(cls) if not is_required(each))
    return {each.name: each.default if each.default_factory is MISSING else each.default_factory() for each in optional}


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


def read(hint: Any, value: Any, where: str) -> Any:
    """Read a value of this type; raises `InvalidField` if the value has another type."""
    if hint is Any or type(value) is hint:
        return value
    origin, inner = _parts(hint)
    if origin in (Union, types.UnionType):
        return _read_union(inner, value, where)
    if origin is Literal:
        return choice(where, value, inner)
    if origin in (list, tuple):
        if not isinstance(value, list | tuple):
            raise InvalidField(where, value, "a list")
        return origin(read(inner[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is not None:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise InvalidField(where, value, "a mapping of names to values")
        return {key: read(inner[1], item, f"{where}.{key}") for key, item in value.items()}
    if is_dataclass(hint):
        return from_mapping(hint, value, where)  # type: ignore[arg-type]  # a class, no instance
    if issubclass(hint, Enum):
        if value not in list(hint):
            raise InvalidField(where, value, "one of " + ", ".join(str(each.value) for each in hint))
        return hint(value)
    kinds = (int, float) if hint is float else hint
    if not isinstance(value, kinds) or (isinstance(value, bool) and hint is not bool):
        raise InvalidField(where, value, EXPECTED[hint])
    return value


def _read_union(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    """Try each type of a union; if none accepts the value, raise the first error."""
    if type(value) in hints:
        return value
    problems = []
    for hint in hints:
        try:
            return read(hint, value, where)
        except InvalidField as problem:
            problems.append(problem)
    raise problems[0]
