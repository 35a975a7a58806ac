"""Observes the user's own program: a script, a block of code, or a cluster that runs already.

Python itself runs a script, in a process of its own (`script`). In this process, `startup` and `guest` only begin and
end recordings (`block`) into a folder (`record`). Errors of theirs are written to the folder, and have no other effect.
When the script has ended in whatever way, the parent process judges the contents of the folder (`diagnosis`).
"""
