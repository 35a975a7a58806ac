"""The specifications of all batch systems."""

from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec
from scalescope.clusters.jobqueue.systems import HtcondorSpec, LsfSpec, MoabSpec, OarSpec, PbsSpec, SgeSpec

SPECS = (SlurmSpec, PbsSpec, MoabSpec, LsfSpec, SgeSpec, OarSpec, HtcondorSpec)
