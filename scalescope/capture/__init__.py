"""Captures the raw records of a trial."""
