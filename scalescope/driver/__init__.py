"""The driver: a process that owns a cluster and runs trials, and the protocol between driver and parent."""
