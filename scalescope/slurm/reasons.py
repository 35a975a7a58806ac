"""All of Slurm's reasons and refusals, each with the category that `failures` explains.

Reasons: `job_reason_string` of Slurm 22.05.8, and `job_state_reason.c` of the releases up to 25.05. Refusals:
the texts of `slurm_strerror` of 22.05.8 that sbatch can meet. A text that is in no table is shown unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# ------------------------------------------------------------------ reasons of jobs

_OF_JOBS = {
    "not-looked-at": "None SchedDefer",
    "nodes-busy": "Resources",
    "jobs-ahead": "Priority",
    "nodes-away": "ReqNodeNotAvail FrontEndDown PartitionConfig",
    "nodes-prepare": "Prolog Cleaning",
    "nodes-power-up": "CONFIGURING POWER_UP_NODE",  # states of jobs, for which Slurm gives no reason
    "burst-buffer": "BurstBufferResources BurstBufferStageIn BurstBufferOperation",
    "power-cap": "PowerNotAvail PowerReserved",
    "reservation-to-come": "Reservation",
    "begin-time": "BeginTime",
    "dependency-waits": "Dependency",
    "licences-busy": "Licenses",
    "federation": "FedJobLock",
    "running-jobs-limit": "AssociationJobLimit QOSJobLimit QOSGrpJobsLimit AssocGrpJobsLimit AssocMaxJobsLimit "
    "QOSMaxJobsPerUserLimit MaxJobsPerAccount JobArrayTaskLimit",
    "submitted-jobs-limit": "QOSGrpSubmitJobsLimit AssocGrpSubmitJobsLimit QOSMaxSubmitJobPerUserLimit "
    "AssocMaxSubmitJobLimit MaxSubmitJobsPerAccount",
    "use-limit": "AssociationResourceLimit QOSResourceLimit AccountingPolicy QOSGrpCpuLimit QOSGrpMemLimit "
    "QOSGrpNodeLimit AssocGrpCpuLimit AssocGrpMemLimit AssocGrpNodeLimit QOSMaxCpuPerUserLimit QOSMaxNodePerUserLimit",
    "usage-spent": "QOSUsageThreshold QOSGrpCPUMinutesLimit QOSGrpWallLimit AssocGrpCPUMinutesLimit AssocGrpWallLimit",
    "remaining-time-limit": "QOSGrpCPURunMinutesLimit AssocGrpCPURunMinutesLimit",
    "job-limit": "QOSMaxCpuPerJobLimit QOSMaxNodePerJobLimit AssocMaxCpuPerJobLimit AssocMaxNodePerJobLimit "
    "QOSMinCpuNotSatisfied QOSMinUnknown QOSMinMemory QOSMinNode QOSMinEnergy QOSMinGRES QOSMinLicense QOSMinBB "
    "QOSMinBilling",
    "job-minutes-limit": "QOSMaxCpuMinutesPerJobLimit AssocMaxCpuMinutesPerJobLimit",
    "time-limit-too-long": "PartitionTimeLimit",
    "account-time-limit": "AssociationTimeLimit QOSTimeLimit QOSMaxWallDurationPerJobLimit "
    "AssocMaxWallDurationPerJobLimit",
    "too-much-memory": "MaxMemPerLimit",
    "too-many-nodes": "PartitionNodeLimit",
    "partition-closed": "PartitionDown PartitionInactive",
    "account-refused": "InvalidAccount InvalidQOS QOSNotAllowed AccountNotAllowed",
    "no-such-node": "BadConstraints Constraints",
    "dependency-failed": "DependencyNeverSatisfied",
    "reservation-gone": "ReservationDeleted ReservationInvalid",
    "job-held": "JobHeldAdmin JobHeldUser JobHoldMaxRequeue",
    # reasons of jobs that ended
    "node-lost": "NodeDown",
    "system-failure": "SystemFailure",
    "output-not-writable": "JobLaunchFailure",
    "failed": "NonZeroExitCode RaisedSignal",
    "time-limit-reached": "TimeLimit",
    "inactive": "InactiveLimit",
    "deadline": "DeadLine",
    "out-of-memory": "OutOfMemory",
}
# Limits of each trackable resource, which Slurm names by the same pattern.
_RESOURCES = "Billing BB Cpu Energy GRES License Mem Memory Node Unknown"
_LIMITS = {
    "use-limit": "AssocGrp{} QOSGrp{} QOSMax{}PerUser Max{}PerAccount",
    "usage-spent": "AssocGrp{}Minutes QOSGrp{}Minutes",
    "remaining-time-limit": "AssocGrp{}RunMinutes QOSGrp{}RunMinutes",
    "job-limit": "AssocMax{0}PerJob AssocMax{0}PerNode QOSMax{0}PerJob QOSMax{0}PerNode",
    "job-minutes-limit": "AssocMax{}MinutesPerJob QOSMax{}MinutesPerJob",
}
REASONS: Mapping[str, str] = {
    **{
        name.format(resource): category
        for category, names in _LIMITS.items()
        for name in names.split()
        for resource in _RESOURCES.split()
    },
    **{name: category for category, names in _OF_JOBS.items() for name in names.split()},
}
# Sentences that Slurm shows in place of a reason.
_SENTENCES = (
    (r"^Nodes required for job are DOWN, DRAINED", "nodes-away"),
    (r"requeued held|held state", "job-held"),
    (r"not permitted to use this partition|can't use this partition", "partition-not-allowed"),
    (r"^QOS not permitted|QOS is not", "account-refused"),
)

# ------------------------------------------------------------------ refusals of sbatch

_REFUSALS = {
    "queue-full": (
        "Slurm temporarily unable to accept job",
        "Slurm job queue full",
        "MaxJobCount limit reached",
        "Unable to create job record",
    ),
    "state-folder-full": ("I/O error writing script/environment to file",),
    "unknown-partition": (
        "invalid partition specified",
        "Invalid partition name specified",
        "No partition specified or system default partition",
    ),
    "partition-not-allowed": ("User's group not permitted to use this partition",),
    "partition-closed": ("Required partition not available", "Partition in DOWN state", "System submissions disabled"),
    "too-many-nodes": ("Node count specification invalid",),
    "no-such-node": (
        "Requested node configuration is not available",
        "Requested partition configuration not available now",
        "More processors requested than permitted",
        "Requested more tasks than available processors",
        "CPU count specification invalid",
        "CPU count per node can not be satisfied",
        "Invalid node name specified",
        "Requested nodes not in this part",
        "Required node not available",
    ),
    "unknown-gres": (
        "Invalid generic resource (gres) specification",
        "Invalid GRES specification",
        "Duplicate generic resource (gres) specification",
        "Invalid Trackable RESource (TRES) specification",
        "Requested GRES option unsupported",
    ),
    "too-much-memory": ("Memory specification can not be satisfied", "Memory required by task is not available"),
    "unknown-licence": ("Invalid license specification",),
    "time-limit-too-long": ("Requested time limit is invalid",),
    "account-refused": (
        "Invalid account or account/partition combination",
        "Invalid qos specification",
        "Requested account has breached requested QOS",
        "Invalid wckey specification",
        "--account",  # words of a site's plugin
    ),
    "unknown-feature": ("Invalid feature specification", "Invalid preferred feature specification"),
    "reservation-gone": ("Requested reservation is invalid", "Access denied to requested reservation"),
    "dependency-failed": ("Job dependency problem", "Circular job dependency"),
    "unnamed-limit": ("Job violates accounting/QOS policy",),
    "burst-buffer": ("Burst Buffer resource limit exceeded", "Burst Buffer request invalid", "Burst Buffer permission"),
    "unknown-option": ("unrecognized option", "invalid option", "unknown option", "Invalid --", "ambiguous option"),
}


def of_reason(reason: str) -> str:
    """The category of a reason of a waiting or ended job; empty if it is not known."""
    if not reason:
        return "not-looked-at"
    if found := next((category for form, category in _SENTENCES if re.search(form, reason)), ""):
        return found
    name = re.match(r"\w+", reason)
    return REASONS.get(name[0], "") if name else ""


def of_refusal(said: str) -> str:
    """The category of what sbatch wrote, by a reason that its text names, else by its sentence; empty if unknown."""
    names = (name for name in re.findall(r"\w+", said) if re.search(r"[a-z][A-Z]|^[A-Z]{2}", name))
    if found := next((REASONS[name] for name in names if name in REASONS), ""):
        return found
    said = said.lower()
    found_at = {said.find(text.lower()): category for category, texts in _REFUSALS.items() for text in texts}
    return min(((place, category) for place, category in found_at.items() if place >= 0), default=(0, ""))[1]
