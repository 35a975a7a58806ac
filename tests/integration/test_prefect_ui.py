"""Prefect's UI in a real browser, with our deployments, a real server and a real worker.

If SCALESCOPE_SCREENSHOTS names a folder, a picture of every step is stored there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from support.browser import chromium
from support.prefect_ui import Ui
from support.site import Site, drivers
from support.waiting import PATIENCE_S, wait_for

SCREENSHOTS = "SCALESCOPE_SCREENSHOTS"
CAUSE = "8 workers asked for, 1 used: Apache Beam puts 128 items in a partition, so 8 items become 1 partition."
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
SMALL = {"Axes": {"workers": [1, 2]}, "Workload parameters": {"items": 4}}

# Two trials end at once, every later one as soon as the file `go` is there.
HELD = """
import time
from pathlib import Path

folder = Path({folder!r})

def step():
    begun = len(list(folder.glob("begun-*")))
    (folder / f"begun-{{begun}}").touch()
    while begun >= 2 and not (folder / "go").exists():
        time.sleep(0.05)

def run(client, *, items: int = 1):
    client.submit(step, pure=False).result()
"""


@dataclass
class Place:
    """A server with our deployments, a worker of its pool, a browser, and a web server for reports."""

    ui: Ui
    api: httpx.Client
    worker: psutil.Process
    site: Site

    def get(self, path: str) -> Any:
        return self.api.get(path).raise_for_status().json()

    def find(self, kind: str, **filters: Any) -> Any:
        return self.api.post(f"{kind}/filter", json=filters).raise_for_status().json()

    def form(self) -> None:
        """Open the form for a run, and wait for its defaults."""
        self.ui.open(f"v2/{self.page}/run")
        self.ui.see("futures-map", '"workers"', '"items"')

    @property
    def deployment(self) -> str:
        """Id of the deployment of sweeps."""
        return str(self.get("deployments/name/scale-sweep/scale-sweep")["id"])

    @property
    def page(self) -> str:
        return f"deployments/deployment/{self.deployment}"

    def submit(self) -> str:
        """Submit the form, and open the page of the run that this makes; its id.

        V2 does nothing at a first press after something was typed that it had refused, nor where the server says 503;
        people press again.
        """
        before = set(self.made())
        deadline = time.monotonic() + PATIENCE_S
        made = None
        while not made:
            assert time.monotonic() < deadline, f"no run was made\n{self.ui.text[-3000:]}"
            self.ui.press("Submit")
            made = self.ui.wait(lambda: set(self.made()) - before, "the run", 10, needed=False)
        [run] = made
        self.ui.open(f"v2/runs/flow-run/{run}")
        return str(run)

    def save(self) -> None:
        """Save the form of a block, with more presses than one, too; the block's page has another address."""
        form = self.ui.driver.current_url
        deadline = time.monotonic() + PATIENCE_S
        while self.ui.driver.current_url == form:
            assert time.monotonic() < deadline, f"it was not saved\n{self.ui.text[-3000:]}"
            self.ui.press("Save")
            self.ui.wait(lambda: self.ui.driver.current_url != form, "the block", 10, needed=False)

    def made(self) -> list[str]:
        """Ids of flow runs without a schedule; the server lists at most 200 runs, and hundreds are scheduled."""
        soon = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()
        found = self.find("flow_runs", flow_runs={"expected_start_time": {"before_": soon}})
        return [each["id"] for each in found if not each["auto_scheduled"]]

    def run(self, id: str) -> Any:
        return self.get(f"flow_runs/{id}")

    def ended(self, id: str, kind: str = "COMPLETED") -> Any:
        """The flow run, once it has ended and its page shows that."""
        self.ui.leave()
        wait_for(lambda: self.run(id)["state"]["type"] in ENDED, f"the run {id} has not ended", look_s=0.5)
        run = self.run(id)
        assert run["state"]["type"] == kind, run["state"]["message"]
        self.ui.open(f"v2/runs/flow-run/{id}")
        self.ui.see(run["state"]["name"])
        log = ("submitted to infrastructure", "Finished in state")  # its first and last lines: a long log shows some
        self.ui.wait(lambda: any(line in self.ui.text for line in log), "the log")
        return run

    def logged(self, id: str) -> list[str]:
        found = self.find("logs", logs={"flow_run_id": {"any_": [id]}}, sort="TIMESTAMP_ASC", limit=200)
        return [each["message"] for each in found]


