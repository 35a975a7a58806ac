"""Faults of a trial or a sweep, the evidence for them, and what to do about them."""
