"""The processes of a light cluster: a scheduler, and hosts of many workers each.

`main` imports distributed once and forks a child for each socket that it receives, so that a process costs
milliseconds. A child answers commands from its socket, and ends when the socket closes: no process outlives the driver.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import dask
import distributed

from scalescope.clusters import light_workers, process_guard


@dataclass(frozen=True)
class StartScheduler:
    """Start a scheduler on loopback; answers with its address."""

    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HostWorkers:
    """Start and stop workers until there are exactly these; answers with their number."""

    scheduler: str  # address of the scheduler
    names: tuple[int, ...]  # names of the workers; workers with other names are closed
    nthreads: int  # threads of each worker; workers with another number are replaced
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SearchPath:
    """Use the driver's search path for modules, such as the folder of the workload's file."""

    path: tuple[str, ...]


@dataclass(frozen=True)
class Stop:
    """Close everything and end."""


Command = StartScheduler | HostWorkers | SearchPath | Stop


def main(descriptor: int, path: list[str]) -> None:
    """Fork a child for every socket received over the socket `descriptor`, which ends with the driver."""
    sys.path[:] = path  # search path of the driver
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides when to end
    # Garbage collection was off until here: it would write to memory pages that the children should share.
    light_workers.freeze_garbage_collector(collect=False)
    gc.enable()
    requests = socket.socket(fileno=descriptor)
    while received := socket.recv_fds(requests, 1, 1)[1]:
        (mine,) = received
        if os.fork() == 0:
            requests.close()
            serve(Connection(mine))
        os.close(mine)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def serve(pipe: Connection) -> None:
    """Answer commands until the pipe ends; does not return."""
    logging.getLogger("distributed").setLevel(logging.WARNING)
    process_guard.refuse_other_users()
    asyncio.run(_serve(pipe))
    _end()


async def _serve(pipe: Connection) -> None:
    loop = asyncio.get_running_loop()
    commands: asyncio.Queue[Command] = asyncio.Queue()

    def listen() -> None:
        while True:
            try:
                command = pipe.recv()
            except (EOFError, OSError):
                _end()
            loop.call_soon_threadsafe(commands.put_nowait, command)

    threading.Thread(target=listen, name="commands", daemon=True).start()
    process = Process()
    while True:
        command = await commands.get()
        try:
            answer = await process.obey(command)
        except Exception as error:  # noqa: BLE001 - sent to the driver, which raises it
            pipe.send((False, f"{type(error).__name__}: {error}"))
        else:
            pipe.send((True, answer))
        if isinstance(command, Stop):
            return


class Process:
    """The scheduler or the workers of one process."""

    def __init__(self) -> None:
        self.scheduler: distributed.Scheduler | None = None
        self.workers: dict[int, distributed.Worker] = {}

    async def obey(self, command: Command) -> Any:
        if isinstance(command, StartScheduler):
            dask.config.set(command.config)
            light_workers.slow_heartbeats()
            light_workers.compare_no_versions()
            self.scheduler = await light_workers.LightScheduler(host="127.0.0.1", port=0, dashboard=False)
            return self.scheduler.address
        if isinstance(command, HostWorkers):
            dask.config.set(command.config)
            return await self._host(command)
        if isinstance(command, SearchPath):
            sys.path[:] = command.path
            return None
        return await self._stop()

    async def _host(self, command: HostWorkers) -> int:
        unwanted = [
            name
            for name, worker in self.workers.items()
            if name not in command.names
            or worker.state.nthreads != command.nthreads
            or worker.status != distributed.Status.running
        ]
        await asyncio.gather(*[self.workers.pop(name).close(timeout=2, nanny=False) for name in unwanted])
        with light_workers.cheap_start(versions=False):
            started = [
                light_workers.LightWorker(
                    command.scheduler, name=name, nthreads=command.nthreads, memory_limit=0, host="127.0.0.1"
                )
                for name in command.names
                if name not in self.workers
            ]
            for worker in await asyncio.gather(*started):
                self.workers[worker.name] = worker
        light_workers.freeze_garbage_collector()
        return len(self.workers)

    async def _stop(self) -> None:
        workers = self.workers.values()
        await asyncio.gather(*[worker.close(timeout=1, nanny=False) for worker in workers], return_exceptions=True)
        if self.scheduler is not None:
            await self.scheduler.close()


def _end() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # do not wait for threads that still run tasks
