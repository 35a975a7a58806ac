"""The program of a temporary server: runs Prefect's server on an inherited socket until standard input ends.

The process that started it holds the other end of that pipe, which closes however that process ends.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

GRACE_S = 5.0  # seconds that the server has to end by itself


def main() -> None:
    """Serve on the socket whose file descriptor is the first argument."""
    ending = threading.Event()
    threading.Thread(target=_end_with_input, args=(sys.stdin.fileno(), ending), daemon=True).start()

    import uvicorn  # takes seconds; the thread above already watches the pipe
    from prefect.server.api.server import create_app

    server = uvicorn.Server(uvicorn.Config(create_app, factory=True, lifespan="on", log_level="error"))

    def end() -> None:
        ending.wait()
        server.should_exit = True

    threading.Thread(target=end, daemon=True).start()
    server.run(sockets=[socket.socket(fileno=int(sys.argv[1]))])


def _end_with_input(descriptor: int, ending: threading.Event) -> None:
    while os.read(descriptor, 4096):  # not `sys.stdin`: holding its lock here would abort the interpreter's shutdown
        pass
    ending.set()
    time.sleep(GRACE_S)
    os._exit(1)


if __name__ == "__main__":
    main()
