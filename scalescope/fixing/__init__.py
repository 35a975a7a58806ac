"""Remedies as patches that are proven: both versions of a script run in turn, and only a faster one stays.

`copies` makes folders in which a script may run again and again; `guard` sees what would reach beyond them; `outcome` runs
it there and notes what came of it; `proof` compares; `running` goes from finding to patch to proof until nothing is left.
"""
