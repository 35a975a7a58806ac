"""A workload: a function `run(client, **params)` and what is known of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.fields import Scalar

_MODULES = {"scikit-learn": "sklearn", "xgboost-cpu": "xgboost"}


def module_of(distribution: str) -> str:
    return _MODULES.get(distribution, distribution.replace("-", "_"))


@dataclass(frozen=True)
class WorkloadParameter:
    """One parameter of a workload, read from the signature of its function."""

    name: str  # name in the function's signature
    default: Scalar = None  # value if a sweep gives none
    help: str = ""  # one sentence; units in words
    kind: str = "any"  # `int`, `float`, `str`, `bool`, or `any` where the function does not say
    minimum: float | None = None  # smallest number allowed
    maximum: float | None = None  # largest number allowed
    # the only values allowed; empty: any. For the kind `int`, words that are allowed besides numbers
    choices: tuple[Scalar, ...] = ()
    optional: bool = False  # True if `None` is allowed
    required: bool = False  # True if a sweep must give it (there is no default)

    def check(self, value: object, *, section: str = "params") -> Scalar:
        """Return the value, or raise `InvalidField`."""
        where = f"{section}.{self.name}"
        if value is None and self.optional:
            return None
        if self.kind == "int":
            return self._whole_number(where, value)
        if self.choices:
            return fields.choice(where, value, self.choices)
        if self.kind == "float":
            return fields.number(where, value, minimum=self.minimum, maximum=self.maximum)
        if self.kind == "str":
            return "" if value == self.default == "" else fields.text(where, value)
        if self.kind == "bool":
            return fields.boolean(where, value)
        return fields.scalar(where, value)

    def _whole_number(self, where: str, value: object) -> Scalar:
        if isinstance(value, str) and value in self.choices:
            return value
        try:
            return fields.integer(where, value, minimum=self.minimum, maximum=self.maximum)
        except InvalidField as error:
            if not self.choices:
                raise
            words = ["null"] * self.optional + [repr(word) for word in self.choices]
            raise InvalidField(where, value, f"{error.allowed}, or {' or '.join(words)}") from None


@dataclass(frozen=True)
class Simpler:
    """A cheaper workload that hands the scheduler the same graph."""

    workload: str  # name of the cheaper workload
    without: str  # what the cheaper workload leaves out, such as `file I/O`
    # computes the cheaper workload's parameters from the costlier one's and its work (T1, in seconds)
    params: Callable[[Mapping[str, Scalar], float], Mapping[str, Scalar]] = field(compare=False, repr=False)


@dataclass(frozen=True)
class OptionalPackage:
    """A distribution that a workload uses if it is installed."""

    name: str
    extra: str  # extra that installs it
    purpose: str


@dataclass(frozen=True)
class Workload:
    """A function to run, under a name that a sweep can give."""

    name: str  # reference that loads it again (`beam-pardo`, `package.module:function`, `path.py:function`)
    version: int  # raised whenever results are no longer comparable with older ones
    summary: str  # one sentence
    # `run(client, **params)`; raises if its result is wrong; its return value is kept if JSON can carry it
    run: Callable[..., Any] = field(compare=False, repr=False)
    stresses: str = ""  # the part of a system on which its time depends, in a few words
    parameters: tuple[WorkloadParameter, ...] = ()  # all that `run` takes besides the client
    packages: tuple[str, ...] = ()  # distributions it needs besides `distributed`
    extra: str = ""  # the extra of Scalescope that installs them; empty if Scalescope itself installs them
    uses: tuple[OptionalPackage, ...] = ()  # distributions that it can do without
    modules: tuple[str, ...] = ()  # modules that it imports itself, or that its module imports for it
    folder: str = ""  # folder of its file and of modules that it imports; empty if it is a module
    # digest of its file and of the modules it imports from its folder; empty for code of an installed package
    code: str = field(default="", compare=False)
    # True if its tasks only sleep, so that a trial on the simulated cluster is reproducible to the last bit
    modelled: bool = False
    kinds: tuple[str, ...] = ()  # the only kinds of clusters that it can run on; empty: all
    changes_workers: bool = False  # True if it adds, retires or kills workers; else such a change makes a trial invalid
    # cheaper workloads that may replace it while a symptom is isolated; the closest one first
    simpler: tuple[Simpler, ...] = ()

    @property
    def client_first(self) -> str:
        """A reminder for the end of a message, if the first argument is not named like a client; else empty."""
        first = next(iter(inspect.signature(self.run).parameters), "client")
        known = first.lower() in ("c", "self") or any(word in first.lower() for word in ("client", "dask", "cluster"))
        return "" if known else f"; its first argument is `{first}`, but Scalescope passes the client as first argument"

    def parameter(self, name: str) -> WorkloadParameter | None:
        return next((parameter for parameter in self.parameters if parameter.name == name), None)

    def bind(self, given: Mapping[str, object], *, section: str = "params") -> dict[str, Scalar]:
        """Complete `given` with defaults and check every value."""
        fields.reject_unknown(section, given, [parameter.name for parameter in self.parameters])
        bound: dict[str, Scalar] = {}
        for parameter in self.parameters:
            if parameter.name in given:
                bound[parameter.name] = parameter.check(given[parameter.name], section=section)
            elif parameter.required:
                help_ = f" ({parameter.help.rstrip('.')})" if parameter.help else ""
                raise InvalidField(
                    f"{section}.{parameter.name}",
                    None,
                    f"a value, which the workload {self.name!r} needs{help_}{self.client_first}",
                )
            else:
                bound[parameter.name] = parameter.default
        return bound