def fill(ui: Ui, values: Mapping[str, Any]) -> None:
    for label, value in values.items():
        ui.fill(label, value if isinstance(value, str) else json.dumps(value))


@pytest.fixture(scope="module")
def place(site: Site, worker: psutil.Popen, tmp_path_factory: pytest.TempPathFactory, missing: Any) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("ui")
    pictures = Path(os.environ.get(SCREENSHOTS) or folder)
    pictures.mkdir(parents=True, exist_ok=True)
    address = f"http://127.0.0.1:{site.port}"
    with (
        chromium(missing, folder / "chromium", "--window-size=1300,1500") as driver,
        httpx.Client(base_url=f"{address}/api", timeout=30) as api,
    ):
        yield Place(Ui(driver, address, pictures), api, worker, site)


# ------------------------------------------------------------------ a sweep, from the form to its verdict


@pytest.fixture(scope="module")
def sweep(place: Place) -> str:
    """Id of a flow run that was started by filling in the form, and has ended."""
    place.form()
    place.ui.choose("Workload", "beam-pardo")
    place.ui.choose("Cluster", "simulated")
    axes = {"workers": [1, 2, 4, 6, 8], "items_per_worker": [1]}
    fill(place.ui, {"Axes": axes, "Workload parameters": {"seconds": 1, "stages": 2}, "Report file": "report.html"})
    place.ui.picture("form")
    return place.submit()


def test_a_form_filled_with_choices_runs_and_the_page_shows_the_verdict(place: Place, sweep: str) -> None:
    place.ui.see("Finding: ", "beam-pardo on simulated: workers 1..8, items_per_worker 1")
    run = place.ended(sweep)
    place.ui.picture("ended")
    given = run["parameters"]
    assert given["workload"] == "beam-pardo"
    assert given["cluster"] == "simulated"
    assert run["name"].startswith("beam-pardo on simulated")
    assert given["axes"] == {"workers": [1, 2, 4, 6, 8], "items_per_worker": [1]}
    assert {"workload:beam-pardo", "cluster:simulated", "scalescope"} <= set(run["tags"])
    assert CAUSE in run["state"]["message"]
    assert not any("Downloading flow code" in line for line in place.logged(sweep))  # a copy of the worker's folder


def test_the_log_of_a_flow_run_ends_with_the_verdict(place: Place, sweep: str) -> None:
    place.ended(sweep)
    place.ui.press("Logs", on="tab")
    newest = "//*[@role='option'][contains(., 'Newest to oldest')]"
    for _ in range(5):  # the page closes the list when it redraws the log
        place.ui.wait(lambda: place.ui.find("//*[@aria-label='log sort order']"), "the order of the log")[0].click()
        if place.ui.wait(lambda: place.ui.find(newest), "the orders", 10, needed=False):
            break
    place.ui.press("Newest to oldest", on="option")
    logs = "//*[@role='log'][contains(., 'Finished in state')]"  # a task's log, too, until the order is reversed
    [log] = place.ui.wait(lambda: [log for log in place.ui.find(logs) if CAUSE in log.text[:1000]], "the verdict first")
    place.ui.picture("log")
    assert CAUSE in log.text[:1000]


def test_the_artifact_of_a_flow_run_shows_verdict_and_table(place: Place, sweep: str) -> None:
    place.ended(sweep)
    open_artifact(place, sweep)
    place.ui.see("best possible s", "Worker time at 8 workers", "Cluster: simulated, virtual clock.")
    place.ui.picture("artifact")
    assert place.ui.text.count(CAUSE) >= 2  # in the description and in the artifact itself
    assert place.ui.text.count("--dask_npartitions=<number of items>") >= 2  # `<number of items>` is not parsed as HTML


def artifacts(place: Place, run: str) -> Any:
    """The latest artifact of each key: Prefect's client sends an artifact twice if the server was slow."""
    return place.find("artifacts/latest", artifacts={"flow_run_id": {"any_": [run]}, "type": {"any_": ["markdown"]}})


def open_artifact(place: Place, run: str) -> None:
    """Open the artifact from the page of its flow run."""
    [made] = artifacts(place, run)
    place.ui.press("Artifacts", on="tab")
    place.ui.picture("artifacts")
    place.ui.press(made["key"], on="*")
    place.ui.wait(lambda: made["latest_id"] in place.ui.driver.current_url, "the artifact's page")


