"""Reports of runs: for terminals, web pages, notebooks and programs."""
