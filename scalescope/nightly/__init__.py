"""Measures a suite every night: the series of its results, changes in them, and a site that shows them."""
