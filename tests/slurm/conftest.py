"""A real Slurm of many virtual nodes, for the whole session."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support import infra
from support.opening import opening
from support.waiting import wait_for

from scalescope.clusters.jobqueue.slurm_cluster import SlurmCluster
from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec

ROOT = Path(__file__).parents[2]
RULES = """\
function slurm_job_submit(job, partition, uid)
  if job.partition == "capped" then
    job.time_limit = 1
  end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partition, uid)
  return slurm.SUCCESS
end
"""


@pytest.fixture(scope="session")
def mini() -> ModuleType:
    return infra.module("minislurm", "infra/slurm/mini.py")


@pytest.fixture(scope="session")
def slurm(mini: ModuleType, missing: Any) -> Iterator[Any]:
    """A real Slurm of 16 nodes with two fake GPUs each, which is reset after each test; or a skip."""
    if programs := mini.missing_programs():
        missing("slurm", f"no Slurm on this machine: {', '.join(programs)} missing (apt-get install slurm-wlm)")
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder,
        mini.MiniSlurm(folder) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="session")
def strict(slurm: Any, mini: ModuleType) -> Iterator[Any]:
    """Another one, of four nodes, for all users: jobs need an account, comments are rewritten, and its nodes differ."""
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        with mini.MiniSlurm(folder, nodes=4, gpus=0, **mini.STRICT) as cluster:
            yield cluster


@pytest.fixture
def in_strict(strict: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The cluster `strict`, found by commands that this very process starts."""
    monkeypatch.setenv("SLURM_CONF", str(strict.conf))
    yield strict
    strict.reset()


@pytest.fixture
def in_slurm(slurm: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The cluster `slurm`, found by commands that this very process starts."""
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    return slurm


@pytest.fixture
def site(mini: ModuleType, missing: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Starts a small Slurm of two nodes with two CPUs each, which commands of this process find."""
    if programs := mini.missing_programs():
        missing("slurm", f"no Slurm on this machine: {', '.join(programs)} missing (apt-get install slurm-wlm)")
    with ExitStack() as stack:

        def start(*, state_mb: int = 0, **given: Any) -> Any:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True))
            if state_mb:
                stack.enter_context(small_disk(Path(folder, "state"), f"size={state_mb}m"))
            usual = {"nodes": 2, "cpus": 2, "gpus": 0, "partitions": {"main": "Default=YES", "capped": ""}}
            slurm = stack.enter_context(mini.MiniSlurm(folder, **{**usual, "rules": RULES, **given}))
            monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
            return slurm

        yield start


@contextmanager
def small_disk(folder: Path, limit: str) -> Iterator[None]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", limit, "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def full_disk(tmp_path: Path, missing: Any) -> Iterator[Path]:
    """A folder on a disk without room."""
    if os.getuid() != 0:
        missing("slurm", "only root can mount a small disk")
    with small_disk(tmp_path / "disk", "nr_inodes=1"):
        yield tmp_path / "disk"


_DATABASE = """\
AuthType=auth/none
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={storage}
StorageUser=slurm
StoragePass=x
"""
_WITH_LIMITS = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStorageEnforce=associations,limits,qos
"""
_GRANT = "create user slurm@{0} identified by 'x'; grant all on *.* to slurm@{0};"


@pytest.fixture(scope="session")
def limited(mini: ModuleType, missing: Any) -> Iterator[Any]:
    """A small Slurm with accounting, whose QOS `few` can be given limits; `normal` has none."""
    programs = [name for name in ("slurmdbd", "mariadbd", "mysql_install_db") if not shutil.which(name)]
    if programs := [*mini.missing_programs(), *programs]:
        missing("slurmdbd", f"{', '.join(programs)} missing (apt-get install slurm-wlm slurmdbd mariadb-server)")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True)))
        port, user = mini._free_ports(2), pwd.getpwuid(os.getuid()).pw_name
        data, at, log = f"--datadir={folder}/db", f"--socket={folder}/db.sock", (folder / "servers.log").open("wb")
        stack.callback(log.close)

        def serve(*command: str) -> None:
            process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "SLURM_CONF": str(conf)})
            stack.callback(process.wait)
            stack.callback(process.terminate)

        conf = folder / "slurm.conf"
        subprocess.run(
            ["mysql_install_db", data, "--skip-test-db", f"--user={user}"], check=True, stdout=log, stderr=log
        )
        serve("mariadbd", "--no-defaults", data, at, f"--port={port + 1}", "--bind-address=127.0.0.1", f"--user={user}")
        grants = "".join(_GRANT.format(f"'{host}'") for host in ("localhost", "127.0.0.1"))
        wait_for(lambda: subprocess.run(["mysql", at, "-e", grants], capture_output=True).returncode == 0, "", 60)
        settings = folder / "slurmdbd.conf"
        settings.touch(0o600)
        host = socket.gethostname().split(".")[0]
        settings.write_text(_DATABASE.format(host=host, port=port, user=user, folder=folder, storage=port + 1))
        serve("slurmdbd", "-D")
        wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, "", 60)
        slurm = stack.enter_context(mini.MiniSlurm(folder, nodes=4, gpus=0, extra=_WITH_LIMITS.format(port=port)))
        for command in (
            "add cluster mini",
            "add qos few",
            "add account research",
            f"add user {user} account=research",
            f"modify user {user} set qos=normal,few",
        ):
            slurm.run("sacctmgr", "-i", *command.split(), check=False)
        wait_for(lambda: "few" in slurm.run("scontrol", "show", "assoc_mgr", "flags=qos"), "", 60)
        yield slurm


@pytest.fixture
def in_limited(limited: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The cluster `limited`, found by commands that this very process starts."""
    monkeypatch.setenv("SLURM_CONF", str(limited.conf))
    yield limited
    limited.reset()


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[..., SlurmCluster]]:
    """Opens clusters of given fields, on `strict` where the test has it, and closes them."""
    strict = "in_strict" in request.fixturenames
    request.getfixturevalue("in_strict" if strict else "in_slurm")
    usual: dict[str, Any] = {"start_timeout_s": 60.0} | ({"account": "research"} if strict else {})

    def spec(**given: Any) -> SlurmSpec:
        # Slurm's default of 100 MB is less than a worker takes, and it ends one that lives for long.
        memory_mb = 400 * given.get("workers_per_job", 1)
        return SlurmSpec(**{**usual, "memory_mb": memory_mb, **given})

    with opening(spec) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _no_jobs_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "slurm" in request.fixturenames:
        request.getfixturevalue("slurm").reset()
