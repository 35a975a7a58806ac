"""Records with another Python, whose environment needs `distributed` alone and stays as it is: a script or a cluster.

`run_here` and `observe_here` are called there; this process measures and judges.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from scalescope.errors import CaptureError, ScalescopeError
from scalescope.run.script import ScriptOutcome, run_script

if TYPE_CHECKING:
    from scalescope.clusters.scheduler.spec import SchedulerSpec
    from scalescope.run.block_diagnosis import Diagnosis
    from scalescope.run.recorded_block import Recorded

ONCE_S = 1.0  # a second SIGINT within this many seconds is the same Ctrl-C, sent to the process group and by the parent
_BLOCK, _OUTCOME, _FAILED = "block.json", "outcome.json", "failed.json"
_BOOT = (
    "import sys; sys.path = [sys.argv.pop(1), *filter(None, sys.path)]; "
    "from scalescope.run import script_elsewhere; getattr(script_elsewhere, sys.argv.pop(1))()"
)


def run_script_elsewhere(python: str, path: Path, arguments: Sequence[str]) -> ScriptOutcome[Diagnosis]:
    """Like `run_script`, in a process of the interpreter at `python`, which writes no bytecode."""
    from scalescope.run.block_diagnosis import Diagnosis

    with _folder() as folder:
        process = _start(python, folder, "run_here", str(path), *arguments)
        done: ScriptOutcome[Diagnosis] = ScriptOutcome(_status(process))
        _raise_failure(folder)
        if (folder / _OUTCOME).exists():
            done.problems += json.loads((folder / _OUTCOME).read_text())
        else:
            done.problems.append(f"The script's process ended with status {done.status} before the recording did.")
        blocks = sorted((each.parent for each in folder.glob(f"*/{_BLOCK}")), key=lambda each: int(each.name))
        done.found += [_judge(each, Diagnosis()) for each in blocks]
    return done


@contextmanager
def observed_elsewhere(python: str, spec: SchedulerSpec, name: str) -> Iterator[Diagnosis]:
    """Like `observed`, by a client of the interpreter at `python`, for schedulers of another release of distributed."""
    from scalescope.run.block_diagnosis import Diagnosis

    found = Diagnosis()
    with _folder() as folder:
        process = _start(python, folder, "observe_here", json.dumps(spec.to_mapping()), name, piped=True)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            began = bool(process.stdout.readline())
            if began:
                yield found
        finally:
            process.stdin.close()
            process.wait()
            process.stdout.close()
            _raise_failure(folder)
            if (folder / "1" / _BLOCK).exists():
                _judge(folder / "1", found)
        if not began:
            raise CaptureError("the recorder could not be started", where=python, next_step="see what it printed above")


def run_here() -> NoReturn:
    """Run a script in this process; the arguments are a folder for what is recorded, the script, and those of that."""
    folder, path, arguments = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    if callable(signal.getsignal(signal.SIGINT)):  # a background process of a shell ignores Ctrl-C: that stays so
        signal.signal(signal.SIGINT, _interrupted())
    blocks = (_Kept(folder / str(number)) for number in range(1, sys.maxsize))
    with _failure_kept(folder):
        done = run_script(path, arguments, lambda: next(blocks))
    (folder / _OUTCOME).write_text(json.dumps(done.problems))
    sys.exit(done.status)


def observe_here() -> None:
    """Record a cluster until standard input ends; the arguments are a folder, the cluster as JSON, and a name."""
    from scalescope.clusters.scheduler.cluster import SchedulerCluster
    from scalescope.clusters.scheduler.spec import SchedulerSpec
    from scalescope.run.block import observed

    folder, given, name = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when it is over
    spec = SchedulerSpec(**{field: value for field, value in given.items() if field != "kind"})
    kept = _Kept(folder / "1")
    with _failure_kept(folder), SchedulerCluster(spec).connect() as client, observed(client, name, "cluster", kept):
        print("recording", flush=True)
        sys.stdin.read()


@dataclass
class _Kept:
    folder: Path

    def ended(self, recorded: Recorded, spools: Path) -> None:
        from scalescope.driver.attempt import plain

        self.folder.mkdir()
        for each in spools.iterdir():
            shutil.move(each, self.folder)
        (self.folder / _BLOCK).write_text(json.dumps(plain(asdict(recorded))))


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="scalescope-script-", ignore_cleanup_errors=True) as text:
        yield Path(text)


def _start(python: str, folder: Path, function: str, *arguments: str, piped: bool = False) -> subprocess.Popen[bytes]:
    from scalescope.driver.process import importable

    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environ.pop("PYTHONHOME", None)
    command = [python, "-c", _BOOT, str(importable(folder)), function, str(folder), *arguments]
    pipe = subprocess.PIPE if piped else None
    return subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe)


@contextmanager
def _failure_kept(folder: Path) -> Iterator[None]:
    try:
        yield
    except ScalescopeError as error:
        from scalescope.driver.protocol import Failed, encode

        (folder / _FAILED).write_bytes(encode(Failed.of(error)))
        sys.exit(error.exit_status)


def _raise_failure(folder: Path) -> None:
    from scalescope.driver.process import error_of
    from scalescope.driver.protocol import Failed, decode_reply

    if (folder / _FAILED).exists():
        failed = decode_reply((folder / _FAILED).read_bytes())
        assert isinstance(failed, Failed)
        raise error_of(failed)


def _judge(block: Path, found: Diagnosis) -> Diagnosis:
    from scalescope.run.recorded_block import Recorded

    found.ended(Recorded.from_mapping(json.loads((block / _BLOCK).read_text())), block)
    return found


def _status(process: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            code = process.wait()
            return code if code >= 0 else 128 - code
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)


def _interrupted() -> Any:
    last = -ONCE_S

    def interrupted(number: int, frame: FrameType | None) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before > ONCE_S:
            raise KeyboardInterrupt

    return interrupted
