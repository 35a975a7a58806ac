"""Every reason, refusal and state that Slurm has: each has a category of its own, or is shown as it stands."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from scalescope.errors import JobsEnded
from scalescope.slurm import failures, reasons, submission
from scalescope.slurm import jobs as slurm_jobs
from scalescope.slurm.commands import CommandSilent, commands
from scalescope.slurm.failures import CLUSTER_FIELDS, POOL_FIELDS, SlurmFailure
from scalescope.slurm.jobs import SlurmJob

LIBRARIES = sorted(Path("/usr/lib").glob("*/slurm*/libslurmfull.so"))
# Reasons of a kind of machine that Slurm dropped in 2018.
NOT_KNOWN = {"BlockMaxError", "BlockFreeAction"}
ENDS = {"node-lost", "system-failure", "output-not-writable", "failed", "time-limit-reached", "inactive", "deadline"}
ENDS |= {"out-of-memory"}


def strings(function: str, numbers: range) -> list[str]:
    """What the installed Slurm itself writes for each number."""
    if not LIBRARIES:
        pytest.skip("no Slurm on this machine")
    call = getattr(ctypes.CDLL(str(LIBRARIES[0])), function)
    call.restype = ctypes.c_char_p
    found = (str(call(number).decode()) for number in numbers)
    return [text for text in found if not text.isdigit() and not text.startswith("Unknown")]


def test_each_reason_of_the_installed_slurm_has_a_category_or_is_listed_as_unknown() -> None:
    found = strings("slurm_job_reason_string", range(400))
    assert len(found) > 190
    assert {name for name in found if not reasons.of_reason(name)} == NOT_KNOWN
    for name in found:
        failure = failures.waiting(name)
        assert (failure.category == "unknown-reason") is (name in NOT_KNOWN), name


def test_every_category_of_the_tables_is_explained_with_a_next_step() -> None:
    refusals = set(reasons._REFUSALS)
    for category in {*reasons.REASONS.values(), *refusals, *failures._NEVER, *failures._MAY_RETURN}:
        failure = failures._BY_CATEGORY[category]
        for fields in (CLUSTER_FIELDS, POOL_FIELDS):
            assert failure.cause
            assert "{" not in failure.step(fields, "7")


@pytest.mark.parametrize("resource", ["Cpu", "Mem", "Memory", "Node", "GRES", "License", "BB", "Energy", "Billing"])
def test_the_category_of_a_limit_follows_from_its_name(resource: str) -> None:
    """A limit applies to one job, to all running jobs, or to used time; its category must match."""
    known = {name: category for name, category in reasons.REASONS.items() if resource in name}
    assert known
    for name, category in known.items():
        if re.search(r"Per(Job|Node)|Min(?!utes)", name):
            assert category in ("job-limit", "job-minutes-limit"), name
            assert failures.never(name) is not None
        elif "RunMinutes" in name:
            assert category == "remaining-time-limit", name
        elif "Minutes" in name:
            assert category == "usage-spent", name
        elif name != "MaxMemPerLimit" and name != "OutOfMemory" and not name.startswith(("BurstBuffer", "NodeDown")):
            assert category in ("use-limit", "nodes-away", "too-many-nodes", "licences-busy"), name


def test_a_limit_is_called_a_time_limit_only_if_slurm_names_a_time() -> None:
    for name, category in reasons.REASONS.items():
        if category in ("time-limit-too-long", "account-time-limit"):
            assert re.search("Time|Wall", name), name
    for text in ("QOSMaxSubmitJobPerUserLimit", "AssocMaxSubmitJobLimit", "QOSGrpSubmitJobsLimit"):
        said = f"{text}; Batch job submission failed: {POLICY}"
        assert failures.refused(said).category == "submitted-jobs-limit"
    assert failures.refused(POLICY).category == "unnamed-limit"
    assert failures.refused(f"AssocMaxWallDurationPerJobLimit; {POLICY}").category == "account-time-limit"


POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize("reason", ["NewInSlurm99", "BlockMaxError", "checked by the site", "QOSMaxDreamsPerUser"])
def test_an_unknown_reason_gets_the_category_unknown_reason(reason: str) -> None:
    assert failures.waiting(reason).category == "unknown-reason"
    assert failures.never(reason) is None


def test_refusals_of_the_installed_slurm_get_the_matching_category() -> None:
    """The list has all errors of Slurm; most belong to other commands."""
    known = {text: category for text in strings("slurm_strerror", range(2000, 2200)) if (category := _refused(text))}
    assert len(known) >= 36
    words = {
        "queue-full": "create job record",
        "state-folder-full": "I/O error writing",
        "unknown-partition": "partition",
        "partition-not-allowed": "not (permitted|in this partition)",
        "partition-closed": "partition not available|DOWN state|submissions disabled",
        "too-many-nodes": "Node count",
        "no-such-node": "node|processors|CPU|configuration",
        "unknown-gres": "gres|TRES",
        "too-much-memory": "Memory",
        "unknown-licence": "license",
        "time-limit-too-long": "time limit is invalid",
        "account-refused": "account|qos|wckey",
        "unknown-feature": "feature",
        "reservation-gone": "reservation",
        "dependency-failed": "dependency",
        "unnamed-limit": "policy",
        "burst-buffer": "Burst",
        "unknown-option": "Invalid --",
    }
    for text, category in known.items():
        assert re.search(words[category], text, re.IGNORECASE), (category, text)


def _refused(text: str) -> str:
    found: SlurmFailure = failures.refused(text)
    return "" if found.category == "refused" else found.category


def test_each_state_of_an_ended_job_has_a_category() -> None:
    for state in (*slurm_jobs.ENDED, slurm_jobs.FORGOTTEN, slurm_jobs.COMPLETING):
        assert failures.ended(SlurmJob("7", "name", state)).category != "unknown-state", state
    assert failures.ended(SlurmJob("7", "name", "NEW_IN_99")).category == "unknown-state"
    for reason, category in (("SystemFailure", "system-failure"), ("InactiveLimit", "inactive")):
        assert failures.ended(SlurmJob("7", "name", "FAILED", reason, exit_code="1:0")).category == category
    for name, category in reasons.REASONS.items():
        assert category not in ENDS or failures.never(name) is None, name  # it was requeued


def test_a_failed_prolog_is_named_and_its_job_is_not_replaced() -> None:
    nodes = {"n1": ("drained", "Prolog error")}
    failure = failures.ended(SlurmJob("7", "name", "CANCELLED"), nodes=nodes)
    assert (failure.category, failure.may_return) == ("prolog-failed", False)
    assert "n1" in failure.cause
    assert failures.ended(SlurmJob("7", "name", "TIMEOUT"), nodes=nodes).category == "time-limit-reached"


def test_a_host_without_munged_counts_as_silent_and_names_munge(tmp_path: Path) -> None:
    error = "Munge encode failed: Failed to access /run/munge/munge.socket.2: No such file (Did you start munged?)"

    def run(command: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", f"sbatch: error: {error}")

    with pytest.raises(CommandSilent) as caught:
        submission.submit("#!/bin/sh\n", run=run)
    assert "munged" in caught.value.next_step


# ------------------------------------------------------------------ what sbatch writes while it waits


def test_messages_of_sbatch_are_read_even_after_its_timeout(tmp_path: Path) -> None:
    for written, timeout_s, category in (
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", 60, "queue-full"),
        ("sbatch: error: Slurm job queue full, sleeping and retrying.", 60, "queue-full"),
        ("sbatch: error: MaxJobCount limit reached", 1, "queue-full"),
        ("", 1, ""),
    ):
        program = tmp_path / "sbatch"
        program.write_text(f"#!/bin/sh\necho '{written}' >&2\nexec sleep 20\n")
        program.chmod(0o700)
        run = commands(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"}, timeout_s=timeout_s)
        with pytest.raises(JobsEnded if category else CommandSilent) as caught:
            submission.submit("#!/bin/sh\n", run=run)
        if category:
            assert caught.value.category == category
            assert isinstance(caught.value, JobsEnded)
            assert caught.value.may_return


@pytest.mark.parametrize(
    ("error", "category"),
    [
        ("Batch job submission failed: I/O error writing script/environment to file", "state-folder-full"),
        ("Batch job submission failed: Resource temporarily unavailable", ""),
        ("Batch job submission failed: Unable to contact slurm controller (connect failure)", ""),
    ],
)
def test_a_controller_that_answers_with_an_error_does_not_count_as_silent(error: str, category: str) -> None:
    def run(command: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", f"sbatch: error: {error}")

    with pytest.raises(JobsEnded if category else CommandSilent) as caught:
        submission.submit("#!/bin/sh\n", run=run)
    assert not category or caught.value.category == category


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:30", 1830),
        ("1:00:00", 3600),
        ("1-12", 129600),
        ("2-01:30:00", 178200),
        ("0:45", 45),
        ("UNLIMITED", float("inf")),
        ("Partition_Limit", None),
        ("", None),
    ],
)
def test_time_limits_are_read_as_slurm_writes_them(text: str, seconds: float | None) -> None:
    assert slurm_jobs.seconds(text) == seconds
