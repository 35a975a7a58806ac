"""Worker processes preload this module before they listen."""

from scalescope.clusters import no_http, process_guard  # noqa: F401 - importing it suffices

process_guard.refuse_other_users()
process_guard.end_with_parent()
