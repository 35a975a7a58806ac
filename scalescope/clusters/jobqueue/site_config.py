"""The section `jobqueue.KIND` of Dask's configuration, which sites write for dask-jobqueue, as defaults of fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scalescope.model import site_config
from scalescope.model.cluster import ClusterSpec
from scalescope.model.site_config import SiteConfig

# Each key of dask-jobqueue sets the first of its fields that `spec` has. If two keys set one field, the first counts.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "queue": ("partition", "queue"),
    "account": ("account",),
    "project": ("account",),
    "walltime": ("walltime",),
    "cores": ("cores",),
    "processes": ("workers_per_job",),
    "memory": ("memory_mb",),
    "disk": ("disk_mb",),
    "interface": ("interface",),
    "scheduler-options": ("scheduler_interface",),
    "local-directory": ("local_directory",),
    "shared-temp-directory": ("shared_directory",),
    "python": ("python",),
    "job-script-prologue": ("prologue",),
    "env-extra": ("prologue",),
    "job-extra-directives": ("directives_add",),
    "job-extra": ("directives_add",),
    "job-directives-skip": ("directives_skip",),
    "header-skip": ("directives_skip",),
    "resource-spec": ("resource_spec",),
}
_STARTED = "Scalescope starts the workers itself"
LEFT_OUT: Mapping[str, str] = {
    "name": "Scalescope names the jobs itself",
    "death-timeout": "workers that find no scheduler end after a minute",
    "worker-command": _STARTED,
    "worker-extra-args": _STARTED,
    "extra": _STARTED,
    "log-directory": "logs are in shared_directory, for as long as they are needed",
    **dict.fromkeys(("job-cpu", "ncpus"), "a job asks for `cores` (0: a core for each thread), not for {}"),
    **dict.fromkeys(("job-mem", "mem"), "a job asks for memory_mb, not for {}"),
    "use-stdin": "bsub always reads the script from standard input",
}
# dask-jobqueue reads these from the configuration when it writes a job script.
PASSED_ON = ("shebang", "lsf-units", "memory-per-core-property-name", "submit-command-extra", "cancel-command-extra")


def read(spec: type[ClusterSpec]) -> SiteConfig:
    found = site_config.settings("jobqueue", spec.kind)
    told = {key: each for key, each in found.items() if key not in PASSED_ON}
    site = site_config.read(spec, told, FIELDS, LEFT_OUT, unknown="dask-jobqueue has no such key", convert=_read)
    options, _ = told.get("scheduler-options", ({}, ""))
    if not isinstance(options, Mapping) or not options.keys() - {"interface"}:
        return site
    why = {"scheduler-options": "the scheduler runs in the driver, so only its interface can be set"}
    return replace(site, left_out={**site.left_out, **why})


def _read(key: str, value: Any) -> Any:
    """The value in the form of its field: sizes in MiB, lists as tuples of text."""
    from dask.utils import parse_bytes  # imported late: specifications load only the standard library

    if key in ("memory", "disk"):
        try:
            return math.ceil(parse_bytes(value) / 2**20)
        except (TypeError, ValueError):
            return value
    if key == "scheduler-options":
        return value.get("interface") or "" if isinstance(value, Mapping) else value
    if isinstance(value, Mapping):  # attributes of HTCondor, or a YAML set
        return tuple(str(name) if each is None else f"{name} = {each}" for name, each in value.items())
    return tuple(map(str, value)) if isinstance(value, list | set) else value
