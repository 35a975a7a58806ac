"""The next step of each category of failure, taken on a small Slurm: workers come."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scalescope import leases, waiting
from scalescope.clusters.jobqueue.slurm_cluster import SlurmCluster
from scalescope.errors import ClusterError
from scalescope.slurm import failures

Opened = Callable[..., SlurmCluster]
WAITS = {"queue_timeout_s": 2.0}
EATS_MEMORY = f"{sys.executable} -S -c 'import time; kept = bytearray(400 << 20); time.sleep(5)'"
FEW = {"qos": "few"}
TWO_IN_A_JOB = {"workers_per_job": 2, "memory_mb": 800}
NO_DIRECTIVES: dict[str, Any] = {"directives_add": ()}


def directive(text: str) -> dict[str, Any]:
    return {**WAITS, "directives_add": (text,)}


def prologue(*lines: str) -> dict[str, Any]:
    return {"prologue": lines, "replace_jobs": 0}


@dataclass(frozen=True)
class Step:
    """What is asked for, and the step after which workers come."""

    asked: dict[str, Any]
    step: dict[str, Any] = field(default_factory=dict)  # options that the next step changes; it names the first one
    before: tuple[str, ...] = ()  # commands that make Slurm refuse it
    after: tuple[str, ...] = ()  # commands of the next step
    workers: int = 1
    conf: str = ""  # lines of slurm.conf; a Slurm of its own
    limits: str = ""  # limits of the QOS `few`, on a Slurm with accounting


# By category.
STEPS = {
    "time-limit-too-long": Step({"partition": "short"}, {"walltime": "00:01:00"}),
    "unknown-partition": Step({"partition": "nope"}, {"partition": "main"}),
    "partition-closed": Step({"partition": "closed"}, {"partition": "main"}),
    "account-refused": Step({"partition": "paid"}, {"account": "research"}),
    "too-much-memory": Step({"memory_mb": 900_000}, {"memory_mb": 400}),
    "no-such-node": Step({"cores": 99}, {"cores": 1}),
    "unknown-gres": Step({"gres": "fpga:1"}, {"gres": ""}),
    "unknown-feature": Step({"constraint": "quantum"}, {"constraint": ""}),
    "unknown-option": Step(directive("--bogus"), NO_DIRECTIVES),
    "unknown-licence": Step(directive("--licenses=matlab"), NO_DIRECTIVES),
    "dependency-failed": Step({**directive("--dependency=afterok:{failed}"), "queue_timeout_s": 20.0}, NO_DIRECTIVES),
    "dependency-waits": Step(directive("--dependency=afterany:{held}"), NO_DIRECTIVES),
    "reservation-gone": Step(directive("--reservation=nowhere"), NO_DIRECTIVES),
    "reservation-to-come": Step(
        directive("--reservation=later"),
        NO_DIRECTIVES,
        before=(
            "scontrol create reservation ReservationName=later StartTime=now+1hour Duration=60 Nodes=n1 Users=root",
        ),
    ),
    "begin-time": Step(directive("--begin=now+1hour"), NO_DIRECTIVES),
    "job-held": Step(directive("--hold"), NO_DIRECTIVES),
    "deadline": Step(directive("--deadline=now+10minutes"), NO_DIRECTIVES),
    "too-many-nodes": Step(
        {"partition": "short", "walltime": "00:01:00"},
        {"partition": "main"},
        before=("scontrol update PartitionName=short MaxNodes=0",),
    ),
    "maintenance": Step(
        WAITS,
        {"walltime": "00:05:00"},
        before=(
            "scontrol create reservation ReservationName=repair StartTime=now+30minutes Duration=60 Nodes=ALL "
            "Users=root Flags=MAINT",
        ),
    ),
    "nodes-busy": Step(
        {**WAITS, "cores": 2},
        {"cores": 1},
        before=("sbatch -o/dev/null -N16 --ntasks-per-node=7 --mem=100 --wrap 'sleep 600'",),
    ),
    "jobs-ahead": Step(
        WAITS,
        before=(
            "sbatch -o/dev/null -N1 --exclusive -t 10 --wrap 'sleep 600'",
            "sbatch -o/dev/null -N16 --exclusive --wrap 'sleep 600'",
        ),
        after=("scancel --user=root",),
    ),
    "nodes-away": Step(
        directive("--nodelist=n1"),
        before=("scontrol update NodeName=n1 State=DRAIN Reason=cooling",),
        after=("scontrol update NodeName=n1 State=RESUME",),
    ),
    "licences-busy": Step(
        {
            **directive("--licenses=tool:1"),
            "queue_timeout_s": 10.0,
        },  # seconds, until its reason is not Priority any more
        TWO_IN_A_JOB,
        workers=2,
        conf="Licenses=tool:1",
    ),
    "queue-full": Step({}, TWO_IN_A_JOB, workers=4, conf="MaxJobCount=4\nMinJobAge=2"),
    "submitted-jobs-limit": Step(FEW, TWO_IN_A_JOB, workers=2, limits="MaxSubmitJobsPerUser=1"),
    "running-jobs-limit": Step({**FEW, **WAITS}, TWO_IN_A_JOB, workers=2, limits="MaxJobsPerUser=1"),
    "use-limit": Step({**FEW, **WAITS}, {"qos": "normal"}, workers=2, limits="GrpTRES=cpu=1"),
    "usage-spent": Step({**FEW, **WAITS}, {"qos": "normal"}, limits="GrpTRESMins=cpu=0"),
    "remaining-time-limit": Step({**FEW, **WAITS}, {"walltime": "00:05:00"}, limits="GrpTRESRunMins=cpu=20"),
    "job-minutes-limit": Step({**FEW, **WAITS}, {"walltime": "00:05:00"}, limits="MaxTRESMinsPerJob=cpu=20"),
    "account-time-limit": Step({**FEW, **WAITS}, {"walltime": "00:05:00"}, limits="MaxWall=20"),
    "job-limit": Step({**FEW, **WAITS, "cores": 2}, {"cores": 1}, limits="MaxTRESPerJob=cpu=1"),
    "partition-not-allowed": Step(
        {**FEW, "partition": "short", "walltime": "00:01:00"},
        {"partition": "main"},
        before=("scontrol update PartitionName=short AllowQos=normal",),
        limits="MaxWall=20",
    ),
    # ------------------------------------------------------------------ jobs that ended
    "program-missing": Step({"python": "/opt/nowhere/bin/python"}, {"python": ""}),
    "not-executable": Step({"python": "/etc"}, {"python": ""}),
    "dask-missing": Step({"python": "{bare}"}, {"python": ""}),
    "import-failed": Step(prologue(f"{sys.executable} -c 'import nowhere' || exit 1"), {"prologue": ()}),
    "failed": Step(prologue("exit 3"), {"prologue": ()}),
    "interface-missing": Step(
        {"interface": "nope0", "scheduler_interface": "lo"}, {"interface": "lo", "scheduler_interface": "lo"}
    ),
    "out-of-memory": Step({"memory_mb": 100, **prologue(EATS_MEMORY)}, {"memory_mb": 800}),
    "permission-denied": Step({"local_directory": "/sys/nowhere"}, {"local_directory": ""}),
    "too-few-gpus": Step({"gpus": 2, **directive("--gres=gpu:1")}, NO_DIRECTIVES, workers=2),
    "node-lost": Step(
        prologue("scontrol update NodeName=$SLURMD_NODENAME State=DOWN Reason=broken; sleep 60"),
        {"exclude": "n1", "prologue": ()},
    ),
    "disk-full": Step({"local_directory": "{full_disk}"}, {"local_directory": ""}),
    "preempted": Step(
        prologue(
            "test $SLURM_JOB_PARTITION = high || sbatch -o/dev/null -p high -N2 --exclusive --wrap 'sleep 5'; sleep 8"
        ),
        {"partition": "high"},
        conf="PreemptType=preempt/partition_prio\nPreemptMode=CANCEL\nPartitionName=high Nodes=n[1-2] PriorityTier=9",
    ),
    "time-limit-reached": Step(
        {
            "walltime": "00:01:00",
            "start_timeout_s": 200.0,
            **prologue("test $(squeue -hj $SLURM_JOB_ID -o%l) != 1:00 || sleep 200"),
        },
        {"walltime": "01:00:00"},
    ),
}
# Why the next step of the others is not taken here.
NOT_TAKEN = {
    "passes by itself": "not-looked-at nodes-prepare nodes-power-up ending",
    "needs an administrator": "state-folder-full power-cap prolog-failed reconfiguration-failed launch-failed "
    "system-failure inactive",
    "only shows more": "unnamed-limit cancelled requeued forgotten",
    "needs what the small Slurm lacks": "burst-buffer federation",
    "needs nodes that are other hosts than ours": "scheduler-unreachable output-not-writable certificates-refused",
    "needs another release of Dask on the nodes": "unknown-argument",
    "ends workers that have come": "workers-left",
}
NO_LIMITS = [
    *(f"{name}=-1" for name in ("MaxSubmitJobsPerUser", "MaxJobsPerUser", "MaxWall")),
    *(f"{name}=cpu=-1" for name in ("GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "MaxTRESMinsPerJob", "MaxTRESPerJob")),
]


def test_each_failure_category_has_a_test_that_follows_its_next_step_or_a_reason_for_none() -> None:
    not_taken = [category for categories in NOT_TAKEN.values() for category in categories.split()]
    assert sorted([*STEPS, *not_taken]) == sorted(failures._TABLE)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "leases"))
    monkeypatch.setattr(waiting, "AGAIN_S", 0.3)


@pytest.fixture
def small(request: pytest.FixtureRequest, category: str) -> Any:
    """The Slurm of this step."""
    row = STEPS[category]
    if row.limits:
        slurm = request.getfixturevalue("in_limited")
        slurm.run("sacctmgr", "-i", "modify", "qos", "few", "set", *NO_LIMITS, row.limits)
        return slurm
    if row.conf:
        return request.getfixturevalue("site")(extra=row.conf)
    return request.getfixturevalue("in_slurm")


def without_packages(python: Path) -> Path:
    """An interpreter that lacks Dask."""
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o700)
    return python


@pytest.fixture
def asked(request: pytest.FixtureRequest, small: Any, tmp_path: Path, category: str) -> dict[str, Any]:
    """What the step's row asks for, with the names in braces filled in."""
    asked = json.dumps(STEPS[category].asked)
    makes = {
        "{held}": lambda: small.submit("--hold"),
        "{failed}": lambda: small.submit(command="false"),
        "{full_disk}": lambda: str(request.getfixturevalue("full_disk")),
        "{bare}": lambda: str(without_packages(tmp_path / "bare")),
    }
    for name, make in makes.items():
        if name in asked:
            asked = asked.replace(name, make())
    return dict(json.loads(asked))


@pytest.mark.thorough
@pytest.mark.parametrize("category", STEPS)
def test_workers_arrive_once_the_next_step_named_by_the_error_is_taken(
    opened: Opened, small: Any, asked: dict[str, Any], category: str
) -> None:
    row = STEPS[category]
    cluster = opened(**asked)
    object.__setattr__(cluster.spec, "require_room", lambda *given, **named: None)  # `sbatch` is to refuse the job
    for command in row.before:
        small.run(*shlex.split(command))
    with pytest.raises(ClusterError) as caught:
        cluster.scale(row.workers, 1)
    assert caught.value.category in (category, "queue-timeout"), caught.value
    told = failures._BY_CATEGORY[category].next_step.partition("{job}")[0].format_map(failures.CLUSTER_FIELDS)
    assert caught.value.next_step.startswith(told), caught.value
    for option in list(row.step)[:1]:
        assert f"cluster.{option}" in told
    cluster.close()
    for command in row.after:
        small.run(*shlex.split(command))
    opened(**{**asked, **row.step, "queue_timeout_s": 60.0}).scale(row.workers, 1)
