"""Scalescope as it is installed, in a project that has folders `flows` and `blocks` of its own, as Prefect's users do.

The wheel is built from this repository, and installed without its dependencies: those are the ones that the tests run
with. Where it cannot be built the tests are skipped, or fail if SCALESCOPE_REQUIRE names environments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.processes import kill_tree

from scalescope.environments import uv
from scalescope.errors import EnvironmentUnavailable

pytestmark = pytest.mark.timeout(280)

ROOT = Path(__file__).parents[2]
OURS = {"scalescope", "scalescope_flows", "scalescope_blocks"}
POOL = "mine"
PATIENCE_S = 120.0

PROJECT = {
    "flows/helpers.py": """
def double(number):
    return 2 * number
""",
    "blocks/mine.py": """
from flows.helpers import double

ANSWER = double(21)
""",
    "flows/mine.py": """
from prefect import flow

import scalescope_flows
from blocks.mine import ANSWER
from flows.helpers import double


@flow
def greet(name: str = "you") -> str:
    assert scalescope_flows.scale_sweep.name == "scale-sweep"
    return f"{name} {ANSWER} {double(1)}"
""",
    "job.py": """
from blocks.mine import ANSWER
from flows.helpers import double


def run(client, *, items: int = 4):
    assert client.gather(client.map(double, range(items))) == [2 * item for item in range(items)]
    return {"answer": ANSWER}
""",
    "test_mine.py": """
import scalescope_blocks
import scalescope_flows
from blocks.mine import ANSWER
from flows.helpers import double


def test_mine():
    assert (ANSWER, double(1)) == (42, 2)
    assert "scale_sweep" in scalescope_flows.__all__
""",
    "prefect.yaml": f"""
name: mine
pull:
  - prefect.deployments.steps.set_working_directory: {{directory: "."}}
deployments:
  - name: greet
    entrypoint: flows.mine.greet
    work_pool: &pool
      name: {POOL}
      job_variables: {{working_dir: "."}}
    parameters: {{name: Ada}}
  - name: sweep
    entrypoint: scalescope_flows.sweep.scale_sweep
    work_pool: *pool
    parameters:
      workload: job.py:run
      axes: {{workers: [2]}}
      params: {{items: 4}}
""",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, missing: Any) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    try:
        uv.run(["build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)], what="the wheel cannot be built")
    except EnvironmentUnavailable as error:
        missing("environments", f"{error.what}: {(error.cause.splitlines() or [error.next_step])[0]}")
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a new environment: Scalescope is installed, all other packages are those of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    scheme = {"base": str(folder), "platbase": str(folder)}
    uv.run(
        ["pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(folder / "bin/python"), str(wheel)],
        what="the wheel cannot be installed",
    )
    # Files .pth in a folder that is itself named in one are not read: an editable installation is not seen.
    there = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    site = Path(sysconfig.get_path("purelib", vars=scheme))
    (site / "of_the_tests.pth").write_text("\n".join(sorted(there)))
    return folder / "bin"


@dataclass(frozen=True)
class Project:
    """A folder of a user, in which programs are run."""

    folder: Path
    programs: Path
    environ: dict[str, str]

    def start(self, program: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.programs / program), *arguments],
            cwd=self.folder,
            env={**self.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, *arguments: str, **environ: str) -> str:
        process = self.start(program, *arguments, **environ)
        shown, said = process.communicate()
        assert process.returncode == 0, f"{shown}\n{said}"
        return shown


@pytest.fixture(scope="module", params=["packages", pytest.param("folders", marks=pytest.mark.thorough)])
def project(request: pytest.FixtureRequest, programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose folders have `__init__.py`, and one without these files."""
    folder = tmp_path_factory.mktemp(request.param)
    for name, text in PROJECT.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        if request.param == "packages" and file.parent != folder:
            (file.parent / "__init__.py").touch()
    return Project(
        folder,
        programs,
        {**clean(), "PREFECT_HOME": str(folder / ".prefect"), "SCALESCOPE_STORE": str(folder / "results.db")},
    )


def clean() -> dict[str, str]:
    """This process' environment without variables that point to packages and servers of the tests."""
    strange = ("PYTHON", "PREFECT_", "SCALESCOPE_", "PYTEST_", "COVERAGE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(strange)}


def test_the_wheel_installs_only_our_own_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name.partition("/") for name in archive.namelist()]
    assert all(slash for _, slash, _ in names), "a module at the top"
    assert {top for top, _, _ in names if not top.endswith(".dist-info")} == OURS


