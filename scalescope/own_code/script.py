"""Runs an unchanged script in a process of its own, and judges what was recorded of it when it has ended.

The process is Python's own: `python SCRIPT ARGUMENTS` or `python -m MODULE ARGUMENTS`, in the terminal and the process
group of this one. Only what `scalescope.own_code.startup` does there comes from Scalescope.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from scalescope.capture.unheard import unheard
from scalescope.errors import ScalescopeError, UsageError
from scalescope.own_code import process, record
from scalescope.owner import make_folder, replace_file

if TYPE_CHECKING:
    from scalescope.own_code.diagnosis import Diagnosis

STARTUP = Path(__file__).parent / "startup"
FOLDER, PATHS = "SCALESCOPE_SCRIPT", "SCALESCOPE_PYTHONPATH"  # variables that `startup` takes back
OUR_UTF8 = "SCALESCOPE_UTF8"  # variable that says that PYTHONUTF8 was set by the command line
LEAST_FREE = 64 << 10  # bytes with which a record can be written
MOST = 10  # clusters that are judged, those with most worker time
# Schedulers of Dask itself, by module
DASKS = {"dask.threaded": "threads", "dask.multiprocessing": "processes", "dask.local": "one thread"}
LAST = "last-script.json"  # which script was run last
LATER = "`scalescope run --last-record` does it."
NO_WORKER = "Nanny failed to start"  # what `distributed` raises where the script has no main guard


@dataclass
class ScriptOutcome:
    """How a script ended, and what the clusters of its clients did."""

    folder: Path  # what was recorded; it is removed when all of it was judged
    status: int | None = None  # as `subprocess` has it; None: nobody saw the end
    real_s: float = 0.0
    found: list[Diagnosis] = field(default_factory=list)  # of each cluster, in the order of first use
    problems: list[str] = field(default_factory=list)  # why a cluster could not be diagnosed
    said: list[str] = field(default_factory=list)  # what was told while it ran, as where nothing moved
    hints: list[str] = field(default_factory=list)  # what else is to be known, as where there was nothing to diagnose


@dataclass(frozen=True)
class Program:
    """Program to run: `script` is a path, or the name of a module."""

    script: str
    arguments: Sequence[str] = ()
    is_module: bool = False
    python: str = sys.executable
    folder: str | None = None  # where it runs; None: here
    environ: Mapping[str, str] | None = None  # its variables; None: those of this process

    @property
    def command(self) -> list[str]:
        return [self.python, *(["-m"] if self.is_module else []), self.script, *self.arguments]

    @property
    def name(self) -> str:
        return self.script if self.is_module else Path(self.script).name


def run_script(
    program: Program,
    *,
    says: Callable[[str], object],  # told while the script runs, as where nothing moves
    stdout: int | None = None,
) -> ScriptOutcome:
    """Run a script as Python would, and judge its clusters."""
    folder = new_folder()
    began = time.monotonic()
    facts = {"command": program.command, "started_at": time.time(), "pid": os.getpid()}
    with suppress(OSError):  # it is for whoever judges later
        (folder / record.RUN).touch(mode=0o600)
        (folder / record.RUN).write_text(json.dumps(facts))
    outcome, judge = ScriptOutcome(folder), Judge(program)

    def tells(text: str) -> None:
        outcome.said.append(text)
        says(text)

    outcome.status = _run(program, folder, lambda: judge.prepare(folder), tells, stdout)
    outcome.real_s = time.monotonic() - began
    try:
        judge(outcome)
    except KeyboardInterrupt:
        outcome.problems.append(f"Stopped before all was judged. {LATER}")
    except Exception as error:  # noqa: BLE001 - the script has ended, and its status counts
        outcome.problems.append(f"It could not be judged: {_line(error)}. {LATER}")
    return outcome


class Judge:
    """Judges what was recorded of a script."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._packages: Mapping[str, str] = {}
        self._preparing: threading.Thread | None = None

    def prepare(self, folder: Path) -> None:
        """Load what judges while the script runs, with processor time that nobody else wants."""
        if self._preparing is None and (folder / "1").exists():
            prepare = unheard(self._prepare, lambda error: None)  # it will be loaded once more, and fail again
            self._preparing = threading.Thread(target=prepare, daemon=True)
            self._preparing.start()

    def _prepare(self) -> None:
        if hasattr(os, "SCHED_IDLE"):
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # of this thread
        self._load()

    def _load(self) -> None:
        from scalescope import interpreters
        from scalescope.capture import host

        resolve_name("scalescope.own_code.diagnosis")
        if self.program.python == sys.executable:
            self._packages = host.packages()
            return
        with suppress(ScalescopeError):
            self._packages = interpreters.look(self.program.python).packages

    def __call__(self, outcome: ScriptOutcome) -> None:
        """Judge what a folder holds, and remove it if nothing of that failed."""
        if self._preparing is not None:
            self._preparing.join()
        elif record.clusters(outcome.folder):
            self._load()
        self._judge(outcome)

    def _judge(self, outcome: ScriptOutcome) -> None:
        whole, end = True, ending(outcome.status, outcome.real_s)
        found = record.clusters(outcome.folder)
        kept, left = _largest(found)
        for folder in kept:
            diagnosis = resolve_name("scalescope.own_code.diagnosis:Diagnosis")()
            try:
                diagnosis.judge(folder, end, self._packages)
            except Exception as error:  # noqa: BLE001 - of whatever kind: the others are judged
                whole = False
                outcome.problems.append(f"The cluster in {folder} could not be judged: {_line(error)}")
            else:
                outcome.found.append(diagnosis)
        if left:
            outcome.hints.append(f"{left} more clusters, with less worker time each, were not judged.")
        _listen(outcome, self.program, {int(each.name) for each in found})
        if whole:
            shutil.rmtree(outcome.folder, ignore_errors=True)


