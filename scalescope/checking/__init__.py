"""Estimates what a Dask graph will cost, before anything is computed."""
