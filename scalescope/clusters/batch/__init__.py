"""Jobs of PBS, Moab, LSF, Grid Engine, OAR and HTCondor; none was ever run on a real system."""
