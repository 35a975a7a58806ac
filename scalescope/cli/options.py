"""Options of commands, made from declared parameters.

A command is a function of `GivenOptions` (made by `options(...)`) and of its own options. The `syntax` of a
parameter says how it is written on the command line:

- "": one option of the parameter's type; a flag for `bool`
- "axes": `NAME=VALUES` with ranges, several times
- "values": `NAME=VALUE`, several times
- "names", "environments": the option several times
- "cluster": a kind or a saved cluster, with `--cluster-option` for its fields
- "argument": positional
- "file", "sweep": not on a command line
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup

from scalescope.cli.output import say
from scalescope.errors import InvalidField
from scalescope.interpreters import refuse_old
from scalescope.model import parameters
from scalescope.model.environment import Environment
from scalescope.model.parameters import Declared, with_signature
from scalescope.model.sweep import ENVIRONMENT, Sweep
from scalescope.run import syntax
from scalescope.run.parameters import Storage

AXES = "As workers=1,2,4 or workers=1..8 or items=50..300:50. Can be given several times."
SEVERAL = "Can be given several times."
# The help text names the default, if there is one
option = partial(typer.Option, show_default=False)
argument = partial(typer.Argument, show_default=False)

SWEEP_FIRST = "Run a sweep first, and use the run that it makes. "

Json = Annotated[bool, typer.Option("--json", help="Write JSON to standard output, and nothing else.")]
Brief = Annotated[
    bool,
    typer.Option(
        "--brief",
        help="Answer in at most 6,000 characters: cause, line, evidence, fix, confidence, next command; with --json "
        "as JSON.",
    ),
]
Prefect = Annotated[
    bool | None,
    option(
        "--prefect/--no-prefect",
        help="Run as a Prefect flow, or not. Default: as a flow if Prefect is installed and an API is configured.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show the log.")]
Require = Annotated[
    list[str] | None,
    option(
        "--require",
        metavar="CONDITION",
        help="Condition, such as 'efficiency >= 0.6 at workers=16'; without `at`, for every point. The exit status "
        "then depends on conditions only, not on findings. Can be given several times.",
    ),
]
StoreAddress = Annotated[
    str,
    option(
        "--store",
        metavar="ADDRESS",
        help=next(each.about.help for each in parameters.declared(Storage) if each.name == "store"),
    ),
]
OtherPython = Annotated[
    str,
    option(
        "--environment",
        "-e",
        metavar="PYTHON",
        help="The Python that runs the script or records the cluster: a path, or requirements as for a sweep. It "
        "needs only distributed 2023.5 or newer, and its environment is not changed.",
    ),
]
SweepFile = Annotated[
    Path | None,
    argument(metavar="[FILE.yaml]", help="A sweep as YAML; options add to it and override it."),
]
RunOrStudy = Annotated[
    str,
    typer.Argument(
        metavar="[RUN | STUDY]",
        help="Run or study: an id, the start of an id, or `latest`. A kind of study, such as `comparison`: the newest "
        "study of that kind.",
    ),
]


def seconds_of(option: str, text: str) -> float:
    """Seconds of an option's text, such as 60s or 5m; 0 if the option was not given."""
    from dask.utils import parse_timedelta

    try:
        seconds = float(parse_timedelta(text, default="s")) if text else 0.0
    except (ValueError, KeyError):
        seconds = -1.0
    if seconds < 0 or (text and not seconds):
        raise InvalidField(option, text, "a time such as 60s or 5m")
    return seconds


def script_python() -> str:
    """The Python of the active virtual environment; this Python if none is active."""
    active = os.environ.get("VIRTUAL_ENV", "")
    python = os.path.join(active, "bin", "python")
    if active and os.path.realpath(active) != os.path.realpath(sys.prefix) and os.access(python, os.X_OK):
        return python
    return sys.executable


