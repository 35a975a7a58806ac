"""Finds the release of a package that moved a metric or brought a finding."""
