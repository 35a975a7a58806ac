"""The driver's main loop, and the ways in which the driver ends."""

from __future__ import annotations

import faulthandler
import logging
import os
import platform
import queue
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import NoReturn

from scalescope.capture import host
from scalescope.driver.attempt import Attempt, judge, plain
from scalescope.driver.channel import Channel, real_seconds, utc_now
from scalescope.driver.driver_watch import DriverWatch, where
from scalescope.driver.open_cluster import OpenCluster
from scalescope.driver.protocol import (
    RUNNING,
    Close,
    Closed,
    Failed,
    Open,
    Opened,
    PhaseBegan,
    Ready,
    RunTrial,
    TrialDone,
    decode_request,
)
from scalescope.driver.trial_run import TrialRunner
from scalescope.errors import DriverError, InfrastructureError, ScalescopeError
from scalescope.model.trial import TrialState

CLOSE_LIMIT_S = 10.0  # real seconds to close the cluster when the driver ends; then everything is killed
PATIENCE_S = 3.0  # seconds, part of `CLOSE_LIMIT_S`, in which the main thread can clear up and take the order to end

# Exit statuses; EXIT_STUCK: a phase exceeded its time limit; after a signal, 128 plus its number
EXIT_CLOSED, EXIT_PARENT_GONE, EXIT_STUCK, EXIT_PROTOCOL = 0, 10, 11, 12
VERSIONS = ("dask", "distributed", "tornado", "msgpack", "cloudpickle", "scalescope")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _DriverEnd:
    reason: str
    status: int
    seen: str = ""  # line of code at which the main thread was
    parent_gone: bool = False

    def says(self, stands: str = "") -> str:
        return self.reason + (f": {stands}" if stands else "") + (f"; last seen: {self.seen}" if self.seen else "")


@dataclass(frozen=True)
class _Running:
    request: RunTrial
    started_at: str
    began: float


