"""Names of the facts of a run."""

STEP_OF = "step_of"  # id of the larger thing it is a step of, such as an isolation; `latest` skips such runs
USER = "user"  # the host's name of the user who began it
CODE = "code"  # digest of the user's function and its local modules
INSTEAD_OF = "instead_of"  # id of the run that another digest kept from resuming
