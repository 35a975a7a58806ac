"""Processes of this machine that a test looks for or ends."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil


def command_lines(mark: str) -> list[str]:
    """Those of the other processes that have this text in their arguments or their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes()
            known = arguments + (entry / "environ").read_bytes()
        except OSError:  # gone, or another user's
            continue
        if os.fsencode(mark) in known and int(entry.name) != os.getpid():
            found.append(arguments.replace(b"\0", b" ").decode())
    return found


def kill_tree(process: psutil.Process) -> None:
    """Kill a process and all that it has started."""
    with suppress(psutil.NoSuchProcess):
        for each in [*process.children(recursive=True), process]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
