"""Three real nights, with a regression in one package before the third.

uv builds the environments, with wheels of this test besides those of the index. Where they cannot be had the test is
skipped, or fails if SCALESCOPE_REQUIRE names environments.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from support.repository import Repository
from support.waiting import wait_for
from support.wheels import write_wheel

from scalescope.errors import EnvironmentUnavailable
from scalescope.nightly import alerts, missing_nights
from scalescope.nightly.night_record import AlertState, ChangeOutcome, nights
from scalescope.nightly.running import run_nightly
from scalescope.report.table import markdown_text
from scalescope.run.progress import Progress
from scalescope.run.runner import Runner
from scalescope.store.store import Store
from scalescope_flows import nightly

pytestmark = pytest.mark.timeout(280)

WORKLOADS = """
import time

def slow(item):
    import crunch
    time.sleep(0.2)
    crunch.crunch(item)
    return item

def plain(item):
    time.sleep(0.2)
    return item

def uses_it(client, *, items: int = 8):
    client.gather(client.map(slow, range(items), pure=False))

def does_not(client, *, items: int = 8):
    client.gather(client.map(plain, range(items), pure=False))
"""

CRUNCH = """
def crunch(item):
    import time
    time.sleep({seconds})
"""


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("SCALESCOPE_ENVIRONMENTS", str(tmp_path / "environments"))
    return folder


@pytest.fixture
def asked(tmp_path: Path, address: str) -> dict[str, Any]:
    path = tmp_path / "own.py"
    path.write_text(WORKLOADS)
    return {
        "workloads": [f"{path}:uses_it", f"{path}:does_not"],
        "environment": f"distributed=={version('distributed')} crunch",
        "axes": {"workers": [2]},
        "store": address,
    }


def events(name: str) -> list[dict[str, Any]]:
    with get_client(sync_client=True) as client:
        asked = {"filter": {"event": {"name": [name]}, "occurred": {"since": "2020-01-01T00:00:00Z"}}}
        found: list[dict[str, Any]] = client.request("POST", "/events/filter", json=asked).json()["events"]
    return found


@pytest.mark.thorough
@pytest.mark.usefixtures("prefect_server")
def test_a_regression_between_nights_is_confirmed_and_traced_to_its_release(
    wheels: Path, asked: dict[str, Any], address: str, missing: Any
) -> None:
    write_wheel(wheels, "crunch", "1.0", code=CRUNCH.format(seconds=0.1))
    try:
        first = nightly(**asked)
    except EnvironmentUnavailable as error:
        missing("environments", error.line)
    assert not first.alarm
    assert not nightly(**asked).alarm
    write_wheel(wheels, "crunch", "1.1", code=CRUNCH.format(seconds=0.1))
    write_wheel(wheels, "crunch", "1.2", code=CRUNCH.format(seconds=0.4))  # clear on a loaded host
    third = nightly(**asked)
    assert third.alarm

    with Store.open(address) as store:
        found = nights(store)
    assert [len(night.record.measured) for night in found] == [2, 2, 2]
    [judged] = found[-1].record.judged
    assert judged.series.workload.endswith("uses_it")
    assert judged.outcome is ChangeOutcome.CONFIRMED
    [alert] = found[-1].record.alerts
    assert alert.state is AlertState.OPEN
    culprit = alert.culprit
    assert (culprit.package, culprit.good, culprit.bad) == ("crunch", "1.1", "1.2")
    assert "shows the change" in alert.shown, alert.shown
    # the part that grew, the line with it and the package, also in the text of the alert
    assert all(part in judged.why for part in ("`slow`", "own.py:", "crunch 1.0 → 1.2")), judged.why
    assert markdown_text(judged.why) in alerts.issue(alert)
    told = wait_for(lambda: events(alerts.CONFIRMED), "no event has arrived")  # the server stores events with a delay
    [event] = [each for each in told if each["payload"]["night"] == third.study_id]
    assert event["payload"]["culprit"]["bad"] == "1.2"
    assert event["payload"]["script"] == alert.script
    assert alert.script in event["payload"]["issue"]
    assert [each["before"] < each["after"] for each in event["payload"]["series"]] == [True]
    wait_for(
        lambda: len({each["payload"]["night"] for each in events(missing_nights.MEASURED)}) == 3,
        "not all nights have told that they came",
    )


@pytest.mark.thorough
@pytest.mark.usefixtures("wheels")
def test_a_package_from_a_repository_is_traced_to_its_commit(
    tmp_path: Path, asked: dict[str, Any], address: str, missing: Any
) -> None:
    repository = Repository.make(tmp_path / "repository", "crunch")
    asked["environment"] = f"distributed=={version('distributed')} {repository.requirement}@main"
    repository.commit("begin", CRUNCH.format(seconds=0.1))
    try:
        run_nightly(asked)
    except EnvironmentUnavailable as error:
        missing("environments", error.line)
    run_nightly(asked)
    commits = [repository.commit(f"sleep {seconds} s", CRUNCH.format(seconds=seconds)) for seconds in (0.1, 0.2, 0.21)]
    assert run_nightly(asked).alarm
    with Store.open(address) as store:
        [alert] = nights(store)[-1].record.alerts
    culprit = alert.culprit
    assert (culprit.good, culprit.bad) == tuple(f"git+{repository.address}@{commit}" for commit in commits[:2])
    assert "shows the change" in alert.shown, alert.shown


# ------------------------------------------------------------------ without Prefect

COMPUTES = """
import time
from pathlib import Path

