"""The store of runs and their trials; each trial is durable as soon as it is saved."""

from __future__ import annotations

import logging
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from sqlalchemy import Connection, Engine, Select, create_engine, delete, event, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session, object_session, selectinload

from scalescope.errors import StoreError, UsageError
from scalescope.model import fields, run_facts
from scalescope.model.extras import install_command
from scalescope.model.finding import Verdict
from scalescope.model.sweep import PlannedTrial, Sweep
from scalescope.model.trial import Trial
from scalescope.owner import Owner, make_folder, opener, user
from scalescope.store import records as record_files
from scalescope.store import row_conversion
from scalescope.store.decisions import Decisions
from scalescope.store.failures import explained
from scalescope.store.json_text import clean, dumps, loads
from scalescope.store.location import Location, locate, refuse_password
from scalescope.store.migrate import upgrade
from scalescope.store.patience import outlasting
from scalescope.store.schema import EnvironmentRow, FindingRow, PointRow, RunRow, RunState, TrialRow
from scalescope.store.studies import Studies, now_of
from scalescope.waiting import PATIENCE_S

HEARTBEAT_LIMIT_S = 120.0  # seconds without a heartbeat after which a run on another host counts as dead
WATCH_INTERVAL_S = 5.0  # seconds between two looks for a heartbeat
LOCK_TIMEOUT_S = 60.0  # seconds that a writer waits for SQLite's lock
logger = logging.getLogger(__name__)
ENDED = "ended"  # fact of a run: the reason for its early end
_LATEST = re.compile(r"latest(?:~(\d{1,6}))?")


@dataclass(frozen=True)
class SweepRun:
    """A stored run of a sweep. Times are UTC, ISO 8601."""

    id: str  # sortable by time: `20261121-143005-ab12cd`, in UTC
    sweep: Sweep
    workload_version: int
    state: RunState  # also `stopped` if the process that ran the sweep is dead
    planned: int  # number of planned trials
    trials: tuple[Trial, ...] = ()  # saved trials in order, also interrupted ones; `Store.runs` may omit them
    verdict: Verdict | None = None  # None if the run has not finished, or has no verdict
    created_at: str = ""  # start of the run
    started_at: str = ""  # latest start or resumption of the run
    finished_at: str = ""  # empty until it has finished
    facts: Mapping[str, Any] = field(default_factory=dict)  # facts known when the run began, such as its packages
    study: str = ""  # id of the study that made the run
    where: str = ""  # address of the store, without password
    saved: int = 0  # number of saved trials

    @property
    def done(self) -> dict[str, Trial]:
        """Trials that need not be repeated, by key (see `Store.finished`)."""
        return {trial.key: trial for trial in self.trials if trial.facts.get(row_conversion.INTERRUPTED) is not True}


