"""Removes old runs with their records, and old studies with their runs, from a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import fsspec
from sqlalchemy import delete, exists, select

from scalescope.owner import Owner
from scalescope.store.failures import explained
from scalescope.store.location import redact
from scalescope.store.schema import EnvironmentRow, PointRow, RunRow, RunState, StudyRow, TrialRow
from scalescope.store.store import Store, is_abandoned, is_silent
from scalescope.store.studies import now_of


@dataclass(frozen=True)
class PrunableItem:
    """A run, or a study with all its runs, to be removed."""

    id: str
    runs: tuple[str, ...]  # ids of the runs
    since: datetime  # latest start of the study or a run
    size: int  # bytes of records and reports


def find(store: Store, *, older_than_days: float, keep_bytes: float | None = None) -> list[PrunableItem]:
    """Items to remove, oldest first: those too old, or beyond the newest `keep_bytes` bytes; never running ones."""
    runs: dict[str, list[str]] = defaultdict(list)
    running = set()
    with store.reading("read the runs") as session:
        now = now_of(session)
        begun = dict(session.execute(select(StudyRow.id, StudyRow.created_at)).all())
        columns = (RunRow.id, RunRow.study_id, RunRow.started_at, RunRow.state, RunRow.heartbeat_at)
        owners = (RunRow.host, RunRow.pid, RunRow.process_started)
        for run, study, since, state, heard_at, host, pid, started in session.execute(select(*columns, *owners)):
            whole = study or run
            runs[whole].append(run)
            begun[whole] = max(since, begun.get(whole, since))
            owner = Owner(host, pid, started)
            if state == RunState.RUNNING and not is_abandoned(owner, silent=is_silent(heard_at, now)):
                running.add(whole)
    found, kept = [], 0
    for whole, since in sorted(begun.items(), key=lambda item: item[1], reverse=True):
        size = sum(_size(store.folder(reference)) for reference in {whole, *runs[whole]})
        kept += size
        too_much = keep_bytes is not None and kept > keep_bytes
        if whole not in running and (too_much or now - since > timedelta(days=older_than_days)):
            found.append(PrunableItem(whole, tuple(runs[whole]), since, size))
    return found[::-1]


def remove(store: Store, old: Sequence[PrunableItem]) -> None:
    """Remove items: the rows first, so that no row names removed records."""
    for each in old:
        with store.writing("remove a run") as session:
            session.execute(delete(RunRow).where(RunRow.id.in_(each.runs)))
            session.execute(delete(StudyRow).where(StudyRow.id == each.id))
        for folder in map(store.folder, {each.id, *each.runs}):
            with explained("remove the records", redact(folder)):
                fs, root = fsspec.core.url_to_fs(folder)
                if fs.exists(root):
                    fs.rm(root, recursive=True)
    with store.writing("remove what no run uses") as session:
        of_trial, of_run = TrialRow.environment_hash, RunRow.environment_hash
        session.execute(delete(PointRow).where(~exists().where(TrialRow.point_id == PointRow.id)))
        unused = ~exists().where(of_trial == EnvironmentRow.hash), ~exists().where(of_run == EnvironmentRow.hash)
        session.execute(delete(EnvironmentRow).where(*unused))


def _size(folder: str) -> int:
    with explained("read the records", redact(folder)):
        fs, root = fsspec.core.url_to_fs(folder)
        return int(fs.du(root)) if fs.exists(root) else 0
