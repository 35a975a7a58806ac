from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path

import pytest
from support.prefect_api import artifacts

from scalescope import driver_folders, leases
from scalescope.errors import ClusterError


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "leases"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / "leases"


@pytest.mark.usefixtures("prefect_server")
def test_the_reap_flow_removes_dead_leases_and_publishes_a_table(ledger: Path) -> None:
    from scalescope_flows.reaping import reap

    kept = leases.intend("slurm", leases.new_label())
    dead = ledger.with_name("scalescope-dead")
    dead.mkdir()
    (dead / driver_folders.LOCK).touch()

    fates = {result["label"]: result["fate"] for result in reap()}

    assert fates == {kept.label: "owned", dead.name: "removed"}
    assert [lease.label for lease in leases.read_all()[0]] == [kept.label]
    artifact = artifacts("scalescope-reap")[0]
    assert artifact["description"].startswith("2 leases: 1 owned, 1 removed")
    assert {row["lease"] for row in json.loads(artifact["data"])} == {kept.label, dead.name}


@pytest.mark.usefixtures("prefect_server")
def test_a_lease_that_cannot_be_removed_fails_the_flow_with_one_line(
    ledger: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from scalescope_flows.reaping import reap

    ledger.mkdir()
    (ledger / f"{leases.new_label()}.json").write_text("{")
    state = reap(return_state=True)
    with pytest.raises(ClusterError, match="1 of 1 leases") as caught:
        state.result()
    assert state.message == caught.value.line
    assert "\n" not in state.message
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == [state.message]