class Store:
    """Runs, trials and raw records, in one database and one folder. Threads may share it; processes open their own."""

    def __init__(self, engine: Engine, location: Location, record_root: str) -> None:
        self._engine = engine
        self._writer = engine.execution_options(scalescope_write=True)
        self._default_root = str(location.default_records)
        self.records = record_root  # absolute path or fsspec address of the raw records
        self._path = location.path
        self._without_clock = bool(location.network)
        self._owned: dict[str, str] = {}
        self._before: dict[str, _Before] = {}
        self.is_here = location.path is not None and "://" not in record_root  # True if no server has to answer
        self.patience_s = 0.0  # seconds to wait for a server that is away; above 0 only during a run
        self.says: Callable[[str], object] = logger.warning  # takes a sentence every few seconds of waiting
        self.where = location.shown  # address, without password
        self.studies = Studies(self.reading, self.writing, self.where)
        self.decisions = Decisions(self.reading, self.writing)

    @classmethod
    def open(cls, url: str = "", records: str = "") -> Store:
        """Open a store; create it, or upgrade its schema, if necessary. `url`: see `locate`.

        `records`: folder or fsspec address of the raw records, by default `records` beside the SQLite file, or in the
        user's data folder.
        """
        location = locate(url)
        refuse_password("records", records)
        if not records:
            records = str(location.default_records)
        elif "://" not in records:
            records = os.path.abspath(Path(records).expanduser())
        if location.network:
            text = "%s is on a network file system (%s), where SQLite is slow and relies on that system's locks. "
            text += "For more than one host, use PostgreSQL: SCALESCOPE_STORE=postgresql://USER@HOST/DATABASE"
            logger.warning(text, location.shown, location.network)
        with explained("open the store", location.shown):
            engine = _engine(location)
            try:
                upgrade(engine, location)
            except BaseException:
                engine.dispose()
                raise
        return cls(engine, location, records.rstrip("/"))

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def folder(self, reference: str) -> str:
        """Address of the folder of a run or study among the raw records."""
        return f"{self.records}/{quote(reference, safe='')}"

    def begin(
        self,
        sweep: Sweep,
        plan: Sequence[PlannedTrial],
        *,
        workload_version: int,
        fresh: bool = False,
        facts: Mapping[str, Any] | None = None,
        study: str = "",
    ) -> SweepRun:
        """Begin a run of a sweep, or resume the newest one where it stopped.

        A run is resumed if it is not complete, has the same sweep, study, workload version, code and packages, and
        nobody runs it: it was stopped or failed, or its owner is dead or is this process. If two processes resume at
        once, one gets a new run. If only the code differs, the fact `instead_of` names the run not resumed.
        """
        known, environment = row_conversion.split_packages({**(facts or {}), run_facts.USER: user()})
        code = known.get(run_facts.CODE, "")
        same = [
            RunRow.sweep_id == sweep.id,
            RunRow.workload_version == workload_version,
            RunRow.study_id == (study or None),
            RunRow.environment_hash == (environment.hash if environment else None),
        ]
        resumable = [*same, code == _CODE if code else _CODE.is_(None)]
        watched = self._watch(resumable) if self._without_clock and not fresh else None
        with self.writing("begin a run") as session:
            now = now_of(session)
            if environment:
                _insert_missing(session, environment)
            ownership = _ownership(now, planned=len(plan))
            run_id = None if fresh else self._resume(session, resumable, ownership, watched)
            if run_id is None:
                if not fresh and (other := _with_other_code(session, same, code)):
                    known[run_facts.INSTEAD_OF] = other
                run_id = f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
                row = RunRow(id=run_id, created_at=now, facts=known, study_id=study or None, **ownership)
                row.sweep_id, row.spec, row.workload = sweep.id, sweep.to_mapping(), clean(sweep.workload)
                row.workload_version = workload_version
                row.environment_hash = environment.hash if environment else None
                session.add(row)
        self._owned[run_id] = ownership["owner"]
        self.patience_s = PATIENCE_S
        return self.run(run_id)

    def _watch(self, resumable: list[Any]) -> _Heartbeat | None:
        """Watch the newest resumable run if on another host; return its last heartbeat if no new one comes, else None.

        Needed for SQLite on a network file system, where the times come from the clocks of several hosts.
        """
        first = None
        deadline = time.monotonic() + HEARTBEAT_LIMIT_S
        while True:
            with self.reading("read the runs") as session:
                run = _newest_of(session, resumable)
            if run is None or run.state != RunState.RUNNING or _owner(run).is_here:
                return None
            found = (run.owner, run.heartbeat_at)
            if first is None:
                text = "run %s may still run on %s; this process resumes it after %g s without a heartbeat"
                logger.warning(text, run.id, run.host.split()[0], HEARTBEAT_LIMIT_S)
                first = found
            if found != first:
                return None
            if time.monotonic() > deadline:
                return found
            time.sleep(WATCH_INTERVAL_S)

    def _resume(
        self, session: Session, resumable: list[Any], ownership: Mapping[str, Any], watched: _Heartbeat | None
    ) -> str | None:
        run = _newest_of(session, resumable)
        if run is None or run.state == RunState.COMPLETE:
            return None
        if run.state == RunState.RUNNING:
            heartbeat = (run.owner, run.heartbeat_at)
            silent = heartbeat == watched if self._without_clock else is_silent(run.heartbeat_at, now_of(session))
            ours = (run.host, run.pid) == (ownership["host"], ownership["pid"])
            if not ours and not is_abandoned(_owner(run), silent=silent):
                return None
        changed = [getattr(RunRow, name) for name in (*ownership, "finished_at", "verdict")]
        before = session.execute(select(*changed).where(RunRow.id == run.id)).mappings().one()
        taken = session.execute(
            # if two processes take over from the same owner, the second changes no row
            update(RunRow)
            .where(RunRow.id == run.id, RunRow.owner == run.owner, RunRow.state == run.state)
            .values(**ownership, finished_at=None, verdict=None)
            .returning(RunRow.id),
            execution_options={"synchronize_session": False},
        ).scalar_one_or_none()
        if not taken:
            return None
        findings = session.execute(select(FindingRow.__table__).where(FindingRow.run_id == taken)).mappings().all()
        session.execute(delete(FindingRow).where(FindingRow.run_id == taken))
        self._before[taken] = dict(before), [dict(each) for each in findings]
        return taken

    @outlasting
    def finished(self, run_id: str, *, besides: Collection[str] = ()) -> dict[str, Trial]:
        """Trials that a resumed run need not repeat, by key; without the keys in `besides`."""
        statement = (
            select(TrialRow)
            .where(TrialRow.run_id == run_id, TrialRow.interrupted.is_(False))
            .order_by(TrialRow.saved_at, TrialRow.key)
            .options(selectinload(TrialRow.point), selectinload(TrialRow.environment))
        )
        with self.reading("read the trials") as session:
            if besides:
                if session.scalar(select(func.count()).where(TrialRow.run_id == run_id)) == len(besides):
                    return {}
                keys = session.scalars(select(TrialRow.key).where(TrialRow.run_id == run_id))
                statement = statement.where(TrialRow.key.in_([key for key in keys if key not in besides]))
            return {trial.key: trial for trial in row_conversion.readable(session.scalars(statement), self._trial)}

    @outlasting
    def save(self, run_id: str, trial: Trial, tables: Mapping[str, record_files.Columns] | None = None) -> Trial:
        """Make a trial durable: after this returns, neither a crash nor a power cut loses it.

        Records are written first, then, in one transaction, the row that names them. Saving again changes nothing,
        unless the trial had been interrupted. Returns the trial with the address of its records.
        """
        address = trial.records
        if tables:
            with self.reading("save a trial") as session:  # look first, so that records are not written twice
                self._owned_run(session, run_id)
                if saved := self._saved(session.get(TrialRow, (run_id, trial.key))):
                    return saved
            address = f"{self.folder(run_id)}/{quote(trial.key, safe='')}"
            record_files.write(address, tables)
        return self._save_row(run_id, trial, address)

    @outlasting
    def finish(self, run_id: str, state: RunState | str, verdict: Verdict | None = None, reason: str = "") -> None:
        """Record how a run ended. If a resumed run fails before it saves a trial, its earlier end is restored."""
        state = fields.choice("state", str(state), [item.value for item in RunState if item is not RunState.RUNNING])
        with self.writing("finish a run") as session:
            row = self._owned_run(session, run_id, renew=True)
            before = self._before.get(run_id)
            of_ours = select(TrialRow.key).where(TrialRow.run_id == run_id, TrialRow.saved_at >= row.started_at)
            if before is not None and verdict is None and session.scalar(of_ours.limit(1)) is None:
                columns, findings = before
                for name, value in columns.items():
                    setattr(row, name, value)
                row.findings = [FindingRow(**each) for each in findings]
                return
            row.state = state
            row.finished_at = now_of(session)
            kept = {name: value for name, value in row.facts.items() if name != ENDED}
            row.facts = {**kept, ENDED: clean(reason)} if reason else kept
            row.verdict = clean(verdict.line) if verdict else None
            row.findings = row_conversion.finding_rows(run_id, verdict) if verdict else []

    @outlasting
    def extend(self, run_id: str, planned: int) -> None:
        with self.writing("extend a run") as session:
            self._owned_run(session, run_id, renew=True).planned = planned

    def beat(self, run_id: str) -> None:
        """Renew the heartbeat (due every 30 s); raises `StoreError` if another process has taken over the run."""
        with self.writing("renew the heartbeat") as session:
            self._owned_run(session, run_id, renew=True)

    def runs(
        self, *, limit: int = 50, sweep: str | None = None, own: bool = False, trials: bool = True
    ) -> list[SweepRun]:
        """The newest runs, newest first. `own`: without runs of studies; without `trials`, they are only counted."""
        statement = _newest_runs(trials=trials).limit(limit)
        if sweep is not None:
            statement = statement.where(RunRow.sweep_id == sweep)
        if own:
            statement = statement.where(RunRow.study_id.is_(None))
        with self.reading("read the runs") as session:
            found = session.scalars(statement).all()
            if trials:
                return row_conversion.readable(found, self._run)
            of_run = select(TrialRow.run_id, func.count()).where(TrialRow.run_id.in_([row.id for row in found]))
            counts = dict(session.execute(of_run.group_by(TrialRow.run_id)).all())
            return row_conversion.readable(found, lambda row: self._run(row, saved=counts.get(row.id, 0)))

    @outlasting
    def run(self, reference: str = "latest") -> SweepRun:
        """One run, by its id, the start of its id, or `latest`; raises `UsageError` unless there is exactly one.

        `latest` is the newest run that belongs to no study; `latest~1` is the one before it.
        """
        with self.reading("read a run") as session:
            found: Sequence[RunRow] = []
            if newest := _LATEST.fullmatch(reference):
                own = RunRow.facts[run_facts.STEP_OF].as_string().is_(None), RunRow.study_id.is_(None)
                found = session.scalars(_newest_runs().where(*own).offset(int(newest[1] or 0)).limit(1)).all()
            elif reference:
                prefix = RunRow.id.startswith(clean(reference), autoescape=True)
                found = session.scalars(_newest_runs().where(prefix).limit(6)).all()
            if row := row_conversion.one_of(found, reference, "runs", self.where):
                return self._run(row)
            ids = row_conversion.listed(session.scalars(_newest_runs().limit(6)))
        if ids and reference == "latest":
            raise UsageError(
                "All runs belong to studies or isolations, so none is `latest`",
                where=self.where,
                next_step=f"`scalescope show list` lists studies. Runs: {ids}.",
            )
        if ids:
            next_step = f"There are: {ids}; or `latest`."
            raise UsageError(f"There is no run {reference!r}", where=self.where, next_step=next_step)
        next_step = "`scalescope sweep` makes a run; or set SCALESCOPE_STORE to another store."
        raise UsageError("The store holds no runs", where=self.where, next_step=next_step)

    def tables(self, trial: Trial, *names: str, if_present: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
        """Raw records of a trial: for each named table, or for all, a numpy array or list of text per column.

        `if_present`: further tables, which are left out if old records lack them.
        """
        if not trial.records:
            raise StoreError(f"Trial {trial.key} has no raw records", where=self.where, cause=trial.reason)
        present = record_files.names(trial.records)
        if missing := [name for name in names if name not in present]:
            text = f"Trial {trial.key} has no table {', '.join(missing)}"
            raise StoreError(text, where=trial.records, next_step=f"It has: {', '.join(present)}.")
        wanted = (*names, *(name for name in if_present if name in present)) or present
        return {name: record_files.read(trial.records, name) for name in wanted}

    def _save_row(self, run_id: str, trial: Trial, address: str) -> Trial:
        stored = address.removeprefix(self._default_root + "/")  # so that database and records can move together
        with self.writing("save a trial") as session:
            self._owned_run(session, run_id, renew=True)  # locks the run's row against other processes
            row = session.get(TrialRow, (run_id, trial.key))
            if saved := self._saved(row):
                return saved
            if row:
                session.delete(row)
                session.flush()
            environment = row_conversion.split_packages(trial.facts)[1]
            if environment:
                _insert_missing(session, environment)
            _insert_missing(session, row_conversion.point_row(trial.point))
            row = row_conversion.trial_row(run_id, trial, saved_at=now_of(session), records=stored)
            session.add(row)
            session.flush()
            return self._trial(row)

    def _owned_run(self, session: Session, run_id: str, *, renew: bool = False) -> RunRow:
        row = session.get(RunRow, run_id, with_for_update=renew)
        if row is None:
            raise StoreError(f"There is no run {run_id!r}", where=self.where, cause="Somebody deleted the run.")
        if self._owned.get(run_id, row.owner) != row.owner:
            raise StoreError(
                f"Process {row.pid} on {row.host.split()[0]} has taken over run {run_id}",
                where=self.where,
                cause=f"This process sent no heartbeat for {HEARTBEAT_LIMIT_S:.0f} s, or began the run twice.",
                next_step="Let the other process finish; this one stops here.",
            )
        if renew:
            row.heartbeat_at = now_of(session)
        return row

    def _run(self, row: RunRow, *, saved: int | None = None) -> SweepRun:
        session = object_session(row)
        assert session is not None
        silent = row.state == RunState.RUNNING and is_silent(row.heartbeat_at, now_of(session))
        killed = row.state == RunState.RUNNING and is_abandoned(_owner(row), silent=silent)
        with row_conversion.reading(f"run {row.id}", row, row.environment):
            return SweepRun(
                id=row.id,
                sweep=Sweep.from_mapping(row.spec),
                workload_version=row.workload_version,
                state=RunState.STOPPED if killed else RunState(row.state),
                planned=row.planned,
                trials=tuple(row_conversion.readable(row.trials, self._trial)) if saved is None else (),
                saved=len(row.trials) if saved is None else saved,
                verdict=row_conversion.verdict(row),
                created_at=row.created_at.isoformat(),
                started_at=row.started_at.isoformat(),
                finished_at=row.finished_at.isoformat() if row.finished_at else "",
                facts=row_conversion.join_packages(row),
                study=row.study_id or "",
                where=self.where,
            )

    def _saved(self, row: TrialRow | None) -> Trial | None:
        return None if row is None or row.interrupted else next(iter(row_conversion.readable([row], self._trial)), None)

    def _trial(self, row: TrialRow) -> Trial:
        address = row.records
        if address and "://" not in address and not address.startswith("/"):
            address = f"{self._default_root}/{address}"
        return row_conversion.trial(row, records=address)

    @contextmanager
    def reading(self, doing: str) -> Iterator[Session]:
        """A session of the database. `doing` follows "Could not" in errors."""
        with explained(doing, self.where), Session(self._engine) as session:
            yield session

    @contextmanager
    def writing(self, doing: str) -> Iterator[Session]:
        """A transaction that may write. `doing` follows "Could not" in errors."""
        if self._path and not self._path.exists():  # SQLite would go on writing into a deleted file
            raise StoreError(
                f"Could not {doing}: the store is gone",
                where=self.where,
                cause="The file or its folder was moved or removed while it was in use.",
                next_step="Put the store back and start the same command again.",
            )
        with explained(doing, self.where), Session(self._writer) as session, session.begin():
            yield session


_NEWEST = (RunRow.created_at.desc(), RunRow.id.desc())
_CODE = RunRow.facts[run_facts.CODE].as_string()
_CREATING = threading.Lock()  # no thread connects to a file that another one has created and not yet closed
_Heartbeat = tuple[str, datetime]  # owner of a run, and the time of its last heartbeat by the owner's clock
# a run before it was resumed: the columns that resuming changes, and its findings
_Before = tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]


