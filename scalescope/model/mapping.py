"""Dataclasses as mappings that JSON carries, and back; what is read may be older or newer than the class."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from scalescope.errors import InvalidField

T = TypeVar("T")
WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}


class Mapped:
    """A dataclass that is stored as a mapping of its fields."""

    def to_mapping(self) -> dict[str, Any]:
        """As JSON carries it."""
        return to_mapping(self)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_mapping`, by `from_mapping`."""
        return from_mapping(cls, data)


def to_mapping(instance: Any) -> dict[str, Any]:
    """The fields of a dataclass and of those in it; enumerations stay, since JSON writes a `StrEnum` as its text."""
    return asdict(instance)


def from_mapping(cls: type[T], data: object, where: str = "") -> T:
    """A dataclass from what `to_mapping` made of it, or of an older or newer version of it.

    Unknown keys are left out, and missing ones take the default of their field.

    Args:
        cls: Its fields may hold dataclasses, enumerations, tuples and mappings of such, and what JSON carries.
        data: A mapping.
        where: In front of the names of fields in errors.

    Raises:
        InvalidField: A key that has no default is missing, or a value has another type.
    """
    if not isinstance(data, Mapping):
        raise InvalidField(where or cls.__name__, data, "a mapping of names to values")
    found: dict[str, Any] = {}
    known: Any = cls
    for each, hint in _fields(known):
        name = f"{where}.{each.name}" if where else each.name
        if each.name in data:
            found[each.name] = _read(hint, data[each.name], name)
        elif each.default is MISSING and each.default_factory is MISSING:
            raise InvalidField(name, None, "a value")
    return cls(**found)


@cache
def _fields(cls: Any) -> tuple[tuple[Field[Any], Any], ...]:
    """The fields of a dataclass with their types."""
    hints = get_type_hints(cls)
    return tuple((each, hints[each.name]) for each in fields(cls) if each.init)


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """What a type is made of, such as a mapping, and of which types."""
    return get_origin(hint), get_args(hint)


def _read(hint: Any, value: Any, where: str) -> Any:
    """A value as a field of this type holds it."""
    if hint is Any or type(value) is hint:
        return value
    origin, inner = _parts(hint)
    if origin in (Union, types.UnionType):
        return _first(inner, value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise InvalidField(where, value, "a list")
        return tuple(_read(inner[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is not None:
        if not isinstance(value, Mapping):
            raise InvalidField(where, value, "a mapping of names to values")
        return {key: _read(inner[1], item, f"{where}.{key}") for key, item in value.items()}
    if is_dataclass(hint):
        return from_mapping(hint, value, where)  # type: ignore[arg-type]  # a class, no instance
    if issubclass(hint, Enum):
        if value not in list(hint):
            raise InvalidField(where, value, "one of " + ", ".join(str(each.value) for each in hint))
        return hint(value)
    kinds = (int, float) if hint is float else hint
    if not isinstance(value, kinds) or (isinstance(value, bool) and hint is not bool):
        raise InvalidField(where, value, WORDS[hint])
    return value


def _first(hints: Sequence[Any], value: Any, where: str) -> Any:
    """A value as the first of several types takes it; what that expected is said where none does."""
    if type(value) in hints:
        return value
    problems = []
    for hint in hints:
        try:
            return _read(hint, value, where)
        except InvalidField as problem:
            problems.append(problem)
    raise problems[0]
