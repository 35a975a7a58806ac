"""A block of code on somebody else's cluster, recorded like a trial of a sweep.

It needs `distributed` alone: a script may run in an environment with nothing else.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import distributed

from scalescope.capture.client_thread import ClientWatch
from scalescope.capture.host import HostLoad, facts, packages
from scalescope.capture.partition_calls import Notes, line_of_user, noted
from scalescope.capture.recording import Capture
from scalescope.driver.attempt import Attempt, describe, plain
from scalescope.errors import InvalidField, UsageError
from scalescope.model import spool
from scalescope.model.standstill import STANDSTILL
from scalescope.model.trial import RAN
from scalescope.model.words import duration
from scalescope.run.hang_watch import HangWatch
from scalescope.run.recorded_block import Recipient, Recorded
from scalescope.sent_code import keep_file_names

if TYPE_CHECKING:
    from scalescope.run.block_diagnosis import Diagnosis

CONNECT_TIMEOUT_S = 10.0
_recorded: set[str] = set()  # addresses of the schedulers on which a block of this process is being recorded


R = TypeVar("R", bound=Recipient)


@contextmanager
def diagnose(client: distributed.Client | None = None, name: str = "") -> Iterator[Diagnosis]:
    """Record and print a diagnosis, as `scalescope.diagnose` says.

    A client of its own installs a recorder on the scheduler and its workers, and removes it at the end; nothing else is
    changed.

    Raises:
        UsageError: There is no client, it is asynchronous or closed, the cluster has no workers (and is not adaptive),
            or it is being recorded already.
        CaptureError: The recorder could not be installed.
    """
    from scalescope.run.block_diagnosis import Diagnosis

    caller = sys._getframe(2)
    watch = ClientWatch(SimpleNamespace(__code__=caller.f_code))  # type: ignore[arg-type]  # only its code is used
    client = _current_client() if client is None else client
    _checked(client)
    if not client.nthreads() and not _adaptive(cluster_of(client)):
        raise UsageError("The cluster has no workers", next_step="`client.wait_for_workers(1)` before the block")
    found, called = None, name or line_of_user(caller) or "a block"
    try:
        with noted(()) as asked, observed(client, called, "block", Diagnosis(), watch, asked) as found:
            yield found
    finally:
        if found is not None and found.is_over:
            print(found._judgement.text)


@contextmanager
def observed(
    client: distributed.Client,
    name: str,
    what: str,  # `script`, `block` or `cluster`
    found: R,
    watch: ClientWatch | None = None,  # of the thread that uses the client; None if that is in another process
    asked: Notes | None = None,  # of calls that decide partitions, noted meanwhile
) -> Iterator[R]:
    """Like `diagnose`, for any recipient, without printing; workers may come later."""
    asked = Notes() if asked is None else asked
    address, made = _checked(client), cluster_of(client)
    is_here = isinstance(made, distributed.LocalCluster)
    kind = type(made).__name__ if made is not None else "running scheduler"
    attempt, cluster = Attempt(), weakref.ref(made) if made is not None else lambda: None
    keep_file_names()
    _recorded.add(address)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="scalescope-block-") as folder,
            distributed.Client(
                address, security=client.security, set_as_default=False, timeout=CONNECT_TIMEOUT_S
            ) as observer,
            closing(Capture(observer, settle_s=0.0)) as capture,
        ):
            del client, made  # which their owner may give up
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
                threads = max(threads, recording.threads, key=len)  # batch systems bring workers late
                attempt.warnings += recording.warnings
                attempt.facts = {
                    RAN: what,
                    STANDSTILL: hang.found and hang.found.to_mapping(),
                    **asked.facts(),
                    "cluster": {"kind": kind, "address": address, **_adaptive(cluster())},
                    **({"host": {**facts(), "load": load.load and load.load.to_mapping()}} if is_here else {}),
                    "packages": packages(),
                    **{name: version(name) for name in ("dask", "distributed")},
                    "python": platform.python_version(),
                    "error": attempt.error,
                }
                started_at, real_s = began.isoformat(timespec="seconds"), time.monotonic() - clock
                found.ended(Recorded(attempt, name, address, threads, started_at, real_s), spools)
    finally:
        _recorded.discard(address)


def _current_client() -> Any:
    """The client of the Prefect flow that runs here, or else Dask's current one."""
    context = sys.modules.get("prefect.context")
    flow = context.FlowRunContext.get() if context else None
    if (client := getattr(getattr(flow, "task_runner", None), "client", None)) is not None:
        return client
    try:
        return distributed.get_client()
    except ValueError as error:
        raise UsageError("There is no Dask client here", next_step="`with scalescope.diagnose(client)`") from error


def cluster_of(client: distributed.Client) -> Any:
    """The cluster that a client was given; else the one of this process that has its address; None if there is none."""
    if client.cluster is not None:
        return client.cluster
    address = client.scheduler.address
    return next((each for each in distributed.SpecCluster._instances if each.scheduler_address == address), None)


def _adaptive(cluster: Any) -> dict[str, Any]:
    """The fact `adaptive` of a cluster that scales itself; empty for any other."""
    adaptive = getattr(cluster, "_adaptive", None)
    names = ("minimum", "maximum", "interval", "wait_count", "target_duration")
    return {"adaptive": {name: plain(getattr(adaptive, name, None)) for name in names}} if adaptive else {}


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
