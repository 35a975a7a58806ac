"""Turns remedies into proven patches: a script runs with and without each patch, and only a faster version stays.

`copies` makes folders in which a script may run again and again. `outcome` runs it there and notes the results;
`startup` refuses what would reach beyond the copy. `comparison` and `proof` judge the runs, and `running` goes from
finding to patch to proof until nothing is left. `applying` writes to the user's files, and nothing else does.
"""