def test_the_report_can_be_opened_from_the_artifact(place: Place, sweep: str) -> None:
    place.ended(sweep)
    open_artifact(place, sweep)
    place.ui.see(CAUSE)
    link = "//a[contains(@href, 'report')]"
    assert len(place.ui.wait(lambda: place.ui.find(link), "the link")) == 1
    before = place.ui.driver.current_window_handle
    place.ui.click(link, 0, "the link")
    place.ui.driver.switch_to.window(place.ui.driver.window_handles[-1])
    place.ui.see("What ran")
    place.ui.wait(
        lambda: place.ui.driver.execute_script("return document.querySelectorAll('.chart .bk-Figure').length"),
        "a chart",
    )
    place.ui.picture("report")
    if place.ui.driver.current_window_handle != before:
        place.ui.driver.close()
        place.ui.driver.switch_to.window(before)


# ------------------------------------------------------------------ what is refused


def test_the_form_refuses_invalid_numbers_and_axes_before_a_run(place: Place) -> None:
    before = place.made()
    place.form()
    place.ui.fill("Repeats", "0")
    place.ui.press("Submit")
    said = place.ui.wait(lambda: place.ui.field("Repeats").get_property("validationMessage"), "a refusal")
    assert "equal to 1" in said
    place.ui.picture("refused")
    assert place.ui.driver.current_url.endswith("/run")
    place.form()
    fill(place.ui, {"Axes": {"workers": 0}})
    place.ui.press("Submit")
    place.ui.see("less than the minimum of 1")
    place.ui.picture("refused-axis")
    assert place.made() == before


# ------------------------------------------------------------------ cancelled, and retried


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a workload whose third trial waits for the file `go`."""
    folder = tmp_path_factory.mktemp("held")
    (folder / "held.py").write_text(HELD.format(folder=str(folder)))
    return folder


@pytest.fixture(scope="module")
def cancelled(place: Place, held: Path) -> str:
    """Id of a flow run on worker processes that was cancelled in its third trial."""
    place.form()
    place.ui.fill("Workload", f"{held}/held.py:run", tab="Path, module or name")
    place.ui.choose("Cluster", "local")
    fill(place.ui, {"Axes": {"workers": [1]}, "Workload parameters": {"items": 1}})
    place.ui.fill("Repeats", "4")
    run = place.submit()
    place.ui.see("Running", "2/4 ")
    wait_for(lambda: (held / "begun-2").exists(), "the third trial does not begin")
    place.ui.picture("running")
    [driver] = drivers(place.worker)
    tree = [driver, *driver.children(recursive=True)]
    place.ui.menu("Cancel")
    place.ui.picture("cancel")
    place.ui.press("Cancel Flow Run")
    place.ended(run, "CANCELLED")
    place.ui.picture("cancelled")
    _, alive = psutil.wait_procs(tree, timeout=30)
    assert alive == []
    return run


def steps(place: Place, run: str) -> list[tuple[str, str]]:
    found = place.find("task_runs", flow_runs={"id": {"any_": [run]}}, sort="EXPECTED_START_TIME_ASC")
    return [(each["name"], each["state_name"]) for each in found]


@pytest.mark.thorough
def test_cancelling_a_flow_run_leaves_no_driver_and_no_crashed_trial(place: Place, cancelled: str) -> None:
    assert drivers(place.worker) == []
    assert place.run(cancelled)["state"]["type"] == "CANCELLED"
    assert "Crashed" not in {state for _, state in steps(place, cancelled)}


@pytest.mark.thorough
def test_retrying_a_cancelled_flow_run_continues_it(place: Place, held: Path, cancelled: str) -> None:
    before = [name for name, state in steps(place, cancelled) if state == "Measured"]
    assert len(before) == 2
    (held / "go").touch()

    def asked() -> bool:
        """Press Retry; returns False if the server was too busy, then it is pressed again, as people do."""
        place.ui.open(f"v2/runs/flow-run/{cancelled}")
        place.ui.menu("Retry")
        place.ui.press("Retry", on="button")
        return bool(place.ui.wait(lambda: begun() or goes_on(), "", 10, needed=False))

    def begun() -> bool:
        return bool(place.run(cancelled)["run_count"] == 2)

    def goes_on() -> bool:
        return place.run(cancelled)["state"]["type"] not in ENDED

    def runs() -> bool:
        """False if Prefect's worker ended the process again, as it did for the cancellation."""
        wait_for(lambda: begun() or not goes_on(), "it is not run again")
        return begun()

    wait_for(lambda: asked() and runs(), "nobody hears that it is to be run again")
    place.ended(cancelled)
    place.ui.picture("retried")
    measured = [name for name, state in steps(place, cancelled) if state == "Measured"]
    assert any("2 finished before" in line for line in place.logged(cancelled))
    assert len(measured) == len(set(measured)) == 4


