"""`python -m scalescope.driver`: serve requests on standard input until it ends."""

import os
import sys

if __name__ == "__main__":  # worker processes of `multiprocessing` import this module under another name
    if os.environ.get("SCALESCOPE_CLOCK") == "virtual":
        # Install the virtual clock before any other import, so that no module keeps a reference to a real clock.
        from scalescope.clusters.simulated import patches

        patches.install()

    if os.environ.get("SCALESCOPE_CLUSTER") == "light":
        # Start the fork server first, so that both processes import at the same time.
        from scalescope.clusters.light import fork_server

        fork_server.prepare()

    from scalescope.driver.channel import take_over_streams

    requests, channel = take_over_streams()  # before importing distributed, which may print

    from scalescope.driver.server import main

    sys.path.append(os.getcwd())  # as last entry, so that the user's modules hide no others
    main(requests, channel)
