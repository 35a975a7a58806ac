from __future__ import annotations

import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from scalescope import leases
from scalescope.clusters import reaping
from scalescope.clusters.reaping import Fate
from scalescope.errors import StoreError
from scalescope.owner import Owner


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "leases"
    monkeypatch.setenv(leases.VARIABLE, str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return folder


def elsewhere(lease: leases.Lease) -> leases.Lease:
    return dataclasses.replace(lease, owner=Owner("other-host pid:[1]", 1, 1.0))


def test_a_lease_is_readable_only_by_its_user_and_read_back_unchanged(ledger: Path) -> None:
    lease = leases.intend("slurm", leases.new_label(), {"cluster": "mini"}, limit_s=60)
    path = ledger / f"{lease.label}.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert ledger.stat().st_mode & 0o777 == 0o700
    assert leases.read_all()[0] == [lease]
    assert lease.owner == Owner.current()
    assert lease.limit_at == pytest.approx(lease.created_at + 60)
    assert leases.is_owned(lease) is True
    assert os.listdir(ledger) == [path.name]


def test_labels_of_leases_fit_into_job_names_and_others_are_refused() -> None:
    label = leases.new_label()
    assert label.startswith("scalescope-")
    assert len(label) == len("scalescope-") + 12
    assert leases.new_label() != label
    for wrong in ("", "scalescope-", "scalescope-../../etc/x", "scalescope-0123456789abc", "other-0123456789ab"):
        with pytest.raises(ValueError, match="is not a label"):
            leases.intend("slurm", wrong)


def test_a_lease_can_be_released_twice() -> None:
    kept, gone = (leases.intend("slurm", leases.new_label()) for _ in range(2))
    leases.release(gone)
    leases.release(gone)
    assert leases.read_all()[0] == [kept]


def test_a_renewed_lease_keeps_its_details() -> None:
    lease = leases.intend("slurm", leases.new_label(), {"a": 1}, limit_s=5)
    renewed = leases.renew(lease, limit_s=1000, b=2)
    assert leases.read_all()[0] == [renewed]
    assert renewed.details == {"a": 1, "b": 2}
    assert renewed.limit_at is not None
    assert renewed.limit_at > time.time() + 900
    assert leases.renew(renewed).limit_at == renewed.limit_at


def test_a_lease_is_flushed_to_disk_before_its_resource_is_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    lease = leases.intend("slurm", leases.new_label())
    assert synced == [f".{lease.label}.json.{os.getpid()}.part", "leases"]


def test_a_missing_folder_of_leases_means_that_there_are_no_leases() -> None:
    assert leases.read_all()[0] == []
    assert reaping.reap() == []


def test_without_a_kubernetes_configuration_kr8s_is_not_imported(tmp_path: Path) -> None:
    code = "import sys; from scalescope.clusters import reaping; print(reaping.reap(), 'kr8s' in sys.modules)"
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("[] False\n", "")


def test_a_kubernetes_that_does_not_answer_is_reported_without_failing_the_reap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kr8s")
    contexts = [{"name": "away", "context": {"cluster": "away", "user": "me"}}]
    nowhere = [{"name": "away", "cluster": {"server": "http://127.0.0.1:1"}}]
    users = [{"name": "me", "user": {"token": "a"}}]
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "away", "contexts": contexts}
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps({**config, "clusters": nowhere, "users": users}))
    monkeypatch.setenv("KUBECONFIG", str(path))
    [told] = reaping.reap()
    assert told.fate is Fate.ELSEWHERE
    assert "a request to Kubernetes failed" in told.words


def test_a_full_disk_raises_a_clear_error_and_leaves_no_lease(ledger: Path) -> None:
    """A limit on the size of files stands for the full disk: the write itself fails, as it does there."""
    code = """
        import resource, signal, sys
        from scalescope import leases
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        leases.intend("slurm", leases.new_label())
    """
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] != 10
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "nothing was requested from" in done.stderr
    assert "File too large" in done.stderr
    assert os.listdir(ledger) == []


def test_a_folder_of_leases_that_cannot_be_made_raises_store_error(ledger: Path) -> None:
    ledger.write_text("a file where the folder should be")
    with pytest.raises(StoreError) as found:
        leases.intend("slurm", leases.new_label())
    assert leases.VARIABLE in found.value.next_step
    with pytest.raises(StoreError):
        leases.read_all()


