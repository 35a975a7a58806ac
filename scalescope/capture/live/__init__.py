"""Tasks that stand still on a cluster right now."""
