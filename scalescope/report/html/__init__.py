"""The report of a run as one HTML file: verdict and remedy first, then everything they rest on.

It is read offline, by people and by screen readers, on light and on dark screens. Nothing in it asks the network for
anything, and a policy inside it forbids that anything does.
"""

from scalescope.report.html.build import check, check_packages, render, write

__all__ = ["check", "check_packages", "render", "write"]