def test_a_damaged_lease_is_named_and_the_others_are_still_read(ledger: Path) -> None:
    whole = leases.intend("slurm", leases.new_label())
    broken = leases.new_label()
    (ledger / f"{broken}.json").write_text('{"label": ')
    (ledger / "notes.txt").write_text("not ours")
    found, problems = leases.read_all()
    assert found == [whole]
    assert [f"squeue --name {broken}" in problem.next_step for problem in problems] == [True]
    fates = {result.label: result.fate for result in reaping.reap()}
    assert fates == {whole.label: Fate.OWNED, broken: Fate.FAILED}
    assert (ledger / f"{broken}.json").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"label": "scalescope-000000000000"},
        {"backend": None},
        {"owner_job": 4711},
        {"created_at": "yesterday"},
        {"limit_at": 1e300},
        {"details": ["log"]},
        {"owner": None},
        {"owner": {"host": "", "pid": 1, "process_started": 1.0}},
        {"owner": {"host": "here", "pid": "1", "process_started": 1.0}},
        None,
        [],
    ],
)
def test_a_lease_of_a_wrong_shape_is_named_and_skipped(ledger: Path, changes: object) -> None:
    whole, other = leases.intend("slurm", leases.new_label()), leases.intend("kubernetes", leases.new_label())
    path = ledger / f"{other.label}.json"
    told = {**json.loads(path.read_text()), **changes} if isinstance(changes, dict) else changes
    path.write_text(json.dumps(told))
    fates = {result.label: result.fate for result in reaping.reap()}
    assert fates == {whole.label: Fate.OWNED, other.label: Fate.FAILED}
    assert path.exists()


def test_an_owner_on_another_host_cannot_be_judged_before_its_time_limit() -> None:
    unlimited = elsewhere(leases.intend("slurm", leases.new_label()))
    assert leases.is_owned(unlimited) is None
    assert leases.is_owned(dataclasses.replace(unlimited, limit_at=time.time() + 60)) is None
    assert leases.is_owned(dataclasses.replace(unlimited, limit_at=time.time() - 1)) is False
    owned, words = reaping.explain(unlimited)
    assert owned is None
    assert "other-host" in words


@pytest.mark.parametrize(
    ("answer", "error", "owned"),
    [
        ("RUNNING\n", "", True),
        ("TIMEOUT\n", "", False),
        ("", "slurm_load_jobs error: Invalid job id specified", False),
        ("", "slurm_load_jobs error: Unable to contact slurm controller", None),
    ],
)
def test_slurm_is_asked_whether_an_owner_on_another_host_still_runs(
    answer: str, error: str, owned: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = dataclasses.replace(elsewhere(leases.intend("slurm", leases.new_label())), owner_job="77")
    asked = []

    def run(command: object, stdin: str) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess([], int(bool(error)), answer, error)

    monkeypatch.setattr(reaping, "commands", lambda lease: run)
    found, words = reaping.explain(lease)
    assert found is owned
    assert owned is not None or "contact slurm controller" in words
    assert "77" in str(asked)


def test_a_lease_of_an_unknown_backend_is_kept_and_named(ledger: Path) -> None:
    lease = leases.intend("mainframe", leases.new_label())
    assert [result.fate for result in reaping.reap()] == [Fate.OWNED]
    dead = json.loads((ledger / f"{lease.label}.json").read_text())
    dead["owner"]["process_started"] = 1.0
    (ledger / f"{lease.label}.json").write_text(json.dumps(dead))
    (result,) = reaping.reap()
    assert result.fate is Fate.ELSEWHERE
    assert "mainframe" in result.words
    assert "lease ends" not in result.next_step  # the lease has none
    dead["limit_at"] = time.time() + 60
    (ledger / f"{lease.label}.json").write_text(json.dumps(dead))
    assert "until the lease ends" in reaping.reap()[0].next_step
    assert json.loads((ledger / f"{lease.label}.json").read_text())["backend"] == "mainframe"


def test_resources_of_dead_owners_and_abandoned_leases_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    def reaper(lease: leases.Lease, words: str, dry_run: bool) -> reaping.Reaped:
        return reaping.removed(lease, dry_run, ["1"], words)

    monkeypatch.setattr("scalescope.clusters.kubernetes.reaper.reap", reaper)
    used, abandoned, dead, far = (leases.intend("kubernetes", leases.new_label()) for _ in range(4))
    other = leases.intend("slurm", leases.new_label())
    leases.abandon(abandoned)
    leases.abandon(other)
    leases._write(dataclasses.replace(dead, owner=dataclasses.replace(dead.owner, process_started=1.0)))
    leases._write(elsewhere(far))
    own = reaping.reap_here({"kubernetes"}, Owner.current())
    assert {each.label: each.fate for each in own} == {abandoned.label: Fate.REMOVED}
    [left] = reaping.reap_here({"kubernetes"})
    assert (left.label, left.fate, left.words.endswith("is dead")) == (dead.label, Fate.REMOVED, True)
    assert {each.label for each in leases.read_all()[0]} == {used.label, far.label, other.label}
