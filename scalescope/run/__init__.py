"""Carries out a sweep without Prefect: plan, clusters, trials, judgement."""