# ------------------------------------------------------------------ schedules


def scheduled(place: Place, values: Mapping[str, Any]) -> Any:
    """Make a schedule in the UI, wait for its first run, and remove it."""
    schedules = f"deployments/{place.deployment}/schedules"

    def made() -> Any:
        # SQLite may be locked by Prefect's own services: the server then answers 503, and the UI closes the dialog.
        place.ui.open(f"v2/{place.page}")
        place.ui.press("Schedule")
        place.ui.fill("Value", "10")
        place.ui.choose("Interval", "Seconds")
        fill(place.ui, values)
        place.ui.picture("schedule")
        place.ui.press("Save")
        place.ui.wait(lambda: "Every 10 seconds" in place.ui.text, "the schedule", 10, needed=False)
        return place.get(schedules)

    [schedule] = wait_for(made, "the schedule was not made")
    place.ui.see("Every 10 seconds")
    place.ui.leave()
    begun = {"state": {"type": {"any_": ["RUNNING", *ENDED]}}, "start_time": {"after_": schedule["created"]}}
    ours = {"id": {"any_": [place.deployment]}}
    run = wait_for(lambda: place.find("flow_runs", flow_runs=begun, deployments=ours), "the schedule did not fire")[0]
    # As above: with a schedule go the hundred runs that were made for it.
    wait_for(lambda: place.api.delete(f"{schedules}/{schedule['id']}").is_success, "the schedule is still there")
    assert "auto-scheduled" in run["tags"]
    return run


@pytest.mark.thorough  # test_schedules.py has schedules that fire
def test_a_schedule_created_with_parameters_fires(place: Place) -> None:
    run = scheduled(place, {**SMALL, "Budget": {}})
    assert place.ended(run["id"])["name"].startswith("futures-map on simulated")


@pytest.mark.thorough
def test_a_schedule_with_empty_parameters_fails_with_that_reason(place: Place) -> None:
    run = place.ended(scheduled(place, {})["id"], "FAILED")
    assert run["parameters"]["axes"] == {"__prefect_kind": "json"}
    place.ui.picture("schedule-left-empty")
    assert "stored an empty one" in run["state"]["message"]


# ------------------------------------------------------------------ blocks


@pytest.mark.thorough  # tests/blocks saves and uses each block
def test_a_block_saved_in_its_form_is_used_by_a_named_flow_run(place: Place) -> None:
    place.ui.open("v2/blocks/catalog/simulated-cluster/create")
    place.ui.fill("Name", "quick")
    place.ui.fill("Worker cost per task, µs", "50")
    place.save()
    place.ui.see("Worker cost per task, µs", "50")
    place.ui.picture("block")
    place.form()
    place.ui.fill("Cluster", "simulated-cluster/quick", tab="Saved block or kind")
    fill(place.ui, {"Run Name": "quick workers", **SMALL})
    place.ui.picture("form-with-block")
    run = place.ended(place.submit())
    place.ui.picture("block-used")
    assert run["name"] == "quick workers"
    assert run["parameters"]["cluster"] == "simulated-cluster/quick"
    assert "cluster:simulated" in run["tags"]


def test_the_catalogue_of_blocks_shows_only_those_that_can_be_saved(place: Place) -> None:
    place.ui.open("v2/blocks/catalog")
    place.ui.see("Blocks")
    place.ui.wait(lambda: place.ui.find("//input[@placeholder='Search blocks']"), "search")[0].send_keys("cluster")
    place.ui.wait(lambda: "AWS" not in place.ui.text, "the clusters")

    place.ui.see("Simulated Cluster", "Light Cluster", "Local Cluster", "Slurm Cluster", "SSH Cluster")
    place.ui.picture("catalogue")

    assert "ClusterBlock" not in place.ui.text
