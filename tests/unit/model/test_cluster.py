from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.clusters.custom.spec import CustomSpec
from scalescope.clusters.gateway.spec import GatewaySpec
from scalescope.clusters.jobqueue.base_spec import JobQueueSpec
from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec
from scalescope.clusters.jobqueue.systems import HtcondorSpec, PbsSpec
from scalescope.clusters.scheduler.spec import SchedulerSpec
from scalescope.clusters.ssh.spec import SshSpec
from scalescope.errors import InvalidField
from scalescope.model.cluster import ClusterSpec, cluster_spec
from scalescope.model.sweep import Sweep
from scalescope.redaction import know
from scalescope.workloads import load

SPECS: list[ClusterSpec] = [
    SlurmSpec(
        partition="gpu,long",
        account="team",
        qos="high",
        walltime="1-02:30:00",
        memory_mb=64_000,
        gpus=4,
        gres="gpu:h200,nvme:1",
        constraint="ib&[a100*2|h100]",
        exclude="n[1-3],gpu7",
        interface="ib0",
        local_directory="${SCRATCH}/dask",
        prologue=("module load cuda", "source /opt/env/bin/activate"),
        directives_add=("--nice=100",),
        lifetime_s=3600,
        lifetime_stagger_s=600,
    ),
    PbsSpec(memory_mb=4_000, queue="workq", resource_spec="select=1:ncpus=4:mem=4gb"),
    HtcondorSpec(memory_mb=4_000, directives_add=("+Group = physics",)),
    SshSpec(hosts=("node1", "node2", "10.0.0.7"), username="me", port=2222),
    SchedulerSpec(address="tls://10.0.0.7:8786", tls_ca_file="ca.pem", tls_cert="c.pem", tls_key="k.pem"),
    CustomSpec(cluster_class="a.b:Cluster", arguments={"n": [1, {"x": None}]}, secrets={"token": "MY_TOKEN"}),
    GatewaySpec(address="https://hub/gateway", auth="jupyterhub", secrets={"api_token": "MY_TOKEN"}, options={"n": 1}),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_a_cluster_specification_survives_json(spec: ClusterSpec) -> None:
    assert cluster_spec(json.loads(json.dumps(spec.to_mapping()))) == spec


def test_lists_and_mappings_of_a_specification_can_be_given_as_text() -> None:
    assert cluster_spec({"kind": "slurm", "prologue": "module load a\nmodule load b"}) == SlurmSpec(
        prologue=("module load a", "module load b")
    )
    assert cluster_spec({"kind": "ssh", "hosts": "a,b"}) == SshSpec(hosts=("a", "b"))
    assert cluster_spec({"kind": "custom", "cluster_class": "a:B", "arguments": '{"n": 1}'}) == CustomSpec(
        cluster_class="a:B", arguments={"n": 1}
    )
    assert SlurmSpec(account=4711).account == "4711"  # type: ignore[arg-type]  # as a command line gives it


@pytest.mark.parametrize(
    ("walltime", "seconds"),
    [("30", 1800), ("30:15", 1815), ("100:00:00", 360_000), ("2-12", 216_000), ("1-02:03:04", 93_784)],
)
def test_walltime_is_converted_to_seconds_as_slurm_reads_it(walltime: str, seconds: float) -> None:
    assert SlurmSpec(walltime=walltime).walltime_s == seconds


@given(st.integers(1, 10**7))
def test_slurm_and_pbs_read_the_same_walltime_alike(seconds: int) -> None:
    clock = f"{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
    assert SlurmSpec(walltime=clock).walltime_s == PbsSpec(memory_mb=1, walltime=clock).walltime_s == seconds


@pytest.mark.parametrize("walltime", ["", "soon", "0", "00:00:00", "1:2:3:4", "1-25:00:00", "10:61", "-5", 36000, None])
def test_a_walltime_that_slurm_could_not_read_is_refused(walltime: Any) -> None:
    with pytest.raises(InvalidField, match=r"cluster\.walltime"):
        SlurmSpec(walltime=walltime)


HOSTILE = ["a b", "a;rm -rf ~", "$(reboot)", "`id`", "a\nb", "a'b", 'a"b', "-x", "a>b"]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(
    "name",
    [
        *("partition", "account", "qos", "gres", "constraint", "exclude", "interface", "scheduler_interface"),
        *("local_directory", "shared_directory", "python"),
    ],
)
def test_characters_that_a_shell_or_sbatch_interprets_are_refused_in_slurm_fields(name: str, value: str) -> None:
    with pytest.raises(InvalidField, match=rf"cluster\.{name}"):
        SlurmSpec(**{name: value})


def test_a_slurm_job_has_one_worker_per_gpu_unless_workers_per_job_is_given() -> None:
    assert SlurmSpec().job_workers == 1
    assert SlurmSpec(gpus=4).job_workers == 4
    assert SlurmSpec(workers_per_job=8).job_workers == 8
    assert SlurmSpec().arrival_limit_s == 3600 + 180 + 600  # seconds; the last 600 s allow for an absent controller


def test_more_threads_than_cores_per_job_are_refused_before_submission() -> None:
    spec: JobQueueSpec = SlurmSpec(workers_per_job=4, cores=8)
    spec.check_size(100, 2)
    with pytest.raises(InvalidField, match="at least 12"):
        spec.check_size(100, 3)
    sweep = Sweep.from_mapping(
        {"workload": "futures-map", "cluster": spec.to_mapping(), "axes": {"workers": 4, "threads_per_worker": [2, 3]}}
    )
    with pytest.raises(InvalidField, match=r"cluster\.cores"):
        sweep.expand(load("futures-map"))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"gpus": 2, "workers_per_job": 8}, "every worker has a GPU of its own"),
        ({"gpus": 2, "processes": 1}, "a process sees only the GPU of its worker"),
        ({"gres": "gpu:2"}, "cluster.gpus says how many"),
        ({"gres": "gpu:h200:2", "gpus": 2}, "cluster.gpus says how many"),
        ({"gres": "gpu:h200"}, "at least 1 together with cluster.gres = 'gpu:h200', got 0"),
        ({"workers_per_job": 2, "processes": 4}, "a process without a worker has nothing to do"),
        ({"lifetime_s": 3600, "walltime": "30"}, "at most the walltime of 1800 s"),
        ({"lifetime_s": 10, "lifetime_stagger_s": 20}, "at most cluster.lifetime_s"),
        ({"memory_mb": -1}, "cluster.memory_mb"),
        ({"workers_per_job": 1.5}, "a whole number"),
        ({"prologue": [""]}, "a line of text"),
        ({"directives_add": ["--nice=1\n#SBATCH --exclusive"]}, "a line of text"),
        ({"directives_add": ["--nice=1 --array=1-999"]}, "write one option per line"),
        ({"directives_add": ["--arr=1-999"]}, "could not track the job"),
        ({"tls": "yes"}, "true or false"),
        ({"queue": "gpu"}, "unknown name; expected one of account"),
        ({"partion": "gpu"}, "did you mean 'partition'"),
        ({"kind": "pbs"}, "jobs of pbs must request memory"),
        ({"kind": "htcondor", "memory_mb": 1, "directives_add": ["x"]}, "NAME = VALUE"),
        ({"kind": "ssh"}, "at least one machine"),
        ({"kind": "ssh", "hosts": ["a b"]}, "names or addresses"),
        ({"kind": "ssh", "hosts": ["a"], "port": 70_000}, "cluster.port"),
        ({"kind": "ssh", "hosts": ["a"], "python": "python; reboot"}, "cluster.python"),
        ({"kind": "scheduler"}, "or else cluster.scheduler_file"),
        ({"kind": "scheduler", "address": "tcp://a:1", "scheduler_file": "f"}, "or else cluster.scheduler_file"),
        ({"kind": "scheduler", "address": "10.0.0.7"}, "PROTOCOL://HOST:PORT"),
        ({"kind": "scheduler", "address": "tls://a:1", "tls_cert": "c"}, "all three TLS files"),
        ({"kind": "custom"}, "package.module:Class"),
        ({"kind": "custom", "cluster_class": "os.system"}, "package.module:Class"),
        ({"kind": "custom", "cluster_class": "a:B", "arguments": "{"}, "a mapping with values that JSON can hold"),
        ({"kind": "custom", "cluster_class": "a:B", "arguments": [1]}, "a mapping"),
        ({"kind": "custom", "cluster_class": "a:B", "arguments": {"password": "x"}}, "looks like a secret"),
        ({"kind": "custom", "cluster_class": "a:B", "secrets": {"t": "two words"}}, "environment variable"),
        ({"kind": "custom", "cluster_class": "a:B", "arguments": {"t": 1}, "secrets": {"t": "T"}}, "not in"),
        ({"kind": "gateway", "auth": "basic", "secrets": {"api_token": "T"}}, "password with cluster.auth=basic"),
        ({"kind": "gateway", "username": "me"}, "basic, since"),
        ({"kind": "gateway", "address": "https://me:hunter2@hub"}, "got '(not shown)'"),
        ({"kind": "gateway", "options": {"db_password": "x"}}, "looks like a secret"),
    ],
)
def test_an_invalid_cluster_field_is_refused_with_a_reason(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidField) as caught:
        cluster_spec({"kind": "slurm", **fields})
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"api_token": "hunter2"}, "api_token"),
        ({"options": {"dbPassword": "hunter2"}}, "options.dbPassword"),
        ({"environ": [{"a": 1}, {"name": "DB_PASSWORD", "value": "hunter2"}]}, "environ.1.value"),
        ({"store": "postgresql://me:hunter2@db/x"}, "store"),
        ({"env": ["PGPASSWORD=hunter2"]}, "env.0"),
        ({"extra": {"args": "--secret-key hunter2 --token=hunter2"}}, "extra.args"),
        ({"pem": "-----BEGIN RSA PRIVATE KEY-----\nhunter2"}, "pem"),
        ({"id": "AKIAIOSFODNN7EXAMPLE", "x": "hunter2"}, "id"),
        ({"headers": {"Authorization": "Bearer hunter2"}}, "headers.Authorization"),
        ({"known": "of hunter2"}, "known"),
        ('{"password": "hunter2"', ""),
        (["hunter2"], ""),
    ],
)
def test_a_secret_in_cluster_arguments_is_refused_without_showing_it(
    arguments: Any, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "hunter2")
    know()
    with pytest.raises(InvalidField) as caught:
        CustomSpec(cluster_class="a:B", arguments=arguments)
    assert "hunter2" not in f"{caught.value} {caught.value.__dict__}"
    assert caught.value.field == f"cluster.arguments.{where}".rstrip(".")


