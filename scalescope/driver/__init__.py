"""The process that owns a cluster and runs trials, and the protocol that it speaks."""
