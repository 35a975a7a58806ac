"""`scalescope leases` and `scalescope reap`."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalescope.cli.options import Json
from scalescope.cli.output import print_json, print_table, say, say_error
from scalescope.errors import ExitStatus

if TYPE_CHECKING:
    from scalescope.leases import Lease


def leases(as_json: Json = False) -> None:
    """List the jobs and clusters that runs have requested from Slurm, Kubernetes and others, and whether the runs live.

    A lease is written before each request, in $SCALESCOPE_LEASES or in the user's state folder.
    """
    from scalescope import leases as ledger
    from scalescope.clusters import reaping
    from scalescope.model.words import plural

    found, broken = ledger.read_all()
    told = [(lease, *reaping.explain(lease)) for lease in found]
    if as_json:
        listed = [_lease(lease) | {"owned": owned, "words": words} for lease, owned, words in told]
        print_json(listed + [{"label": "", "error": str(error)} for error in broken])
    else:
        rows = [(lease.label, lease.backend, _since(lease.created_at), words) for lease, _, words in told]
        print_table(("lease", "backend", "since", "owner"), rows)
        text = f"\n{plural(len(found), 'lease')} in {ledger.folder()}"
        if orphans := sum(owned is False for _, owned, _ in told):
            text += f"; {orphans} whose run is gone: `scalescope reap` removes what was left behind"
        say(text, "dim")
        for error in broken:
            say_error(str(error))
    raise typer.Exit(ExitStatus.INFRASTRUCTURE if broken else ExitStatus.OK)


def reap(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    as_json: Json = False,
) -> None:
    """Remove the jobs and clusters of killed runs, and their processes and temporary folders on this machine.

    Only jobs of this user whose name and comment are the label of a lease are cancelled. Leases of runs that are
    alive, or may be alive on another host, are kept. In the Kubernetes namespaces of these leases and of the current
    context, clusters of other hosts are also removed once their own lease has expired. Status 3: something could not be
    removed.
    """
    from scalescope.clusters import reaping

    results = reaping.reap(dry_run=dry_run)
    if as_json:
        print_json([asdict(result) for result in results])
    elif not results:
        say("Nothing to remove: no lease, and no folder of a dead driver.", "dim")
    else:
        rows = [(each.label, each.fate.value, ", ".join(each.removed) or "-", each.words) for each in results]
        print_table(("lease or folder", "what was done", "jobs or processes", "why"), rows)
        for each in results:
            if each.next_step:
                say(f"{each.label}: {each.next_step}", "yellow")
    failed = any(result.fate is reaping.Fate.FAILED for result in results)
    raise typer.Exit(ExitStatus.INFRASTRUCTURE if failed else ExitStatus.OK)


def _lease(lease: Lease) -> dict[str, Any]:
    def iso(when: float | None) -> str | None:
        return None if when is None else datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")

    return asdict(lease) | {"created_at": iso(lease.created_at), "limit_at": iso(lease.limit_at)}


def _since(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
