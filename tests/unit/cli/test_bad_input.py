"""Every kind of bad input gives one clear error, and nothing is started."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scalescope.cli import main as cli
from scalescope.errors import ExitStatus
from scalescope.run.request import check

GOOD = "-w futures-map -a workers=1,2"


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test starts a driver or Prefect, or touches a file of the user."""

    def started(*args: object, **kwargs: object) -> None:
        pytest.fail("something was started")

    monkeypatch.setattr("scalescope.driver.process.Driver.start", started)
    monkeypatch.setattr("scalescope_flows.server.Server", started)
    monkeypatch.setenv("SCALESCOPE_STORE", str(tmp_path / "results.db"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raises.py").write_text("raise RuntimeError('the module is broken')\n")
    (tmp_path / "own.py").write_text("def compute(client, *, rows: int = 1): ...\nnumber = 3\n")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a sweep that is refused; returns its one error."""
    assert cli.run(["sweep", *arguments]) == ExitStatus.USAGE
    output = capsys.readouterr()
    assert output.out == ""
    assert "Traceback" not in output.err
    assert output.err.count("error:") == 1
    return output.err


# what is wrong: the options, then what the error must say: field … value, and what is expected
OPTIONS: dict[str, tuple[str, ...]] = {
    "unknown workload": ("-w futures-mop -a workers=1", "workload: … got 'futures-mop'", "did you mean", "bag-map"),
    "a file without its function": ("-w own.py -a workers=1", "workload: … got 'own.py'", "own.py:compute"),
    "misspelt key of Dask": (
        f"{GOOD} -a distributed.schedulr.worker-saturation=1,2",
        "distributed.schedulr.worker-saturation: unknown name",
        "did you mean 'distributed.scheduler.worker-saturation'?",
        "~/.config/dask",
    ),
    "no workload": ("-a workers=1", "workload: … got None", "the name of a workload", "scalescope workloads"),
    "axis": (f"{GOOD} -a gpus=1", "axes.gpus: unknown name", "cluster, environment, fault", "Dask configuration key"),
    "misspelt axis": ("-w futures-map -a wrokers=1", "axes.wrokers: unknown name", "did you mean 'workers'?"),
    "unknown parameter": (f"{GOOD} -p secs=1", "params.secs: unknown name", "expected one of items, seconds, stages"),
    "wrong type": (f"{GOOD} -p seconds=long", "params.seconds: … got 'long'", "a finite number, at least 0"),
    "negative workers": ("-w futures-map -a workers=-1", "axes.workers: … got -1", "from 1 to 5000"),
    "bool as number": ("-w futures-map -a workers=true", "axes.workers: … got True", "a whole number"),
    "too many workers": ("-w futures-map -a workers=5001", "axes.workers: … got 5001", "from 1 to 5000"),
    "empty axis": ("-w futures-map -a workers=", "--axis workers: … got ''", "FIRST..LAST"),
    "duplicate values": ("-w futures-map -a workers=1,2,1", "axes.workers: … got [1, 2, 1]", "1 is there twice"),
    "duplicate axis": (f"{GOOD} -a workers=3", "--axis: … got 'workers=3'", "'workers' is there twice"),
    "not a number": (f"{GOOD} -a seconds=nan", "axes.seconds[0]: … got nan", "a finite number"),
    "no axis": ("-w futures-map", "axes: … got {}", "at least one axis"),
    "range that goes down": ("-w futures-map -a workers=9..1", "--axis workers: … got '9..1'", "goes up"),
    "parameter without value": (f"{GOOD} -p seconds", "--param: … got 'seconds'", "NAME=VALUE"),
    "unknown cluster": (f"{GOOD} -c slrum", "cluster.kind: … got 'slrum'", "one of custom, gateway, htcondor"),
    "cluster field": (f"{GOOD} -c light --cluster-option host=2", "cluster.host: unknown name", "mean 'hosts'?"),
    "bad cluster value": (f"{GOOD} -c light --cluster-option hosts=-1", "cluster.hosts: … got -1", "from 0 to 64"),
    "option of a saved cluster": (
        f"{GOOD} -c simulated-cluster/prod --cluster-option task_cost=cpu",
        "--cluster-option: … got {'task_cost': 'cpu'}",
        "'simulated-cluster/prod'",
    ),
    "bad choice": (f"{GOOD} --cluster-option task_cost=free", "cluster.task_cost: … got 'free'", "'auto', 'none'"),
    "items twice": (f"{GOOD} -a items_per_worker=1 -p items=4", "axes.items_per_worker: … got 1", "only one of"),
    "no items": ("-w own.py:compute -a items_per_worker=1", "axes.items_per_worker: … got 1", "no parameter 'items'"),
    "bad store": (f"{GOOD} --store mysql://host/db", "store: … got 'mysql://host/db'", "postgresql://"),
    "bad store with password": (f"{GOOD} --store mysql://me:secret@host/db", "store: … got 'mysql://me:***@host/db'"),
    "bad variable with a secret": (
        f"{GOOD} -c kubernetes --cluster-option environment=MY_TOKEN=hunter2-x",
        "cluster.environment: … got 'MY_TOKEN=***'",
    ),
    "repeats 0": (f"{GOOD} --repeats 0", "repeats: … got 0", "from 1 to 1000"),
    "timeout 0": (f"{GOOD} --timeout 0", "trial_timeout_s: … got 0.0", "from 1 to"),
    "parallel in real time": (f"{GOOD} -c light --parallel-clusters 2", "parallel_clusters: … got 2", "real time"),
    "no file": ("-w none.py:compute -a workers=1", "workload: … got 'none.py:compute'", "a file that exists"),
    "no function": ("-w own.py:compte -a workers=1", "workload: … got 'own.py:compte'", "did you mean 'compute'?"),
    "not a function": ("-w own.py:number -a workers=1", "workload: … got 'own.py:number'", "a function"),
    "broken module": ("-w raises.py:compute -a workers=1", "'raises.py:compute'", "RuntimeError: the module is broken"),
    "trials": (f"{GOOD} -a items=1..1000 --repeats 1000", "axes: … got '2000 combinations'", "at most 100000 trials"),
    "missing file": ("none.yaml", "FILE: … got 'none.yaml'", "No such file"),
}


SECRETS = (
    "-c kubernetes --cluster-option environment=MY_TOKEN=hunter2-x",
    "-c kubernetes --cluster-option pull_secrets=Hunter2-x!",
    "-c kubernetes --cluster-option api_key=hunter2-x",
    '-c kubernetes --cluster-option groups=["DB_PASSWORD=hunter2-x"]',
    "-c slurm --cluster-option partition=password=hunter2-x!",
    "-c simulated-cluster/prod --cluster-option token=hunter2-x",
    "-a my_token=hunter2-x",
    "-a environment=https://me:hunter2-x@host",
    "-p password=hunter2-x",
    "--store mysql://me:hunter2-x@host/db",
)


@pytest.mark.parametrize("options", SECRETS)
def test_a_refusal_repeats_nothing_that_looks_like_a_secret(capsys: pytest.CaptureFixture[str], options: str) -> None:
    assert "hunter2" not in run(capsys, *shlex.split(GOOD), *options.split()).lower()


@pytest.mark.parametrize("case", OPTIONS.values(), ids=OPTIONS)
def test_a_sweep_with_bad_options_is_refused_with_one_error(
    capsys: pytest.CaptureFixture[str], case: tuple[str, ...]
) -> None:
    error = run(capsys, *shlex.split(case[0]))
    assert [text for says in case[1:] for text in says.split(" … ") if text not in error] == []


FILES: dict[str, tuple[str, ...]] = {
    "unknown key": ("workload: futures-map\naxis: {workers: [1]}\n", "axis: unknown name", "did you mean 'axes'?"),
    "not YAML": ("workload: [1\n", "FILE: … got 'sweep.yaml'", "valid YAML", "line 2"),
    "a list": ("- workload: futures-map\n", "FILE: … got 'sweep.yaml'", "it holds a list"),
    "a key twice": ("workload: a\nworkload: b\n", "FILE: … got 'sweep.yaml'", "'workload' is there twice"),
    "axes are a list": ("workload: futures-map\naxes: [workers]\n", "axes: … got ['workers']", "a mapping"),
    "axis is a mapping": ("workload: futures-map\naxes: {workers: {from: 1}}\n", "axes.workers: … got {'from': 1}"),
    "range down": ("workload: futures-map\naxes: {workers: 3..1}\n", "axes.workers: … got '3..1'", "goes up"),
    "nested value": ("workload: futures-map\naxes: {workers: [[1]]}\n", "axes.workers[0]: … got [1]", "a number, text"),
    "not a number": ("workload: futures-map\naxes: {seconds: [.nan]}\n", "axes.seconds[0]: … got nan", "finite"),
    "point name": ("workload: futures-map\npoints: [{worker: 1}]\n", "points[0].worker: unknown name", "'workers'"),
    "cluster without kind": ("workload: futures-map\ncluster: {hosts: 2}\n", "cluster.kind: … got None", "simulated"),
    "true": ("workload: futures-map\naxes: {workers: [1]}\nrepeats: yes\n", "repeats: … got True", "a whole number"),
    "too many": ("workload: futures-map\naxes: {workers: [300]}\ncluster: local\n", "axes.workers: … got 300"),
}


@pytest.mark.parametrize("case", FILES.values(), ids=FILES)
def test_a_sweep_file_with_bad_content_is_refused_with_one_error(
    capsys: pytest.CaptureFixture[str], case: tuple[str, ...]
) -> None:
    Path("sweep.yaml").write_text(case[0])
    error = run(capsys, "sweep.yaml")
    assert [text for says in case[1:] for text in says.split(" … ") if text not in error] == []


def test_a_good_request_starts_a_driver(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Proves that the tests above can fail."""

    class Started(Exception):
        pass

    def start(*arguments: Any, **options: Any) -> None:
        raise Started

    monkeypatch.setattr("scalescope.driver.process.Driver.start", start)
    assert cli.run(["sweep", "-w", "futures-map", "-a", "workers=1"]) == ExitStatus.INFRASTRUCTURE
    assert "Started" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["distributed.scheduler.worker_saturation", "distributed.nanny.pre-spawn-environ.MINE", "a-plugin.its.key"]
)
def test_configuration_keys_that_dask_or_a_plugin_may_know_are_accepted(name: str) -> None:
    planned = check({"workload": "futures-map", "axes": {"workers": [1], name: [1]}}).plan
    assert planned[0].point.dask_config == {name: 1}


def test_commands_that_read_a_missing_store_do_not_create_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["show"], ["show", "list"], ["report"], ["trace"]):
        assert cli.run([*command, "--store", str(tmp_path / "none" / "x.db")]) == ExitStatus.INFRASTRUCTURE
        assert "There is no store" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_shells_can_complete_commands() -> None:
    shell = {"_SCALESCOPE_COMPLETE": "complete_bash", "COMP_WORDS": "scalescope find-", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", "from scalescope.cli.main import main; main()"]
    done = subprocess.run(command, env={**os.environ, **shell}, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["find-threshold", "find-release"]