def _ownership(now: datetime, *, planned: int) -> dict[str, Any]:
    return {
        "state": RunState.RUNNING.value,
        "planned": planned,
        "started_at": now,
        "heartbeat_at": now,
        "owner": secrets.token_hex(8),
        **asdict(Owner.current()),
    }


def _with_other_code(session: Session, same: list[Any], code: str) -> str | None:
    newest = select(RunRow.id, RunRow.state, _CODE).where(*same).order_by(*_NEWEST).limit(1)
    run_id, state, last = session.execute(newest).one_or_none() or ("", RunState.COMPLETE, None)
    return None if state == RunState.COMPLETE or (last or "") == code else run_id


def _newest_of(session: Session, same: list[Any]) -> Any:
    owner = (RunRow.owner, RunRow.host, RunRow.pid, RunRow.process_started)
    newest = select(RunRow.id, RunRow.state, *owner, RunRow.heartbeat_at).where(*same).order_by(*_NEWEST).limit(1)
    return session.execute(newest).one_or_none()


def _owner(run: Any) -> Owner:
    return Owner(run.host, run.pid, run.process_started)


def is_silent(heard_at: datetime, now: datetime) -> bool:
    """Whether the last heartbeat is too long ago; both times are of one clock."""
    return now - heard_at >= timedelta(seconds=HEARTBEAT_LIMIT_S)


