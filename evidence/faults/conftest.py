"""The matrix of faults uses the fixtures of the tests."""

pytest_plugins = ["conftest", "slurm.conftest"]
