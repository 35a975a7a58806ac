"""Remedies as patches that are proven: both versions of a script run in turn, and only a faster one stays.

`copies` makes folders in which a script may run again and again. `outcome` runs it there and notes what came of it; its
startup refuses what would reach beyond the copy. `comparison` and `proof` judge the runs, and `running` goes from
finding to patch to proof until nothing is left. `applying` writes to the user's files, and nothing else does.
"""