def spin(item):
    return sum(range(1_000_000))

def run(client, *, items: int = 8):
    here = Path(__file__).parent
    (here / "begun").touch()
    while not (here / "go").exists():
        time.sleep(0.01)
    client.gather(client.map(spin, range(items), pure=False))
"""


@pytest.mark.thorough
def test_a_night_whose_cpu_was_stolen_blames_the_machine(tmp_path: Path, address: str) -> None:
    path, begun, go = (tmp_path / name for name in ("own.py", "begun", "go"))
    path.write_text(COMPUTES)
    asked = {"workloads": [f"{path}:run"], "clusters": ["local"], "axes": {"workers": [1]}, "rounds": 1}
    go.touch()
    run_nightly({**asked, "store": address})
    for each in (begun, go):
        each.unlink()
    thieves: list[subprocess.Popen[bytes]] = []

    def steal() -> None:
        """Steal CPU once the cluster is up, so much that no other load of this machine matters.

        Each thief is a session of its own: Linux gives each session the same share (autogroup, sched(7)).
        """
        wait_for(begun.exists, "the workload does not begin")
        for _ in range(5 * (os.cpu_count() or 1)):
            thieves.append(subprocess.Popen([sys.executable, "-Sc", "while True: pass"], start_new_session=True))
        go.touch()

    def release(progress: Progress | None = None) -> None:
        """Stop stealing once the counted trial is over."""
        if progress is None or (progress.trial is not None and not progress.trial.warmup):
            for thief in thieves:
                thief.kill()
                thief.wait()

    thread = threading.Thread(target=steal)
    thread.start()
    try:
        result = run_nightly({**asked, "store": address}, Runner(release))
    finally:
        thread.join()
        release()
    assert not result.alarm
    with Store.open(address) as store:
        [judged] = nights(store)[-1].record.judged
    assert judged.after > judged.before
    assert judged.outcome is ChangeOutcome.MACHINE
    assert "look at the machine" in judged.reason
    assert "taken by others" in judged.reason


@pytest.mark.thorough
def test_a_killed_night_is_continued_by_the_same_command(tmp_path: Path, address: str) -> None:
    command = [sys.executable, "-c", "from scalescope.cli.main import main; main()", "nightly", "--no-prefect"]
    command += ["--store", address, "-a", "workers=2", "-w", "futures-map", "-w", "bag-map", "--small"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: _finished(address) == 1, "the first run does not finish")
    finally:
        process.kill()
        process.wait()
    with Store.open(address) as store:
        [killed] = nights(store)
        [finished] = [each for each in store.runs() if each.finished_at]
    assert not killed.study.finished_at
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "No regression. 2 series" in done.stdout
    with Store.open(address) as store:
        [night] = nights(store)
        assert night.id == killed.id
        assert night.study.finished_at
        assert len(night.study.runs) == 2
        assert store.run(finished.id) == finished


def _finished(address: str) -> int:
    if not Path(address).exists():
        return 0
    with Store.open(address) as store:
        return sum(bool(run.finished_at) for run in store.runs())
