"""Writes code that makes the chosen cluster and runs without changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pprint import pformat
from typing import Any

import yaml

from scalescope.analysis.task_lengths import STARTING_S, clock
from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.diagnosis.observation import Observation
from scalescope.model.cluster import ClusterSpec, cluster_spec
from scalescope.model.mapping import differing
from scalescope.model.sweep import ITEMS_PER_WORKER, THREADS, WORKERS
from scalescope.model.trial import Trial, ran_what
from scalescope.store.store import SweepRun
from scalescope.studies.sizing.choice import Configuration, SecondGroup, Sizing

RESOURCE = "BIG_MEMORY"  # Dask resource of the workers of a second group
GROUP = "big-memory"
_ANNOTATE = """
# `{prefix}` (tasks: {tasks}) needs more memory than all others. Around the code that makes these tasks:
#     with dask.annotate(resources={{"{resource}": 1}}):
#         ...
# or client.submit(..., resources={{"{resource}": 1}}); and compute with optimize_graph=False, so that it is not fused.
"""


def form_of(trial: Trial, spec: ClusterSpec, observation: Observation) -> str:
    """Form of code that fits the record: `prefect` for flows, else that of the cluster's kind or class, or `local`."""
    made = str((trial.facts.get("cluster") or {}).get("kind", ""))
    if observation.by_prefect:
        return "prefect"
    for form, names in {"slurm": ("slurm", "SLURMCluster"), "kubernetes": ("kubernetes", "KubeCluster")}.items():
        if spec.kind in names or made in names:
            return form
    return "local"


def forms(found: Sizing, run: SweepRun, base: Trial) -> dict[str, str]:
    """The code by form; empty if no cluster was chosen. If the record is of a script, the form `sweep` is missing."""
    chosen, group, spec = found.chosen, found.second_group, run.sweep.cluster_of(base.point)
    if chosen is None:
        return {}
    slurm, pods = (spec if spec.kind == kind else cluster_spec(kind) for kind in ("slurm", "kubernetes"))
    assert isinstance(slurm, SlurmSpec)
    assert isinstance(pods, KubernetesSpec)
    needed_s = max(found.too_long.fitting_s if found.too_long else 0.0, chosen.high_s + STARTING_S, slurm.walltime_s)
    code = {
        "local": _groups(chosen, group) if group else _local(chosen),
        "client": _groups(chosen, group) if group else _client(chosen),
        "prefect": _prefect(chosen),
        "slurm": _slurm(chosen, group, slurm, clock(needed_s)),
        "kubernetes": _kubernetes(chosen, group, pods),
    }
    return code if ran_what(run.trials) else {**code, "sweep": _sweep(chosen, run, base, clock(needed_s))}


# ------------------------------------------------------------------ one machine


def _arguments(found: Configuration) -> dict[str, Any]:
    limit = {"memory_limit": _memory(found.memory_mb)} if found.memory_mb else {}
    return {"n_workers": found.workers, "threads_per_worker": found.threads, **limit}


def _memory(memory_mb: int) -> str:
    return f"{memory_mb}MiB"


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"{name}({given})".replace("'", '"') if "\\" not in given and '"' not in given else f"{name}({given})"


def _local(found: Configuration) -> str:
    return f"""from dask.distributed import Client, LocalCluster

if __name__ == "__main__":
    cluster = {_call("LocalCluster", _arguments(found))}
    client = Client(cluster)
"""


def _client(found: Configuration) -> str:
    return f"""from dask.distributed import Client

if __name__ == "__main__":
    client = {_call("Client", _arguments(found))}
"""


def _prefect(found: Configuration) -> str:
    return f"""from prefect_dask import DaskTaskRunner

task_runner = DaskTaskRunner(
    cluster_kwargs={pformat(_arguments(found), sort_dicts=False, width=100)}
)  # @flow(task_runner=task_runner)
""".replace("'", '"')


def _groups(found: Configuration, group: SecondGroup) -> str:
    """Workers of two kinds in one local cluster."""
    own = {"nthreads": found.threads, "memory_limit": _memory(group.others_mb)}
    big = {"nthreads": 1, "memory_limit": _memory(group.memory_mb), "resources": {RESOURCE: 1}}
    return f"""from dask.distributed import Client, Nanny, Scheduler, SpecCluster

workers = {{f"worker-{{n}}": {{"cls": Nanny, "options": {_text(own)}}} for n in range({found.workers})}}
workers |= {{f"{GROUP}-{{n}}": {{"cls": Nanny, "options": {_text(big)}}} for n in range({group.workers})}}

if __name__ == "__main__":
    cluster = SpecCluster(workers, {{"cls": Scheduler, "options": {{"dashboard_address": ":0"}}}})
    client = Client(cluster)
{_annotate(group)}"""


def _text(value: object) -> str:
    return repr(value).replace("'", '"')


def _annotate(group: SecondGroup) -> str:
    return _ANNOTATE.format(prefix=group.prefix, tasks=group.tasks, resource=RESOURCE)


# ------------------------------------------------------------------ Slurm