class DriverServer:
    """Serves the requests of one parent.

    The main thread serves requests; the thread of `DriverWatch` ends the process if there is a reason. Whichever thread
    ends a trial first reports it, so that each trial is reported exactly once.
    """

    def __init__(self, requests: int, channel: Channel) -> None:
        self._channel = channel
        self._requests: queue.Queue[Open | RunTrial | _DriverEnd] = queue.Queue()
        self._watch = DriverWatch(
            requests,
            on_line=self._received,
            on_gone=lambda reason: self._end(_DriverEnd(reason, EXIT_PARENT_GONE, parent_gone=True)),
            on_signal=self._signalled,
            on_expiry=self._expired,
        )
        self._packages = host.packages()
        self._cluster = OpenCluster(self._enter)
        self._trials = TrialRunner(self._cluster, host.packages_digest(self._packages))
        self._main = threading.get_ident()
        self._lock = threading.Lock()
        self._trial: _Running | None = None
        self._taken = threading.Event()
        self._ending = False

    def serve(self) -> NoReturn:
        self._watch.start()
        self._channel.send(ready(self._packages))
        while True:
            request = self._next()
            if isinstance(request, _DriverEnd):
                self._end_in_order(request)
            elif isinstance(request, Open):
                self._open(request)
            else:
                self._run(request)
            self._watch.leave()

    # ---------------------------------------------------------------- requests, on the main thread

    def _next(self) -> Open | RunTrial | _DriverEnd:
        with self._cluster.idle():
            while True:
                request = self._requests.get()
                if isinstance(request, _DriverEnd):
                    self._taken.set()
                    return request
                if not self._ending:
                    return request

    def _open(self, request: Open) -> None:
        try:
            facts = self._cluster.open(request)
        except ScalescopeError as error:
            self._channel.send(Failed.of(error))
        except Exception as error:
            logger.exception("the cluster could not be opened")
            self._channel.send(Failed("ClusterError", "the cluster could not be opened", cause=repr(error)))
        else:
            self._channel.send(Opened(plain(facts)))

    def _run(self, request: RunTrial) -> None:
        running = _Running(request, utc_now(), real_seconds())
        with self._lock:
            if self._ending:
                return
            self._trial = running
        try:
            attempt = self._trials.run(request)
        except InfrastructureError as error:
            with self._lock:
                settled, self._trial = self._trial is not running, None
            if not settled:
                self._channel.send(Failed.of(error))
        else:
            self._settle(running, attempt, *judge(attempt))
        try:
            self._cluster.clear()
        except Exception:
            logger.exception("the cluster could not be cleared after trial %s", request.key)
            self._end_in_order(_DriverEnd("the cluster could not be cleared after a trial", EXIT_STUCK))

    def _settle(self, running: _Running, attempt: Attempt, state: TrialState, reason: str) -> None:
        with self._lock:
            if self._trial is not running:
                return
            self._trial = None
        self._report(running, attempt, state, reason)

    def _report(
        self, running: _Running, attempt: Attempt, state: TrialState, reason: str, *, ending: bool = False
    ) -> None:
        self._channel.send(
            TrialDone(
                key=running.request.key,
                state=state.value,
                reason=reason,
                error=attempt.error,
                started_at=running.started_at,
                real_s=real_seconds() - running.began,
                elapsed_s=attempt.elapsed_s,
                warnings=tuple(attempt.warnings),
                facts=plain(attempt.facts),
                result=attempt.result,
                ending=ending,
            )
        )

    def _enter(self, phase: str, limit_s: float, text: str) -> None:
        self._watch.enter(phase, limit_s)
        self._channel.send(PhaseBegan(phase, text, limit_s))

    # ---------------------------------------------------------------- reasons to end, on other threads

    def _received(self, line: bytes) -> None:
        try:
            request = decode_request(line)
        except DriverError as error:
            logger.error("%s", error)
            self._channel.send(Failed.of(error))
            self._end(_DriverEnd("a request could not be understood", EXIT_PROTOCOL))
            return
        if isinstance(request, Close):
            self._end(_DriverEnd("the parent asked the driver to close", EXIT_CLOSED))
        else:
            self._requests.put(request)

    def _signalled(self, number: int) -> None:
        self._end(_DriverEnd(f"the driver received {signal.Signals(number).name}", 128 + number))

    def _expired(self, phase: str, limit_s: float) -> None:
        if phase == "closing":
            logger.error("the cluster was not closed within %g s", limit_s)
            self._channel.send(Closed("closing took too long", self._left(clean=False)))
            _exit(_DriverEnd("closing took too long", EXIT_STUCK), clean=False)
        seen = where(self._main, self._trials.function)
        logger.error("timed out after %g s of real time in phase %r; the threads are:", limit_s, phase)
        faulthandler.dump_traceback(all_threads=True)
        stop = _DriverEnd(f"timed out after {limit_s:g} s of real time while {phase}", EXIT_STUCK, seen)
        self._end(stop, over_s=limit_s if phase == RUNNING else None)

    def _end(self, stop: _DriverEnd, *, over_s: float | None = None) -> None:
        """End the process: from the main thread if that becomes free soon, else from the calling thread.

        `over_s`: the trial's time limit, if the trial exceeded it; then the reply says at which lines its tasks are.
        """
        with self._lock:
            if self._ending:
                return
            self._ending = True
            running, self._trial = self._trial, None  # the main thread no longer reports the trial
        if running is None and not self._cluster.opening:  # the main thread waits for requests, or clears up
            self._requests.put(stop)
            if self._taken.wait(PATIENCE_S):
                return
        elif running is not None:
            stands, facts = self._cluster.stands(over_s) if over_s else ("", {})
            self._report(running, Attempt(facts=facts), TrialState.INVALID, stop.says(stands), ending=True)
        closer = threading.Thread(target=self._cluster.abandon, name="scalescope-closer", daemon=True)
        closer.start()
        closer.join(CLOSE_LIMIT_S - PATIENCE_S)
        if not (clean := not closer.is_alive()):
            logger.error("the cluster was not closed in time")
        self._channel.send(Closed(stop.says(), self._left(clean=clean)))
        _exit(stop, clean=clean)

    def _end_in_order(self, stop: _DriverEnd) -> NoReturn:
        self._watch.enter("closing", CLOSE_LIMIT_S)
        clean = True
        try:
            self._cluster.close()
        except Exception:
            logger.exception("the cluster was not closed in order")
            clean = False
        self._channel.send(Closed(stop.says(), self._left(clean=clean)))
        _exit(stop, clean=clean)

    def _left(self, *, clean: bool) -> str:
        """Sentence on resources that clusters left behind; `clean`: whether the last cluster was closed in order."""
        unclean = "" if clean else "a cluster was not closed in order: `scalescope reap` removes what is left of it"
        return "; ".join(filter(None, (*self._cluster.left, unclean)))


def ready(packages: Mapping[str, str]) -> Ready:
    return Ready(
        pid=os.getpid(),
        python=platform.python_version(),
        versions={name: version for name in VERSIONS if (version := _version(name))},
        host=plain(host.facts()),
        packages=plain(packages),
    )


def main(requests: int, channel: Channel) -> NoReturn:
    faulthandler.enable()
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level=logging.WARNING)
    for handler in logging.getLogger("distributed").handlers:
        handler.setLevel(logging.WARNING)  # at INFO, distributed logs a line per worker
    DriverServer(requests, channel).serve()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _exit(stop: _DriverEnd, *, clean: bool) -> NoReturn:
    """End the process at once; also end its process group if the parent cannot do that."""
    logger.info("the driver ends: %s", stop.says())
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if (stop.parent_gone or not clean) and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(stop.status)
