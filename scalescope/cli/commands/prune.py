"""`scalescope prune`."""

from __future__ import annotations

import shutil
from typing import Annotated

import typer

from scalescope.cli.carrying import open_store
from scalescope.cli.options import Json, StoreAddress, option
from scalescope.cli.output import print_json, print_table, say
from scalescope.model import words

DAY_S = 86_400.0


def prune(
    store: StoreAddress = "",
    older_than: Annotated[
        float, typer.Option(metavar="DAYS", min=0, help="Age in days from which a run or study is old.")
    ] = 90,
    keep: Annotated[
        float | None,
        option(metavar="GB", min=0, help="Also remove the oldest records beyond this size."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove the listed items.")] = False,
    as_json: Json = False,
) -> None:
    """List old runs and studies with their records, environments, and logs of jobs. With --yes, remove them.

    A study is removed together with its runs. Nothing that still runs is removed.
    """
    from scalescope import environments
    from scalescope.clusters.jobqueue.shared_folder import default_parent, old_logs
    from scalescope.environments.cache import size
    from scalescope.store import pruning

    with open_store(store) as opened:
        old = pruning.find(opened, older_than_days=older_than, keep_bytes=None if keep is None else keep * 1e9)
        if yes:
            pruning.remove(opened, old)
        where = opened.where
    found = [("study" if each.id not in each.runs else "run", each.id, each.size) for each in old]
    for path in old_logs(default_parent(), older_than * DAY_S):
        found.append(("logs", str(path), size(path)))
        if yes:
            shutil.rmtree(path, ignore_errors=True)
    unused = environments.prune(older_than_days=older_than, dry_run=not yes)
    found += [("environment", text or "(remains of a killed build)", 0) for text in unused.removed]
    total = sum(each[2] for each in found) + unused.freed
    if as_json:
        listed = [{"what": what, "name": name, "bytes": count} for what, name, count in found]
        print_json({"removed": yes, "bytes": total, "found": listed})
        return
    rows = [(what, name, words.size(count) if count else "") for what, name, count in found]
    print_table(("what", "name", "size"), rows)
    done = "removed" if yes else "not removed; --yes removes them"
    say(f"\n{len(found)} in all, {words.size(total)}: {done} (store {where})", "dim")