def is_abandoned(owner: Owner, *, silent: bool) -> bool:
    """Whether the process that owns a run is dead; if it is on another host, `silent` decides."""
    return not owner.is_alive() if owner.is_here else silent


def _insert_missing(session: Session, row: EnvironmentRow | PointRow) -> None:
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    values = {column.name: getattr(row, column.name) for column in type(row).__table__.columns}
    session.execute(insert(type(row)).values(**values).on_conflict_do_nothing())


def _newest_runs(*, trials: bool = True) -> Select[Any]:
    of_run = selectinload(RunRow.trials)
    with_trials = (of_run.selectinload(TrialRow.point), of_run.selectinload(TrialRow.environment)) if trials else ()
    options = (*with_trials, selectinload(RunRow.findings), selectinload(RunRow.environment))
    return select(RunRow).order_by(*_NEWEST).options(*options)


def _engine(location: Location) -> Engine:
    as_json: dict[str, Any] = {"json_serializer": dumps, "json_deserializer": loads}
    if (path := location.path) is not None:
        make_folder(path.parent, may_share=True)
        engine = create_engine(location.url, connect_args={"timeout": LOCK_TIMEOUT_S}, **as_json)
        event.listen(engine, "do_connect", lambda *_: _create_file(path))
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        limit = {} if "connect_timeout" in location.url.query else {"connect_timeout": 10}
        return create_engine(location.url, pool_pre_ping=True, connect_args=limit, **as_json)
    except ModuleNotFoundError as error:
        raise StoreError(
            f"Could not open the store: {error}",
            where=location.shown,
            cause="PostgreSQL needs the package psycopg.",
            next_step=install_command("postgresql"),
        ) from error


def _create_file(path: Path) -> None:
    """Create the file of a store, if necessary, with our permissions instead of SQLite's.

    A file that is there is not opened: its closing would cancel SQLite's POSIX locks of this whole process, and another
    process would then remove the write-ahead log under us (sqlite.org/howtocorrupt.html, 2.2).
    """
    with _CREATING:
        if not path.exists():
            os.close(opener(str(path), os.O_RDWR | os.O_CREAT))


def _configure_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun by `_begin_sqlite`, not by the sqlite3 module
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA synchronous=FULL")  # NORMAL would lose the newest trials in a power cut
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("scalescope_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
