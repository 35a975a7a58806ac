"""`scalescope environments`."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalescope.cli.options import Json
from scalescope.cli.output import exit_statuses, print_json, print_table, say
from scalescope.model import words
from scalescope.model.environment import Environment
from scalescope.model.words import plural

if TYPE_CHECKING:
    from scalescope.environments import Built, Cached

app = typer.Typer(epilog=exit_statuses())


@app.callback(invoke_without_command=True)
def environments(context: typer.Context, as_json: Json = False) -> None:
    """List, build and remove the software environments of trials.

    An environment is given as text, here and in a sweep: `present` (the one that Scalescope is installed in), the path
    of a Python interpreter that has distributed, or requirements, which uv resolves and installs once:

    scalescope environments build "2023 = python==3.11 apache-beam==2.47.0 distributed==2023.5.0"

    scalescope sweep -w bag-map -a "environment=dask==2023.5.0,dask==2024.8.0" -a workers=100,200

    Environments are kept in $SCALESCOPE_ENVIRONMENTS, or in the user's cache folder. Requirements without a version are
    resolved once, when the environment is built.
    """
    if context.invoked_subcommand is not None:
        return
    from scalescope.environments import list_cached

    found = list_cached()
    if as_json:
        print_json([_cached(cached) for cached in found])
        return
    rows = []
    for each in found:
        used = _age(each.last_used) + (", in use" if each.in_use else "")
        rows.append((used, words.size(each.size), each.python_version, str(each.packages), each.text))
    print_table(("last used", "size", "python", "packages", "environment"), rows)
    total = sum(cached.size for cached in found)
    counted = f"{plural(len(found), 'environment')}, {words.size(total)}"
    say(f"\n{counted} (files shared with uv's own cache counted), in {_where()}", "dim")


@app.command(epilog=exit_statuses())
def build(
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...", help="Environments, each in quotes: 'dask==2024.8.0 numpy<2' 'dask==2026.8'."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Build environments now, so that no sweep waits for them; print the interpreter of each.

    Environments in the cache are only checked. If one of the texts is not valid, nothing is built.
    """
    from scalescope.environments import ensure

    asked = [Environment.parse(text) for text in texts]
    built = [ensure(environment, says=say) for environment in asked]
    if as_json:
        print_json([_built(one) for one in built])
    else:
        for one in built:
            print(one.python)


@app.command(epilog=exit_statuses())
def prune(
    older_than: Annotated[
        float, typer.Option(metavar="DAYS", min=0, help="Remove environments that were not used for this many days.")
    ] = 30.0,
    everything: Annotated[bool, typer.Option("--all", help="Remove all environments that are not in use.")] = False,
    as_json: Json = False,
) -> None:
    """Remove environments that were not used lately, and the remains of killed builds. Environments in use stay.

    A sweep that needs a removed environment builds it again, from uv's cache if that still has the packages. `uv cache
    prune` frees space there.
    """
    from scalescope.environments import prune as remove

    done = remove(older_than_days=older_than, everything=everything)
    if as_json:
        print_json(asdict(done))
        return
    for text in done.removed:
        print(f"removed  {text or '(remains of a killed build)'}")
    for text in done.in_use:
        print(f"in use   {text}")
    say(f"{len(done.removed)} removed, {words.size(done.freed)} freed in {_where()}", "dim")


def _cached(cached: Cached) -> dict[str, Any]:
    last_used = datetime.fromtimestamp(cached.last_used, UTC).isoformat(timespec="seconds")
    return {**asdict(cached), "path": str(cached.path), "last_used": last_used}


def _built(built: Built) -> dict[str, Any]:
    data = asdict(built)
    environment = data.pop("environment")
    return {"text": environment["text"], "name": environment["name"], **data}


def _where() -> str:
    from scalescope.environments.cache import folder

    return str(folder())


def _age(when: float) -> str:
    seconds = max(time.time() - when, 0.0)
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return "just now"