def _line(error: Exception) -> str:
    return error.line if isinstance(error, ScalescopeError) else f"{type(error).__name__}: {error}"


def _largest(found: Sequence[Path]) -> tuple[list[Path], int]:
    if len(found) <= MOST:
        return list(found), 0

    def worker_time(folder: Path) -> float:
        try:
            known = record.Recorded.read(folder)
        except Exception:  # noqa: BLE001 - of whatever kind: who judges it says so
            return math.inf
        return sum(known.threads.values()) * (known.attempt.elapsed_s or 0.0)

    largest = sorted(found, key=worker_time)[-MOST:]
    return [each for each in found if each in largest], len(found) - MOST


def ending(status: int | None, real_s: float) -> str:
    """How a process ended that did not end its recordings, in a sentence."""
    from scalescope.model.words import duration

    if status is None:
        return "the script ended, and nobody saw how"
    if status >= 0:
        return f"the script's process ended with status {status} before its recording did"
    number = signal.Signals(-status)
    if number is signal.SIGINT:
        return f"you stopped the script after {duration(real_s)}"
    hint = {
        signal.SIGKILL: ": by the kernel for lack of memory, by a batch system at a limit, or by hand",
        signal.SIGTERM: ": by hand, or by what supervises it, such as a batch system at its time limit",
        signal.SIGSEGV: ": a library of it crashed",
        signal.SIGABRT: ": a library of it gave up",
    }.get(number, "")
    return f"the script was killed by {number.name} after {duration(real_s)}{hint}"


