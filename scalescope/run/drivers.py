"""Drivers with their clusters, one for each cluster and environment of a run."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scalescope import environments
from scalescope.analysis.cost import Spending
from scalescope.driver.process import Driver
from scalescope.errors import DriverError
from scalescope.leases import PREFIX
from scalescope.model.environment import Environment
from scalescope.model.sweep import Point
from scalescope.run import orchestrator_load, price_table
from scalescope.run.request import RunRequest
from scalescope.run.signals import shielded
from scalescope.store.failures import explained
from scalescope.store.store import Store

# Most drivers of one run that stay open, each with its cluster; a sweep over environments alternates between them
MAX_DRIVERS = 4
# Seconds for a driver to end by itself. Together with SIGTERM and SIGKILL, closing takes less than 10 s: Prefect kills
# a cancelled flow run after 30 s, and needs some of that time itself
CLOSE_TIMEOUT_S = 4.0


@dataclass(frozen=True)
class _OpenDriver:
    driver: Driver
    folder: tempfile.TemporaryDirectory[str]

    def close(self, timeout_s: float) -> None:
        try:
            self.driver.close(timeout_s=timeout_s)
        finally:
            self.folder.cleanup()


class Drivers:
    """The drivers of a run, and the store where its trials are saved."""

    def __init__(
        self,
        request: RunRequest,
        run_id: str,
        store: Store,
        *,
        says: Callable[[str], None] = lambda text: None,  # called with a text when a driver begins a phase
        cores: Sequence[int] = (),  # cores to which drivers are pinned; empty: not pinned
    ) -> None:
        self.request, self.run_id, self.store = request, run_id, store
        self.prices = price_table.load()
        self.spending = Spending()  # costs of the run's trials; counted only for a budget
        self._says, self._cores = says, list(cores)
        self._opened: dict[tuple[str, str], _OpenDriver] = {}  # by `Sweep.driver_of`; the least recently used first

    @property
    def stopped(self) -> bool:
        return self.run_id in _stopped

    @property
    def pids(self) -> list[int]:
        return [opened.driver.pid for opened in self._opened.values()]

    def driver(self, point: Point) -> Driver | None:
        """The driver that can run a point now."""
        opened = self._opened.get(self.request.sweep.driver_of(point))
        return opened.driver if opened is not None and opened.driver.alive else None

    def open(self, point: Point) -> Driver:
        """Start a driver and its cluster for a point; the least recently used one may be closed."""
        place = self.request.sweep.driver_of(point)
        self._close(place)
        while len(self._opened) >= MAX_DRIVERS:
            self._close(next(iter(self._opened)))
        if self.stopped:
            raise DriverError("the sweep was stopped")
        sweep = self.request.sweep
        python = environments.ensure(Environment.parse(point.environment), says=self._says).python
        with explained("make a folder for raw records", tempfile.gettempdir()):
            folder = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
        try:
            with orchestrator_load.pinned(self._cores):
                driver = Driver.start(
                    sweep.cluster_of(point),
                    seed=sweep.seed,
                    folder=Path(folder.name),
                    run=self.run_id,
                    python=str(python),
                    on_progress=self._says,
                )
        except BaseException:
            folder.cleanup()
            raise
        opened = _OpenDriver(driver, folder)
        with _changes:
            if not self.stopped:
                self._opened[place] = opened
                return driver
        opened.close(CLOSE_TIMEOUT_S)  # `stop` was called meanwhile, and did not see this driver
        raise DriverError("the sweep was stopped")

    def use(self, point: Point) -> None:
        place = self.request.sweep.driver_of(point)
        self._opened[place] = self._opened.pop(place)

    def leave(self, point: Point) -> None:
        """End the driver of a point after a trial, if each trial gets its own driver."""
        if self.request.own_drivers:
            self._close(self.request.sweep.driver_of(point))

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """End all drivers with their clusters, in parallel; may be called twice."""
        _together([partial(self._close, place, timeout_s) for place in list(self._opened)])

    def _close(self, place: tuple[str, str], timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        opened = self._opened.pop(place, None)
        if opened is not None:
            opened.close(timeout_s)


_running: dict[str, list[Drivers]] = {}
_stopped: set[str] = set()
_changes = threading.Lock()  # guards `_running`, `_stopped` and new entries of `_opened`


def _together(ends: Sequence[Callable[[], None]]) -> None:
    """Call all functions in parallel, so that none waits for another; raise the first error once all have ended."""
    if ends:
        with ThreadPoolExecutor(len(ends), thread_name_prefix="scalescope-close") as pool:
            futures = [pool.submit(end) for end in ends]
        for future in futures:
            future.result()


def stop(run_id: str) -> None:
    """End all drivers of a run in this process, also those of other threads, and let no further driver start.

    Interrupted trials are not recorded. Their threads may still read the drivers' folders, and remove these later.
    """
    with _changes:
        _stopped.add(run_id)
        opened = [each for drivers in _running.get(run_id, ()) for each in drivers._opened.values()]
    with shielded():
        _together([partial(each.driver.close, timeout_s=CLOSE_TIMEOUT_S) for each in opened])


def may_start(run_id: str) -> None:
    """Undo `stop`, since the run begins again."""
    with _changes:
        _stopped.discard(run_id)


@contextmanager
def registered(drivers: Drivers) -> Iterator[None]:
    """Register drivers, so that `stop` finds them."""
    with _changes:
        _running.setdefault(drivers.run_id, []).append(drivers)
    try:
        yield
    finally:
        with _changes:
            _running[drivers.run_id].remove(drivers)
            if not _running[drivers.run_id]:
                del _running[drivers.run_id]
