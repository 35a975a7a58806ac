"""Prefect flows and tasks, and the command line: parameters in, library calls, states and artifacts out."""
