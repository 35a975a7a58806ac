"""Runs a script with another Python, whose environment needs `distributed` alone and stays as it is.

`main` runs there and records; this process measures and judges.
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
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from scalescope.errors import ScalescopeError
from scalescope.run.script import ScriptOutcome, run_script

if TYPE_CHECKING:
    from scalescope.run.block import Recorded
    from scalescope.run.block_diagnosis import Diagnosis

ONCE_S = 1.0  # a second SIGINT within this many seconds is the same Ctrl-C, sent to the process group and by the parent
_BLOCK, _OUTCOME, _FAILED = "block.json", "outcome.json", "failed.json"
_BOOT = (
    "import sys; sys.path = [sys.argv.pop(1), *filter(None, sys.path)]; "
    "from scalescope.run.script_elsewhere import main; main()"
)


def run_script_elsewhere(python: str, path: Path, arguments: Sequence[str]) -> ScriptOutcome[Diagnosis]:
    """Like `run_script`, in a process of the interpreter at `python`, which writes no bytecode."""
    from scalescope.driver.process import error_of, importable
    from scalescope.driver.protocol import Failed, decode_reply
    from scalescope.run.block import Recorded
    from scalescope.run.block_diagnosis import Diagnosis

    with tempfile.TemporaryDirectory(prefix="scalescope-script-", ignore_cleanup_errors=True) as text:
        folder = Path(text)
        environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        environ.pop("PYTHONHOME", None)
        command = [python, "-c", _BOOT, str(importable(folder)), text, str(path), *arguments]
        done: ScriptOutcome[Diagnosis] = ScriptOutcome(_status(subprocess.Popen(command, env=environ)))
        if (folder / _FAILED).exists():
            failed = decode_reply((folder / _FAILED).read_bytes())
            assert isinstance(failed, Failed)
            raise error_of(failed)
        if (folder / _OUTCOME).exists():
            done.problems += json.loads((folder / _OUTCOME).read_text())
        else:
            done.problems.append(f"The script's process ended with status {done.status} before the recording did.")
        for known in sorted(folder.glob(f"*/{_BLOCK}"), key=lambda each: int(each.parent.name)):
            done.found.append(found := Diagnosis())
            found.ended(Recorded.from_mapping(json.loads(known.read_text())), known.parent)
    return done


def main() -> NoReturn:
    """Run a script in this process; its arguments are a folder for what is recorded, the script, and those of that."""
    folder, path, arguments = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    signal.signal(signal.SIGINT, _interrupted())
    blocks = (_Kept(folder / str(number)) for number in range(1, sys.maxsize))
    try:
        done = run_script(path, arguments, lambda: next(blocks))
    except ScalescopeError as error:
        from scalescope.driver.protocol import Failed, encode

        (folder / _FAILED).write_bytes(encode(Failed.of(error)))
        sys.exit(error.exit_status)
    (folder / _OUTCOME).write_text(json.dumps(done.problems))
    sys.exit(done.status)


@dataclass
class _Kept:
    folder: Path

    def ended(self, recorded: Recorded, spools: Path) -> None:
        from scalescope.driver.attempt import plain

        self.folder.mkdir()
        for each in spools.iterdir():
            shutil.move(each, self.folder)
        (self.folder / _BLOCK).write_text(json.dumps(plain(asdict(recorded))))


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
