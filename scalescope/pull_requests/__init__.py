"""Compares base and head of a pull request; comments whether and why the head makes a workload slower."""
