"""Preloaded into worker processes, before they listen."""

from scalescope.clusters import process_guard

process_guard.refuse_other_users()
process_guard.end_with_parent()
