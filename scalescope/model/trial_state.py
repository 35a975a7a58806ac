"""The state of a trial; not in `model.trial`, because the process of a user's script must import little."""

from enum import StrEnum

RAN = "ran"  # fact: `script`, `block` or `cluster`, for a trial of the user's code as it is; absent in sweeps


class TrialState(StrEnum):
    """Whether a trial is a data point, and if not, why."""

    VALID = "valid"  # a data point
    FAILED = "failed"  # the workload raised, or its answer was wrong
    # the machine misbehaved (workers missing or lost, capture incomplete, host overloaded, timed out): no data point
    INVALID = "invalid"
