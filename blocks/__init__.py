"""Prefect blocks: validated, savable configuration that builds plain specifications for the library."""
