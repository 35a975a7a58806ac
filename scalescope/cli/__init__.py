"""The command line: turns options into runs and studies of the library."""

import os
import sys

# PYTHONPATH is for the programs that this one starts. Here its folders come last, and replace none of our modules.
_theirs = {os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each}
sys.path.sort(key=lambda path: path in _theirs)
