"""Commands that have a module of their own; `scalescope.cli.main` imports them, which adds them to its application."""
