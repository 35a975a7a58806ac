"""The flow that fixes."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from support.prefect_api import artifacts

from scalescope.analysis.difference import Account, Overhead, PartKind
from scalescope.fixing import running
from scalescope.fixing.copies import Copy
from scalescope.fixing.outcome import Outcome
from scalescope.fixing.proof import Proof
from scalescope.fixing.usage import Usage
from scalescope.model.finding import Finding, Gain, Place, Severity
from scalescope.model.sweep import Point
from scalescope.model.trial import Trial, TrialState
from scalescope_flows import fix

LOOP = "print(sum(client.submit(f, x).result() for x in range(9)))"
TRIAL = Trial("a", Point(1), 0, False, TrialState.VALID)
LINE = Overhead(PartKind.CLIENT, "job.py:4")
SCRIPT = f"from dask.distributed import Client\n\nclient = Client()\n{LOOP}\n"


@pytest.mark.usefixtures("prefect_server")
def test_the_flow_shows_the_patch_and_its_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording and proof are faked."""
    (tmp_path / "job.py").write_text(SCRIPT)
    gain, place = Gain(3.0, 1.0), Place("job.py", 4)
    finding = Finding("results-awaited-in-loop", Severity.HIGH, "One by one.", "Gather.", gain=gain, place=place)
    recorded, usage = Outcome(0, 3.0, 0, (), (), "", Copy(tmp_path)), Usage(2, 0)
    records = iter(
        running._Recording(recorded, each, usage, accounts=[(TRIAL, Account(1, {}, {LINE: seconds}))])
        for each, seconds in (([finding], 3.0), ([], 1.0))
    )
    proof = Proof(True, "", ((3.0, 1.0),) * 3, 3.0, 1.0, 3.0, 2.9, 3.1)

    monkeypatch.setattr(running._Fixing, "_record", lambda self: next(records))
    monkeypatch.setattr(running._Fixing, "_prove", lambda self, recorded, version: proof)
    result = fix(script="job.py", folder=str(tmp_path))
    assert [each.proof for each in result.proven] == [proof]
    assert (tmp_path / "job.py").read_text() == SCRIPT
    with get_client(sync_client=True) as client:
        ours = FlowRunFilter(name=FlowRunFilterName(any_=["fix of job.py"]))  # other tests share the server
        names = [run.name for run in client.read_task_runs(flow_run_filter=ours)]
    assert sum(name.startswith("Record") for name in names) == 2
    assert sum(name.startswith("Prove") for name in names) == 1
    (page,) = (each for each in artifacts() if (each["key"] or "").startswith("fix-of-job-py"))
    assert f"-{LOOP}" in page["data"]
    assert result.proven[0].why in page["data"]
    assert "2 s less, 2 s of it: the client, job.py:4" in result.proven[0].why
