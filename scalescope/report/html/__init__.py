"""The report of a run as one HTML file that works offline and with screen readers; it can send no network requests."""

from scalescope.report.html.build import check, render, write

__all__ = ["check", "render", "write"]
