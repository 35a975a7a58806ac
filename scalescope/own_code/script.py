"""Runs an unchanged script in a process of its own, and judges its records when it has ended.

The process runs plain Python: `python SCRIPT ARGUMENTS` or `python -m MODULE ARGUMENTS`, in the terminal and the
process group of this one. Only what `scalescope.own_code.startup` does there comes from Scalescope.
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
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from scalescope.capture.unheard import unheard
from scalescope.errors import ScalescopeError, UsageError
from scalescope.model import spool
from scalescope.model.words import duration
from scalescope.own_code import process, record
from scalescope.owner import make_folder, replace_file, user_folder

if TYPE_CHECKING:
    from scalescope.own_code.diagnosis import Diagnosis

PACKAGE = Path(__file__).parents[1]
STARTUP = Path(__file__).parent / "startup"
FOLDER, PATHS = "SCALESCOPE_SCRIPT", "SCALESCOPE_PYTHONPATH"  # variables that `startup` removes again
OUR_UTF8 = "SCALESCOPE_UTF8"  # variable that is set if our command line has set PYTHONUTF8
LEAST_FREE = 64 << 10  # with fewer bytes free, a script without records gets a message about the full disk
MOST = 10  # most clusters that are judged, those with most worker time
# Dask's own schedulers in words, by module
DASKS = {"dask.threaded": "threads", "dask.multiprocessing": "processes", "dask.local": "one thread"}
LAST = "last-script.json"  # file that names the last script
LATER = "To judge the rest: `scalescope run --last-record`"
NO_WORKER = "Nanny failed to start"  # error of `distributed` if the script has no main guard


@dataclass
class ScriptOutcome:
    """How a script ended, and the diagnoses of the clusters of its clients."""

    folder: Path  # folder of the records, removed when all of them were judged
    status: int | None = None  # exit status in the form of `subprocess`; None: nobody saw the end
    real_s: float = 0.0
    found: list[Diagnosis] = field(default_factory=list)  # diagnoses of clusters, in the order of first use
    problems: list[str] = field(default_factory=list)  # reasons why a cluster could not be diagnosed
    said: list[str] = field(default_factory=list)  # messages while it ran, such as about a standstill
    hints: list[str] = field(default_factory=list)  # advice, such as why there was nothing to diagnose


@dataclass(frozen=True)
class Program:
    """Program to run: `script` is a path, or the name of a module."""

    script: str
    arguments: Sequence[str] = ()
    is_module: bool = False
    python: str = sys.executable
    folder: str | None = None  # its working folder; None: that of this process
    environ: Mapping[str, str] | None = None  # its environment variables; None: those of this process

    @property
    def command(self) -> list[str]:
        return [self.python, *(["-m"] if self.is_module else []), self.script, *self.arguments]

    @property
    def name(self) -> str:
        return self.script if self.is_module else Path(self.script).name


def run_script(
    program: Program,
    *,
    says: Callable[[str], object],  # called with messages while the script runs, such as about a standstill
    stdout: int | None = None,
) -> ScriptOutcome:
    """Run a script as Python would, and judge its clusters."""
    folder = new_folder()
    began = time.monotonic()
    facts = {"command": program.command, "started_at": time.time(), "pid": os.getpid()}
    with suppress(OSError):  # only `--last-record` needs the file
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
        outcome.problems.append(f"You stopped the judging of the script's clusters. {LATER}")
    except Exception as error:  # noqa: BLE001 - the script has ended, and its status counts
        outcome.problems.append(f"The script's clusters could not be judged: {_line(error)}. {LATER}")
    return outcome


class Judge:
    """Judges the records of a script."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._packages: Mapping[str, str] = {}
        self._preparing: threading.Thread | None = None

    def prepare(self, folder: Path) -> None:
        """While the script runs, import the modules that judge it, with processor time that is otherwise idle."""
        if self._preparing is None and (folder / "1").exists():
            prepare = unheard(self._prepare, lambda error: None)  # a later import raises the error again
            self._preparing = threading.Thread(target=prepare, daemon=True)
            self._preparing.start()

    def _prepare(self) -> None:
        if hasattr(os, "SCHED_IDLE"):
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # 0 is the calling thread
        self._load()

    def _load(self) -> None:
        from scalescope import interpreters
        from scalescope.capture import host

        resolve_name("scalescope.own_code.diagnosis")
        _write_bytecode()
        if self.program.python == sys.executable:
            self._packages = host.packages()
            return
        with suppress(ScalescopeError):
            self._packages = interpreters.look(self.program.python).packages

    def __call__(self, outcome: ScriptOutcome) -> None:
        """Judge the records in a folder, and remove the folder if nothing failed."""
        if self._preparing is not None:
            self._preparing.join()
        elif record.clusters(outcome.folder):
            self._load()
        self._judge(outcome)

    def _judge(self, outcome: ScriptOutcome) -> None:
        whole, end = True, ending(outcome.status, outcome.real_s)
        found = record.clusters(outcome.folder)
        kept, left = _largest(found)
        rounds = _rounds(outcome, kept)
        for folder in kept:
            diagnosis = resolve_name("scalescope.own_code.diagnosis:Diagnosis")()
            try:
                diagnosis.judge(folder, end, self._packages, rounds.get(folder))
            except Exception as error:  # noqa: BLE001 - the other clusters are judged even so
                whole = False
                outcome.problems.append(f"The cluster in {folder} could not be judged: {_line(error)}")
            else:
                outcome.found.append(diagnosis)
        if left:
            outcome.hints.append(f"Of {MOST + left:,} clusters, only the {MOST} with most worker time were judged.")
        _listen(outcome, self.program, {int(each.name) for each in found})
        if whole:
            shutil.rmtree(outcome.folder, ignore_errors=True)


