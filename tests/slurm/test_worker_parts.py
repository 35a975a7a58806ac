"""Parts of the work pool's worker, without Slurm or a Prefect server: configuration, texts, output."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from prefect.workers.base import BaseWorker
from pydantic import ValidationError

from scalescope.slurm import job_output, job_queue
from scalescope.slurm.job_output import JobOutput
from scalescope.slurm.jobs import SlurmJob
from scalescope_flows.work_pools.slurm.configuration import SlurmJobConfiguration, job_name
from scalescope_flows.work_pools.slurm.worker import SlurmWorker

RUN = UUID("12345678-1234-5678-1234-567812345678")


TAKEN = (
    *("gres=gpu:1", "--qos=a\nrm -r /", "--array=1-9", "--wait", "-o/dev/null", "-J x", "--nice=1 --array=1-999"),
    *("--job-n=z", "-HJz", "-A x -Jz", "-Nx script.sh", "--exclusive script.sh", "-- script.sh", "--version"),
    "--comment='unclosed",
)


def configured(**given: Any) -> SlurmJobConfiguration:
    configuration = SlurmJobConfiguration(**given)
    flow_run = SimpleNamespace(id=RUN, name="eager-otter", flow_id=None, deployment_id=None)
    flow_run.model_dump = lambda **_: {}
    configuration.prepare_for_flow_run(flow_run)  # type: ignore[arg-type]
    return configuration


class TestConfiguration:
    def test_prefect_finds_the_slurm_worker_by_its_type(self) -> None:
        assert BaseWorker.get_worker_class_from_type("slurm") is SlurmWorker

    def test_the_job_template_has_every_field_with_a_description(self) -> None:
        template = SlurmWorker.get_default_base_job_template()
        wanted = {"partition", "account", "qos", "gres", "time_limit", "memory", "cpus", "nodes", "constraint", "env"}
        assert wanted <= set(template["variables"]["properties"])
        assert template["job_configuration"]["gres"] == "{{ gres }}"
        ours = set(SlurmJobConfiguration.__annotations__)
        assert all(template["variables"]["properties"][name]["description"] for name in ours)

    def test_default_job_options_request_few_resources(self) -> None:
        options = configured().options(RUN)
        assert f"--job-name={job_name(RUN)}" in options
        assert f"--comment=prefect:{RUN} eager-otter" in options
        assert {"--time=04:00:00", "--mem=2G", "--cpus-per-task=1", "--export=ALL", "--no-requeue"} <= set(options)
        assert not [o for o in options if o.startswith(("--partition", "--account", "--qos", "--gres", "--chdir"))]

    def test_every_field_becomes_an_sbatch_option(self, tmp_path: Path) -> None:
        given = {"partition": "p", "account": "a", "qos": "q", "gres": "gpu:1", "constraint": "x&y", "memory": "3G"}
        given |= {"time_limit": "1-00:00:00", "log_directory": f"{tmp_path}/a%b", "working_dir": "/srv"}
        options = configured(**given, cpus=4, nodes=2, directives=["--mail-user=a@b", "-w 'n1 n2'"]).options(RUN)
        shown = ["partition=p", "account=a", "qos=q", "gres=gpu:1", "constraint=x&y", "mem=3G", "time=1-00:00:00"]
        shown += ["cpus-per-task=4", "nodes=2", "chdir=/srv", f"output={tmp_path}/a%%b/{RUN}-%j.log"]
        assert {f"--{each}" for each in shown} < set(options)
        assert options[-3:] == ["--mail-user=a@b", "-w", "n1 n2"]

    def test_the_job_script_ends_with_the_command_of_the_flow_run(self) -> None:
        lines = configured(prologue=["module load cuda"]).script().splitlines()
        assert lines[:2] == ["#!/bin/bash", "module load cuda"]
        assert lines[-1].startswith("exec /")
        assert lines[-1].endswith(" -m prefect flow-run execute")
        assert configured(command="sleep 1").script().splitlines()[-1] == "exec sleep 1"

    def test_secrets_are_passed_only_in_the_environment(self) -> None:
        configuration = configured(env={"TOKEN": "hush", "GONE": None})
        assert "hush" not in configuration.script() + " ".join(configuration.options(RUN))
        inherited = {"HOME": "/h", "SLURM_JOB_ID": "7", "SLURM_MEM_PER_CPU": "1", "SLURM_CONF": "/c"}
        environ = job_queue.submission_environment(inherited, configuration.env)
        assert environ["TOKEN"] == "hush"
        assert environ["PREFECT__FLOW_RUN_ID"] == str(RUN)
        assert environ["PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR"] == "reschedule"
        assert {"HOME", "SLURM_CONF"} <= set(environ)
        assert not {"SLURM_JOB_ID", "SLURM_MEM_PER_CPU", "GONE"} & set(environ)

    @pytest.mark.parametrize(
        "given",
        [
            *({"time_limit": "soon"}, {"memory": "much"}, {"cpus": 0}, {"nodes": 0}),
            *({"directives": [line]} for line in TAKEN),
        ],
    )
    def test_an_invalid_job_configuration_is_refused(self, given: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            SlurmJobConfiguration(**given)

    def test_options_that_resemble_reserved_ones_are_accepted(self) -> None:
        SlurmJobConfiguration(directives=["--export-none-such", "--wait-all-nodes=1", "-A x", "--exclusive"])


class TestEndOfJob:
    def test_a_completed_job_has_status_zero(self) -> None:
        assert job_queue.end(SlurmJob(id="1", name="x", state="COMPLETED", exit_code="0:0")).status == 0

    @pytest.mark.parametrize(
        ("state", "exit_code", "status", "category"),
        [
            ("TIMEOUT", "0:15", 143, "time-limit-reached"),
            ("OUT_OF_MEMORY", "0:125", 253, "out-of-memory"),
            ("CANCELLED", "0:15", 143, "cancelled"),
            ("NODE_FAIL", "0:0", 1, "node-lost"),
            ("PREEMPTED", "0:0", 1, "preempted"),
            ("FAILED", "3:0", 3, "failed"),
            ("FAILED", "97:0", 97, "failed"),  # 97 has no special meaning here
            ("FAILED", "127:0", 127, "program-missing"),
            ("FAILED", "0:9", 137, "out-of-memory"),
            ("FAILED", "0:53", 181, "output-not-writable"),
            ("FAILED", "", 1, "failed"),
            (job_queue.FORGOTTEN, "", 1, "forgotten"),
        ],
    )
    def test_every_other_end_of_a_job_has_a_status_a_category_and_a_next_step(
        self, state: str, exit_code: str, status: int, category: str
    ) -> None:
        how = job_queue.end(SlurmJob(id="12", name="x", state=state, exit_code=exit_code, nodes="n3"))
        assert (how.status, how.category) == (status, category)
        assert how.text.startswith(f"Slurm job 12 on n3 ended: {state}")
        assert "Next: " in how.text
        assert "cluster." not in how.text


class TestProgressOfJob:
    @pytest.mark.parametrize("reason", ["", "Resources", "Priority", "PartitionDown", "JobHeldUser", "BeginTime"])
    def test_a_pending_job_with_a_temporary_reason_can_start(self, reason: str) -> None:
        job = SlurmJob(id="1", name="x", state="PENDING", reason=reason, partition="p")
        assert job_queue.cannot_start(job) == ""
        assert job_queue.progress(job).startswith("Slurm job 1 waits")

    def test_a_job_beyond_the_time_limit_of_its_partition_cannot_start(self) -> None:
        text = job_queue.cannot_start(SlurmJob(id="1", name="x", state="PENDING", reason="PartitionTimeLimit"))
        assert "PartitionTimeLimit" in text
        assert "`time_limit`" in text
        assert "cluster." not in text

    def test_the_progress_of_a_running_job_names_its_node(self) -> None:
        job = SlurmJob(id="1", name="x", state="RUNNING", reason="PartitionTimeLimit", nodes="n1")
        assert job_queue.cannot_start(job) == ""
        assert job_queue.progress(job) == "Slurm job 1 is RUNNING on n1"


class TestOutputOfJob:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "run-1.log"

    def test_output_lines_are_logged_once_they_are_complete(self, path: Path) -> None:
        told: list[str] = []
        follower = JobOutput(path, told.append)
        follower.follow()
        path.write_text("one\ntwo\nthr")
        follower.follow()
        assert told == ["one", "two"]
        path.write_text("one\ntwo\nthree\nlast")
        follower.follow()
        follower.follow(to_end=True)
        assert told == ["one", "two", "three", "last"]
        assert list(path.parent.iterdir()) == [path]

    def test_a_second_reader_continues_where_the_first_ended(self, path: Path) -> None:
        path.write_text("one\n")
        JobOutput(path, lambda line: None).follow()
        path.write_text("one\ntwo\n")
        told: list[str] = []
        JobOutput(path, told.append).follow()
        assert told == ["two"]

    def test_lines_that_the_flow_logged_itself_are_not_logged_again(self, path: Path) -> None:
        lines = ["12:00:00.123 | INFO    | Flow run 'otter' - hello", "12:00:00.123 | INFO    | prefect.x - other"]
        lines += ["12:00:00.123 | ERROR   | Task run 'a-1' - no", "printed", "", "bytes \udcff"]
        path.write_bytes("\n".join(lines).encode(errors="surrogateescape"))
        told: list[str] = []
        JobOutput(path, told.append).follow(to_end=True)
        assert told == [lines[1], "printed", "bytes \N{REPLACEMENT CHARACTER}"]

    def test_tracebacks_that_the_flow_logged_itself_are_not_logged_again(self, path: Path) -> None:
        own = ["12:00:00.123 | ERROR   | Flow run 'otter' - Encountered an exception"]
        own += ["Traceback (most recent call last):", '  File "x"', "    raise", "ValueError: no", ""]
        own += ["During handling of the above exception, another exception occurred:", ""]
        own += ["Traceback (most recent call last):", '  File "x"', "KeyError: 1"]
        others = ["printed", "  indented", "Traceback (most recent call last):", '  File "y"', "OSError: gone"]
        path.write_text("\n".join(own + others))
        told: list[str] = []
        JobOutput(path, told.append).follow(to_end=True)
        assert told == others

    def test_output_beyond_the_limit_is_cut_with_the_path_of_the_file(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job_output, "MOST_BYTES", 1000)
        monkeypatch.setattr(job_output, "_AT_ONCE", 300)
        path.write_text("0123456789\n" * 1000)
        told: list[str] = []
        JobOutput(path, told.append).follow(to_end=True)
        assert len(told) < 120
        assert str(path) in told[-1]

    def test_the_tail_of_the_output_is_its_last_lines_that_are_not_empty(self, path: Path) -> None:
        assert JobOutput(path, print).tail() == ""
        path.write_text("".join(f"line {i}\n\n" for i in range(5000)))
        assert JobOutput(path, print).tail(2) == "line 4998\nline 4999"
