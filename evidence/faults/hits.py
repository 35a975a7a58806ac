"""Who is hit by a fault, how, and what is noted of the outcome for `docs/faults.md`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import psutil
from support.faults import STOPPED_S, Commands, Seen, command, driver_of, wait_for

LINES = os.environ.get("SCALESCOPE_FAULTS", "")  # file for the outcome of every cell, as JSON lines
FILLER = "filler"


def note(fault: str, process: str, stage: str, seen: Seen) -> None:
    """Record the outcome for the page, and check what holds in every cell."""
    if LINES:
        with open(LINES, "a", encoding="utf-8") as lines:
            lines.write(json.dumps({"fault": fault, "process": process, "stage": stage, **asdict(seen)}) + "\n")
    assert (seen.leaks, seen.lost, seen.finished) == ((), 0, True), seen


# ------------------------------------------------------------------ who is hit


def _light(number: int) -> Callable[[Commands, psutil.Process], psutil.Process]:
    def find(commands: Commands, flow: psutil.Process) -> psutil.Process:
        (parent,) = driver_of(commands, flow).children()
        return sorted(parent.children(), key=lambda child: (child.create_time(), child.pid))[number]

    return find


def _local_worker(commands: Commands, flow: psutil.Process) -> psutil.Process:
    def workers() -> list[psutil.Process]:
        return [child for child in driver_of(commands, flow).children() if "spawn_main" in command(child)]

    return wait_for(workers, commands.text)[0]


def _nanny(commands: Commands, flow: psutil.Process) -> psutil.Process:
    def nannies() -> list[psutil.Process]:  # not the shell that starts one
        return [each for each in commands.running("distributed.Nanny") if "python" in each.name()]

    return wait_for(nannies, commands.text)[0]


# Name -> kind of cluster, and how the process is found.
PROCESSES: dict[str, tuple[str, Callable[[Commands, psutil.Process], psutil.Process]]] = {
    "flow": ("light", lambda commands, flow: flow),
    "driver": ("light", driver_of),
    "scheduler": ("light", _light(0)),
    "host of workers": ("light", _light(1)),
    "worker": ("local", _local_worker),
    "nanny": ("ssh", _nanny),
}


# ------------------------------------------------------------------ what happens to it


def signalled(number: signal.Signals, process: str) -> Callable[[Commands, psutil.Process], None]:
    """Sends a signal; a stopped process goes on after a while."""

    def hit(commands: Commands, flow: psutil.Process) -> None:
        target = PROCESSES[process][1](commands, flow)
        target.send_signal(number)
        if number == signal.SIGSTOP:
            time.sleep(STOPPED_S)
            with suppress(psutil.NoSuchProcess):
                target.send_signal(signal.SIGCONT)

    return hit


def fill(folder: Path) -> None:
    with open(folder / FILLER, "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


@contextmanager
def on_small_disk(commands: Commands, name: str) -> Iterator[Path]:
    """Make a folder a file system of its own, in a mount name space of the commands."""
    folder = commands.log.parent
    mount = 'mount -t tmpfs -o size=24m tmpfs "$0" && echo mounted && exec sleep 3600'
    arguments = ["unshare", "-m", "sh", "-c", mount, str(folder / name)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "mounted\n"
            commands.before = ("nsenter", "-m", "-t", str(holder.pid), "--")
            commands.see(Path(f"/proc/{holder.pid}/root{folder}"))
            yield Path(f"/proc/{holder.pid}/root{folder / name}")
        finally:
            commands.kill()
            holder.kill()


@contextmanager
def behind_a_cable(folder: Path) -> Iterator[tuple[str, Callable[[str], object]]]:
    """A scheduler and two workers in a network name space: the address, and what sets the cable `up` or `down`."""
    name, cable, far = f"faults-{os.getpid()}", f"near{os.getpid()}", f"far{os.getpid()}"

    def ip(*arguments: str) -> object:
        return subprocess.run(["ip", *arguments], check=True)

    ip("netns", "add", name)
    started = []
    try:
        ip("link", "add", cable, "type", "veth", "peer", "name", far, "netns", name)
        ip("address", "add", "10.211.77.1/30", "dev", cable)
        ip("link", "set", cable, "up")
        ip("-n", name, "address", "add", "10.211.77.2/30", "dev", far)
        for device in (far, "lo"):
            ip("-n", name, "link", "set", device, "up")
        address = "tcp://10.211.77.2:8786"
        dask = ["ip", "netns", "exec", name, sys.executable, "-m", "dask"]
        worker = [*dask, "worker", address, "--nthreads=1", "--no-nanny", "--no-dashboard"]
        with (folder / "dask.log").open("wb") as log:
            for number, arguments in enumerate([[*dask, "scheduler", "--no-dashboard"], worker, worker]):
                given = [*arguments, f"--local-directory={folder}/{number}"] if number else arguments
                started.append(subprocess.Popen(given, stdout=log, stderr=log))
        yield address, lambda state: ip("link", "set", cable, state)
    finally:
        for process in started:
            process.kill()
            process.wait()
        ip("netns", "delete", name)
