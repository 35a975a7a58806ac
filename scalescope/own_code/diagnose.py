"""Records a block of the user's code that asks for it, and judges it in the same process."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace
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


class diagnose(AbstractContextManager[Diagnosis], AbstractAsyncContextManager[Diagnosis]):
    """Record and print a diagnosis, as `scalescope.diagnose` says.

    A separate client installs a recorder on the scheduler and its workers, and removes it at the end. Nothing else on
    the cluster changes. `async with` does that in a thread, so that the event loop goes on.

    Raises:
        UsageError: There is no client, it is closed, or it is asynchronous without `async with`; another block already
            records the cluster; or, without `async`, the cluster has no workers and is not adaptive.
        CaptureError: The recorder could not be installed.
    """

    def __init__(self, client: distributed.Client | None = None, name: str = "") -> None:
        self._client, self._name, self._stack = client, name, ExitStack()

    def __enter__(self) -> Diagnosis:
        caller = sys._getframe(1)
        client = current_client() if self._client is None else self._client
        address = checked(client)
        watch = ClientWatch(SimpleNamespace(__code__=caller.f_code), address=address)  # type: ignore[arg-type]  # its code is used
        if not client.nthreads() and not adaptive(cluster_of(client)):
            raise UsageError("The cluster has no workers", next_step="call `client.wait_for_workers(1)` first")
        block = self._observed(client, caller, watch=watch)
        del client
        self._found = self._entered(block)
        return self._found

    def __exit__(self, *error: Any) -> bool | None:
        try:
            return self._stack.__exit__(*error)
        finally:
            self._tell()

    async def __aenter__(self) -> Diagnosis:
        client = current_client() if self._client is None else self._client
        checked(client, asynchronous=True)
        block = self._observed(client, sys._getframe(1))
        self._found = await asyncio.to_thread(self._entered, block)
        return self._found

    async def __aexit__(self, *error: Any) -> bool | None:
        try:
            return await asyncio.to_thread(self._stack.__exit__, *error)
        finally:
            self._tell()

    def _observed(
        self, client: distributed.Client, caller: FrameType, **options: Any
    ) -> AbstractContextManager[Diagnosis]:
        notes = self._stack.enter_context(noted(()))
        called = self._name or line_of_user(caller) or "a block"
        self._client = None  # keep no reference to the user's client
        return observed(client, called, "block", notes=notes, says=say, **options)

    def _entered(self, block: AbstractContextManager[Diagnosis]) -> Diagnosis:
        try:
            return self._stack.enter_context(block)
        except BaseException:
            self._stack.close()
            raise

    def _tell(self) -> None:
        if self._found.is_over:
            print(self._found.judgement.text)


@contextmanager
def observed(client: distributed.Client, name: str, what: str, **options: Any) -> Iterator[Diagnosis]:
    """A recorded block, judged at its end in this process; `options` are those of `Block`."""
    keep_file_names()
    found = Diagnosis()
    with tempfile.TemporaryDirectory(prefix="scalescope-block-") as folder:
        block = Block(client, Path(folder), name, what, **options)
        block.begin()
        del client  # keep no reference to the user's client
        try:
            yield found
        except BaseException as error:
            block.end(error)
            found.judge(Path(folder))
            raise
        block.end()
        found.judge(Path(folder))


def current_client() -> Any:
    """The client of the Prefect flow that runs here, or else Dask's current client."""
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


def checked(client: distributed.Client, *, asynchronous: bool = False) -> str:
    """The scheduler's address; raises if the client cannot be recorded. `asynchronous`: allow asynchronous clients."""
    if not isinstance(client, distributed.Client):
        raise InvalidField("client", client, "a `distributed.Client`")
    if client.asynchronous and not asynchronous:
        raise UsageError(
            "This client is asynchronous: the recorder and the client's event loop would wait for each other",
            next_step="write `async with scalescope.diagnose(client):`",
        )
    if client.status != "running":
        raise UsageError(f"The client is {client.status}", next_step="connect it before the block begins")
    return address_of(client)
