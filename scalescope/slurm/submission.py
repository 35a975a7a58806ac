"""Submits jobs with sbatch, and says why one is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from scalescope.errors import ClusterError, JobsEnded
from scalescope.slurm import failures, reasons
from scalescope.slurm.commands import CommandSilent, Run, is_silent, plain, silent
from scalescope.slurm.failures import CLUSTER_FIELDS

_NOISE = r"allocation failure: |Batch job submission failed: |; Batch job submission failed: Unspecified error"
_OURS = ("-J ", "--error=", "--output=", "--comment=")


def submit(
    script: str, *, run: Run, options: Sequence[str] = ("--parsable",), fields: Mapping[str, str] = CLUSTER_FIELDS
) -> str:
    """Submit a job script and return the job's number; after `CommandSilent`, Slurm may have it all the same."""
    try:
        done = run(("sbatch", *options), script)
    except CommandSilent as error:
        if reasons.of_refusal(error.said):  # sbatch itself sleeps and retries, for longer than a command may take
            raise _error(error.said, script, fields) from error
        raise
    if done.returncode:
        raise _error(done.stderr, script, fields)
    return done.stdout.strip().partition(";")[0]


def _error(error_text: str, script: str, fields: Mapping[str, str]) -> ClusterError:
    said = plain(error_text)
    if is_silent(said) and not reasons.of_refusal(said):
        return silent(("sbatch",), said)
    said = re.sub(_NOISE, "", said) or "no reason given"
    lines = [line.removeprefix("#SBATCH").strip() for line in script.splitlines() if line.startswith("#SBATCH")]
    failure = failures.refused(said)
    return JobsEnded(
        f"Slurm refuses the job: {said}",
        where=" ".join(["sbatch", *(line for line in lines if not line.startswith(_OURS))]),
        cause=failure.cause,
        next_step=failure.step(fields),
        category=failure.category,
        may_return=failure.may_return,
        ends_run=True,
    )
