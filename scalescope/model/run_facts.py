"""Names of the facts of a run."""

STEP_OF = "step_of"  # id of the isolation that the run is a step of; `latest` skips such runs
USER = "user"  # the host's name of the user who began it
CODE = "code"  # digest of the user's function and its local modules
INSTEAD_OF = "instead_of"  # id of the run that was not resumed, since its digest differs
