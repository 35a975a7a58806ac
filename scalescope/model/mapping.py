"""Dataclasses as mappings that JSON carries, and back; what is read may be older or newer than the class."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from scalescope.errors import InvalidField

T = TypeVar("T")
_Reader = Callable[[Any, str], Any]
"""Takes a value and the name of its field, and returns it as the field holds it."""


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
    for name, (read, required) in _readers(known).items():
        field = f"{where}.{name}" if where else name
        if name in data:
            found[name] = read(data[name], field)
        elif required:
            raise InvalidField(field, None, "a value")
    return cls(**found)


@cache
def _readers(cls: Any) -> dict[str, tuple[_Reader, bool]]:
    """By name of the field: what reads it, and whether it must be there."""
    hints = get_type_hints(cls)
    return {
        each.name: (_reader(hints[each.name]), each.default is MISSING and each.default_factory is MISSING)
        for each in fields(cls)
        if each.init
    }


def _reader(hint: Any) -> _Reader:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _reader(inner[0])
    if origin in (Union, types.UnionType):
        return _one_of([_reader(each) for each in inner])
    if origin is tuple:
        return _each(_reader(inner[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _values(_reader(inner[1]))
    if is_dataclass(hint):
        return lambda value, where: from_mapping(hint, value, where)  # type: ignore[arg-type]  # a class, no instance
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value, where: _member(hint, value, where)
    return _plain(hint)


def _plain(hint: Any) -> _Reader:
    kinds = (int, float) if hint is float else hint
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}

    def read(value: Any, where: str) -> Any:
        if hint is not Any and (not isinstance(value, kinds) or (isinstance(value, bool) and hint in (int, float))):
            raise InvalidField(where, value, words.get(hint, str(hint)))
        return value

    return read


def _one_of(readers: list[_Reader]) -> _Reader:
    def read(value: Any, where: str) -> Any:
        problems = []
        for reader in readers:
            try:
                return reader(value, where)
            except InvalidField as problem:
                problems.append(problem)
        raise problems[0]

    return read


def _each(reader: _Reader) -> _Reader:
    def read(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise InvalidField(where, value, "a list")
        return tuple(reader(item, f"{where}[{i}]") for i, item in enumerate(value))

    return read


def _values(reader: _Reader) -> _Reader:
    def read(value: Any, where: str) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise InvalidField(where, value, "a mapping of names to values")
        return {key: reader(item, f"{where}.{key}") for key, item in value.items()}

    return read


def _member(cls: type[Enum], value: Any, where: str) -> Enum:
    try:
        return cls(value)
    except ValueError as error:
        raise InvalidField(where, value, "one of " + ", ".join(str(each.value) for each in cls)) from error
