"""The report of a run as one HTML file, readable offline and by screen readers; its policy forbids network requests."""

from scalescope.report.html.build import check, render, write

__all__ = ["check", "render", "write"]
