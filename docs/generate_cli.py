"""Writes `docs/cli-reference.md` from the declarations: `python docs/generate_cli.py`."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo, CommandInfo

from scalescope.cli.main import app
from scalescope.cli.output import DONE, EVERY
from scalescope.errors import ExitStatus

PAGE = Path(__file__).with_name("cli-reference.md")
SHARED = 4
"""Commands in which an option must be the same to stand in the list of shared ones."""
HEAD = """# Reference of the command line

What `--help` says, on one page. [cli.md](cli.md) explains how the commands are used.

This page is written by `docs/generate_cli.py` from the declarations in `scalescope`.

| command | does |
| --- | --- |
"""
STATUSES = """
## Exit statuses

Every command ends with one of these. `--help` of a command says what 0 and 1 mean where that is something else.

| status | means |
| --- | --- |
"""
ROWS = "| | |\n| --- | --- |\n"


@dataclass(frozen=True)
class Row:
    """An option or argument: how it is written, and what it means."""

    written: str
    help: str

    @property
    def is_option(self) -> bool:
        """Whether it is an option, and no argument."""
        return self.written.startswith("`-")

    @property
    def name(self) -> str:
        """Its first name, without what it is given."""
        return self.written.replace(",", " ").split()[0]

    def __str__(self) -> str:
        written, text = (cell.replace("|", "\\|") for cell in (self.written, self.help))
        return f"| {written} | {text} |\n"


def page() -> str:
    """The page as the declarations have it."""
    statuses = (f"| {status.value} | {status.help} |\n" for status in ExitStatus)
    found = dict(_commands(app))
    counted = Counter(row for _, rows in found.values() for row in rows if row.is_option)
    shared = {row: None for row, count in counted.items() if count >= SHARED}
    sections = (_section(name, info, rows, shared) for name, (info, rows) in found.items())
    own = [*_rows(app.registered_callback.callback if app.registered_callback else None), *shared]
    common = f"\n## Options of several commands\n\n{ROWS}{''.join(map(str, own))}"
    return "".join([HEAD, *starmap(_line, found.items()), STATUSES, *statuses, common, *sections])


def _line(name: str, command: tuple[CommandInfo, list[Row]]) -> str:
    full = f"scalescope {name}"
    return f"| [`{full}`](#{full.replace(' ', '-')}) | {_said(command[0]).splitlines()[0]} |\n"


def _said(info: CommandInfo) -> str:
    return _tidy(inspect.cleandoc((info.callback and info.callback.__doc__) or ""))


def _commands(application: typer.Typer, before: str = "") -> Iterator[tuple[str, tuple[CommandInfo, list[Row]]]]:
    """All commands by their full names, those of groups after their group."""
    for info in application.registered_commands:
        assert info.callback is not None
        name = info.name or info.callback.__name__.replace("_", "-")
        yield f"{before}{name}", (info, _rows(info.callback))
    for group in application.registered_groups:
        assert group.typer_instance is not None
        within = group.typer_instance.registered_callback
        if within is not None and within.callback is not None:
            info = CommandInfo(group.name, callback=within.callback, epilog=group.typer_instance.info.epilog)
            yield f"{group.name}", (info, _rows(within.callback))
        yield from _commands(group.typer_instance, f"{group.name} ")


def _section(name: str, info: CommandInfo, rows: list[Row], shared: Iterable[Row]) -> str:
    own = [row for row in rows if row not in shared]
    others = ", ".join(row.name for row in rows if row in shared)
    parts = [f"\n## scalescope {name}\n", _said(info) + "\n"]
    if own:
        parts.append(ROWS + "".join(map(str, own)))
    if others:
        parts.append(f"{'And' if own else 'Takes'} {others}.\n")
    if isinstance(info.epilog, str) and (ends := _endings(info.epilog)):
        parts.append(f"Exit status: {ends}.\n")
    return "\n".join(parts)


def _endings(epilog: str) -> str:
    """Of the exit statuses in a help text, those that not every command has, or that mean something else here."""
    every = {f"{status.value} {status.help}" for status in EVERY}
    said = epilog.removeprefix("Exit status: ").rstrip(".").split("; ")
    return "; ".join(each for each in said if each not in every and each != f"0 {DONE}")


def _rows(callback: Any) -> list[Row]:
    hints = get_type_hints(callback, include_extras=True)
    parameters = inspect.signature(callback).parameters.values()
    return [_row(each, hint) for each in parameters if hasattr(hint := hints[each.name], "__metadata__")]


def _row(parameter: inspect.Parameter, annotation: Any) -> Row:
    kind, info = get_args(annotation)[0], annotation.__metadata__[0]
    if isinstance(info, ArgumentInfo):
        return Row(f"`{info.metavar or parameter.name.upper()}`", info.help or "")
    names = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]
    name = ", ".join(f"`{each}`" for each in names or [f"--{parameter.name.replace('_', '-')}"])
    kinds = {*get_args(kind), kind} & {int, float, bool}
    value = "" if bool in kinds else f" `{info.metavar or ('NUMBER' if kinds else 'TEXT')}`"
    text = info.help or ""
    if info.show_default and parameter.default not in (None, "", False):
        text += f" Default: {parameter.default}."
    return Row(name + value, text)


def _tidy(text: str) -> str:
    """Each paragraph on a line of its own."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