def _listen(outcome: ScriptOutcome, program: Program, judged: set[int]) -> None:
    """Take from what the script's process said why something is missing, and what to do."""
    told = [event for _, event in record.events(outcome.folder)]
    for why in dict.fromkeys(event["stopped"] for event in told if event.get("stopped")):
        outcome.problems.append(f"Recording stopped: {why}")
    begun = {int(each.name) for each in outcome.folder.iterdir() if each.name.isdigit()}
    free = shutil.disk_usage(outcome.folder).free
    if (begun - judged or free < LEAST_FREE) and not (outcome.problems or outcome.found):
        outcome.problems.append(f"Nothing could be recorded in {outcome.folder} ({free >> 10:,} KiB are free there).")
    if outcome.found or outcome.problems:
        return
    ended = next((event for event in told if event.get("ended")), {})
    if missing := ended.get("missing"):
        if program.python == sys.executable:
            where = f"It ran in Scalescope's own Python ({sys.executable}), which has no {missing}"
            outcome.hints.append(f"{where}; name yours: `-e PATH/TO/python`.")
        return
    for module, (calls, seconds) in ended.get("schedulers", {}).items():
        from scalescope.model.words import plural

        computed = f"Dask computed for {seconds:.3g} s, in {plural(calls, 'call')}, with its own scheduler of"
        next_step = "to have that recorded, put `dask.distributed.Client(processes=False)` before it"
        outcome.hints.append(f"{computed} {DASKS.get(module, module)}: {next_step}.")
    if ended.get("prefect"):
        hint = "A task that the flow calls runs in the flow: `name.submit(...)` or `name.map(...)` sends it to Dask."
        outcome.hints.append(hint)
    line = next((event["client_at"] for event in told if "client_at" in event), "")
    if line.endswith("<module>") and NO_WORKER in ended.get("error", ""):
        hint = "Dask's workers are processes that import the script: put what it does below"
        outcome.hints.append(f'{hint} `if __name__ == "__main__":` ({line.partition(" in ")[0]}).')


# ------------------------------------------------------------------ the folder


def new_folder() -> Path:
    """A folder for what is recorded, where `last_folder` finds it; in the folder of temporary files if need be."""
    try:
        parent = records()
        make_folder(parent)
        return Path(tempfile.mkdtemp(prefix=f"{time.strftime('%Y%m%d-%H%M%S')}-", dir=parent))
    except (UsageError, OSError):
        return Path(tempfile.mkdtemp(prefix="scalescope-script-"))


def note_last(program: Program) -> None:
    """Keep which script was run, and where, for `last_program`."""
    told = {
        "script": program.script,
        "arguments": [*program.arguments],
        "python": program.python,
        "folder": os.getcwd(),
        "is_module": program.is_module,
    }
    with suppress(UsageError, OSError):
        replace_file(records().with_name(LAST), json.dumps(told))


def last_program() -> Program:
    """The script that `scalescope run` ran last, and its folder; `UsageError` if there is none."""
    try:
        return Program(**json.loads(records().with_name(LAST).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError("no script has been run yet", next_step="name it: scalescope fix SCRIPT.py") from error


def last_folder() -> Path:
    """The newest folder that was not judged to its end; `UsageError` if there is none."""
    found = sorted(each.parent for each in records().glob(f"*/{record.RUN}")) if records().is_dir() else []
    if not found:
        raise UsageError("no script's record is left to judge", where=str(records()))
    return found[-1]


def records() -> Path:
    """Where scripts are recorded."""
    from scalescope.owner import user_folder

    return user_folder("XDG_STATE_HOME", ".local", "state") / "scripts"


# ------------------------------------------------------------------ the process


def _run(
    program: Program, folder: Path, prepare: Callable[[], None], says: Callable[[str], object], stdout: int | None
) -> int:
    given = os.environ if program.environ is None else program.environ
    environ = {**given, FOLDER: str(folder), "PYTHONPATH": str(STARTUP)}
    if (paths := given.get("PYTHONPATH")) is not None:
        environ[PATHS] = paths
        environ["PYTHONPATH"] += os.pathsep + paths if paths else ""
    if program.python != sys.executable:
        environ.pop("PYTHONHOME", None)
    if environ.pop(OUR_UTF8, None):
        environ.pop("PYTHONUTF8", None)
    seen, fails = 0, False

    def look() -> None:
        nonlocal seen, fails
        if fails:
            return
        try:
            seen = _tell(folder, seen, says)
            prepare()
        except Exception:  # noqa: BLE001 - the script goes on, and who judges it says so
            fails = True

    return process.run(program.command, environ, stdout, look, program.folder)


def _tell(folder: Path, seen: int, says: Callable[[str], object]) -> int:
    for until, event in record.events(folder, seen):
        seen = until
        if "hang" in event:
            from scalescope.capture.live.standing_tasks import Hang, StandingTask
            from scalescope.report.hang_lines import told

            tasks = tuple(StandingTask(**each) for each in event["hang"]["tasks"])
            says(told(Hang(**{**event["hang"], "tasks": tasks}), event["now"]))
    return seen
