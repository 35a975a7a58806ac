"""Predicts sizes that were not run, from a run at small sizes."""
