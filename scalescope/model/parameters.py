"""Parameters that people give, each declared once as an annotated field of a dataclass.

```python
@dataclass(frozen=True, kw_only=True)
class Limits:
    repeats: Annotated[int, Parameter("Trials per point.", minimum=1, maximum=1000)] = 1
```

Checks, command-line options, parameters of flows, fields of blocks and tables in docs/ are made from the field.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, Field, dataclass, field
from dataclasses import fields as dataclass_fields
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.mapping import is_required, read

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
UNITS = {"s": "s", "us": "µs", "mb": "MiB"}  # units by the last word of a name, as in `start_timeout_s`


@dataclass(frozen=True)
class Parameter:
    """Declaration of a parameter besides its name, type and default."""

    help: str  # one or two sentences; units in words
    title: str = ""  # heading in a form, with its unit; by default the name in words
    minimum: float | None = None  # smallest number allowed
    maximum: float | None = None  # largest number allowed
    examples: tuple[Any, ...] = ()  # values to show in a form
    names: str = ""  # what the value names, such as `workload`; a form can offer all names of this kind
    # JSON Schema of a value besides its type and bounds, so that a form can refuse a wrong value
    schema: Mapping[str, Any] = field(default_factory=dict)
    option: tuple[str, ...] = ()  # names on the command line, such as `-a`; by default `--` and the name with dashes
    metavar: str = ""  # placeholder for its value in help texts, such as `NAME=VALUES`
    syntax: str = ""  # name of its form on the command line (`scalescope.cli.options`); empty: the type decides
    written: Any = None  # type of what people write, if the field holds another
    default: Any = None  # default as people write it, if the field holds another
    # checks and converts what people wrote; its arguments are the name for errors and the value. None: the type decides
    reads: Callable[[str, Any], Any] | None = None


@dataclass(frozen=True)
class Declared:
    """A parameter: its declaration, and the field that it annotates."""

    name: str  # name in Python and YAML
    type: Any  # type of what people write, such as `int` or `float | None`
    required: bool  # True if a value must be given
    about: Parameter
    _field: Field[Any]

    @property
    def default(self) -> Any:
        """The default value, a new object each time; None if the parameter is required."""
        if self.about.default is not None:
            return copy(self.about.default)
        if self._field.default_factory is not MISSING:
            return self._field.default_factory()
        return None if self.required else self._field.default

    @property
    def title(self) -> str:
        *words, last = self.name.split("_")
        text = f"{' '.join(words)}, {UNITS[last]}" if words and last in UNITS else " ".join([*words, last])
        return self.about.title or text[:1].upper() + text[1:]

    @property
    def explained(self) -> str:
        """Help with bounds and examples, which Prefect's forms do not show by themselves."""
        low, high, examples = self.about.minimum, self.about.maximum, self.about.examples
        kind = "A number" if float in self.types else "A whole number"
        shown = [each if isinstance(each, str) else json.dumps(each) for each in examples]
        texts = [self.about.help, f"{kind}{fields.bounds(low, high)}." if (low, high) != (None, None) else ""]
        return " ".join([*filter(None, texts), *([f"For example: {' or '.join(shown)}"] if shown else [])])

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema besides type, title, help and default."""
        about = self.about
        found = {"minimum": about.minimum, "maximum": about.maximum, "examples": list(about.examples) or None}
        return {**{name: value for name, value in found.items() if value is not None}, **about.schema}

    @property
    def choices(self) -> tuple[Any, ...]:
        """The only values allowed; empty: any."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def optional(self) -> bool:
        return type(None) in self.types

    @property
    def types(self) -> tuple[Any, ...]:
        """Types of values without their items: `dict` for `dict[str, int]`."""
        union = get_origin(self.type) in (Union, types.UnionType)
        return tuple(get_origin(each) or each for each in (get_args(self.type) if union else (self.type,)))

    def check(self, value: object, where: str = "") -> Any:
        """Check a value as people write it, and return what the field holds; `where` is the name in errors."""
        where, kinds, low, high = where or self.name, self.types, self.about.minimum, self.about.maximum
        if self.about.reads:
            return self.about.reads(where, value)
        if value is None and self.optional:
            return None
        if float in kinds:
            return fields.number(where, value, minimum=low, maximum=high)
        if int in kinds:
            return fields.integer(where, value, minimum=low, maximum=high)
        return read(self.type, value, where)


def declared(cls: type) -> tuple[Declared, ...]:
    """The declared parameters of a dataclass, in order; other fields are left out."""
    found: tuple[Declared, ...] = _declared(cls)
    return found


@cache  # a separate function, since mypy takes no class to be hashable
def _declared(cls: Any) -> tuple[Declared, ...]:
    hints = get_type_hints(cls, include_extras=True)
    found = []
    for each in dataclass_fields(cls):
        hint = hints[each.name]
        for note in getattr(hint, "__metadata__", ()):
            if get_origin(hint) is Annotated and isinstance(note, Parameter):
                found.append(Declared(each.name, note.written or get_args(hint)[0], is_required(each), note, each))
    return tuple(found)


def check(cls: type[T], given: Mapping[str, object], section: str = "") -> T:
    """Build a dataclass from values as people write them; `section` precedes names in errors. Raises `InvalidField`."""
    known = {each.name: each for each in declared(cls)}
    fields.reject_unknown(section, given, known)
    prefix = f"{section}." if section else ""
    for each in known.values():
        if each.required and given.get(each.name) is None:
            raise InvalidField(f"{prefix}{each.name}", None, f"a value ({each.about.help.rstrip('.')})")
    return cls(**{name: known[name].check(value, f"{prefix}{name}") for name, value in given.items()})


def check_fields(instance: object, section: str = "") -> None:
    """Check the fields of an instance, for its `__post_init__`."""
    prefix = f"{section}." if section else ""
    for each in declared(type(instance)):
        each.check(getattr(instance, each.name), f"{prefix}{each.name}")


def with_signature(function: F, arguments: Sequence[inspect.Parameter]) -> F:
    """Give a function this signature, which is all that Typer and Prefect read."""
    function.__signature__ = inspect.Signature(arguments)  # type: ignore[attr-defined]
    function.__annotations__ = {each.name: each.annotation for each in arguments}
    return function


def part(cls: type, given: Mapping[str, object]) -> dict[str, Any]:
    """The values that are parameters of a class."""
    names = {each.name for each in declared(cls)}
    return {name: value for name, value in given.items() if name in names}


def reject_unknown(given: Mapping[str, object], *kinds: type) -> None:
    """Refuse values that are parameters of none of these classes."""
    fields.reject_unknown("", given, [each.name for kind in kinds for each in declared(kind)])
