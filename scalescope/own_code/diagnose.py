"""A block of the user's code, recorded and judged in its own process, because it asks for that."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distributed

from scalescope.capture.client_thread import ClientWatch
from scalescope.capture.live.standing_tasks import Hang
from scalescope.capture.partition_calls import noted
from scalescope.capture.user_code import line_of_user
from scalescope.errors import InvalidField, UsageError
from scalescope.own_code.block import Block, adaptive, address_of, cluster_of
from scalescope.own_code.diagnosis import Diagnosis
from scalescope.report.hang_lines import told
from scalescope.sent_code import keep_file_names


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
    caller = sys._getframe(2)
    client = current_client() if client is None else client
    address = checked(client)
    watch = ClientWatch(SimpleNamespace(__code__=caller.f_code), address=address)  # type: ignore[arg-type]  # its code
    if not client.nthreads() and not adaptive(cluster_of(client)):
        raise UsageError("The cluster has no workers", next_step="`client.wait_for_workers(1)` before the block")
    found, called = None, name or line_of_user(caller) or "a block"
    try:
        with noted(()) as notes, observed(client, called, "block", watch=watch, notes=notes, says=say) as found:
            yield found
    finally:
        if found is not None and found.is_over:
            print(found.judgement.text)


@contextmanager
def observed(client: distributed.Client, name: str, what: str, **options: Any) -> Iterator[Diagnosis]:
    """A recorded block, judged at its end in this process; `options` are those of `Block`."""
    keep_file_names()
    found = Diagnosis()
    with tempfile.TemporaryDirectory(prefix="scalescope-block-") as folder:
        block = Block(client, Path(folder), name, what, **options)
        block.begin()
        del client  # which its owner may give up
        try:
            yield found
        except BaseException as error:
            block.end(error)
            found.judge(Path(folder))
            raise
        block.end()
        found.judge(Path(folder))


def current_client() -> Any:
    """The client of the Prefect flow that runs here, or else Dask's current one."""
    context = sys.modules.get("prefect.context")
    flow = context.FlowRunContext.get() if context else None
    if (client := getattr(getattr(flow, "task_runner", None), "client", None)) is not None:
        return client
    try:
        return distributed.get_client()
    except ValueError as error:
        raise UsageError("There is no Dask client here", next_step="`with scalescope.diagnose(client)`") from error


def say(found: Hang, now: float) -> None:
    print(told(found, now), file=sys.stderr, flush=True)


def checked(client: distributed.Client) -> str:
    if not isinstance(client, distributed.Client):
        raise InvalidField("client", client, "a `distributed.Client`")
    if client.asynchronous:
        raise UsageError(
            "A block cannot be recorded through an asynchronous client",
            next_step="run it in a thread of its own, with `distributed.Client(address)`",
        )
    if client.status != "running":
        raise UsageError(f"The client is {client.status}", next_step="connect it before the block begins")
    return address_of(client)