class DefaultGroup(TyperGroup):
    """A group whose first command runs if none is named: `show ID` is `show result ID`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, "--help"):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


@dataclass(frozen=True)
class GivenOptions:
    """The options of declared parameters that were given."""

    given: Mapping[str, Any]  # values by name of the parameter
    cluster_options: Mapping[str, Any]  # values by field of the cluster

    def over(self, data: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Parameters by name: options override `data`, which a file gives; mappings are merged key by key."""
        merged = dict(data or {})
        for name, value in self.given.items():
            if name == ENVIRONMENT and isinstance(value, list):
                syntax.merge_environments(merged, value)
            elif isinstance(value, dict):
                syntax.merge(merged, name, value)
            elif name != "cluster":
                merged[name] = value
        syntax.merge_cluster(merged, self.given.get("cluster"), self.cluster_options)
        return merged


def options(
    *kinds: type,
    without: Sequence[str] = (),  # parameters that the command does not take
    of_sweep: Sequence[str] = (),  # parameters of a sweep that the command can run first
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of declared parameters; the command gets `GivenOptions` and its own options."""
    found = {each.name: each for kind in kinds for each in parameters.declared(kind) if each.name not in without}
    written = [_Option(each) for each in found.values() if each.about.syntax not in ("file", "sweep")]
    written += [_Option(each, SWEEP_FIRST) for each in parameters.declared(Sweep) if each.name in of_sweep]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        own = list(inspect.signature(command).parameters.values())[1:]
        own = [each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        theirs = [parameter for each in written for parameter in each.signature()]
        theirs = [each for each in theirs if each.name not in {mine.name for mine in own}]

        @wraps(command)
        def run(**values: Any) -> None:
            given: dict[str, Any] = {}
            for each in written:
                each.read(values, given)
            cluster_options = syntax.params("--cluster-option", values.get("cluster_option") or ())
            command(GivenOptions(given, cluster_options), **{each.name: values[each.name] for each in own})

        del run.__dict__["__wrapped__"]
        return with_signature(run, [*theirs, *own])

    return decorate


@dataclass(frozen=True)
class _Option:
    declared: Declared
    about: str = ""

    @property
    def _names(self) -> tuple[str, ...]:
        return self.declared.about.option or (f"--{self.declared.name.replace('_', '-')}",)

    def signature(self) -> list[inspect.Parameter]:
        each, form = self.declared, self.declared.about.syntax
        metavar = each.about.metavar or {"axes": "NAME=VALUES", "values": "NAME=VALUE"}.get(form) or None
        text = self.about + each.about.help
        if form == "argument":
            return [self._parameter(each.name, str, argument(metavar=metavar, help=text))]
        if form in ("axes", "values", "names", "environments"):
            text = f"{text} {AXES if form == 'axes' else SEVERAL}"
            return [self._parameter(each.name, list[str], option(*self._names, metavar=metavar, help=text))]
        if each.default not in (None, "", False):
            shown = f"{each.default:g}" if isinstance(each.default, float) else each.default
            text = f"{text} Default: {shown}."
        kind = next((kind for kind in (bool, float, int) if kind in each.types), str)
        found = [self._parameter(each.name, kind, option(*self._names, metavar=metavar, help=text))]
        if form == "cluster":
            fields = option("--cluster-option", metavar="NAME=VALUE", help=f"A field of the cluster. {SEVERAL}")
            found.append(self._parameter("cluster_option", list[str], fields))
        return found

    def read(self, values: Mapping[str, Any], given: dict[str, Any]) -> None:
        each, form = self.declared, self.declared.about.syntax
        value = values.get(each.name)
        if value is None or value == []:
            return
        if form == "axes":
            value = syntax.axes(value)
        elif form == "values":
            value = syntax.params(self._names[0], value)
        given[each.name] = value

    @staticmethod
    def _parameter(name: str, kind: Any, about: Any) -> inspect.Parameter:
        annotation = Annotated[kind | None, about]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def python_of(environment: str) -> str:
    """Path of the Python that the option `OtherPython` names; empty if it names this Python."""
    asked = Environment.parse(environment, "--environment")
    if asked.present:
        return ""
    from scalescope import environments

    built = environments.ensure(asked, says=lambda text: say(text, "dim"))
    refuse_old(built.python, built.packages["distributed"])
    return built.python
