"""Revisions, oldest first. A released revision never changes, so it may not import `schema`, which does change."""
