"""The command line: options in, runs and studies of the library out."""

import os
import sys

# What PYTHONPATH names is for the programs that this one starts: none of its modules may take the place of ours.
_theirs = {os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each}
sys.path.sort(key=lambda path: path in _theirs)
