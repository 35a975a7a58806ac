"""Job scripts. dask-jobqueue writes the script of each system; this module tells it what to write."""

from __future__ import annotations

import importlib.util
import shlex
import sys
import tempfile
import warnings
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import dask

from scalescope.clusters.jobqueue import site_config
from scalescope.clusters.jobqueue.base_spec import JobQueueSpec, JobRequest
from scalescope.errors import InvalidField

if TYPE_CHECKING:
    from dask_jobqueue.core import Job

HOST = "scalescope.clusters.jobqueue.worker_process"
REACH = "importable/scalescope/clusters/jobqueue/reach_scheduler.py"
DASK_CUDA = "dask cuda worker"
DEATH_TIMEOUT_S = 60  # seconds after which a worker that finds no scheduler ends


def has_dask_cuda() -> bool:
    return importlib.util.find_spec("dask_cuda") is not None


def job(spec: JobQueueSpec, request: JobRequest) -> Job:
    """A job of dask-jobqueue that is not submitted; `job_script()` is its text."""
    options: dict[str, Any] = {
        "scheduler": request.address,
        "name": request.name,
        "job_name": request.label,
        "cores": spec.cores or request.workers * request.threads,
        "memory": f"{spec.job_memory_mb(request.workers)}MiB",
        "processes": request.workers,
        "nanny": False,
        "interface": spec.interface or None,
        "death_timeout": None if request.dask_cuda else DEATH_TIMEOUT_S,
        "local_directory": _local_directory(spec, dask_cuda=request.dask_cuda),
        "worker_command": DASK_CUDA if request.dask_cuda else HOST,
        "worker_extra_args": _worker_arguments(spec, request),
        "job_script_prologue": _prologue(spec, request),
        "job_directives_skip": list(spec.directives_skip),
        "job_extra_directives": list(spec.directives_add),
        "log_directory": f"{request.folder}/logs",
        "python": shlex.quote(spec.python or sys.executable),
    }
    options |= spec.job_options(request)
    job_class = resolve_name(spec.job_class)  # before `set`, which would discard defaults that the import adds
    # Only the fields of `spec` count; otherwise, dask-jobqueue would fill empty ones from its configuration.
    names = site_config.FIELDS.keys() | site_config.LEFT_OUT.keys()
    config = {f"jobqueue.{spec.kind}.{name}": None for name in names}
    with warnings.catch_warnings(), dask.config.set(config):
        warnings.simplefilter("ignore", UserWarning)  # about memory on OAR, see docs/clusters.md
        made: Job = job_class(**options)
        return made


def text(spec: JobQueueSpec, workers: int, threads: int) -> str:
    """The script of a full job, with placeholders; raises `ImportError` without dask-jobqueue."""
    with tempfile.TemporaryDirectory() as folder:  # dask-jobqueue creates a log folder in it
        request = JobRequest(
            name="1",
            workers=min(workers, spec.job_workers),
            threads=threads,
            address="tls://SCHEDULER:0" if spec.tls else "tcp://SCHEDULER:0",
            folder=folder,
            dask_cuda=uses_dask_cuda(spec),
        )
        script: str = job(spec, request).job_script()
        return script.replace(folder, "FOLDER")


def uses_dask_cuda(spec: JobQueueSpec) -> bool:
    return spec.job_gpus > 0 and has_dask_cuda()


def _local_directory(spec: JobQueueSpec, *, dask_cuda: bool) -> str | None:
    if spec.local_directory:
        return f'"{spec.local_directory}"'
    return '"${TMPDIR:-/tmp}"' if dask_cuda else None


def _worker_arguments(spec: JobQueueSpec, request: JobRequest) -> list[str]:
    # Without --nthreads, dask-jobqueue divides the cores of the job by its workers.
    arguments = ["--nthreads", str(request.threads)] if spec.cores else []
    if request.dask_cuda:
        arguments += ["--no-dashboard", "--preload", "scalescope.clusters.no_http"]
        arguments += spec.dask_cuda_options
    elif spec.dask_cuda_options:
        allowed = "dask-cuda installed together with Dask where the driver runs"
        raise InvalidField("cluster.cuda_options", spec.dask_cuda_options[0], allowed)
    else:
        arguments += ["--workers", str(request.workers)]
        if spec.processes:
            arguments += ["--processes", str(min(spec.processes, request.workers))]
        if spec.job_gpus:
            arguments += ["--gpus"]
        if spec.lifetime_s:
            arguments += ["--lifetime", f"{spec.lifetime_s:g}s", "--lifetime-stagger", f"{spec.lifetime_stagger_s:g}s"]
    for option, file in zip(("--tls-ca-file", "--tls-cert", "--tls-key"), _credentials(spec, request), strict=False):
        arguments += [option, file]
    return arguments


def _credentials(spec: JobQueueSpec, request: JobRequest) -> list[str]:
    names = ("ca.pem", "cert.pem", "key.pem") if spec.tls else ()
    return [shlex.quote(f"{request.folder}/tls/{name}") for name in names]


def _prologue(spec: JobQueueSpec, request: JobRequest) -> list[str]:
    folder, python = shlex.quote(request.folder), shlex.quote(spec.python or sys.executable)
    imports = f":{shlex.quote(request.imports)}" if request.imports else ""
    return [
        *spec.prologue,
        f'export PYTHONPATH={folder}/importable{imports}"${{PYTHONPATH:+:$PYTHONPATH}}"',
        f'export DASK_INTERNAL_INHERIT_CONFIG="$(cat {folder}/dask.config)"',
        f"{python} -I -S {folder}/{REACH} {' '.join([request.address, *_credentials(spec, request)])} || exit $?",
    ]
