"""A scheduler or a nanny on a machine that is reached over SSH.

`distributed.deploy.ssh` puts Dask's configuration on the command line, which all users of that machine can read. This
module sends the configuration, with the cluster's credentials, over standard input.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import dask
from distributed.deploy import ssh
from distributed.security import Security

# Like `clusters/no_http.py`, for machines without Scalescope: a process that runs this code starts no HTTP server.
NO_HTTP = """\
from distributed.node import ServerNode
ServerNode.start_http_server = lambda *arguments, **options: None
"""

# The process ends when its standard input closes, because the end of an SSH connection sends no signal. The working
# folder comes last in `sys.path`, so that its files do not hide modules of Python or Dask.
START = f"""\
import os, sys, threading
os.environ["DASK_INTERNAL_INHERIT_CONFIG"] = sys.stdin.readline().strip()
def watch():
    sys.stdin.buffer.read()
    os._exit(1)
threading.Thread(target=watch, daemon=True).start()
if "" in sys.path:
    sys.path.remove("")
    sys.path.append("")
{NO_HTTP}from distributed.cli.dask_spec import main
main()"""

# Makes a folder for spilled data, inside the folder `$0` if given, and removes it even if the process gets SIGKILL.
SHELL = """\
base=${0:-${TMPDIR:-/tmp}}
mkdir -p "$base" && folder=$(mktemp -d "$base/scalescope-XXXXXX") || exit
env DASK_TEMPORARY_DIRECTORY="$folder" "$@"
status=$?
rm -rf "$folder"
exit $status"""

END_S = 3.0  # seconds for the process to end by itself and remove its folder; then it is killed

_logger = logging.getLogger(ssh.__name__)  # logger of the lines that the processes print, as in distributed


def configuration(security: Security) -> str:
    """Dask's configuration of this process with the credentials of a cluster, as one line."""
    tls = {"ca-file": security.tls_ca_file} | {
        role: {name: getattr(security, f"tls_{role}_{name}") for name in ("cert", "key")}
        for role in ("scheduler", "worker", "client")
    }
    ours = {"distributed": {"comm": {"require-encryption": True, "tls": tls}}}
    return str(dask.config.serialize(dask.config.merge(dask.config.config, ours)))


class Remote(ssh.Process):  # type: ignore[misc]
    """A process that is started over SSH, and ends with its connection."""

    def __init__(
        self,
        scheduler: str = "",  # address of the scheduler; empty for the scheduler itself
        *,
        address: str,  # address of the machine
        connect_options: Mapping[str, Any],  # arguments of `asyncssh.connect`
        python: str,  # path of the interpreter on the machine
        config: str,  # result of `configuration`
        scratch: str,  # folder on the machine for spilled data; empty: that for temporary files
        kwargs: Mapping[str, Any],  # arguments of the scheduler or nanny
        name: object = None,
    ) -> None:
        super().__init__(name=name)
        self.scheduler = scheduler
        self.address = address
        self.kwargs = kwargs
        self._connect_options, self._python, self._config = connect_options, python, config
        self._scratch = scratch

    async def start(self) -> None:
        """Start the process, and wait until it prints its address or ends."""
        import asyncssh  # part of an optional extra

        self.connection = await asyncssh.connect(self.address, **self._connect_options)
        cls, word = ("distributed.Nanny", "worker at") if self.scheduler else ("distributed.Scheduler", "Scheduler at:")
        spec = json.dumps({"cls": cls, "opts": dict(self.kwargs)})
        arguments = ["-c", START, *([self.scheduler] if self.scheduler else []), "--spec", spec]
        shell = shlex.join(["sh", "-c", SHELL, self._scratch])
        self.proc = await self.connection.create_process(f"{shell} {self._python} {shlex.join(arguments)}")
        self.proc.stdin.write(self._config + "\n")
        line = ""
        while word not in line:
            line = await self.proc.stderr.readline()
            if not line:
                raise RuntimeError("the process ended")
            _logger.info(line.strip())
        if not self.scheduler:
            self.address = line.split(word)[1].strip()
        await super().start()

    async def close(self) -> None:
        """End the process by closing its standard input; a signal would also end the shell."""
        if self.proc is not None:
            with suppress(OSError, TimeoutError):
                self.proc.stdin.write_eof()
                await asyncio.wait_for(self.proc.wait_closed(), END_S)
        await super().close()
