"""Follows the output of a job into a log."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 4 * 2**20  # bytes copied at most: each line costs Prefect's server a row

_AT_ONCE = 2**18  # bytes read at a time
_TAIL_BYTES = 4096  # bytes that `tail` reads
# Start of a line that Prefect's console handler wrote: the flow has already sent that line to the server.
_LOGGED_ITSELF = re.compile(rb"^\d\d:\d\d:\d\d\.\d{3} \| [A-Z]+ +\| (Flow|Task) run '")

_CHAINED = (b"Traceback (most recent", b"During handling of the above", b"The above exception was the direct")


class JobOutput:
    """Passes on what a job writes, line by line. A file keeps the position, so that a restart repeats nothing."""

    def __init__(self, path: Path, tell: Callable[[str], object]) -> None:
        self.path = path
        self._tell = tell
        self._mark = path.with_suffix(".read")
        self._read = 0
        self._in = ""  # part that the last line belongs to: a "record" of the flow's own log, or its "traceback"
        with suppress(OSError, ValueError):
            self._read = int(self._mark.read_text())

    def follow(self, *, to_end: bool = False) -> None:
        """Log up to `_AT_ONCE` bytes of new lines; with `to_end`, for an ended job, all, even an unfinished line."""
        while self._read < MOST_BYTES and self._some(to_end) and to_end:
            pass
        if to_end:
            self._mark.unlink(missing_ok=True)

    def _some(self, to_end: bool) -> bool:
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                data = file.read(_AT_ONCE)
        except FileNotFoundError:
            return False
        whole = data if to_end or len(data) == _AT_ONCE else data[: data.rfind(b"\n") + 1]
        if not whole:
            return False
        for line in whole.splitlines():
            if line.strip() and not self._logged_itself(line):
                self._tell(line.decode(errors="replace"))
        self._read += len(whole)
        self._mark.write_text(str(self._read))
        if self._read >= MOST_BYTES:
            self._tell(f"[the rest is not copied here; the whole output is in {self.path}]")
        return True

    def _logged_itself(self, line: bytes) -> bool:
        if _LOGGED_ITSELF.match(line) or (self._in and line.startswith(_CHAINED)):
            self._in = "traceback" if line.startswith(_CHAINED) else "record"
        elif self._in == "traceback":
            self._in = "traceback" if line.startswith(b" ") else "record"  # ends with the line of the exception
        else:
            self._in = ""
        return bool(self._in)

    def tail(self, lines: int = 8) -> str:
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, self.path.stat().st_size - _TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])
