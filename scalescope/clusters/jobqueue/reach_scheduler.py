"""Run by a job before its workers: ends the job at once if its node cannot reach the scheduler.

Without it, workers try for a minute or more (their death timeout), and end with an error that names no cause. It runs
as a file, with the standard library alone, to start fast.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys

UNREACHABLE_STATUS = 97  # exit status of a job that cannot reach the scheduler

TIMEOUT_S = 5.0


def main(address: str, *credentials: str) -> int:
    """Connect to an address such as `tls://10.0.0.1:8786`; returns the exit status.

    With TLS, `credentials` are the files of authority, certificate and key: a connection that is dropped in the middle
    of the handshake would leave a warning in the scheduler's log.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S) as connection:
            if credentials:
                authority, certificate, key = credentials
                context = ssl.create_default_context(cafile=authority)
                context.check_hostname = False  # as Dask does: the authority exists for this cluster alone
                context.load_cert_chain(certificate, key)
                context.wrap_socket(connection).close()
    except OSError as error:
        node = os.uname().nodename
        sys.stderr.write(f"scalescope: {node} cannot reach the scheduler at {address}: {error}\n")
        return UNREACHABLE_STATUS
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
