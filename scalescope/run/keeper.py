"""Runs a command, and ends it when standard input ends: whoever holds the other end of that pipe may die anyhow.

A program of its own, started by path, with nothing but the standard library: it sleeps all the time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

GRACE_S = 5.0
"""Seconds that the command has to end by itself when it is asked to."""


def main() -> int:
    """Run the command that the arguments give; return its exit status."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_input, args=(child, sys.stdin.fileno()), daemon=True).start()
    return child.wait()


def _end_with_input(child: subprocess.Popen[bytes], descriptor: int) -> None:
    while os.read(descriptor, 4096):  # not `sys.stdin`: its lock, held here, would abort the interpreter's shutdown
        pass
    child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()


if __name__ == "__main__":
    sys.exit(main())
