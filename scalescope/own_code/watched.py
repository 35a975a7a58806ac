"""Records a running cluster from a separate process, whose Dask must have nearly the same release as the scheduler's.

The process can be any Python that has `distributed`; this process judges the records.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scalescope.errors import CaptureError, ScalescopeError
from scalescope.own_code import record

if TYPE_CHECKING:
    from scalescope.clusters.scheduler.spec import SchedulerSpec
    from scalescope.own_code.diagnosis import Diagnosis

_FAILED = "failed.json"
_BOOT = (
    "import sys; sys.path = [sys.argv.pop(1), *filter(None, sys.path)]; "
    "from scalescope.own_code.watched import observe; observe()"
)


@contextmanager
def watched(python: str, spec: SchedulerSpec, name: str) -> Iterator[Diagnosis]:
    """Record while the body runs, with a client in the interpreter at `python`; judge the records at the end."""
    from scalescope.own_code.diagnosis import Diagnosis

    found = Diagnosis()
    with tempfile.TemporaryDirectory(prefix="scalescope-watch-", ignore_cleanup_errors=True) as text:
        folder = Path(text)
        process = _start(python, folder, spec, name)
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
            if (folder / record.CLUSTER).exists():
                found.judge(folder)
        if not began:
            raise CaptureError("the recorder could not be started", where=python, next_step="read the output above")


def observe() -> None:
    """Record a cluster until standard input ends; the arguments are a folder, the cluster as JSON, and a name."""
    from scalescope.clusters.scheduler.cluster import SchedulerCluster
    from scalescope.clusters.scheduler.spec import SchedulerSpec
    from scalescope.driver.protocol import Failed, encode
    from scalescope.own_code.block import Block

    folder, given, name = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the recording
    spec = SchedulerSpec(**{field: value for field, value in given.items() if field != "kind"})
    try:
        with SchedulerCluster(spec).connect() as client:
            block = Block(client, folder, name, "cluster")
            block.begin()
            print("recording", flush=True)
            sys.stdin.read()
            block.end()
    except ScalescopeError as error:
        (folder / _FAILED).write_bytes(encode(Failed.of(error)))
        sys.exit(error.exit_status)


def _start(python: str, folder: Path, spec: SchedulerSpec, name: str) -> subprocess.Popen[bytes]:
    from scalescope.driver.process import importable

    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if python != sys.executable:
        environ.pop("PYTHONHOME", None)
    arguments = [str(importable(folder)), str(folder), json.dumps(spec.to_mapping()), name]
    return subprocess.Popen(
        [python, "-c", _BOOT, *arguments], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _raise_failure(folder: Path) -> None:
    from scalescope.driver.process import error_of
    from scalescope.driver.protocol import Failed, decode_reply

    if (folder / _FAILED).exists():
        failed = decode_reply((folder / _FAILED).read_bytes())
        assert isinstance(failed, Failed)
        raise error_of(failed)
