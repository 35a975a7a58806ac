"""One fault during a small sweep: its effect on the trials, what it leaves, and what completes the sweep."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from scalescope.model.trial import Trial
from scalescope.store.schema import RunState
from scalescope.store.store import Store, SweepRun
from support.waiting import wait_for as waiting_for

MARK = "SCALESCOPE_TEST_MARK"
PATIENCE_S = 200.0  # for the next thing to happen: on a busy machine, importing Prefect takes long
GONE_WITHIN_S = 15.0
STOPPED_S = 5.0  # for which a process is stopped

COMMAND = "from scalescope.cli.main import main; main()"
SWEEP = ("sweep", "--verbose", "-w", "futures-map", "-a", "workers=2", "-p", "items=2")
TRIALS = ("--warmups", "1", "--repeats", "2")

# Stage -> the line of the log with which it begins, and its occurrence (the first trial is the warm-up). A trial is
# being stored while another process holds the lock of the database, which is taken while the trial runs.
STAGES = {
    "provisioning": ("opening the", 1),
    "waiting": ("scaling to", 1),
    "scaling": ("scaling to", 2),
    "warm-up": ("running futures-map", 1),
    "measuring": ("running futures-map", 2),
    "flushing": ("reading the records", 2),
    "storing": ("running futures-map", 2),
    "teardown": ("3/3 2 workers", 1),
}
HELD = ("provisioning", "scaling", "flushing", "teardown")  # too short to be hit unless the driver is stopped


@dataclass(frozen=True)
class Seen:
    """The outcome of a cell of the matrix."""

    ended: str  # how the command ended
    error: str  # its error, on one line
    trials: tuple[str, ...]  # in the store then, in order: the state of each, and its reason or why it was run twice
    left: int  # processes `GONE_WITHIN_S` later
    leaks: tuple[str, ...]  # what is left after `scalescope reap`
    lost: int  # finished trials that are missing in the store afterwards, or were run again
    finished: bool  # whether all trials are there at the end
    again: bool  # whether the same command was needed again


class Commands:
    """Runs commands whose processes carry a mark, and whose files are in one folder."""

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.log = folder / "log"
        self.mark = {MARK: uuid.uuid4().hex}
        self.program = COMMAND
        self.database = ""  # address of the store, if it is no file
        self.before: Sequence[str] = ()
        self.environ = {}
        self.see(folder)
        for path in (self.temporary, self.store.parent / "records", self.here):
            path.mkdir(parents=True)
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")},
            **self.mark,
            "TMPDIR": str(self.temporary),
            "SCALESCOPE_LEASES": str(self.leases),
            "SCALESCOPE_STORE": str(self.store),
            "XDG_STATE_HOME": str(folder / "state"),
            **(environ or {}),
        }

    def see(self, folder: Path) -> None:
        """Use another path to the files."""
        self.temporary, self.here, self.leases = folder / "tmp", folder / "here", folder / "leases"
        self.store = folder / "store" / "results.db"

    def start(self, *arguments: str) -> psutil.Popen:
        with self.log.open("ab") as log:
            return psutil.Popen(
                [*self.before, sys.executable, "-c", self.program, *arguments],
                stdout=log, stderr=log, env=self.environ, cwd=self.here, start_new_session=True,
            )  # fmt: skip

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and self.mark.items() <= process.environ().items():
                    found.append(process)
        return found

    def running(self, word: str) -> list[psutil.Process]:
        """Processes with a word in their command line, the oldest first."""
        found = [process for process in self.processes() if word in command(process)]
        return sorted(found, key=lambda process: (process.create_time(), process.pid))

    def runs(self) -> list[SweepRun]:
        if self.database:
            with Store.open(self.database) as store:
                return store.runs()[::-1]
        if not self.store.exists():
            return []
        with tempfile.TemporaryDirectory() as copy:  # SQLite would not follow a path into another mount name space
            for file in self.store.parent.glob("results.db*"):
                shutil.copy(file, copy)
            with Store.open(f"{copy}/{self.store.name}") as store:
                return store.runs()[::-1]

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def left(self) -> list[str]:
        """Processes, leases and files that no command may leave."""
        found = [f"process {command(process)[:60]}" for process in self.processes()]
        for folder in (self.leases, self.temporary, self.here):
            found += [f"{folder.name}/{path.name}" for path in (folder.iterdir() if folder.is_dir() else ())]
        return found

    def kill(self) -> None:
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()


def command(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def wait_for(condition: Callable[[], Any], what: Callable[[], object]) -> Any:
    return waiting_for(condition, what, PATIENCE_S, look_s=0.005)


def driver_of(commands: Commands, flow: psutil.Process) -> psutil.Process:
    # Looking through all processes of the machine would take longer than some stages.
    return next(child for child in flow.children(recursive=True) if "-m scalescope.driver" in command(child))


def freeze(pid: int, frozen: bool = True) -> None:
    """Have a process and those below it stand still, or go on."""
    parent = psutil.Process(pid)
    for each in (parent, *parent.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            each.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)


def see(
    commands: Commands,
    stage: str,
    hit: Callable[[Commands, psutil.Process], None],
    *arguments: str,
    seconds: float = 1,  # of a trial
    mend: Callable[[Commands], None] = lambda commands: None,
) -> Seen:
    """Start a sweep, hit it at a stage, look, `mend` what was hit, reap, and give the same command again if needed."""
    given = (*SWEEP, "-p", f"seconds={seconds}", *TRIALS, *arguments)
    flow = commands.start(*given)
    _reach(commands, flow, stage)
    driver = None
    if stage in HELD:
        with suppress(StopIteration, psutil.NoSuchProcess):  # at the teardown, it may have ended
            driver = driver_of(commands, flow)
            driver.suspend()
    if stage == "storing":
        with sqlite3.connect(commands.store, isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            wait_for(lambda: commands.text().count("reading what the cluster") >= 2, commands.text)
            time.sleep(1.0)
            hit(commands, flow)
            other.execute("ROLLBACK")
        other.close()
    else:
        if stage not in HELD:
            time.sleep(0.4)  # tasks run by now
        hit(commands, flow)
    if driver:
        time.sleep(0.3)
        with suppress(psutil.NoSuchProcess):
            driver.resume()
    status = flow.wait(3 * PATIENCE_S)  # it takes minutes to give up a dead Prefect server or a network
    ended = "killed" if status == -signal.SIGKILL else f"status {status}"
    error = said(commands.text())

    def again() -> None:
        assert commands.start(*given).wait(PATIENCE_S) in (0, 1), commands.text()

    return afterwards(commands, ended, error, mend, again)


def afterwards(
    commands: Commands, ended: str, error: str, mend: Callable[[Commands], None], go_on: Callable[[], None]
) -> Seen:
    """Look at what is left, reap, and `go_on` if the sweep is incomplete."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while commands.processes() and time.monotonic() < deadline:
        time.sleep(0.2)
    left = len(commands.processes())
    mend(commands)
    before = commands.runs()
    assert commands.start("reap").wait(PATIENCE_S) == 0, commands.text()
    leaks = commands.left()
    again = not before or before[0].state != RunState.COMPLETE
    if again:
        go_on()
        leaks += [f"then {text}" for text in commands.left()]
    after = commands.runs()
    trials = before[0].trials if before else ()
    kept = {trial.key: trial.started_at for trial in after[0].trials}
    return Seen(
        ended=ended,
        error=error,
        trials=tuple(map(became, trials)),
        left=left,
        leaks=tuple(leaks),
        lost=sum(kept.get(trial.key) != trial.started_at for trial in trials),
        finished=len(after) == 1 and after[0].state == RunState.COMPLETE and len(after[0].trials) == 3,
        again=again,
    )


def _reach(commands: Commands, flow: psutil.Process, stage: str) -> None:
    line, times = STAGES[stage]
    wait_for(
        lambda: commands.text().count(line) >= times or flow.poll() is not None,
        lambda: f"{stage} is never reached:\n{commands.text()}",
    )
    assert flow.poll() is None, commands.text()


def became(trial: Trial) -> str:
    """The state of a trial, and its reason or why it was run twice."""
    why = [said(trial.reason), *(text for text in trial.warnings if text.startswith("this is the second attempt"))]
    return ": ".join(filter(None, [trial.state, *map(said, why)]))


def said(text: str) -> str:
    """The first line of the last error of a log, or of a reason, without names of one run."""
    errors = re.findall(r"^(?:error: |Stopped\. ).*", text, re.M)
    line = errors[-1] if errors else "" if "\n0/3 " in text else text.partition("\n")[0]
    line = re.sub(r"\b(stood still for) [\d.]+ s", rf"\1 {STOPPED_S:g} s", line)
    line = re.sub(r"\b(scalescope-|sleep-|cluster )[0-9a-f-]{12,}", r"\1…", line)
    return re.sub(r"/\S*/", "…/", re.sub(r"\bprocess \d+|\bpid \d+", "process N", line))
