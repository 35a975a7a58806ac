"""A script that a job runs before its workers: it ends the job if the node cannot reach the scheduler."""

from __future__ import annotations

import os
import socket
import ssl
import sys

UNREACHABLE_STATUS = 97  # exit status of a job that cannot reach the scheduler

TIMEOUT_S = 5.0


def main(address: str, *credentials: str) -> int:
    """Connect to `address` (such as `tls://10.0.0.1:8786`); `credentials`: files of authority, certificate and key."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S) as connection:
            if credentials:
                authority, certificate, key = credentials
                context = ssl.create_default_context(cafile=authority)
                context.check_hostname = False  # Dask does not check it either: the authority is for one cluster only
                context.load_cert_chain(certificate, key)
                context.wrap_socket(connection).close()
    except OSError as error:
        node = os.uname().nodename
        sys.stderr.write(f"scalescope: {node} cannot reach the scheduler at {address}: {error}\n")
        return UNREACHABLE_STATUS
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