def _slurm(found: Configuration, group: SecondGroup | None, spec: SlurmSpec, walltime: str) -> str:
    memory_mb = group.others_mb if group else found.memory_mb or spec.memory_mb
    given: dict[str, Any] = {"cores": found.threads, "processes": 1, "memory": _memory(memory_mb or 2048)}
    given |= {"walltime": walltime, **_of_site(spec)}
    arguments = "".join(f"    {name}={_text(value)},\n" for name, value in given.items())
    section = {name.replace("_", "-"): value for name, value in given.items()}
    settings = yaml.safe_dump({"jobqueue": {"slurm": section}}, sort_keys=False)
    commented = "".join(f"#   {line}\n" for line in settings.splitlines())
    return f"""from dask.distributed import Client
from dask_jobqueue import SLURMCluster

cluster = SLURMCluster(
{arguments})
cluster.scale(jobs={found.workers})
client = Client(cluster)
{_slurm_group(group, spec, walltime) if group else ""}
# The same for all scripts, as ~/.config/dask/jobqueue.yaml; then SLURMCluster() is enough.
{commented}"""


def _of_site(spec: SlurmSpec) -> dict[str, Any]:
    """Arguments of `SLURMCluster` that the record's cluster had."""
    asked = {"qos": spec.qos, "gres": spec.gres, "constraint": spec.constraint, "exclude": spec.exclude}
    directives = [f"--{name}={value}" for name, value in asked.items() if value]
    found = {
        "queue": spec.partition,
        "account": spec.account,
        "interface": spec.interface,
        "local_directory": spec.local_directory,
        "python": spec.python,
        "job_script_prologue": list(spec.prologue),
        "job_extra_directives": [*directives, *spec.directives_add],
        "job_directives_skip": list(spec.directives_skip),
    }
    return {name: value for name, value in found.items() if value}


def _slurm_group(group: SecondGroup, spec: SlurmSpec, walltime: str) -> str:
    options = ["--ntasks=1", f"--array=1-{group.workers}", f"--mem={group.memory_mb}M", f"--time={walltime}"]
    options += [
        f"--{name}={value}" for name, value in (("partition", spec.partition), ("account", spec.account)) if value
    ]
    return f"""
import subprocess
import sys

worker = f"{{sys.executable}} -m distributed.cli.dask_worker {{cluster.scheduler_address}} --nthreads 1"
worker += " --memory-limit {_memory(group.memory_mb)} --resources {RESOURCE}=1 --death-timeout 60"
subprocess.run(["sbatch", *{_text(options)}, "--wrap", worker], check=True)
{_annotate(group)}"""


# ------------------------------------------------------------------ Kubernetes


def _kubernetes(found: Configuration, group: SecondGroup | None, spec: KubernetesSpec) -> str:
    memory_mb = group.others_mb if group else found.memory_mb or spec.memory_mb
    image = f"image={_text(spec.image)}, " if spec.image else ""
    space = f", namespace={_text(spec.namespace)}" if spec.namespace else ""
    more = ""
    if group:
        worker = _pod(1, group.memory_mb, spec, ["--resources", f"{RESOURCE}=1"])
        more = f"""cluster.add_worker_group(
    "{GROUP}",
    {image}n_workers={group.workers},
{worker})
"""
    return f"""from dask.distributed import Client
from dask_kubernetes.operator import KubeCluster, make_cluster_spec
from dask_kubernetes.operator.kubecluster.kubecluster import make_worker_spec

spec = make_cluster_spec("sized", {image}n_workers={found.workers})
spec["spec"]["worker"] = make_worker_spec(
    {image}n_workers={found.workers},
{_pod(found.threads, memory_mb, spec)})
scheduler = spec["spec"]["scheduler"]["spec"]["containers"][0]
scheduler["args"] = ["dask", "scheduler", *scheduler["args"][1:]]  # images of newer releases have no dask-scheduler
cluster = KubeCluster(custom_cluster_spec=spec{space})
{more}client = Client(cluster)
{_annotate(group) if group else ""}"""


def _pod(threads: int, memory_mb: int, spec: KubernetesSpec, options: Sequence[str] = ()) -> str:
    memory = {"memory": f"{memory_mb}Mi"}
    resources = {"requests": {"cpu": f"{spec.cpu or threads:g}", **memory}, "limits": {"cpu": str(threads), **memory}}
    command = ["dask", "worker", "--nthreads", str(threads), "--memory-limit", _memory(memory_mb), *options]
    return f"    resources={_text(resources)},\n    worker_command={_text(command)},\n"


# ------------------------------------------------------------------ a sweep


def _sweep(found: Configuration, run: SweepRun, base: Trial, walltime: str) -> str:
    spec = run.sweep.cluster_of(base.point)
    cluster = {"kind": spec.kind, **differing(spec)}
    if found.memory_mb and hasattr(spec, "memory_limit_mb"):
        cluster["memory_limit_mb"] = found.memory_mb
    elif found.memory_mb and hasattr(spec, "memory_mb"):
        cluster["memory_mb"] = found.memory_mb * getattr(spec, "job_workers", 1)
    if hasattr(spec, "walltime"):
        cluster["walltime"] = walltime
    point = {name: value for name, value in base.point.values.items() if value not in ("", None)}
    point = {name: value for name, value in point.items() if name != ITEMS_PER_WORKER}
    data: dict[str, Any] = {"workload": run.sweep.workload, "cluster": cluster}
    data["points"] = [{**point, WORKERS: found.workers, THREADS: found.threads}]
    plain = yaml.safe_load(yaml.safe_dump(_plain(data), sort_keys=False))
    return yaml.safe_dump(plain, sort_keys=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
