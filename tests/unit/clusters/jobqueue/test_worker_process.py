from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import distributed
import psutil
import pytest

from scalescope.clusters.jobqueue import reach_scheduler, worker_process
from scalescope.clusters.jobqueue.shared_folder import ClusterFolder
from scalescope.errors import ClusterError


@pytest.fixture(scope="module")
def cluster() -> Iterator[distributed.LocalCluster]:
    with distributed.LocalCluster(
        n_workers=0, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


def start(cluster: distributed.LocalCluster, *options: str, **variables: str) -> subprocess.Popen[str]:
    module = "scalescope.clusters.jobqueue.worker_process"
    command = [sys.executable, "-m", module, cluster.scheduler_address, "--name", "7", *options]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | variables)


@pytest.mark.parametrize(("processes", "pids"), [("1", 1), ("0", 3)])
def test_workers_share_the_given_number_of_processes(
    cluster: distributed.LocalCluster, processes: str, pids: int
) -> None:
    options = f"--workers 3 --processes {processes} --nthreads 1 --nthreads 2 --memory-limit 1GB".split()
    process = start(cluster, *options, DASK_DISTRIBUTED__WORKER__PROFILE__CYCLE="123ms")
    with distributed.Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(3, timeout=30)
        found = client.run(lambda dask_worker: (str(dask_worker.name), dask_worker.state.nthreads, os.getpid()))
        process.terminate()
        _, said = process.communicate(timeout=20)
    assert {(name, threads) for name, threads, _ in found.values()} == {("7-0", 2), ("7-1", 2), ("7-2", 2)}
    assert len({pid for _, _, pid in found.values()}) == pids
    assert process.returncode == 0, said
    assert not any(psutil.pid_exists(pid) for _, _, pid in found.values())


def test_a_process_that_dies_takes_the_others_with_it(cluster: distributed.LocalCluster) -> None:
    process = start(cluster, "--workers", "2")
    with distributed.Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=30)
        pids = client.run(os.getpid)
        psutil.Process(next(iter(pids.values()))).kill()
        _, said = process.communicate(timeout=20)
    assert process.returncode == 128 + 9
    assert "was killed by SIGKILL" in said
    assert not any(psutil.pid_exists(pid) for pid in pids.values())


def test_too_few_gpus_end_the_process_with_a_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(SystemExit) as ended:
        worker_process.main(["tcp://127.0.0.1:1", "--name", "1", "--workers", "2", "--gpus"])
    assert ended.value.code == worker_process.EXIT_NO_GPU
    assert "CUDA_VISIBLE_DEVICES" in capsys.readouterr().err


# ------------------------------------------------------------------ scratch


def mounts(**points: str) -> list[SimpleNamespace]:
    return [SimpleNamespace(mountpoint=f"/{point.replace('_', '/')}", fstype=kind) for point, kind in points.items()]


def test_spilling_avoids_network_file_systems(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        psutil, "disk_partitions", lambda all: [SimpleNamespace(mountpoint="/", fstype="ext4"), *mounts(home="nfs4")]
    )
    assert worker_process.scratch("/scratch/me") == "/scratch/me"
    assert capsys.readouterr().err == ""
    assert worker_process.scratch("/home/me/tmp") == "/tmp"
    assert "/home/me/tmp" in capsys.readouterr().err
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: [SimpleNamespace(mountpoint="/", fstype="lustre")])
    assert worker_process.scratch("/home/me") == "/home/me"
    assert "spilling will be slow" in capsys.readouterr().err


def test_the_file_system_is_that_of_the_nearest_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    nested = mounts(srv="nfs", srv_local="xfs", srv_loc="lustre")
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: nested)
    assert worker_process.file_system("/srv/local/x") == "xfs"
    assert worker_process.file_system("/srv/other") == "nfs"
    assert worker_process.file_system("/elsewhere") == ""


# ------------------------------------------------------------------ the folder, and reaching the scheduler


@pytest.fixture
def folder(tmp_path: Path) -> ClusterFolder:
    return ClusterFolder("scalescope-0123456789ab", str(tmp_path / "shared"))


def test_the_cluster_folder_is_readable_only_by_its_user_and_removed(folder: ClusterFolder) -> None:
    security = folder.create(tls=True)
    assert security is not None
    assert folder.path.stat().st_mode & 0o777 == 0o700
    for file in ("tls/ca.pem", "tls/cert.pem", "tls/key.pem", "dask.config"):
        assert (folder.path / file).stat().st_mode & 0o777 == 0o600
    assert (folder.path / "importable/scalescope/errors.py").exists()
    folder.remove()
    assert not folder.path.exists()
    folder.remove()


def test_logs_can_be_kept_when_the_cluster_folder_is_removed(folder: ClusterFolder) -> None:
    folder.create(tls=True)
    (folder.logs / "1.err").write_text("oh")
    folder.remove(keep_logs=True)
    assert [path.name for path in folder.path.iterdir()] == ["logs"]
    empty = ClusterFolder("scalescope-000000000000", str(folder.path.parent))
    assert empty.create(tls=False) is None
    empty.remove(keep_logs=True)
    assert not empty.path.exists()


def test_a_cluster_folder_that_cannot_be_made_raises_cluster_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError) as caught:
        ClusterFolder("scalescope-0123456789ab", str(tmp_path / "file")).create(tls=False)
    assert "cluster.shared_directory" in caught.value.next_step


def test_only_old_logs_are_removed(folder: ClusterFolder) -> None:
    old, recent, alive = (ClusterFolder(f"scalescope-{n:012x}", str(folder.path.parent)) for n in range(3))
    strange = folder.path.parent / "scalescope-notes"
    for each in (old, recent, alive):
        each.create(tls=False)
        (each.logs / "1.err").write_text("broken")
    for each in (old, recent):
        each.remove(keep_logs=True)
    (strange / "logs").mkdir(parents=True)
    for path in (old.path, alive.path, strange):
        os.utime(path, (0, 0))
    folder.create(tls=False)
    left = {path.name for path in folder.path.parent.iterdir()}
    assert left == {each.name for each in (recent.path, alive.path, strange, folder.path)}


def test_an_unreachable_scheduler_gives_its_own_exit_status(
    folder: ClusterFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.create(tls=True)
    files = [str(folder.path / "tls" / name) for name in ("ca.pem", "cert.pem", "key.pem")]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files[0])
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(files[1], files[2])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        accept = threading.Thread(target=lambda: context.wrap_socket(server.accept()[0], server_side=True).close())
        accept.start()
        assert reach_scheduler.main(f"tls://127.0.0.1:{port}", *files) == 0
        accept.join(5)
        assert reach_scheduler.main(f"tcp://127.0.0.1:{port}") == 0
    assert capsys.readouterr().err == ""
    assert reach_scheduler.main(f"tcp://127.0.0.1:{port}") == reach_scheduler.UNREACHABLE_STATUS
    assert f"tcp://127.0.0.1:{port}" in capsys.readouterr().err
