"""Clusters of any class that can be imported."""
