"""Collections of cases and programs that measure: what the pages claim, shown again by `python -m evidence NAME`."""
