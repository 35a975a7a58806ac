"""The user's own program, observed: a script, a block of code, a cluster that runs already.

A script is run by Python itself, in a process of its own (`script`). There `startup` and `guest` do no more than begin
and end recordings (`block`) into a folder (`record`). What fails in them is written there, and nothing else comes of
it. When the script has ended, however it did, this process judges what the folder holds (`diagnosis`).
"""
