"""Breaks something on purpose while a trial runs, and proves that it did."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from array import array
from collections.abc import Callable
from typing import Any

import psutil

from scalescope.clusters.trial_watch import BackgroundThread
from scalescope.model.fault import LASTS_S, Fault
from scalescope.model.records import Columns

PROOF_S = 5.0  # seconds within which a killed process must be gone; else the fault counts as not proved
THIEVES_PER_CPU = 4

_SPIN = "import sys, time; end = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass"


class Injection(BackgroundThread):
    """Injects a fault from a thread; leaving the context undoes what can be undone."""

    def __init__(self, fault: Fault, victim: Callable[[], tuple[str, int]]) -> None:
        super().__init__(f"fault-{fault.kind}")
        # Facts for the result; once the fault has happened, also its start and end (epoch seconds), worker and proof.
        self.facts: dict[str, Any] = {"kind": fault.kind, "after_s": fault.after_s}
        # Why the fault has not happened; empty if it has.
        self.problem = f"the fault was due after {fault.after_s:g} s, but the workload ended earlier"
        self._fault = fault
        self._victim = victim  # returns address and process id of the worker to break; called when the fault is due

    def columns(self, ahead_s: float) -> Columns:
        """The fault's row of the table `faults`; the scheduler's clock is `ahead_s` ahead of this process's."""
        return {
            "kind": [self._fault.kind],
            "worker": [self.facts["worker"]],
            "begin": array("d", [self.facts["begin"] + ahead_s]),
            "end": array("d", [self.facts["end"] + ahead_s]),
        }

    def _run(self) -> None:
        if self._over.wait(self._fault.after_s):
            return
        self.problem = "no effect of the fault could be confirmed"
        try:
            address, pid = ("", 0) if self._fault.kind == "steal-cpu" else self._victim()
            begin = time.time()
            proof = {"kill-worker": self._kill, "pause-worker": self._pause, "steal-cpu": self._steal}[
                self._fault.kind
            ](pid)
        except (psutil.Error, OSError, ValueError) as error:
            self.problem = f"{type(error).__name__}: {error}"
            return
        self.facts |= {"worker": address, "begin": begin, "end": time.time(), "proof": proof}
        self.problem = "" if proof else self.problem

    def _kill(self, pid: int) -> str:
        process = psutil.Process(pid)
        process.kill()
        deadline = time.monotonic() + PROOF_S
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                return ""
            time.sleep(0.001)
        return f"process {pid} is gone"

    def _pause(self, pid: int) -> str:
        process = psutil.Process(pid)
        process.suspend()
        try:
            self._over.wait(LASTS_S)
            stopped = process.status() == psutil.STATUS_STOPPED
        finally:
            process.resume()
        return f"process {pid} was stopped" if stopped else ""

    def _steal(self, pid: int) -> str:
        # Each CPU-burning process gets its own session, because Linux shares CPU equally among sessions (sched(7)).
        count = THIEVES_PER_CPU * (os.cpu_count() or 1)
        thieves = [
            psutil.Popen([sys.executable, "-Sc", _SPIN, str(LASTS_S)], stdin=subprocess.DEVNULL, start_new_session=True)
            for _ in range(count)
        ]
        try:
            self._over.wait(LASTS_S - 0.1)
            used = sum(sum(each.cpu_times()[:2]) for each in thieves)
        finally:
            for each in thieves:
                each.kill()
                each.wait()
        return f"{count} processes took {used:.1f} s of CPU" if used else ""
