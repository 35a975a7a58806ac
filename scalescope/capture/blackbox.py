"""Keeps the log records of a worker in a file that outlives its process.

Each record goes to a file by one raw `write`, so that the kernel has it before the process can die; `faulthandler`
writes to the same file. This source text is sent to workers and nannies: it imports only the standard
library and `distributed`.
"""

from __future__ import annotations

import faulthandler
import inspect
import json
import logging
import os
import platform
import time
from typing import Any

from distributed.diagnostics.plugin import NannyPlugin, WorkerPlugin

RECORD_CHARACTERS = 10_000


class BlackBox(WorkerPlugin):  # type: ignore[misc]
    """Writes the log records of a worker's process to a file. Only for workers that have a process each.

    `folder` must be outside the worker's local directory, which its nanny deletes.
    """

    name = "scalescope-black-box"
    idempotent = True

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.handler: _RawHandler | None = None

    def setup(self, worker: Any) -> None:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        name = f"{platform.node()}-{os.getpid()}-{time.time_ns()}.log"
        self.handler = _RawHandler(os.path.join(self.folder, name))
        self.handler.write({"worker": worker.address, "pid": os.getpid(), "time": time.time()})
        # by default, `distributed` does not pass its records on to the root logger
        for logger in (logging.getLogger(), logging.getLogger("distributed")):
            logger.addHandler(self.handler)
        faulthandler.enable(file=self.handler.descriptor, all_threads=True)

    def teardown(self, worker: Any) -> None:
        if self.handler is None:
            return
        for logger in (logging.getLogger(), logging.getLogger("distributed")):
            logger.removeHandler(self.handler)
        faulthandler.disable()
        os.close(self.handler.descriptor)
        self.handler = None


class ExitCodes(NannyPlugin):  # type: ignore[misc]
    """Logs an event of topic `worker-exit` when a worker's process ends."""

    name = "scalescope-exit-codes"
    idempotent = True
    restart = False

    def setup(self, nanny: Any) -> None:
        self.attribute = "_on_worker_exit" if hasattr(nanny, "_on_worker_exit") else "_on_exit"
        original = getattr(nanny, self.attribute)

        async def on_exit(exitcode: int) -> None:
            message = {"worker": nanny.worker_address, "nanny": nanny.address, "exitcode": exitcode}
            logged = nanny.log_event("worker-exit", message)
            if inspect.isawaitable(logged):
                await logged
            await original(exitcode)

        setattr(nanny, self.attribute, on_exit)

    def teardown(self, nanny: Any) -> None:
        nanny.__dict__.pop(self.attribute, None)


class _RawHandler(logging.Handler):
    """Writes one line of JSON a record, in one `write`."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._last: logging.LogRecord | None = None
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, entry: dict[str, Any]) -> None:
        os.write(self.descriptor, json.dumps(entry).encode() + b"\n")

    def emit(self, record: logging.LogRecord) -> None:
        if record is self._last:  # a record comes twice if `distributed` propagates to the root logger
            return
        self._last = record
        try:
            text = f"{record.name} {self.format(record)}"[:RECORD_CHARACTERS]
            self.write({"time": record.created, "level": record.levelname, "text": text})
        except Exception:  # noqa: BLE001  # as in the standard library, the code that logs never fails
            self.handleError(record)
