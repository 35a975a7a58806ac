"""The specifications of clusters of jobs of PBS, Moab, LSF, Grid Engine, OAR and HTCondor.

None of them was ever run on a real system; their job scripts are tested as text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any, ClassVar

from scalescope.clusters.jobqueue.base_spec import NAME, JobQueueSpec, JobRequest
from scalescope.errors import InvalidField
from scalescope.model.cluster import Text
from scalescope.model.parameters import Parameter

_REQUEST = Text(
    "What a job needs, in place of what Scalescope writes.",
    accepts=re.compile(r"(?!-)[\w.:,=/+-]+").fullmatch,
    allowed="resources as the system writes them, without blanks",
)
_QUEUE = ("queue", Annotated[str, NAME("Name of the queue; empty is the default queue.")], "")
_RESOURCES = ("resource_spec", Annotated[str, _REQUEST], "")
_DISK = ("disk_mb", Annotated[int, Parameter("Disk per job in MiB.", title="Disk per job, MiB", minimum=1)], 1024)

Options = dict[str, Any]


@dataclass(frozen=True)
class BatchSpec(JobQueueSpec):
    """Jobs of a batch system; each kind is a subclass made of the data in `SYSTEMS`."""

    proven: ClassVar[bool] = False
    system: ClassVar[System]

    def _check_together(self) -> None:
        super()._check_together()
        for directive in self.directives_add if self.system.directives_assign else ():
            if "=" not in directive:
                raise InvalidField("cluster.directives_add", directive, "NAME = VALUE")

    def job_options(self, request: JobRequest) -> Options:
        """As its system wants it."""
        return self.system.options(self, request.label)


@dataclass(frozen=True)
class System:
    """How a batch system differs from the others.

    Attributes:
        name: As people write it.
        job_class: Class of dask-jobqueue, as `module:Class`.
        fields: Fields that it alone, or not every system, has: name, type, default.
        options: What the class is called with, from a specification and the label of the jobs.
        remark: A sentence for people.
        directives_assign: Whether each directive is NAME = VALUE.
    """

    name: str
    job_class: str
    fields: tuple[tuple[str, Any, Any], ...]
    options: Callable[[BatchSpec, str], Options]
    remark: str = ""
    directives_assign: bool = False


def _queued(spec: BatchSpec, label: str) -> Options:
    return {
        "queue": getattr(spec, "queue", "") or None,
        "account": spec.account or None,
        "walltime": spec.walltime,
        "resource_spec": getattr(spec, "resource_spec", "") or None,
    }


def _project(spec: BatchSpec, label: str) -> Options:
    """Where an account is called a project."""
    found = _queued(spec, label)
    return found | {"project": found.pop("account")}


def _lsf(spec: BatchSpec, label: str) -> Options:
    found = _project(spec, label)
    del found["resource_spec"]
    minutes = math.ceil(spec.walltime_s / 60)
    return found | {"walltime": f"{minutes // 60:02}:{minutes % 60:02}", "use_stdin": True}


def _htcondor(spec: BatchSpec, label: str) -> Options:
    added = {"batch_name": label, "allowed_job_duration": math.ceil(spec.walltime_s)}
    if spec.account:
        added["accounting_group"] = spec.account
    given = (directive.partition("=") for directive in spec.directives_add)
    added |= {name.strip(): value.strip() for name, _, value in given}
    return {"disk": f"{spec.to_mapping()['disk_mb']}MiB", "job_extra_directives": added}


SYSTEMS = {
    "pbs": System("PBS", "dask_jobqueue.pbs:PBSJob", (_QUEUE, _RESOURCES), _queued),
    "moab": System("Moab", "dask_jobqueue.moab:MoabJob", (_QUEUE, _RESOURCES), _queued),
    "lsf": System("LSF", "dask_jobqueue.lsf:LSFJob", (_QUEUE,), _lsf),
    "sge": System(
        "Grid Engine",
        "dask_jobqueue.sge:SGEJob",
        (_QUEUE, _RESOURCES),
        _project,
        "It reserves memory and cores only as far as `resource_spec` and `directives_add` say.",
    ),
    "oar": System(
        "OAR",
        "dask_jobqueue.oar:OARJob",
        (_QUEUE, _RESOURCES),
        _project,
        "It reserves memory only as far as `resource_spec` and `directives_add` say.",
    ),
    "htcondor": System("HTCondor", "dask_jobqueue.htcondor:HTCondorJob", (_DISK,), _htcondor, directives_assign=True),
}


def _spec(kind: str, system: System) -> type[BatchSpec]:
    own = [(name, annotation, field(default=default)) for name, annotation, default in system.fields]
    namespace = {
        "__module__": __name__,
        "__doc__": f"Workers in jobs of {system.name}; never run on a real system.\n\n{system.remark}".rstrip(),
        "kind": kind,
        "title": f"{system.name} Cluster",
        "job_class": system.job_class,
        "system": system,
    }
    return make_dataclass(f"{kind.capitalize()}Spec", own, bases=(BatchSpec,), namespace=namespace, frozen=True)


SPECS = tuple(_spec(kind, system) for kind, system in SYSTEMS.items())
globals().update({spec.__name__: spec for spec in SPECS})  # so that they can be pickled
