"""A block of code on somebody else's cluster: recorded, measured and judged like a trial of a sweep."""

from __future__ import annotations

import math
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import distributed

from scalescope.capture.client_thread import ClientWatch
from scalescope.capture.host import HostLoad, facts, packages
from scalescope.capture.partition_calls import line_of_user, noted
from scalescope.capture.recording import Capture
from scalescope.diagnosis import verdict
from scalescope.driver.attempt import Attempt, describe, judge
from scalescope.errors import InvalidField, UsageError
from scalescope.model import spool
from scalescope.model.cluster import cluster_spec
from scalescope.model.finding import Severity, Verdict
from scalescope.model.metrics import Metrics
from scalescope.model.partition_calls import PartitionCall
from scalescope.model.standstill import STANDSTILL, Standstill
from scalescope.model.sweep import PlannedTrial, Point, Sweep
from scalescope.model.trial import RAN, Trial
from scalescope.model.words import duration
from scalescope.report import html as page
from scalescope.report import terminal
from scalescope.report.notebook import Shown, table
from scalescope.report.screen import Screen
from scalescope.run.hang_watch import HangWatch
from scalescope.run.trials import judged
from scalescope.store.schema import RunState
from scalescope.store.store import Store, SweepRun

if TYPE_CHECKING:
    import pandas

CONNECT_TIMEOUT_S = 10.0
WIDTH = 100
ONE_RUN = (
    "One run cannot say whether its work grows with the workers, or where it stops scaling: "
    "`scalescope sweep -w FILE.py:FUNCTION -a workers=1,2,4,8` does."
)
_recorded: set[str] = set()  # addresses of the schedulers on which a block of this process is being recorded


class Diagnosis(Shown):
    """What a block did, and why it was not faster; known once the block has ended."""

    def __init__(self) -> None:
        self._run: SweepRun | None = None
        self._tables: Mapping[str, Any] = {}

    def _shown(self) -> SweepRun:
        if self._run is None:
            raise UsageError("the block is not over", next_step="ask after the `with` statement")
        return self._run

    @property
    def is_over(self) -> bool:
        return self._run is not None

    @property
    def verdict(self) -> str:
        return self._judgement.line

    @property
    def metrics(self) -> Metrics | None:
        """None if no task was recorded."""
        return self.trial.metrics

    @property
    def trial(self) -> Trial:
        return self._shown().trials[0]

    @property
    def tasks(self) -> pandas.DataFrame:
        """A row for each attempt at a task: columns of `tasks` in scalescope/model/records.py; needs pandas."""
        return table({name: list(values) for name, values in self._tables.get("tasks", {}).items()})

    def report(self, path: str) -> str:
        """Write a self-contained HTML file; returns its path."""
        return page.write(path, self._shown(), lambda trial: self._tables)

    def save(self, store: str = "") -> str:
        """Keep it in a store (empty: the default one); returns its id for `scalescope show` and `report`."""
        shown, plan = self._shown(), [PlannedTrial(0, self.trial.point, 0)]
        with Store.open(store) as kept:
            run = kept.begin(shown.sweep, plan, workload_version=1, fresh=True, facts=shown.facts)
            kept.save(run.id, self.trial, self._tables)
            kept.finish(run.id, RunState.COMPLETE, self._judgement)
        self._run = replace(shown, id=run.id)
        return run.id

    def __str__(self) -> str:
        run, console = self._shown(), Screen(width=WIDTH, color_system=None)
        with console.capture() as captured:
            console.print(terminal.render(run.sweep, run.trials, self._judgement, width=WIDTH, tracebacks=False))
        lines = [line.rstrip() for line in captured.get().splitlines()]
        return "\n".join([*lines, *(["", ONE_RUN] if self.trial.counts else [])])

    def __repr__(self) -> str:
        return self._judgement.text if self.is_over else "a diagnosis that is not over"

    @property
    def _judgement(self) -> Verdict:
        judgement = self._shown().verdict
        assert judgement is not None
        return judgement


@contextmanager
def diagnose(client: distributed.Client, name: str = "") -> Iterator[Diagnosis]:
    """Record and print a diagnosis, as `scalescope.diagnose` says.

    A client of its own installs a recorder on the scheduler and its workers, and removes it at the end; nothing else is
    changed.

    Raises:
        UsageError: The client is asynchronous or closed, the cluster has no workers, or is being recorded already.
        CaptureError: The recorder could not be installed.
    """
    caller = sys._getframe(2)
    watch = ClientWatch(SimpleNamespace(__code__=caller.f_code))  # type: ignore[arg-type]  # only its code is used
    _checked(client)
    if not client.nthreads():
        raise UsageError("The cluster has no workers", next_step="`client.wait_for_workers(1)` before the block")
    found, called = None, name or line_of_user(caller) or "a block"
    try:
        with noted(()) as asked, observed(client, called, "block", watch, asked) as found:
            yield found
    finally:
        if found is not None and found.is_over:
            print(found._judgement.text)


