"""Every night: series of a suite's results, what changed in them, and the site that shows it."""