def test_cluster_arguments_without_secrets_are_accepted() -> None:
    arguments = {"image": "a/b:c", "scheduler": "tls://host:8786", "use_token": False, "tags": {"a": [1, None, "k=v"]}}
    assert CustomSpec(cluster_class="a:B", arguments=arguments).arguments == arguments


def test_secrets_are_inserted_into_nested_arguments_without_replacing_any() -> None:
    given = {"a": {"b": 1}}
    spec = CustomSpec(cluster_class="a:B", arguments=given, secrets={"a.c.d": "ONE", "e": "TWO"})
    assert spec.arguments_with({"a.c.d": "1", "e": "2"}) == {"a": {"b": 1, "c": {"d": "1"}}, "e": "2"}
    assert spec.arguments == given
    for taken in ("a", "a.b", "a.b.c"):
        with pytest.raises(InvalidField, match="that is not in"):
            CustomSpec(cluster_class="a:B", arguments=given, secrets={taken: "ONE"})


@pytest.mark.parametrize("name", ["adaptive", "minimum_jobs"])
@pytest.mark.parametrize("kind", ["slurm", "pbs", "local"])
def test_adaptive_scaling_is_refused_with_the_reason(kind: str, name: str) -> None:
    with pytest.raises(InvalidField, match="exactly the workers") as caught:
        cluster_spec({"kind": kind, name: 4, "memory_mb": 100})
    assert caught.value.field == f"cluster.{name}"
    assert "axis `workers`" in caught.value.next_step
