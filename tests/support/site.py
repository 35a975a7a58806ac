"""A Prefect server and a worker, started by the commands that a user gives."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import DeploymentFilter
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from scalescope.driver_folders import LOCK
from scalescope.store.store import Store
from support import prefect_home
from support.processes import kill_tree
from support.waiting import wait_for

ROOT = Path(__file__).parents[2]
POOL = "prefect work-pool create --type process scalescope-local"
DEPLOY = "prefect --no-prompt deploy --all --prefect-file deployments/local.yaml"
WORKER = "prefect worker start --pool scalescope-local --limit 1"


class Site:
    """Commands share a folder, an environment and a free port instead of 4200; `close` ends all that they started."""

    def __init__(self, folder: Path, **environ: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.folder = folder
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")} | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # instead of `. .venv/bin/activate`
            "PREFECT_HOME": str(prefect_home.fill(folder / "prefect")),
            "PREFECT_API_URL": f"http://127.0.0.1:{self.port}/api",
            "PREFECT_SERVER_API_PORT": str(self.port),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "5",
            "XDG_DATA_HOME": str(folder),
            "SCALESCOPE_STORE": str(folder / "scalescope/results.db"),
            "SCALESCOPE_LEASES": str(folder / "leases"),
            "TMPDIR": str(folder / "tmp"),
            **environ,
        }
        (folder / "tmp").mkdir()
        self._staying: list[psutil.Popen] = []

    def stay(self, command: str) -> psutil.Popen:
        """Give a command that does not end; what it says is in the file that `log` reads."""
        with self._log(command).open("ab") as log:
            started = psutil.Popen(
                ["bash", "-c", f"exec {command}"], cwd=ROOT, env=self.environ, stdout=log, stderr=log
            )
        self._staying.append(started)
        return started

    def start_server(self, command: str = "prefect server start") -> psutil.Popen:
        server = self.stay(command)

        def started() -> bool:
            assert server.poll() is None, self._log(command).read_text()
            return answers(self.port)

        wait_for(started, "the server does not start")
        return server

    @contextmanager
    def client(self) -> Iterator[SyncPrefectClient]:
        secret = self.environ.get("PREFECT_API_AUTH_STRING")
        settings = {PREFECT_API_URL: self.environ["PREFECT_API_URL"]}
        settings |= {PREFECT_API_AUTH_STRING: secret} if secret else {}
        with temporary_settings(settings), get_client(sync_client=True) as made:
            yield made

    def serve(self) -> None:
        """Serve the files of the store, and tell runs of it."""
        with self.store():  # whose folder is served
            pass
        self.stay(command := "scalescope serve --port 0")
        line = "export SCALESCOPE_FILES_URL="
        found = wait_for(lambda: re.search(f"{line}(.*)", self._log(command).read_text()), "nothing is served")
        self.environ["SCALESCOPE_FILES_URL"] = found[1]

    def give(self, command: str) -> str:
        """Give a command that ends, as a user would; return what it prints."""
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self.environ[name] = value.replace("4200", str(self.port)).replace("LOGIN-NODE", "127.0.0.1")
            return ""
        done = subprocess.run(
            ["bash", "-c", command], cwd=ROOT, env=self.environ, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @property
    def records(self) -> Path:
        return Path(self.environ["SCALESCOPE_STORE"]).parent / "records"

    def store(self) -> Store:
        return Store.open(self.environ["SCALESCOPE_STORE"])

    def driver_folders(self) -> list[str]:
        """Folders of drivers that run, or were killed."""
        return sorted(path.parent.name for path in Path(self.environ["TMPDIR"]).glob(f"*/{LOCK}"))

    def close(self) -> None:
        for started in reversed(self._staying):
            kill_tree(started)
            started.wait(30)

    def _log(self, command: str) -> Path:
        return self.folder / f"{re.sub('[^a-z]+', '-', command)[:40]}.log"


def answers(port: int) -> bool:
    """Whether a Prefect server does, on this port of this machine."""
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=5) as reply:
        return bool(reply.status == 200)
    return False


def header(file: str) -> list[str]:
    """The commands that the comment at the begin of a file in deployments/ tells to give."""
    return re.findall(r"^#   (\S.*)$", (ROOT / "deployments" / file).read_text().partition("\nname:")[0], re.MULTILINE)


def drivers(worker: psutil.Process) -> list[psutil.Process]:
    found = []
    for child in worker.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it may end while we look
            if "scalescope.driver" in child.cmdline():
                found.append(child)
    return found


def runs_of(client: SyncPrefectClient, deployment: str) -> list[FlowRun]:
    """Runs of a deployment, the first to be started first."""
    ours = DeploymentFilter.model_validate({"id": {"any_": [client.read_deployment_by_name(deployment).id]}})
    return client.read_flow_runs(deployment_filter=ours, sort=FlowRunSort.EXPECTED_START_TIME_ASC)
