"""Fixtures that several folders of tests share; tests/conftest.py loads them as plugins."""