def test_the_wheel_contains_all_files_of_our_packages(wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "scalescope", "flows", "blocks"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is no clone of the repository")
    ours = {name.removeprefix("flows/").removeprefix("blocks/") for name in listed.stdout.splitlines()}
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in ours if (ROOT / name).exists()} <= set(archive.namelist())


@pytest.mark.thorough
def test_a_plain_install_with_the_newest_dependencies_works(wheel: Path, tmp_path: Path) -> None:
    """Without constraints: every supported Python can resolve the dependencies, and a sweep runs on this one."""
    for version in ("3.11", "3.12", "3.13"):
        uv.run(
            ["pip", "compile", "--quiet", "--python-version", version, str(ROOT / "pyproject.toml")],
            what=f"nothing can be installed on Python {version}",
        )
    uv.run(["venv", "--quiet", "--python", sys.executable, str(tmp_path / "new")], what="no environment can be made")
    uv.run(
        ["pip", "install", "--quiet", "--python", str(tmp_path / "new/bin/python"), str(wheel)],
        what="the newest packages cannot be installed",
    )
    sweep = ("sweep", "-w", "futures-map", "-a", "workers=2", "-p", "items=4", "--report", "page.html", "--json")
    done = Project(tmp_path, tmp_path / "new/bin", {**clean(), "SCALESCOPE_STORE": str(tmp_path / "new.db")})
    assert json.loads(done.run("scalescope", *sweep))["trials"] == {"valid": 1, "failed": 0, "invalid": 0}
    assert (tmp_path / "page.html").exists()


def test_an_installed_scalescope_does_not_import_from_the_repository(project: Project) -> None:
    names = ", ".join(sorted(OURS))
    shown = project.run("python", "-c", f"import {names}; print({', '.join(f'{name}.__file__' for name in OURS)})")
    assert shown.count(str(project.programs.parent)) == len(OURS)
    path = project.run("python", "-c", "import sys; print(*sys.path, sep='\\n')").splitlines()
    assert not {str(ROOT), str(ROOT / "flows"), str(ROOT / "blocks")} & set(path)


@pytest.mark.thorough
def test_a_test_of_the_user_runs_with_scalescope_installed(project: Project) -> None:
    assert "1 passed" in project.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py")


def test_a_workload_of_the_user_runs_from_the_command_line(project: Project) -> None:
    shown = json.loads(
        project.run("scalescope", "sweep", "-w", "job.py:run", "-a", "workers=2", "-p", "items=4", "--json")
    )
    assert shown["trials"] == {"valid": 1, "failed": 0, "invalid": 0}


# ------------------------------------------------------------------ a worker


@pytest.fixture(scope="module")
def api(prefect_server: None) -> str:
    """Address of a server with a work pool."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.settings import PREFECT_API_URL

    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
    return str(PREFECT_API_URL.value())


@pytest.fixture(scope="module")
def worker(project: Project, api: str) -> Iterator[subprocess.Popen[str]]:
    """A worker started in the user's folder, with the flows deployed from there."""
    shown = project.run("python", "-m", "prefect", "--no-prompt", "deploy", "--all", PREFECT_API_URL=api)
    assert shown.count("successfully created") == 2
    process = subprocess.Popen(
        [str(project.programs / "python"), "-m", "prefect", "worker", "start", "--pool", POOL],
        cwd=project.folder,
        env={**project.environ, "PREFECT_API_URL": api, "PREFECT_WORKER_QUERY_SECONDS": "1"},
    )
    yield process
    kill_tree(psutil.Process(process.pid))  # all flow runs have ended
    process.wait(30)


@pytest.mark.thorough
def test_a_worker_runs_flows_of_the_user_and_ours(project: Project, worker: subprocess.Popen[str]) -> None:
    from prefect.client.orchestration import get_client
    from prefect.deployments import run_deployment

    runs = [run_deployment(name, timeout=0) for name in ("greet/greet", "scale-sweep/sweep")]
    deadline = time.monotonic() + PATIENCE_S
    with get_client(sync_client=True) as client:
        while not all(run.state and run.state.is_final() for run in runs):
            assert time.monotonic() < deadline, [run.state for run in runs]
            assert worker.poll() is None
            time.sleep(0.5)
            runs = [client.read_flow_run(run.id) for run in runs]
    assert all(run.state.is_completed() for run in runs if run.state), [run.state for run in runs]
    shown = json.loads(project.run("scalescope", "show", "latest", "--json"))
    assert shown["sweep"]["workload"] == "job.py:run"
    assert shown["trials"] == {"valid": 1, "failed": 0, "invalid": 0}
