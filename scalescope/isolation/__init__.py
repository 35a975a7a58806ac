"""Finds the smallest trial that still shows a symptom, and a script that shows it without Scalescope."""
