"""Compares base and head of a pull request; comments on whether and why the head makes a workload slower."""
