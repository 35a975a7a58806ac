"""`python -m scalescope.driver`: serve requests on standard input until it ends.

Worker processes started by `multiprocessing` import this module too, under another name: nothing may happen then.
"""

import os
import sys

if __name__ == "__main__":
    if os.environ.get("SCALESCOPE_CLOCK") == "virtual":
        # Before anything else is imported, so that no module keeps a reference to a real clock.
        from scalescope.clusters.simulated import patches

        patches.install()

    if os.environ.get("SCALESCOPE_CLUSTER") == "virtual":
        # Before anything else is imported, so that both processes import at the same time.
        from scalescope.clusters.virtual import fork_server

        fork_server.prepare()

    from scalescope.driver.server import main

    sys.path.append(os.getcwd())  # last: the user's modules are found there, but hide no other
    main()
