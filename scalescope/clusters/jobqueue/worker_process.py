"""What runs in a job: Dask workers without nannies. Processes fork from one that has imported distributed."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import dask
import distributed
import psutil
from distributed.security import Security

from scalescope.clusters import light_workers

NETWORK_FILE_SYSTEMS = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs", "gpfs", "lustre", "nfs", "nfs4"}
    | {"orangefs", "panfs", "pvfs2", "smb3", "smbfs", "wekafs"}
)
LOCAL_FOLDERS = ("/tmp", "/var/tmp")  # noqa: S108 - Dask makes its own folder in the chosen one
EXIT_NO_GPU = 96

CLOSE_TIMEOUT_S = 2.0  # seconds; distributed's 30 s, and its wait for tasks, are too long for the driver


class JobWorker(distributed.Worker):  # type: ignore[misc]
    """A worker without an HTTP server, which would show everything to anyone on the network."""

    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        """Start no HTTP server."""

    async def close(self, timeout: float = CLOSE_TIMEOUT_S, executor_wait: bool = False, **kwargs: Any) -> Any:
        # Nobody needs the results of tasks that still run.
        return await super().close(timeout=min(timeout, CLOSE_TIMEOUT_S), executor_wait=False, **kwargs)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the workers of a job until they close; the exit status is that of the first process that failed."""
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    names = [f"{options.name}-{number}" for number in range(options.workers)]
    processes = min(options.processes or options.workers, options.workers)
    groups = [names[number::processes] for number in range(processes)]
    gpus = _gpus(len(groups)) if options.gpus else []
    # Dask's own temporary files go to the same folder as the workers'.
    dask.config.set({"temporary-directory": options.local_directory or scratch()})
    if len(groups) == 1:
        _run(options, groups[0], gpus[0] if gpus else None)
    children = {}
    for number, group in enumerate(groups):
        pid = os.fork()
        if pid == 0:
            _run(options, group, gpus[number] if gpus else None)
        children[pid] = group
    sys.exit(_watch(children))


def scratch(default: str | None = None) -> str:
    """`default` or the job's temporary folder; but a local folder, if writable, in place of a network file system."""
    folder = default or tempfile.gettempdir()
    if file_system(folder) not in NETWORK_FILE_SYSTEMS:
        return folder
    for other in LOCAL_FOLDERS:
        if os.access(other, os.W_OK) and file_system(other) not in NETWORK_FILE_SYSTEMS:
            _say(f"{folder} is on a network file system; workers spill to {other}")
            return other
    _say(f"{folder} is on a network file system, and no local folder is writable: spilling will be slow")
    return folder


def file_system(folder: str) -> str:
    path = Path(folder).resolve()
    mounts = [mount for mount in psutil.disk_partitions(all=True) if path.is_relative_to(mount.mountpoint)]
    return max(mounts, key=lambda mount: len(mount.mountpoint)).fstype if mounts else ""


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scalescope.clusters.jobqueue.worker_process", allow_abbrev=False)
    parser.add_argument("scheduler")
    parser.add_argument("--name", required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--gpus", action="store_true")
    parser.add_argument("--nthreads", type=int, default=1)
    parser.add_argument("--memory-limit", default="0")
    parser.add_argument("--death-timeout", type=float, default=60.0)
    parser.add_argument("--local-directory", default="")
    parser.add_argument("--lifetime-stagger", default="0s")
    for name in ("interface", "protocol", "lifetime", "tls-ca-file", "tls-cert", "tls-key"):
        parser.add_argument(f"--{name}")
    return parser.parse_args(arguments)


def _gpus(wanted: int) -> list[str]:
    found = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    if len(found) < wanted:
        _say(f"{wanted} workers want a GPU each; CUDA_VISIBLE_DEVICES of this job is {','.join(found)!r}")
        sys.exit(EXIT_NO_GPU)
    return found[:wanted]


def _run(options: argparse.Namespace, names: Sequence[str], gpu: str | None) -> NoReturn:
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    status = 0
    try:
        asyncio.run(_work(options, names))
    except BaseException:  # noqa: BLE001 - printed here, because no caller can catch it
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


async def _work(options: argparse.Namespace, names: Sequence[str]) -> None:
    security = None
    if options.tls_ca_file:
        security = Security(
            tls_ca_file=options.tls_ca_file,
            tls_worker_cert=options.tls_cert,
            tls_worker_key=options.tls_key,
            require_encryption=True,
        )
    if len(names) > 1:
        light_workers.apply()  # otherwise each worker of this process would run its own profiler
    with light_workers.cheap_start():
        workers = [
            JobWorker(
                options.scheduler,
                name=name,
                nthreads=options.nthreads,
                memory_limit=options.memory_limit,
                local_directory=dask.config.get("temporary-directory"),
                interface=options.interface,
                protocol=options.protocol,
                security=security,
                death_timeout=options.death_timeout,
                lifetime=options.lifetime,
                lifetime_stagger=options.lifetime_stagger,
                dashboard=False,
            )
            for name in names
        ]
        loop = asyncio.get_running_loop()
        closing: set[asyncio.Future[Any]] = set()

        def close() -> None:
            closing.update(asyncio.ensure_future(worker.close(timeout=1, nanny=False)) for worker in workers)

        loop.add_signal_handler(signal.SIGTERM, close)
        await asyncio.gather(*workers)
    await asyncio.gather(*(worker.finished() for worker in workers))


def _watch(children: dict[int, list[str]]) -> int:
    def end_all(*_: object) -> None:
        for pid in children:
            os.kill(pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end_all)
    failed = 0
    while children:
        pid, status = os.wait()
        names = children.pop(pid, None)
        code = os.waitstatus_to_exitcode(status)
        if names is None or code == 0 or failed:
            continue
        failed = code if code > 0 else 128 - code
        ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        _say(f"the process of workers {', '.join(names)} {ended}; the job ends, so that the whole job is replaced")
        end_all()
    return failed


def _say(text: str) -> None:
    print(f"scalescope: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level=logging.WARNING)
    main()
