"""What stands still on a cluster right now."""
