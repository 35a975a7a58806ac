"""Revisions, oldest first. A released revision never changes, and never imports `schema`, which does."""
