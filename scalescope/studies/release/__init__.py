"""Finds the release of a package that changed a metric or caused a finding."""