def _write_bytecode() -> None:
    """Compile our modules that a script's process imports: it writes no bytecode, and would compile them each time."""
    import compileall

    if sys.dont_write_bytecode or not os.access(PACKAGE, os.W_OK):
        return
    for package in ("capture", "driver", "model", "own_code"):
        compileall.compile_dir(PACKAGE / package, quiet=2)


def _line(error: Exception) -> str:
    return error.line if isinstance(error, ScalescopeError) else f"{type(error).__name__}: {error}"


def _largest(found: Sequence[Path]) -> tuple[list[Path], int]:
    if len(found) <= MOST:
        return list(found), 0
    largest = sorted(found, key=_worker_time)[-MOST:]
    return [each for each in found if each in largest], len(found) - MOST


def _worker_time(folder: Path) -> float:
    try:
        known = record.Recorded.read(folder)
    except Exception:  # noqa: BLE001 - judging the cluster reports the error
        return math.inf
    return sum(known.threads.values()) * (known.attempt.elapsed_s or 0.0)


def _rounds(outcome: ScriptOutcome, kept: Sequence[Path]) -> dict[Path, dict[str, float]]:
    """The fact `rounds` for each line that made several clusters in turn, by the folder of the largest of them."""
    made: list[dict[str, Any]] = []
    for _, event in record.events(outcome.folder):
        if "made" in event:
            made.append({**event, "closed_s": 0.0})
        elif "closed_s" in event and made:
            made[-1]["closed_s"] += event["closed_s"]
    found = {}
    for line in {each["made"] for each in made}:
        rounds = {str(each["cluster"]): each for each in made if each["made"] == line}
        of_line = [folder for folder in kept if folder.name in rounds]
        if len(rounds) < 2:
            continue
        with suppress(Exception):  # judging the clusters reports what cannot be read
            sizes = {tuple(sorted(record.Recorded.read(folder).threads.values())) for folder in of_line}
            in_turn = all(each["closed_s"] for each in rounds.values()) or _in_turn(of_line)
            if len(sizes) == 1 and in_turn:  # clusters of different sizes may be a comparison of sizes
                saved_s = sum(each["start_s"] + each["closed_s"] for each in rounds.values()) * (1 - 1 / len(rounds))
                largest = max(of_line, key=_worker_time)
                found[largest] = {"clusters": len(rounds), "saved_s": saved_s, "script_s": outcome.real_s}
    return found


def _in_turn(clusters: Sequence[Path]) -> bool:
    """Whether each cluster ran its tasks before the next ran any."""
    tasks = [spool.read(folder / "tasks.spool", partial=True)["tasks"] for folder in clusters]
    spans = sorted((min(each["start"]), max(each["stop"])) for each in tasks)
    return all(stop <= start for (_, stop), (start, _) in pairwise(spans))