@contextmanager
def observed(
    client: distributed.Client,
    name: str,
    what: str,  # `script`, `block` or `cluster`
    watch: ClientWatch | None = None,  # of the thread that uses the client; None if that is in another process
    asked: Sequence[PartitionCall] = (),  # calls that decide partitions, noted meanwhile
) -> Iterator[Diagnosis]:
    """Like `diagnose`, without printing; workers may come later."""
    address, is_here = _checked(client), isinstance(client.cluster, distributed.LocalCluster)
    kind = type(client.cluster).__name__ if client.cluster is not None else "running scheduler"
    found, attempt = Diagnosis(), Attempt()
    _recorded.add(address)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="scalescope-block-") as folder,
            distributed.Client(
                address, security=client.security, set_as_default=False, timeout=CONNECT_TIMEOUT_S
            ) as observer,
            closing(Capture(observer, settle_s=0.0)) as capture,
        ):
            del client  # which its owner may give up
            threads, spools = dict(observer.nthreads()), Path(folder)
            began, clock = datetime.now(UTC), time.monotonic()
            load, hang = HostLoad(), HangWatch(observer, _say if watch else lambda text: None)
            try:
                with capture.trial(spools / "tasks.spool") as recording, load, hang, watch or nullcontext():
                    yield found
            except BaseException as error:
                attempt.error = describe(error)
                attempt.raised = f"the {what} raised {attempt.error['message']}"
                if isinstance(error, KeyboardInterrupt):
                    attempt.raised = f"you stopped the {what} after {duration(time.monotonic() - clock)}"
                raise
            finally:
                attempt.elapsed_s = watch.ended - watch.began if watch else time.monotonic() - clock
                if watch:
                    with (spools / "client.spool").open("wb") as stream:
                        spool.write_chunk(stream, "client", watch.columns(recording.ahead_s))
                attempt.missing = "" if recording.complete else recording.reason
                if recording.complete:
                    threads = max(threads, dict(observer.nthreads()), key=len)  # batch systems bring workers late
                attempt.warnings += recording.warnings
                attempt.facts = {
                    RAN: what,
                    STANDSTILL: hang.found and hang.found.to_mapping(),
                    "asked": [each.to_mapping() for each in asked],
                    "cluster": {"kind": kind, "address": address},
                    **({"host": {**facts(), "load": load.load and load.load.to_mapping()}} if is_here else {}),
                    "packages": packages(),
                    **{name: version(name) for name in ("dask", "distributed")},
                    "python": platform.python_version(),
                    "error": attempt.error,
                }
                found._run, found._tables = _judged(attempt, name, address, threads, began, spools)
    finally:
        _recorded.discard(address)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _checked(client: distributed.Client) -> str:
    if not isinstance(client, distributed.Client):
        raise InvalidField("client", client, "a `distributed.Client`")
    if client.asynchronous:
        raise UsageError(
            "A block cannot be recorded through an asynchronous client",
            next_step="run it in a thread of its own, with `distributed.Client(address)`",
        )
    if client.status != "running":
        raise UsageError(f"The client is {client.status}", next_step="connect it before the block begins")
    address = str(client.scheduler.address)
    if address in _recorded:
        raise UsageError(
            "This cluster is being recorded for another block",
            where=address,
            next_step="record the outer one, or one after the other",
        )
    return address


def _judged(
    attempt: Attempt, name: str, address: str, threads: Mapping[str, int], began: datetime, spools: Path
) -> tuple[SweepRun, Mapping[str, Any]]:
    each = math.ceil(sum(threads.values()) / len(threads)) if threads else 1
    stands = attempt.facts[STANDSTILL]
    if stands and not attempt.raised:
        attempt.problem = "nothing moved at the end"
    if not threads:
        attempt.missing = "the cluster had no workers"
    if len(set(threads.values())) > 1:
        attempt.warnings.append(f"workers have different numbers of threads; they are taken to have {each} each")
    point = Point(len(threads) or 1, each)
    state, reason = judge(attempt)
    trial = Trial(
        *(PlannedTrial(0, point, 0).key, point, 0, False, state, reason),
        started_at=began.isoformat(timespec="seconds"),
        real_s=(datetime.now(UTC) - began).total_seconds(),
        facts={fact: value for fact, value in attempt.facts.items() if value is not None},
        warnings=tuple(attempt.warnings),
    )
    trial, tables = judged(trial, spools, attempt.elapsed_s)
    if stands and not any(finding.severity is Severity.HIGH for finding in trial.findings):
        trial = replace(trial, reason=f"{trial.reason}; {Standstill.from_mapping(stands).sentence()}")
    trial = replace(trial, records="in memory")
    reachable = "inproc:0" if address.startswith("inproc") else address  # `SchedulerSpec` takes no address in a process
    cluster = cluster_spec({"kind": "scheduler", "address": reachable})
    sweep = Sweep(name, cluster=cluster, points=({"workers": point.workers},))
    judgement = verdict.diagnose(sweep, [trial])
    run = SweepRun("", sweep, 1, RunState.COMPLETE, 1, (trial,), judgement, began.isoformat())
    known = {"packages": attempt.facts["packages"]}
    return replace(run, finished_at=datetime.now(UTC).isoformat(), facts=known), tables
