"""The section `jobqueue.KIND` of Dask's configuration, which sites write for dask-jobqueue, as defaults of fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from scalescope.errors import InvalidField
from scalescope.model.cluster import ClusterSpec
from scalescope.model.parameters import declared
from scalescope.model.site_config import SiteConfig, settings

# Keys of dask-jobqueue, and the fields that they are: the first that a kind has. A new name of a key precedes the old.
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
    "name": "jobs have the label of their cluster as their name",
    "death-timeout": "workers that find no scheduler end after a minute",
    "worker-command": _STARTED,
    "worker-extra-args": _STARTED,
    "extra": _STARTED,
    "log-directory": "logs are in shared_directory, for as long as they are needed",
    **dict.fromkeys(("job-cpu", "ncpus"), "a job asks for its cores, not for {}"),
    **dict.fromkeys(("job-mem", "mem"), "a job asks for memory_mb, not for {}"),
    "use-stdin": "it is always so",
}
# dask-jobqueue reads these from the configuration when it writes a job script.
PASSED_ON = ("shebang", "lsf-units", "memory-per-core-property-name", "submit-command-extra", "cancel-command-extra")


def read(spec: type[ClusterSpec]) -> SiteConfig:
    """What the configuration says of jobs of a kind; a value that its field does not allow is left out."""
    found, known = settings("jobqueue", spec.kind), {each.name for each in declared(spec)}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for key in sorted(found, key=[*FIELDS, *found].index):
        value, origin = found[key]
        name = next((each for each in FIELDS.get(key, ()) if each in known), "")
        if not name:
            if key not in PASSED_ON:
                left_out[key] = LEFT_OUT.get(key, "dask-jobqueue has no such key").format(value)
        elif name in values:
            left_out[key] = "a newer key says the same"
        else:
            accepted, refused = _accepted(spec, name, _read(key, value))
            if isinstance(value, Mapping) and key == "scheduler-options" and value.keys() - {"interface"}:
                left_out[key] = "the scheduler runs in the driver; only its interface counts"
            left_out |= {f"{key} ({text})" if text else key: why for text, why in refused.items()}
            if accepted:
                values[name], origins[name] = accepted, origin
    return SiteConfig(values, origins, left_out)


def _read(key: str, value: Any) -> Any:
    """As the field has it: sizes in MiB, lists as tuples of text."""
    from dask.utils import parse_bytes  # here: specifications need the standard library alone

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


def _accepted(spec: type[ClusterSpec], name: str, value: Any) -> tuple[Any, dict[str, str]]:
    """What a field holds of a value (None: nothing), and by its text why it does not hold the rest."""
    several = isinstance(value, tuple)
    kept: list[Any] = []
    refused: dict[str, str] = {}
    for part in value if several else (value,):
        try:
            kept.append(getattr(spec(**{"memory_mb": 1, name: (part,) if several else part}), name))
        except InvalidField as error:
            refused[str(part) if several else ""] = f"{name}: expected {error.allowed}"
    return (tuple(each for part in kept for each in part) if several else next(iter(kept), None)), refused
