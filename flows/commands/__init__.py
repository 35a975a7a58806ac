"""Commands that have a module of their own; `flows.cli` imports them, which adds them to its application."""
