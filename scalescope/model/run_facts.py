"""Names of the facts of a run."""

STEP_OF = "step_of"  # id of the isolation that the run is a step of; `latest` skips such runs
USER = "user"  # name of the user who began the run, as its host knows it
CODE = "code"  # digest of the user's function and its local modules
INSTEAD_OF = "instead_of"  # id of an earlier run that was not resumed, since its code digest differs