def ending(status: int | None, real_s: float) -> str:
    """A sentence on the end of a process that did not end its recordings."""
    if status is None:
        return "the script ended, with an unknown exit status"
    if status >= 0:
        return f"the script's process ended with status {status} before the recording was closed"
    number = signal.Signals(-status)
    if number is signal.SIGINT:
        return f"you stopped the script after {duration(real_s)}"
    hint = {
        signal.SIGKILL: ": by the kernel for lack of memory, by a batch system at a limit, or by a person",
        signal.SIGTERM: ": by a person, or by a supervisor, such as a batch system at its time limit",
        signal.SIGSEGV: ": one of its libraries crashed",
        signal.SIGABRT: ": one of its libraries aborted",
    }.get(number, "")
    return f"the script was killed by {number.name} after {duration(real_s)}{hint}"


def _listen(outcome: ScriptOutcome, program: Program, judged: set[int]) -> None:
    """Add problems and hints from the events of the script's process."""
    told = [event for _, event in record.events(outcome.folder)]
    for why in dict.fromkeys(event["stopped"] for event in told if event.get("stopped")):
        outcome.problems.append(f"Recording stopped: {why}")
    begun = {int(each.name) for each in outcome.folder.iterdir() if each.name.isdigit()}
    free = shutil.disk_usage(outcome.folder).free
    if (begun - judged or free < LEAST_FREE) and not (outcome.problems or outcome.found):
        where = f"{outcome.folder}, which has {free >> 10:,} KiB of free space"
        outcome.problems.append(f"Nothing could be recorded in {where}: check its disk and its permissions.")
    if outcome.found or outcome.problems:
        return
    ended = next((event for event in told if event.get("ended")), {})
    if missing := ended.get("missing"):
        if program.python == sys.executable:
            where = f"The script ran in Scalescope's own Python ({sys.executable}), which has no {missing}"
            outcome.hints.append(f"{where}; name the script's Python: `-e PATH/TO/python`.")
        return
    for module, (calls, seconds) in ended.get("schedulers", {}).items():
        from scalescope.model.words import plural

        computed = f"Dask computed for {seconds:.3g} s, in {plural(calls, 'call')}, with its own scheduler of"
        next_step = "to record such computations, make a client (`dask.distributed.Client(processes=False)`) first"
        outcome.hints.append(f"{computed} {DASKS.get(module, module)}: {next_step}.")
    if ended.get("prefect"):
        hint = "Calling a task in the flow runs it there; `name.submit(...)` or `name.map(...)` sends it to Dask."
        outcome.hints.append(hint)
    line = next((event["client_at"] for event in told if "client_at" in event), "")
    if line.endswith("<module>") and NO_WORKER in ended.get("error", ""):
        hint = "Dask's workers are processes that import the script: move its top-level calls below"
        outcome.hints.append(f'{hint} `if __name__ == "__main__":` ({line.partition(" in ")[0]}).')


# ------------------------------------------------------------------ the folder


def new_folder() -> Path:
    """Make a folder for records where `last_folder` finds it; if that fails, among the temporary files."""
    try:
        parent = records()
        make_folder(parent)
        return Path(tempfile.mkdtemp(prefix=f"{time.strftime('%Y%m%d-%H%M%S')}-", dir=parent))
    except (UsageError, OSError):
        return Path(tempfile.mkdtemp(prefix="scalescope-script-"))


def note_last(program: Program) -> None:
    """Save the script's command and working folder for `last_program`."""
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
    """The script that `scalescope run` ran last; `UsageError` if there is none."""
    try:
        return Program(**json.loads(records().with_name(LAST).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError("no script has been run yet", next_step="name the script: scalescope fix SCRIPT.py") from error


def last_folder() -> Path:
    """The newest folder with records that were not all judged; `UsageError` if there is none."""
    found = sorted(each.parent for each in records().glob(f"*/{record.RUN}")) if records().is_dir() else []
    if not found:
        raise UsageError("no script's record is left to judge", where=str(records()))
    return found[-1]


def records() -> Path:
    """Folder of the records of scripts."""
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
        except Exception:  # noqa: BLE001 - the script goes on, and judging reports the error
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
