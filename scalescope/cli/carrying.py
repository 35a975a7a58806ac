"""Carries out a command in this process, or as a Prefect flow if Prefect is set up or asked for."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from scalescope.cli.output import progress, say
from scalescope.errors import ExitStatus, OthersCode, StoreError
from scalescope.run import orchestrator
from scalescope.run.signals import noted
from scalescope.run.syntax import names_block, names_blocks
from scalescope.store.location import VARIABLE, holds_password, locate
from scalescope.store.store import Store

if TYPE_CHECKING:
    from scalescope.run.runner import Runner
    from scalescope.store.store import Store

R = TypeVar("R")


def carry_out(
    flow: str,
    given: Mapping[str, Any],
    directly: Callable[[Mapping[str, Any], Runner], R],  # carries out the command in this process
    *,
    check: Callable[[Mapping[str, Any]], object] = lambda given: None,  # refuses wrong parameters before Prefect starts
    prefect: bool | None = None,  # True: run as a flow; None: do so if a Prefect API is configured
    verbose: bool = False,  # True: show the log
) -> R:
    """Carry out a sweep, a study or an isolation, and show its progress; ask before it runs another user's code."""
    saved = names_blocks(given)
    if prefect is None:
        found = orchestrator.installed()
        prefect = saved or (found is not None and found.is_configured())
    try:
        with interrupted(), progress(verbose=verbose) as listener:
            if not prefect:
                from scalescope.run.runner import Runner

                return directly(given, Runner(listener))
            if not saved:
                check(given)  # before Prefect is loaded, which takes seconds
            start_prefect(verbose=verbose)
            result: R = orchestrator.needed().run(flow, without_password(given), listener)
            return result
    except OthersCode as error:
        if not sys.stdin.isatty() or not typer.confirm(f"{error.what}. Run it?", err=True):
            raise
    return carry_out(flow, {**given, "others_code": True}, directly, check=check, prefect=prefect, verbose=verbose)


@contextmanager
def interrupted() -> Iterator[None]:
    """If Ctrl-C or SIGTERM stops the block, say that finished trials are kept, and end with the signal's status.

    An interrupt also counts if other code turned it into an error, as pydantic's serializers do.
    """
    # A background process of a shell script ignores Ctrl-C, and must go on to do so.
    numbers = [signal.SIGTERM, *([signal.SIGINT] if callable(signal.getsignal(signal.SIGINT)) else [])]
    with noted(*numbers) as received:
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:
            if isinstance(error, Exception) and not received:
                raise
            say("Stopped. Finished trials are kept; the same command continues.", "yellow")
            raise typer.Exit(128 + received[0] if received else ExitStatus.INTERRUPTED) from None


def start_prefect(*, verbose: bool = False) -> None:
    orchestrator.needed().start(verbose=verbose, says=lambda text: say(text, "dim"))


def without_password(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Move an address with a password into the environment: Prefect stores and shows the parameters of flows."""
    store = str(given.get("store", ""))
    if not holds_password(store):
        return given
    os.environ[VARIABLE] = store
    return {**given, "store": ""}


def read_store(address: str) -> Store:
    """Open the store at an option's address; the store must exist, and the caller closes it."""
    path = None if names_block("store", address) else locate(address).path
    if path is not None and not path.exists():
        raise StoreError(
            "There is no store", where=str(path), next_step="`scalescope sweep` creates one; or name another store."
        )
    return open_store(address)


def open_store(address: str) -> Store:
    given = {"store": address}
    if names_blocks(given):
        start_prefect()
    loaded, records = orchestrator.load_saved(given)
    return Store.open(loaded["store"], records)
