"""Observes the user's own program: a script, a block of code, or a running cluster.

A script runs unchanged in its own Python process (`script`). In that process, `startup` and `guest` only begin and end
recordings (`block`) into a folder (`record`). Their errors are written to the folder, and have no other effect. When
the script has ended, for whatever reason, the parent process judges the contents of the folder (`diagnosis`).
"""
