"""Facts of running and ended jobs, on a real Slurm; why workers are missing is in test_failures.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from support.waiting import wait_for

from scalescope.clusters.jobqueue.slurm_watch import JobWatch
from scalescope.leases import new_label
from scalescope.slurm import commands as slurm_commands
from scalescope.slurm import jobs as slurm_jobs

HOLDS_MEMORY = f"{sys.executable} -S -c 'import time; kept = bytearray(60 << 20); time.sleep(600)'"


def test_facts_of_jobs_are_read_from_squeue_and_sstat_where_slurm_keeps_no_accounting(
    in_slurm: Any, tmp_path: Path
) -> None:
    label = new_label()
    common = ("-J", label, f"--comment={label}", "--mem=200")
    running = in_slurm.submit(*common, "--gres=gpu:1", command=HOLDS_MEMORY)
    failed = in_slurm.submit(*common, command="exit 3")
    held = in_slurm.submit(*common, "--hold")
    in_slurm.submit("-J", label + "0")
    watch = JobWatch(label, log_directory=tmp_path, run=slurm_commands.commands())

    def measured() -> Any:
        watch.refresh()
        facts = watch.facts()
        jobs = {job["id"]: job for job in facts["jobs"]}
        ready = (jobs[running]["max_rss_bytes"] or 0) > 60 << 20 and jobs[failed]["state"] == "FAILED"
        return ready and (facts, jobs)

    facts, jobs = wait_for(measured, "the jobs are not measured")
    assert json.loads(json.dumps(facts)) == facts
    assert facts["source"] == "squeue and sstat"
    assert set(jobs) == {running, failed, held}
    assert 60 << 20 < jobs[running]["max_rss_bytes"] < 200 << 20
    assert jobs[running]["tres"]["cpu"] == "1"
    assert jobs[running]["nodes"] in facts["nodes"]
    assert 0 <= jobs[running]["queue_wait_s"] < 10
    assert jobs[running]["exit_code"] == ""
    assert (jobs[failed]["exit_code"], jobs[failed]["max_rss_bytes"]) == ("3:0", None)
    assert (jobs[held]["state"], jobs[held]["queue_wait_s"]) == ("PENDING", None)
    assert any("accounting storage is disabled" in text for text in facts["absent"])
    assert any("MaxRSS" in text for text in facts["absent"])


def test_cancelling_does_not_touch_a_job_with_another_label(in_slurm: Any) -> None:
    run = slurm_commands.commands()
    label = new_label()
    mine, foreign = in_slurm.submit("-J", label), in_slurm.submit("-J", label + "0")
    slurm_jobs.cancel([mine, foreign, "99999"], label, run=run)
    wait_for(lambda: mine not in in_slurm.run("squeue", "-h", "-o", "%i").split(), "it is not cancelled")
    assert in_slurm.run("squeue", "-h", "-o", "%i") == foreign
    slurm_jobs.cancel([mine], label, run=run)  # it has ended: no error
